"""What a power cut leaves on the simulated disk."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from tests.disk.sim_files import Choose, FaultPlan, SimCrash, SimFiles, Survival

from penstock.disk.files import File, FolderLocked, read_file, write_all, write_file


def no_choice(count: int) -> int:
    raise AssertionError(f"nothing to choose, but asked for one of {count}")


def seeds(count: int = 200) -> Iterator[Choose]:
    for seed in range(count):
        yield Random(seed).randrange


def disk(survival: Survival = Survival.ANYTHING, holes: bool = True) -> SimFiles:
    return SimFiles(FaultPlan(survival, holes=holes))


def durable_file(files: SimFiles, path: str, data: bytes) -> File:
    file = files.create(path)
    write_all(file, [data], 0)
    file.fdatasync()
    files.sync_dir(path.rpartition("/")[0])
    return file


def found(files: SimFiles, path: str) -> bytes | None:
    return read_file(files, path) if files.exists(path) else None


def outcomes(files: SimFiles, path: str) -> set[bytes | None]:
    return {found(files.crash(choose), path) for choose in seeds()}


# --- what is sure ---------------------------------------------------------------------------------


@pytest.mark.parametrize("survival", Survival)
def test_what_was_synced_is_there_whatever_happens(survival: Survival) -> None:
    files = disk(survival)
    files.make_dir("x/y")
    files.sync_dir("")
    files.sync_dir("x")
    durable_file(files, "x/y/a", b"abc")
    assert {repr(files.crash(choose).contents()) for choose in seeds(20)} == {"{'x/y/a': b'abc'}"}


def test_with_nothing_surviving_the_disk_is_as_it_was_synced() -> None:
    files = disk(Survival.NOTHING)
    file = durable_file(files, "a", b"abc")
    file.pwrite([b"X"], 0)
    file.truncate(2)
    files.create("b").close()
    files.make_dir("x")
    files.rename("a", "c")
    assert files.crash(no_choice).contents() == {"a": b"abc"}


def test_with_everything_surviving_the_disk_is_as_it_was_seen() -> None:
    files = disk(Survival.EVERYTHING)
    file = durable_file(files, "a", b"abc")
    file.pwrite([b"X"], 0)
    file.truncate(2)
    files.make_dir("x")
    files.rename("a", "x/c")
    files.create("b").close()
    seen = files.contents()
    assert seen == {"b": b"", "x/c": b"Xb"}
    after = files.crash(no_choice)
    assert after.contents() == seen
    after.plan.survival = Survival.NOTHING
    assert after.crash(no_choice).contents() == seen


def test_the_same_choices_leave_the_same() -> None:
    def story() -> SimFiles:
        files = disk()
        for number in range(10):
            write_all(files.create(f"f{number}"), [b"x" * 100 * number], 0)
        return files

    for seed in range(20):
        one, two = story().crash(Random(seed).randrange), story().crash(Random(seed).randrange)
        assert one.contents() == two.contents()


def test_a_crash_changes_nothing_on_the_disk_it_happens_to() -> None:
    files = disk()
    file = durable_file(files, "a", b"abc")
    file.pwrite([b"XYZ"], 0)
    first = [files.crash(choose).contents() for choose in seeds()]
    assert first == [files.crash(choose).contents() for choose in seeds()]
    assert files.contents() == {"a": b"XYZ"}


# --- bytes ----------------------------------------------------------------------------------------


def test_an_unsynced_overwrite_may_or_may_not_be_there() -> None:
    files = disk(holes=False)
    durable_file(files, "a", b"old").pwrite([b"NEW"], 0)
    assert outcomes(files, "a") == {b"old", b"NEW", b"Nld", b"NEd"}


def test_a_torn_write_keeps_a_prefix() -> None:
    files = disk(holes=False)
    durable_file(files, "a", b"12").pwrite([b"ab", b"c"], 2)
    assert outcomes(files, "a") == {b"12", b"12a", b"12ab", b"12abc"}


def test_any_subset_of_the_unsynced_writes_may_be_there() -> None:
    files = disk(holes=False)
    file = durable_file(files, "a", b"....")
    for place in range(4):
        file.pwrite([b"x"], place)
    assert len(outcomes(files, "a")) == 16


def test_unsynced_writes_that_survive_keep_their_order() -> None:
    files = disk(holes=False)
    file = durable_file(files, "a", b"0")
    for step in b"123":
        file.pwrite([bytes([step])], 0)
    assert outcomes(files, "a") == {b"0", b"1", b"2", b"3"}
    files.plan.survival = Survival.EVERYTHING
    assert found(files.crash(no_choice), "a") == b"3"


def test_an_unsynced_truncate_may_be_lost() -> None:
    files = disk()
    durable_file(files, "a", b"abc").truncate(1)
    assert outcomes(files, "a") == {b"abc", b"a"}


def test_an_unsynced_reserve_may_be_lost() -> None:
    files = disk()
    durable_file(files, "a", b"abc").reserve(5)
    assert outcomes(files, "a") == {b"abc", b"abc\0\0"}


def test_a_later_write_may_survive_without_the_one_before() -> None:
    files = disk(holes=False)
    file = durable_file(files, "a", b"")
    file.pwrite([b"a"], 0)
    file.pwrite([b"b"], 1)
    assert outcomes(files, "a") == {b"", b"a", b"ab", b"\0b"}


def test_a_write_may_miss_sectors_in_its_middle() -> None:
    files = disk()
    durable_file(files, "a", b"").pwrite([b"x" * 1536], 0)
    whole, zeros = b"x" * 512, bytes(512)
    left = outcomes(files, "a")
    assert {whole + zeros + whole, zeros + whole + whole, whole + whole + zeros, zeros * 3} <= left


def test_a_hole_shows_what_was_there_before() -> None:
    files = disk()
    durable_file(files, "a", b"o" * 600).pwrite([b"N" * 100], 480)
    left = outcomes(files, "a")
    assert b"o" * 480 + b"N" * 32 + b"o" * 88 in left
    assert b"o" * 512 + b"N" * 68 + b"o" * 20 in left
    assert all(data is not None and len(data) == 600 for data in left)


def test_synced_writes_are_safe_from_what_happens_to_later_ones() -> None:
    files = disk()
    file = durable_file(files, "a", b"abc")
    file.pwrite([b"def" * 300], 3)
    assert all(data is not None and data.startswith(b"abc") for data in outcomes(files, "a"))


@pytest.mark.parametrize("survival", [Survival.NOTHING, Survival.EVERYTHING])
def test_the_last_write_is_torn_at_the_byte_asked_for(survival: Survival) -> None:
    files = disk(survival)
    other = durable_file(files, "b", b"")
    file = durable_file(files, "a", b"")
    file.pwrite([b"12"], 0)
    other.pwrite([b"zz"], 0)
    file.pwrite([b"abc"], 2)
    files.create("c").close()
    kept = survival is Survival.EVERYTHING
    assert files.last_write == ("a", 2, 3)
    for torn_at in range(4):
        files.plan.torn_at = torn_at
        after = files.crash(no_choice)
        start = b"12" if kept else b"\0\0"
        expected = start + b"abc"[:torn_at] if kept or torn_at else b""
        assert found(after, "a") == expected
        assert found(after, "b") == (b"zz" if kept else b"")
        assert after.exists("c") == kept


def test_a_truncate_after_the_torn_write_still_follows_it() -> None:
    files = disk(Survival.EVERYTHING)
    file = durable_file(files, "a", b"")
    file.pwrite([b"abcdef"], 0)
    file.truncate(2)
    files.plan.torn_at = 4
    assert found(files.crash(no_choice), "a") == b"ab"


def test_a_synced_write_is_not_torn() -> None:
    files = disk(Survival.EVERYTHING)
    durable_file(files, "a", b"abc")
    files.plan.torn_at = 1
    assert found(files.crash(no_choice), "a") == b"abc"


# --- names ----------------------------------------------------------------------------------------


def test_a_created_file_may_vanish_with_its_synced_bytes_until_its_folder_is_synced() -> None:
    files = disk()
    file = files.create("a")
    file.pwrite([b"abc"], 0)
    file.fdatasync()
    assert outcomes(files, "a") == {None, b"abc"}
    # A crash ends a machine, so the rest of the story is another one's.
    files = files.copy()
    files.sync_dir("")
    assert outcomes(files, "a") == {b"abc"}


def test_a_name_may_survive_without_its_bytes() -> None:
    files = disk(holes=False)
    files.create("a").pwrite([b"x"], 0)
    files.sync_dir("")
    assert outcomes(files, "a") == {b"", b"x"}


def test_a_rename_without_a_synced_folder_may_be_lost_but_never_half_done() -> None:
    files = disk()
    durable_file(files, "new", b"new")
    durable_file(files, "name", b"old")
    files.rename("new", "name")
    left = {repr(files.crash(choose).contents()) for choose in seeds(40)}
    assert left == {"{'name': b'new'}", "{'name': b'old', 'new': b'new'}"}


def test_a_rename_does_not_take_the_bytes_along() -> None:
    files = disk(holes=False)
    durable_file(files, "name", b"old")
    files.create("draft").pwrite([b"N"], 0)
    files.rename("draft", "name")
    files.sync_dir("")
    assert outcomes(files, "name") == {b"", b"N"}


def test_a_rename_between_folders_is_whole_until_one_of_them_is_synced() -> None:
    files = disk()
    files.make_dir("x")
    files.sync_dir("")
    durable_file(files, "a", b"a")
    files.rename("a", "x/a")
    left = {tuple(files.crash(choose).contents()) for choose in seeds(40)}
    assert left == {("a",), ("x/a",)}
    files = files.copy()
    files.sync_dir("x")
    left = {tuple(files.crash(choose).contents()) for choose in seeds(40)}
    assert left == {("a", "x/a"), ("x/a",)}


def test_a_file_with_two_names_after_a_crash_is_one_file() -> None:
    files = disk(Survival.NOTHING)
    files.make_dir("x")
    files.sync_dir("")
    durable_file(files, "a", b"a")
    files.rename("a", "x/a")
    files.sync_dir("x")
    files.plan.capacity_bytes = 10
    after = files.crash(no_choice)
    after.open("a").pwrite([b"b"], 0)
    assert after.contents() == {"a": b"b", "x/a": b"b"}
    assert after.free_bytes() == 9


def test_an_unlink_may_be_lost_until_the_folder_is_synced() -> None:
    files = disk()
    durable_file(files, "a", b"abc")
    files.unlink("a")
    assert outcomes(files, "a") == {None, b"abc"}
    files = files.copy()
    files.sync_dir("")
    assert outcomes(files, "a") == {None}


def test_each_name_is_lost_or_kept_on_its_own() -> None:
    files = disk()
    for name in "abc":
        files.create(name).close()
    assert len({tuple(files.crash(choose).contents()) for choose in seeds()}) == 8


def test_a_folder_may_be_lost_with_all_that_was_synced_in_it() -> None:
    files = disk()
    files.make_dir("x/y")
    durable_file(files, "x/y/a", b"abc")
    files.sync_dir("x")
    assert outcomes(files, "x/y/a") == {None, b"abc"}
    files = files.copy()
    files.sync_dir("")
    assert outcomes(files, "x/y/a") == {b"abc"}


def test_a_removed_folder_may_come_back_with_any_part_of_what_was_in_it() -> None:
    files = disk()
    files.make_dir("x")
    files.sync_dir("")
    durable_file(files, "x/a", b"a")
    durable_file(files, "x/b", b"b")
    files.remove_dir("x")
    files.make_dir("x")
    files.create("x/c").close()
    left = {tuple(files.crash(choose).contents()) for choose in seeds()}
    assert {(), ("x/a",), ("x/b",), ("x/a", "x/b"), ("x/c",)} <= left
    files = files.copy()
    files.sync_dir("")
    left = {tuple(files.crash(choose).contents()) for choose in seeds()}
    assert left == {(), ("x/c",)}


def test_a_small_file_that_is_replaced_is_the_old_or_the_new_one_at_every_crash_point() -> None:
    start = disk()
    write_file(start, "a", b"old")
    trial = start.copy()
    write_file(trial, "a", b"new")
    assert [name for name, _ in trial.calls] == ["unlink", "create", "pwrite", "fdatasync", "rename", "sync_dir"]
    left = set()
    for number in trial.crash_points():
        for after in (False, True):
            for choose in seeds(20):
                files = start.copy()
                files.plan.crash_at, files.plan.crash_after = number, after
                with pytest.raises(SimCrash):
                    write_file(files, "a", b"new")
                left.add(found(files.crash(choose), "a"))
    assert left == {b"old", b"new"}


# --- lives ----------------------------------------------------------------------------------------


def test_old_handles_are_dead_after_a_crash() -> None:
    files = disk()
    file = files.create("a")
    files.crash(lambda count: 0)
    for use in (file.size, file.fdatasync, lambda: file.pread(1, 0), lambda: file.pwrite([b"x"], 0)):
        with pytest.raises(SimCrash):
            use()
    with pytest.raises(SimCrash):
        files.open("a")
    file.close()


def test_a_killed_process_leaves_its_writes_and_they_are_still_not_durable() -> None:
    files = disk(Survival.NOTHING)
    file = durable_file(files, "a", b"abc")
    file.pwrite([b"d"], 3)
    files.create("b").close()
    after = files.kill()
    with pytest.raises(SimCrash):
        file.size()
    assert after.contents() == {"a": b"abcd", "b": b""}
    assert after.durable_bytes("a") == b"abc"
    after.open("a").fdatasync()
    assert after.crash(no_choice).contents() == {"a": b"abcd"}


def test_the_lock_is_free_for_the_next_life_and_not_for_a_second_process() -> None:
    files = disk()
    files.lock("lock")
    with pytest.raises(FolderLocked):
        files.lock("lock")
    assert files.copy().lock("lock")
    killed = files.kill()
    killed.lock("lock")
    assert killed.crash(lambda count: 0).lock("lock")


def test_branches_do_not_see_each_other() -> None:
    files = disk(Survival.EVERYTHING)
    file = durable_file(files, "a", b"abc")
    file.pwrite([b"d"], 3)
    branch = files.copy()
    branch_file = branch.open("a")
    branch_file.pwrite([b"B"], 0)
    branch_file.fdatasync()
    branch.create("b").close()
    branch.unlink("a")
    file.pwrite([b"F"], 0)
    assert files.contents() == {"a": b"Fbcd"}
    assert files.durable_bytes("a") == b"abc"
    assert branch.contents() == {"b": b""}
    assert branch.crash(no_choice).contents() == {"b": b""}
    assert files.crash(no_choice).contents() == {"a": b"Fbcd"}
    files.plan.survival = Survival.NOTHING
    assert files.crash(no_choice).contents() == {"a": b"abc"}


def test_damage_to_the_old_disk_does_not_reach_the_new_one() -> None:
    files = disk()
    durable_file(files, "a", b"abc")
    after = files.crash(no_choice)
    files.flip("a", 0, 1)
    assert after.contents() == {"a": b"abc"}
    after.flip("a", 0, 0)
    assert files.contents() == {"a": b"cbc"}


def test_the_nature_of_the_disk_lasts_and_planned_faults_do_not() -> None:
    files = SimFiles(FaultPlan(Survival.NOTHING, torn_at=1, holes=False, crash_at=9, capacity_bytes=10))
    files.plan.fail(5)
    plan = files.kill().plan
    assert (plan.survival, plan.holes, plan.capacity_bytes) == (Survival.NOTHING, False, 10)
    assert (plan.torn_at, plan.crash_at, plan.faults) == (None, 0, [])


def test_a_copy_has_the_pending_changes_of_names_too() -> None:
    files = disk(Survival.NOTHING)
    files.make_dir("x")
    files.sync_dir("")
    durable_file(files, "a", b"a")
    files.rename("a", "x/b")
    files.make_dir("y/z")
    files.copy().sync_dir("")
    branch = files.copy()
    branch.sync_dir("x")
    assert branch.crash(no_choice).contents() == {"a": b"a", "x/b": b"a"}
    assert files.crash(no_choice).contents() == {"a": b"a"}


def test_unchanged_files_are_shared_by_a_crash_and_a_copy() -> None:
    files = disk()
    durable_file(files, "a", bytes(1000))
    after = files.crash(no_choice)
    assert after.disk.file("a").durable is files.disk.file("a").durable
    assert after.copy().disk.file("a").seen is after.disk.file("a").seen


@pytest.mark.parametrize("seed", range(30))
def test_chains_of_lives_never_lose_what_was_synced(seed: int) -> None:
    random = Random(seed)
    files = disk()
    # By path: what is durable, and what it may also be. The names are durable from the start.
    sure: dict[str, bytes] = {}
    for name in ("a", "b"):
        durable_file(files, name, b"").close()
        sure[name] = b""
    for _ in range(20):
        handles = {name: files.open(name) for name in sure}
        for _ in range(random.randrange(6)):
            name = random.choice("ab")
            handles[name].pwrite([random.randbytes(random.randrange(1, 1200))], handles[name].size())
            if random.random() < 0.4:
                handles[name].fdatasync()
                sure[name] = files.contents()[name]
        files = files.kill() if random.random() < 0.2 else files.crash(random.randrange)
        for name, data in files.contents().items():
            assert data.startswith(sure[name])
            assert files.durable_bytes(name).startswith(sure[name])
    assert files.list_dir("") == ["a", "b"]
