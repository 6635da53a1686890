"""What every `Files` promises: the real disk and the simulated one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.disk.sim_files import SimFiles

from penstock.disk.files import Files, FolderLocked, read_file, write_all, write_file
from penstock.disk.os_files import OsFiles


def simulated(_: Path) -> Files:
    return SimFiles()


@pytest.fixture(params=[OsFiles, simulated], ids=["os", "sim"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    make: Callable[[Path], Files] = request.param
    return make(tmp_path)


def test_bytes_are_read_where_they_were_written(files: Files) -> None:
    file = files.create("a")
    assert file.pwrite([b"one", b"", b"two"], 0) == 6
    assert file.pwrite([b"N"], 1) == 1
    assert file.pread(100, 0) == b"oNetwo"
    assert file.pread(2, 3) == b"tw"
    assert file.size() == 6


def test_a_read_ends_at_the_end_of_the_file(files: Files) -> None:
    file = files.create("a")
    file.pwrite([b"abc"], 0)
    assert file.pread(5, 1) == b"bc"
    assert file.pread(5, 3) == b""
    assert file.pread(5, 9) == b""
    assert file.pread(0, 0) == b""


def test_a_write_behind_the_end_leaves_zeros_between(files: Files) -> None:
    file = files.create("a")
    file.pwrite([b"x"], 3)
    assert file.pread(9, 0) == b"\0\0\0x"


def test_nothing_written_changes_nothing(files: Files) -> None:
    file = files.create("a")
    assert file.pwrite([], 0) == 0
    assert file.pwrite([b""], 7) == 0
    assert file.size() == 0


def test_more_pieces_than_the_system_takes_are_written(files: Files) -> None:
    file = files.create("a")
    pieces = [b"%04d" % number for number in range(2500)]
    assert write_all(file, pieces, 8) == 8 + 4 * 2500
    assert file.pread(20_000, 8) == b"".join(pieces)


def test_a_piece_that_changes_later_is_written_as_it_was(files: Files) -> None:
    file = files.create("a")
    piece = bytearray(b"abc")
    file.pwrite([piece], 0)  # type: ignore[list-item]
    piece[0] = 0
    assert file.pread(3, 0) == b"abc"


def test_truncate_cuts_and_lengthens(files: Files) -> None:
    file = files.create("a")
    file.pwrite([b"abcdef"], 0)
    file.truncate(2)
    file.truncate(4)
    assert file.pread(9, 0) == b"ab\0\0"


def test_reserve_lengthens_and_never_cuts(files: Files) -> None:
    file = files.create("a")
    file.pwrite([b"abc"], 0)
    file.reserve(6)
    assert file.pread(9, 0) == b"abc\0\0\0"
    file.reserve(0)
    file.reserve(2)
    assert file.size() == 6


def test_what_was_synced_is_still_there(files: Files) -> None:
    file = files.create("a")
    file.pwrite([b"abc"], 0)
    file.fdatasync()
    file.fdatasync()
    files.sync_dir("")
    file.close()
    assert read_file(files, "a") == b"abc"


def test_two_handles_see_the_same_bytes(files: Files) -> None:
    one, two = files.create("a"), files.open("a")
    one.pwrite([b"abc"], 0)
    two.pwrite([b"X"], 1)
    assert one.pread(9, 0) == two.pread(9, 0) == b"aXc"
    assert one.path == two.path == "a"


def test_a_closed_file_is_of_no_use_and_may_be_closed_again(files: Files) -> None:
    file = files.create("a")
    file.close()
    file.close()
    with pytest.raises(OSError, match=r"."):
        file.size()
    with pytest.raises(OSError, match=r"."):
        file.pwrite([b"x"], 0)
    with pytest.raises(OSError, match=r"."):
        file.fdatasync()


def test_open_wants_a_file_unless_it_may_make_one(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("a")
    files.open("a", create=True).pwrite([b"x"], 0)
    assert files.open("a", create=True).pread(9, 0) == b"x"
    assert files.open("a").size() == 1


def test_create_wants_no_file(files: Files) -> None:
    files.create("a").close()
    with pytest.raises(FileExistsError):
        files.create("a")


def test_files_are_not_made_in_folders_that_are_not_there(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.create("folder/a")
    with pytest.raises(FileNotFoundError):
        files.open("folder/a", create=True)
    assert not files.exists("folder")


def test_a_folder_is_not_opened_and_not_unlinked(files: Files) -> None:
    files.make_dir("folder")
    with pytest.raises(IsADirectoryError):
        files.open("folder")
    with pytest.raises(OSError, match=r"."):
        files.unlink("folder")
    assert files.exists("folder")


def test_folders_are_made_with_those_above(files: Files) -> None:
    files.make_dir("a/b/c")
    files.make_dir("a/b/c")
    files.make_dir("")
    assert files.list_dir("a/b") == ["c"]
    assert files.exists("a/b")
    assert not files.exists("a/c")


def test_a_file_does_not_become_a_folder(files: Files) -> None:
    files.create("a").close()
    with pytest.raises(FileExistsError):
        files.make_dir("a")
    with pytest.raises(FileExistsError):
        files.make_dir("a/b")
    with pytest.raises(NotADirectoryError):
        files.list_dir("a")


def test_names_are_listed_in_order(files: Files) -> None:
    files.make_dir("x/2")
    for name in ("3", "1", "10"):
        files.create(f"x/{name}").close()
    assert files.list_dir("x") == ["1", "10", "2", "3"]
    assert files.list_dir("nowhere") == []
    assert files.list_dir("") == ["x"]


def test_a_rename_replaces_what_was_there(files: Files) -> None:
    write_all(files.create("old"), [b"old"], 0)
    write_all(files.create("new"), [b"new"], 0)
    files.rename("new", "old")
    assert read_file(files, "old") == b"new"
    assert files.list_dir("") == ["old"]


def test_a_rename_moves_between_folders_and_onto_itself(files: Files) -> None:
    files.make_dir("x")
    write_all(files.create("a"), [b"a"], 0)
    files.rename("a", "x/b")
    files.rename("x/b", "x/b")
    assert read_file(files, "x/b") == b"a"
    assert files.list_dir("") == ["x"]


def test_a_rename_wants_a_file_and_a_folder(files: Files) -> None:
    files.create("a").close()
    with pytest.raises(FileNotFoundError):
        files.rename("b", "c")
    with pytest.raises(FileNotFoundError):
        files.rename("a", "x/a")
    assert files.list_dir("") == ["a"]


def test_an_open_file_outlives_its_name(files: Files) -> None:
    file = files.create("a")
    file.pwrite([b"abc"], 0)
    files.unlink("a")
    files.unlink("a")
    files.unlink("nowhere/a")
    file.pwrite([b"d"], 3)
    file.fdatasync()
    assert file.pread(9, 0) == b"abcd"
    assert not files.exists("a")
    file.close()


def test_a_name_that_is_used_again_stands_for_a_new_file(files: Files) -> None:
    old = files.create("a")
    old.pwrite([b"old"], 0)
    files.unlink("a")
    new = files.create("a")
    assert new.size() == 0
    assert old.size() == 3


def test_a_folder_is_removed_with_everything_in_it(files: Files) -> None:
    files.make_dir("x/y/z")
    files.create("x/a").close()
    files.create("x/y/z/b").close()
    files.create("kept").close()
    files.remove_dir("x/y")
    assert files.list_dir("x") == ["a"]
    files.remove_dir("x")
    files.remove_dir("x")
    assert files.list_dir("") == ["kept"]
    files.make_dir("x/y")
    assert files.list_dir("x/y") == []


def test_a_file_is_not_removed_as_a_folder(files: Files) -> None:
    files.create("a").close()
    with pytest.raises(NotADirectoryError):
        files.remove_dir("a")
    assert files.exists("a")


def test_folders_that_are_there_can_be_synced(files: Files) -> None:
    files.make_dir("x/y")
    files.sync_dir("x/y")
    files.sync_dir("")
    with pytest.raises(FileNotFoundError):
        files.sync_dir("z")


def test_a_folder_is_locked_once(files: Files) -> None:
    lock = files.lock("lock")
    with pytest.raises(FolderLocked, match="lock is locked by"):
        files.lock("lock")
    lock.release()
    lock.release()
    again = files.lock("lock")
    assert files.exists("lock")
    lock.release()
    with pytest.raises(FolderLocked):
        files.lock("lock")
    again.release()


def test_one_can_look_whether_a_folder_is_locked_without_touching_it(files: Files) -> None:
    assert not files.is_locked("lock")
    assert not files.exists("lock")
    lock = files.lock("lock")
    written = read_file(files, "lock")
    assert files.is_locked("lock")
    lock.release()
    assert not files.is_locked("lock")
    assert read_file(files, "lock") == written


def test_there_is_room(files: Files) -> None:
    assert files.free_bytes() > 0


@pytest.mark.parametrize("path", ["/a", "../a", "x/../a", "x/..", "..", "x//a", "x/", "./a", "x\\a", "c:a"])
def test_a_path_that_may_lead_elsewhere_is_a_mistake(files: Files, path: str) -> None:
    for call in (files.open, files.create, files.make_dir, files.list_dir, files.exists, files.unlink, files.lock):
        with pytest.raises(AssertionError):
            call(path)
    for call in (files.remove_dir, files.sync_dir):
        with pytest.raises(AssertionError):
            call(path)
    with pytest.raises(AssertionError):
        files.rename(path, "a")
    with pytest.raises(AssertionError):
        files.rename("a", path)


def test_the_folder_itself_is_not_removed(files: Files) -> None:
    with pytest.raises(AssertionError):
        files.remove_dir("")
    assert files.exists("")


def test_a_small_file_is_replaced_whole(files: Files) -> None:
    files.make_dir("x")
    write_file(files, "x/a", b"one")
    write_all(files.create("x/a.tmp"), [b"left by a crash"], 0)
    write_file(files, "x/a", b"2")
    assert read_file(files, "x/a") == b"2"
    assert files.list_dir("x") == ["a"]
