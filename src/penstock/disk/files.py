"""The only way to the disk.

`Files` is a folder, `File` an open file in it. The core knows these two and nothing else of the machine's files; what
it can do to a disk is the list of methods below, which is also the list of what can fail. `os_files.OsFiles` is the
real thing, `tests/disk/sim_files.py` a disk in memory that loses, tears and flips what it is told to.

Paths are relative to the folder, with "/" between names. They are made of fixed names, numbers and random ids, never of
anything that a client chose.

Invariants
  1. A write may be short; `write_all` goes on until everything is written. A read ends at the end of the file.
  2. Bytes are durable after `fdatasync` of their file returned; a new, renamed or removed name is durable after
     `sync_dir` of its folder returned, or `fdatasync` of what `open_folder` gave. Nothing else is.
  3. A failed `fdatasync` is final: the file must not be used again for anything that has to last.

A crash leaves, of what was not synced, anything between nothing and everything, in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from errno import EAGAIN, EIO, EMFILE, ENFILE, ENOBUFS, ENOMEM
from typing import Final

# What the machine says when it is out of descriptors or memory. It says nothing about the disk or the file: the same
# call succeeds when something else was closed.
TEMPORARY_ERRORS: Final = frozenset((EMFILE, ENFILE, EAGAIN, ENOMEM, ENOBUFS))

# How often a read that fails with EIO is made, at once. What cannot be read then may be readable later.
READ_TRIES: Final = 3


class File(ABC):
    """An open file."""

    # Relative to the folder it was opened in.
    path: str

    @abstractmethod
    def pwrite(self, pieces: Sequence[bytes], offset: int) -> int:
        """Write the pieces one after the other at an offset; return how many bytes were written, maybe fewer."""

    @abstractmethod
    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from an offset; fewer only at the end of the file.

        A read that fails with EIO is tried again. An error that comes out says that the bytes cannot be read now, and
        nothing about what they are.
        """

    @abstractmethod
    def size(self) -> int:
        """Return bytes in the file."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""

    @abstractmethod
    def reserve(self, size: int) -> None:
        """Make sure that there is room on the disk for the first `size` bytes, and make the file that long."""

    @abstractmethod
    def fdatasync(self) -> None:
        """Return when what was written, and the size, is durable."""

    @abstractmethod
    def fileno(self) -> int:
        """Return the descriptor, for syncing in another process; -1 when there is none."""

    @abstractmethod
    def close(self) -> None:
        """Give the handle back. Closing twice is fine."""


class FolderLock(ABC):
    """Held while a broker uses a folder."""

    @abstractmethod
    def release(self) -> None:
        """Let others in."""


class Files(ABC):
    """A folder with everything in it."""

    @abstractmethod
    def open(self, path: str, create: bool = False) -> File:
        """Open a file for reading and writing. Without `create` it must exist (FileNotFoundError)."""

    @abstractmethod
    def create(self, path: str) -> File:
        """Make a new file; FileExistsError when there is one."""

    @abstractmethod
    def open_folder(self, path: str) -> File:
        """Open a folder, so that a syncer can make its names durable: `fdatasync` of it is `sync_dir`.

        It can be synced and closed, and nothing else.
        """

    @abstractmethod
    def make_dir(self, path: str) -> None:
        """Make a folder and those above it; fine when it exists."""

    @abstractmethod
    def list_dir(self, path: str) -> list[str]:
        """Return names in a folder, sorted; empty when there is no such folder."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of that name."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of what had it."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file; fine when it is gone already."""

    @abstractmethod
    def remove_dir(self, path: str) -> None:
        """Remove a folder with everything in it; fine when it is gone already."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Return when the names in a folder are durable."""

    @abstractmethod
    def lock(self, path: str) -> FolderLock:
        """Take the folder for this process; FolderLocked when another one has it."""

    @abstractmethod
    def is_locked(self, path: str) -> bool:
        """Return whether a process has the folder; changes nothing."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Room that is left for us on the disk."""


class FolderLocked(Exception):
    """Another process uses the folder."""


def check_path(path: str) -> None:
    """A path stays in the folder; "" is the folder itself. Another one is a mistake in the program."""
    assert not path or not {"", ".", ".."}.intersection(path.split("/")), path
    assert "\\" not in path and ":" not in path, path


def write_all(file: File, pieces: Sequence[bytes], offset: int) -> int:
    """Write everything, however often it takes; return the offset behind it."""
    written = file.pwrite(pieces, offset)
    total = sum(map(len, pieces))
    if written != total:
        rest = b"".join(pieces)
        while written < total:
            step = file.pwrite([rest[written:]], offset + written)
            if step <= 0:
                raise OSError(f"nothing more could be written to {file.path}")
            written += step
    return offset + total


def write_file(files: Files, path: str, data: bytes) -> None:
    """Replace a small file so that after a crash either the old or the new one is there, whole."""
    folder = path.rpartition("/")[0]
    draft = path + ".tmp"
    files.unlink(draft)
    file = files.create(draft)
    try:
        write_all(file, [data], 0)
        file.fdatasync()
    finally:
        file.close()
    files.rename(draft, path)
    files.sync_dir(folder)


def read_file(files: Files, path: str) -> bytes:
    """Return a small file, whole."""
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def read_again(error: OSError, tries: int) -> bool:
    """Whether a read that has failed so many times is worth another try. A disk may read a sector the second time."""
    return error.errno == EIO and tries < READ_TRIES


def is_temporary(error: OSError) -> bool:
    """Return whether the same call may succeed later, and nothing was lost."""
    return error.errno in TEMPORARY_ERRORS
