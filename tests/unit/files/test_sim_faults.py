"""Calls of the simulated disk that fail, disks that are full or rotten, and the count of calls."""

from __future__ import annotations

import errno

import pytest
from tests.disk.sim_files import FaultPlan, SimCrash, SimFiles, Survival

from penstock.disk.files import read_file, write_all


def failing(error: int) -> str:
    return f"simulated {errno.errorcode[error]}"


# --- calls that fail ------------------------------------------------------------------------------


def test_the_nth_call_of_any_kind_fails_once() -> None:
    files = SimFiles()
    files.plan.fail(errno.ENOMEM, nth=3)
    file = files.create("a")
    file.pwrite([b"abc"], 0)
    with pytest.raises(OSError, match=failing(errno.ENOMEM)) as failed:
        file.pread(3, 0)
    assert failed.value.errno == errno.ENOMEM
    assert failed.value.filename == "a"
    assert file.pread(3, 0) == b"abc"


def test_the_nth_call_of_a_name_fails_and_all_that_follow() -> None:
    files = SimFiles()
    files.plan.fail(errno.ENOSPC, "pwrite", nth=2, forever=True)
    file = files.create("a")
    assert file.pwrite([b"a"], 0) == 1
    for _ in range(3):
        with pytest.raises(OSError, match=failing(errno.ENOSPC)):
            file.pwrite([b"b"], 1)
    assert file.pread(9, 0) == b"a"
    files.plan.heal()
    assert file.pwrite([b"b"], 1) == 1


def test_a_fault_may_be_about_some_paths_only() -> None:
    files = SimFiles()
    files.plan.fail(errno.EIO, "create", path="x/", nth=2)
    files.make_dir("x")
    files.create("x/1").close()
    files.create("y").close()
    with pytest.raises(OSError, match=failing(errno.EIO)):
        files.create("x/2")
    assert files.list_dir("x") == ["1"]


def test_of_two_faults_on_one_call_the_first_strikes_and_both_have_counted() -> None:
    files = SimFiles()
    files.plan.fail(errno.EIO)
    files.plan.fail(errno.ENOSPC)
    with pytest.raises(OSError, match=failing(errno.EIO)):
        files.create("a")
    assert files.create("a").size() == 0


CALLS = {
    "open": lambda files: files.open("f"),
    "create": lambda files: files.create("new"),
    "make_dir": lambda files: files.make_dir("new"),
    "list_dir": lambda files: files.list_dir("x"),
    "exists": lambda files: files.exists("f"),
    "rename": lambda files: files.rename("f", "g"),
    "unlink": lambda files: files.unlink("f"),
    "remove_dir": lambda files: files.remove_dir("x"),
    "sync_dir": lambda files: files.sync_dir("x"),
    "lock": lambda files: files.lock("lock"),
    "free_bytes": lambda files: files.free_bytes(),
    "pwrite": lambda files: files.open("f").pwrite([b"X"], 0),
    "pread": lambda files: files.open("f").pread(1, 0),
    "size": lambda files: files.open("f").size(),
    "truncate": lambda files: files.open("f").truncate(0),
    "reserve": lambda files: files.open("f").reserve(100),
    "fdatasync": lambda files: files.open("f").fdatasync(),
}


def disk_with_a_file() -> SimFiles:
    files = SimFiles()
    files.make_dir("x")
    write_all(files.create("f"), [b"abc"], 0)
    return files.copy()


@pytest.mark.parametrize("name", CALLS)
def test_every_call_can_fail_and_changes_nothing_then(name: str) -> None:
    files = disk_with_a_file()
    files.plan.fail(errno.EIO, name, forever=True)
    with pytest.raises(OSError, match=f"in {name}"):
        CALLS[name](files)
    files.plan.heal()
    assert files.contents() == {"f": b"abc"}
    assert files.list_dir("") == ["f", "x"]
    CALLS[name](files)
    assert files.calls[-1][0] == name, "it fails once"


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_logged_and_can_be_the_last_before_it_or_after(name: str) -> None:
    trial = disk_with_a_file()
    CALLS[name](trial)
    number = len(trial.calls)
    assert trial.calls[-1][0] == name
    for after in (False, True):
        files = disk_with_a_file()
        files.plan.crash_at, files.plan.crash_after = number, after
        with pytest.raises(SimCrash):
            CALLS[name](files)
        assert len(files.calls) == number
        assert files.is_dead
        expected = trial if after else disk_with_a_file()
        assert files.contents() == expected.contents()
        with pytest.raises(SimCrash):
            files.exists("f")


