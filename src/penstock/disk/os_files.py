"""The files of this machine.

`OsFiles` is the real `Files`: each method is the system call of the same name, and nothing is buffered here. Folders
are made for the owner only (0700), files too (0600). Python repeats a call that a signal has interrupted (PEP 475), so
EINTR is never seen.

Systems differ in what they have. Without pwritev (Windows) the pieces are joined and written at a moved position;
without fdatasync all of the file is synced, and macOS is asked to empty the drive's cache too; without posix_fallocate
`reserve` makes the file long enough but cannot promise the room; folders cannot be synced on Windows.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from penstock.disk.files import File, Files, FolderLock, FolderLocked, check_path, read_again
from penstock.disk.spare_descriptors import SpareDescriptors

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Buffers that one call takes.
PIECES_MAX: Final = 1024
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
# Removing a folder opens one descriptor for each level of it.
LEVELS_MAX: Final = 8
# File systems that cannot reserve say one of these.
CANNOT_RESERVE: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


Result = TypeVar("Result")


class OsFile(File):
    """An open descriptor."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        # -1 once closed: every call on it then fails with EBADF.
        self._descriptor = descriptor

    def pwrite(self, pieces: Sequence[bytes], offset: int) -> int:
        if len(pieces) <= PIECES_MAX:
            return write_at(self._descriptor, pieces, offset)
        written = 0
        for first in range(0, len(pieces), PIECES_MAX):
            part = pieces[first : first + PIECES_MAX]
            try:
                step = write_at(self._descriptor, part, offset + written)
            except OSError:
                if written == 0:
                    raise
                # As the system does: a short write now, and the error when the rest is tried again.
                return written
            written += step
            if step < sum(map(len, part)):
                break
        return written

    def pread(self, size: int, offset: int) -> bytes:
        tries = 0
        while True:
            try:
                return self._read(size, offset)
            except OSError as error:
                tries += 1
                if not read_again(error, tries):
                    raise

    def _read(self, size: int, offset: int) -> bytes:
        data = read_at(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing > 0:
            data = read_at(self._descriptor, missing, offset + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def reserve(self, size: int) -> None:
        if size == 0:
            return
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._descriptor, 0, size)
                return
            except OSError as error:
                if error.errno not in CANNOT_RESERVE:
                    raise
        if self.size() < size:
            self.truncate(size)

    def fdatasync(self) -> None:
        sync_descriptor(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor != -1:
            os.close(descriptor)


class OsFolder(OsFile):
    """An open folder. Its descriptor is -1 on systems that cannot open one; these cannot sync one either."""

    __slots__ = ()

    def fdatasync(self) -> None:
        if sys.platform != "win32":
            # Not fdatasync: a file system may leave names out of that.
            os.fsync(self._descriptor)


class OsLock(FolderLock):
    """A locked file. The system lets go of it when the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor != -1:
            # Said aloud: a child process may have a copy of the descriptor, and closing ours would not be enough.
            unlock_descriptor(descriptor)
            os.close(descriptor)


class OsFiles(Files):
    """A folder of this machine."""

    def __init__(self, root: str | Path, spares: SpareDescriptors | None = None) -> None:
        """`spares` are closed when a call finds no descriptor, and the call is made again."""
        self.root: Final = os.path.abspath(root)
        self._spares = spares

    def open(self, path: str, create: bool = False) -> File:
        return OsFile(path, self._open(path, os.O_CREAT if create else 0))

    def create(self, path: str) -> File:
        return OsFile(path, self._open(path, os.O_CREAT | os.O_EXCL))

    def open_folder(self, path: str) -> File:
        if sys.platform == "win32":
            return OsFolder(path, -1)
        return OsFolder(path, self._with_spares(lambda: os.open(self._full(path), os.O_RDONLY | os.O_DIRECTORY)))

    def make_dir(self, path: str) -> None:
        full = self._full(path)
        missing = []
        while not os.path.isdir(full):
            missing.append(full)
            full = os.path.dirname(full)
        # One by one: os.makedirs has the mode for the last one only.
        for folder in reversed(missing):
            os.mkdir(folder, FOLDER_MODE)
            if len(folder) <= len(self.root):
                # The name of our own folder is in one that is not ours: it could not be synced later.
                sync_folder(os.path.dirname(folder))

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(self._with_spares(lambda: os.listdir(self._full(path))))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._full(path))

    def rename(self, old: str, new: str) -> None:
        os.replace(self._full(old), self._full(new))

    def unlink(self, path: str) -> None:
        try:
            os.unlink(self._full(path))
        except FileNotFoundError:
            return

    def remove_dir(self, path: str) -> None:
        assert path, "the whole folder is not removed"
        try:
            self._with_spares(lambda: shutil.rmtree(self._full(path)), LEVELS_MAX)
        except FileNotFoundError:
            return

    def sync_dir(self, path: str) -> None:
        self._with_spares(lambda: sync_folder(self._full(path)))

    def is_locked(self, path: str) -> bool:
        try:
            descriptor = os.open(self._full(path), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            lock_descriptor(descriptor)
            unlock_descriptor(descriptor)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise
            return True
        finally:
            os.close(descriptor)
        return False

    def lock(self, path: str) -> FolderLock:
        """Take the folder, and make it when there is none. The file has the process id of who holds the lock."""
        self.make_dir("")
        descriptor = self._open(path, os.O_CREAT)
        try:
            lock_descriptor(descriptor)
        except OSError as error:
            holder = read_at(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise
            raise FolderLocked(f"{self._full(path)} is locked by process {holder or 'unknown'}") from None
        os.ftruncate(descriptor, 0)
        write_at(descriptor, [b"%d\n" % os.getpid()], 0)
        return OsLock(descriptor)

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free

    def _full(self, path: str) -> str:
        check_path(path)
        return f"{self.root}/{path}" if path else self.root

    def _open(self, path: str, flags: int) -> int:
        if sys.platform == "win32":
            flags |= os.O_BINARY
        return self._with_spares(lambda: os.open(self._full(path), os.O_RDWR | flags, FILE_MODE))

    def _with_spares(self, call: Callable[[], Result], count: int = 1) -> Result:
        """Make a call that opens up to `count` descriptors; once more with spare ones if there are no others."""
        try:
            return call()
        except OSError as error:
            if self._spares is None or not self._spares.give_up(error, count):
                raise
        return call()


def write_at(descriptor: int, pieces: Sequence[bytes], offset: int) -> int:
    if hasattr(os, "pwritev"):
        written: int = os.pwritev(descriptor, pieces, offset)
        return written
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, b"".join(pieces))


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        data: bytes = os.pread(descriptor, size, offset)
        return data
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, size)


def sync_descriptor(descriptor: int) -> None:
    """Make the bytes of a file durable; also for a process that was handed the descriptor."""
    if descriptor < 0:
        # Python would call it a ValueError.
        raise OSError(errno.EBADF, "the file is closed")
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def sync_folder(full: str) -> None:
    if sys.platform != "win32":
        descriptor = os.open(full, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def lock_descriptor(descriptor: int) -> None:
    if sys.platform == "win32":
        # Behind what is written there, which a locked byte would hide from others.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock_descriptor(descriptor: int) -> None:
    if sys.platform == "win32":
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
