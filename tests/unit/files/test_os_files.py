"""What only the files of this machine have: modes, descriptors, processes."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.disk import os_files
from penstock.disk.files import FolderLocked, write_all
from penstock.disk.os_files import OsFile, OsFiles, sync_descriptor

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@posix
def test_folders_and_files_are_for_the_owner_only(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        files = OsFiles(tmp_path / "above" / "data")
        files.make_dir("x/y")
        files.create("x/a").close()
        files.open("x/b", create=True).close()
        files.lock("lock").release()
    finally:
        os.umask(old_mask)
    data = tmp_path / "above" / "data"
    assert {mode_of(path) for path in (data.parent, data, data / "x", data / "x/y")} == {0o700}
    assert {mode_of(path) for path in (data / "x/a", data / "x/b", data / "lock")} == {0o600}


def test_the_folder_is_made_when_it_is_taken(tmp_path: Path) -> None:
    files = OsFiles(str(tmp_path / "new"))
    assert files.list_dir("") == []
    lock = files.lock("lock")
    assert files.list_dir("") == ["lock"]
    lock.release()


def test_the_name_of_a_new_folder_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os_files, "sync_folder", synced.append)
    OsFiles(tmp_path / "a" / "b").make_dir("x")
    assert synced == [str(tmp_path), str(tmp_path / "a")]


def test_who_holds_the_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"99999999999999 left by another\n")
    lock = OsFiles(tmp_path).lock("lock")
    with pytest.raises(FolderLocked, match=f"locked by process {os.getpid()}$"):
        OsFiles(tmp_path).lock("lock")
    lock.release()


def test_another_process_is_kept_out_until_the_holder_is_gone(tmp_path: Path) -> None:
    program = (
        "import sys; from penstock.disk.os_files import OsFiles; lock = OsFiles(sys.argv[1]).lock('lock');"
        " print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(FolderLocked, match=f"process {holder.pid}$"):
            OsFiles(tmp_path).lock("lock")
        holder.kill()
        holder.wait()
    OsFiles(tmp_path).lock("lock").release()


@posix
def test_a_released_lock_is_free_although_a_child_has_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    take = os_files.lock_descriptor

    def copy_and_take(descriptor: int) -> None:
        copies.append(os.dup(descriptor))
        take(descriptor)

    monkeypatch.setattr(os_files, "lock_descriptor", copy_and_take)
    OsFiles(tmp_path).lock("lock").release()
    OsFiles(tmp_path).lock("lock").release()
    assert len(copies) == 2
    for descriptor in copies:
        os.close(descriptor)


def test_a_sync_asks_the_system_and_passes_its_error_on() -> None:
    """A pipe cannot be synced: without an error nothing was asked."""
    ours, other = os.pipe()
    file = OsFile("pipe", ours)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            file.fdatasync()
    finally:
        file.close()
        os.close(other)


@posix
def test_a_folder_is_synced_through_a_descriptor_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    files = OsFiles(tmp_path)
    files.make_dir("x/y")
    files.sync_dir("x/y")
    files.sync_dir("")
    assert synced == [(tmp_path / "x/y").stat().st_ino, tmp_path.stat().st_ino]


def test_a_file_has_a_descriptor_until_it_is_closed(tmp_path: Path) -> None:
    file = OsFiles(tmp_path).create("a")
    file.pwrite([b"abc"], 0)
    sync_descriptor(file.fileno())
    assert os.fstat(file.fileno()).st_size == 3
    file.close()
    assert file.fileno() == -1


@posix
def test_reads_go_on_until_all_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFiles(tmp_path).create("a")
    file.pwrite([b"abcdefg"], 0)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, offset: pread(descriptor, min(size, 2), offset))
    assert file.pread(5, 1) == b"bcdef"
    assert file.pread(100, 1) == b"bcdefg"
    file.close()


@posix
def test_a_short_write_is_told_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFiles(tmp_path).create("a")
    pwritev = os.pwritev

    def three_at_most(descriptor: int, pieces: Sequence[bytes], offset: int) -> int:
        return pwritev(descriptor, [b"".join(pieces)[:3]], offset)

    monkeypatch.setattr(os, "pwritev", three_at_most)
    monkeypatch.setattr(os_files, "PIECES_MAX", 4)
    pieces = [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert file.pwrite(pieces, 0) == 3
    assert write_all(file, pieces, 0) == 6
    assert file.pread(9, 0) == b"abcdef"
    file.close()


@posix
def test_an_error_after_a_part_was_written_comes_with_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFiles(tmp_path).create("a")
    pwritev = os.pwritev

    def full_at_four(descriptor: int, pieces: Sequence[bytes], offset: int) -> int:
        if offset >= 4:
            raise OSError(errno.ENOSPC, "full")
        return pwritev(descriptor, pieces, offset)

    monkeypatch.setattr(os, "pwritev", full_at_four)
    monkeypatch.setattr(os_files, "PIECES_MAX", 4)
    assert file.pwrite([b"x"] * 6, 0) == 4
    with pytest.raises(OSError, match="full"):
        write_all(file, [b"x"] * 6, 0)
    file.close()


@posix
def test_a_file_system_that_cannot_reserve_makes_the_file_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "cannot")

    file = OsFiles(tmp_path).create("a")
    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    file.reserve(4096)
    file.reserve(100)
    assert file.size() == 4096
    file.close()


@posix
def test_a_full_disk_is_not_mistaken_for_one_that_cannot_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    file = OsFiles(tmp_path).create("a")
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="full"):
        file.reserve(4096)
    assert file.size() == 0
    file.close()


def test_a_system_without_pwritev_pread_and_fdatasync_does_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pwritev", "pread", "fdatasync", "posix_fallocate"):
        monkeypatch.delattr(os, name, raising=False)
    file = OsFiles(tmp_path).create("a")
    assert file.pwrite([b"abc", b"def"], 2) == 6
    assert file.pread(4, 1) == b"\0abc"
    file.reserve(10)
    file.fdatasync()
    assert file.size() == 10
    file.close()