def test_a_crash_is_no_error_that_anybody_handles() -> None:
    files = SimFiles(FaultPlan(crash_at=2))
    file = files.create("a")

    def write_and_handle() -> None:
        try:
            file.pwrite([b"x"], 0)
        except Exception:
            file.truncate(0)
        finally:
            file.close()

    with pytest.raises(SimCrash, match="before call 2: pwrite a"):
        write_and_handle()
    assert files.contents() == {"a": b""}


def test_a_crash_after_a_call_that_fails_comes_all_the_same() -> None:
    files = SimFiles(FaultPlan(crash_at=1, crash_after=True))
    with pytest.raises(FileNotFoundError):
        files.open("a")
    with pytest.raises(SimCrash):
        files.create("b")
    assert files.contents() == {}


def test_crash_points_leave_out_what_changes_nothing() -> None:
    files = SimFiles()
    file = files.create("a")
    file.size()
    file.pwrite([b"x"], 0)
    file.pread(1, 0)
    file.fdatasync()
    files.exists("a")
    files.sync_dir("")
    file.close()
    assert files.crash_points() == [1, 3, 5, 7]
    assert files.calls[2] == ("pwrite", "a")


# --- writes and syncs that go wrong ---------------------------------------------------------------


def test_a_short_write_is_told_and_gone_on_with() -> None:
    files = SimFiles()
    files.plan.short_write(2, nth=2)
    file = files.create("a")
    assert file.pwrite([b"12"], 0) == 2
    assert file.pwrite([b"abc", b"def"], 2) == 2
    assert file.pread(99, 0) == b"12ab"
    assert file.pwrite([b"cdef"], 4) == 4


def test_write_all_lives_with_writes_that_are_always_short() -> None:
    files = SimFiles()
    files.plan.short_write(1, forever=True)
    file = files.create("a")
    assert write_all(file, [b"abc", b"def"], 0) == 6
    assert file.pread(9, 0) == b"abcdef"


def test_write_all_gives_up_when_nothing_is_written() -> None:
    files = SimFiles()
    files.plan.short_write(2)
    files.plan.short_write(0, nth=2)
    file = files.create("a")
    with pytest.raises(OSError, match="nothing more could be written to a"):
        write_all(file, [b"abc"], 0)
    assert file.pread(9, 0) == b"ab"


def test_a_failed_write_may_leave_a_part() -> None:
    files = SimFiles()
    files.plan.short_write(2, error=errno.EIO)
    file = files.create("a")
    with pytest.raises(OSError, match=failing(errno.EIO)):
        file.pwrite([b"abc"], 0)
    assert file.pread(9, 0) == b"ab"


def test_a_failed_sync_loses_the_bytes_and_the_next_one_says_that_all_is_well() -> None:
    files = SimFiles(FaultPlan(Survival.EVERYTHING))
    file = files.create("a")
    file.pwrite([b"old"], 0)
    file.fdatasync()
    file.pwrite([b"new"], 0)
    files.plan.fail(errno.EIO, "fdatasync")
    with pytest.raises(OSError, match=failing(errno.EIO)):
        file.fdatasync()
    file.fdatasync()
    assert file.pread(3, 0) == b"new"
    assert files.durable_bytes("a") == b"old"
    assert files.crash(lambda count: 0).contents() == {"a": b"old"}


def test_a_failed_sync_of_a_folder_leaves_its_names_open() -> None:
    files = SimFiles(FaultPlan(Survival.NOTHING))
    files.create("a").close()
    files.plan.fail(errno.EIO, "sync_dir")
    with pytest.raises(OSError, match=failing(errno.EIO)):
        files.sync_dir("")
    assert files.copy().crash(lambda count: 0).contents() == {}
    files.sync_dir("")
    assert files.crash(lambda count: 0).contents() == {"a": b""}


# --- a full disk ----------------------------------------------------------------------------------


def test_a_disk_takes_what_fits_and_is_full_then() -> None:
    files = SimFiles(FaultPlan(capacity_bytes=5))
    file = files.create("a")
    assert file.pwrite([b"abc"], 0) == 3
    assert files.free_bytes() == 2
    assert file.pwrite([b"defg"], 3) == 2
    assert files.free_bytes() == 0
    with pytest.raises(OSError, match="no room") as full:
        file.pwrite([b"f"], 5)
    assert full.value.errno == errno.ENOSPC
    assert file.pread(9, 0) == b"abcde"


def test_bytes_that_have_their_room_can_be_overwritten_on_a_full_disk() -> None:
    files = SimFiles(FaultPlan(capacity_bytes=6))
    file = files.create("a")
    file.reserve(6)
    assert files.free_bytes() == 0
    assert file.pwrite([b"abcdef"], 0) == 6
    file.reserve(3)
    assert files.free_bytes() == 0
    with pytest.raises(OSError, match="no room"):
        file.reserve(7)
    with pytest.raises(OSError, match="no room"):
        files.create("b").pwrite([b"x"], 0)
    assert file.size() == 6


def test_room_comes_back_by_truncate_and_unlink() -> None:
    files = SimFiles(FaultPlan(capacity_bytes=10))
    files.make_dir("x")
    file = files.create("x/a")
    file.pwrite([b"x" * 10], 0)
    file.truncate(4)
    assert files.free_bytes() == 6
    files.unlink("x/a")
    assert files.free_bytes() == 6, "the handle still holds it"
    file.close()
    assert files.free_bytes() == 10


def test_room_comes_back_by_a_rename_over_a_file_and_with_a_folder() -> None:
    files = SimFiles(FaultPlan(capacity_bytes=10))
    files.make_dir("x/y")
    for name, size in (("x/a", 4), ("x/y/b", 3), ("c", 2)):
        file = files.create(name)
        file.pwrite([bytes(size)], 0)
        file.close()
    files.rename("c", "c")
    assert files.free_bytes() == 1
    files.rename("c", "x/a")
    assert files.free_bytes() == 5
    files.remove_dir("x")
    assert files.free_bytes() == 10


def test_a_lengthened_file_takes_no_room_until_it_is_written() -> None:
    files = SimFiles(FaultPlan(capacity_bytes=10))
    file = files.create("a")
    file.truncate(1000)
    assert files.free_bytes() == 10
    assert file.pwrite([b"abc"], 0) == 3
    assert files.free_bytes() == 7


def test_the_room_is_counted_again_in_the_next_life() -> None:
    files = SimFiles(FaultPlan(Survival.NOTHING, capacity_bytes=10))
    file = files.create("a")
    file.pwrite([b"abc"], 0)
    file.fdatasync()
    file.pwrite([b"defg"], 3)
    files.sync_dir("")
    assert files.copy().free_bytes() == 3
    files.unlink("a")
    assert files.crash(lambda count: 0).free_bytes() == 7


def test_the_disk_may_shrink_and_grow_while_it_is_used() -> None:
    files = SimFiles()
    file = files.create("a")
    file.pwrite([b"abc"], 0)
    files.plan.capacity_bytes = 2
    assert files.free_bytes() == 0
    with pytest.raises(OSError, match="no room"):
        file.pwrite([b"d"], 3)
    files.plan.capacity_bytes = 4
    assert file.pwrite([b"de"], 3) == 1


# --- damage ---------------------------------------------------------------------------------------


def rotten(files: SimFiles) -> SimFiles:
    """Seen at once, and after a crash."""
    seen = files.contents()
    after = files.crash(lambda count: 0)
    assert after.contents() == seen
    return after


def synced_disk() -> SimFiles:
    files = SimFiles()
    for name, data in (("a", b"abcdef"), ("b", b"B")):
        file = files.create(name)
        file.pwrite([data], 0)
        file.fdatasync()
    files.sync_dir("")
    return files


def test_a_bit_flips() -> None:
    files = synced_disk()
    branch = files.copy()
    files.flip("a", 1, 0)
    files.flip("b", 0, 7)
    assert rotten(files).contents() == {"a": b"accdef", "b": b"\xc2"}
    assert branch.contents() == {"a": b"abcdef", "b": b"B"}


def test_a_block_turns_to_zeros() -> None:
    files = synced_disk()
    files.zero_block("a", 2, 3)
    files.zero_block("b", 0)
    assert rotten(files).contents() == {"a": b"ab\0\0\0f", "b": b"\0"}


def test_a_file_loses_its_end() -> None:
    files = synced_disk()
    files.truncate_durable("a", 2)
    assert rotten(files).contents() == {"a": b"ab", "b": b"B"}


def test_a_file_is_gone() -> None:
    files = synced_disk()
    files.create("c").close()
    files.delete("a")
    files.delete("c")
    assert rotten(files).contents() == {"b": b"B"}


def test_two_files_are_swapped() -> None:
    files = synced_disk()
    files.swap("a", "b")
    assert read_file(files, "a") == b"B"
    assert rotten(files).contents() == {"a": b"B", "b": b"abcdef"}
