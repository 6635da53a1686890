"""A disk in memory, for simulations: it forgets, tears, fills up and fails as planned, and the same way every time.

`SimFiles` is a machine with a disk. Reads see what was written, as with a page cache; what is durable is another
matter. `crash` is a power cut: it returns a new machine with what survived. `kill` is the end of the process only: the
page cache stays, and is still not durable. `copy` is a branch: the same state twice. All three leave handles and locks
behind. The old machine is dead after the first two, and whatever still uses it gets a SimCrash; its own `crash` may be
asked again for another outcome. What goes wrong on the way is in `plan` (see `sim_faults`).

Each call is counted and logged: `len(calls)` after a run says how many there are, and `crash_points` which of them a
crash can come before, or after, with a difference.

Nothing here costs more than the bytes that change; copies are made when they are changed.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from penstock.disk.files import File, Files, FolderLock, FolderLocked, check_path, read_again
from tests.disk.sim_crash import Choose, Survivors
from tests.disk.sim_disk import Disk, Folder, Inode, NameChange, Twins
from tests.disk.sim_faults import CHANGING_CALLS, Fault, FaultPlan, SimCrash, Survival

__all__ = ["CHANGING_CALLS", "Choose", "FaultPlan", "SimCrash", "SimFile", "SimFiles", "Survival"]

ENDLESS_BYTES: Final = 1 << 50


class SimFile(File):
    """An open file of a SimFiles."""

    __slots__ = ("_inode", "_is_open", "_machine", "path")

    def __init__(self, machine: SimFiles, path: str, inode: Inode) -> None:
        self.path = path
        self._machine = machine
        self._inode = inode
        self._is_open = True
        inode.handles += 1

    def _begin(self, name: str) -> Fault | None:
        if not self._is_open:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._machine.begin(name, self.path)

    def _call(self, name: str) -> None:
        fault = self._begin(name)
        if fault is not None and fault.error:
            raise fault.as_error(name, self.path)

    def pwrite(self, pieces: Sequence[bytes], offset: int) -> int:
        assert offset >= 0
        fault = self._begin("pwrite")
        data = b"".join(pieces)
        if fault is not None:
            data = data[: fault.bytes_done]
        written = self._machine.write(self._inode, self.path, offset, data) if data else 0
        if fault is not None and fault.error:
            raise fault.as_error("pwrite", self.path)
        self._machine.end()
        return written

    def pread(self, size: int, offset: int) -> bytes:
        assert size >= 0
        assert offset >= 0
        tries = 0
        while True:
            try:
                self._call("pread")
                break
            except OSError as error:
                tries += 1
                if not read_again(error, tries):
                    raise
        data = bytes(self._inode.seen[offset : offset + size])
        self._machine.pread_bytes += len(data)
        return data

    def size(self) -> int:
        self._call("size")
        return len(self._inode.seen)

    def truncate(self, size: int) -> None:
        assert size >= 0
        self._call("truncate")
        self._machine.disk.resize(self._inode, size)
        self._machine.end()

    def reserve(self, size: int) -> None:
        assert size >= 0
        self._call("reserve")
        self._machine.reserve(self._inode, self.path, size)
        self._machine.end()

    def fdatasync(self) -> None:
        fault = self._begin("fdatasync")
        if fault is not None and fault.error:
            # The pages are dropped and marked clean: the next sync has nothing to do, and says that all is well.
            self._inode.drop_pending()
            raise fault.as_error("fdatasync", self.path)
        self._inode.sync()
        self._machine.end()

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._inode.handles -= 1
            self._machine.disk.free_if_unused(self._inode)


class SimFolder(File):
    """An open folder of a SimFiles."""

    __slots__ = ("_is_open", "_machine", "path")

    def __init__(self, machine: SimFiles, path: str) -> None:
        self.path = path
        self._machine = machine
        self._is_open = True

    def _no_file(self) -> OSError:
        return IsADirectoryError(errno.EISDIR, "is a folder", self.path)

    def pwrite(self, pieces: Sequence[bytes], offset: int) -> int:
        raise self._no_file()

    def pread(self, size: int, offset: int) -> bytes:
        raise self._no_file()

    def size(self) -> int:
        raise self._no_file()

    def truncate(self, size: int) -> None:
        raise self._no_file()

    def reserve(self, size: int) -> None:
        raise self._no_file()

    def fdatasync(self) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, "the folder is closed", self.path)
        # One that was removed meanwhile can still be synced by whoever has it open, and there is nothing in it.
        if self._machine.disk.find(self.path) is not None:
            self._machine.sync_dir(self.path)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._is_open = False


class SimLock(FolderLock):
    """Held on a machine until it is released or the machine is gone."""

    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path
        self._is_held = True

    def release(self) -> None:
        # Once only: by the second time somebody else may hold it.
        if self._is_held:
            self._is_held = False
            self._locked.discard(self._path)


class SimFiles(Files):
    """A machine with a disk in memory."""

    def __init__(self, plan: FaultPlan | None = None) -> None:
        self.plan = plan if plan is not None else FaultPlan()
        # (name, path) of every call so far; the first is number 1.
        self.calls: list[tuple[str, str]] = []
        # That were read so far.
        self.pread_bytes = 0
        self.is_dead = False
        # (path, offset, size) of the last pwrite.
        self.last_write: tuple[str, int, int] | None = None
        self.disk = Disk(Folder())
        self._locked: set[str] = set()
        self._dies_after_this = False

    # --- Files ----------------------------------------------------------------------------------

    def open(self, path: str, create: bool = False) -> File:
        self._call("open", path)
        folder, name = self.disk.place(path)
        target = folder.seen.get(name)
        if target is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            target = self.disk.new_file(folder, name)
        elif isinstance(target, Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        self.end()
        return SimFile(self, path, target)

    def create(self, path: str) -> File:
        self._call("create", path)
        folder, name = self.disk.place(path)
        if name in folder.seen:
            raise FileExistsError(errno.EEXIST, "exists already", path)
        inode = self.disk.new_file(folder, name)
        self.end()
        return SimFile(self, path, inode)

    def open_folder(self, path: str) -> File:
        self._call("open_folder", path)
        if path not in self.disk.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        return SimFolder(self, path)

    def make_dir(self, path: str) -> None:
        self._call("make_dir", path)
        above, so_far = self.disk.folders[""], ""
        for name in path.split("/") if path else []:
            so_far = f"{so_far}/{name}" if so_far else name
            target = above.seen.get(name)
            if target is None:
                target = self.disk.folders[so_far] = Folder()
                NameChange([(above, name, target)]).make()
            elif isinstance(target, Inode):
                raise FileExistsError(errno.EEXIST, "is a file", so_far)
            above = target
        self.end()

    def list_dir(self, path: str) -> list[str]:
        self._call("list_dir", path)
        folder = self.disk.folders.get(path)
        if folder is not None:
            return sorted(folder.seen)
        if self.disk.find(path) is not None:
            raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
        return []

    def exists(self, path: str) -> bool:
        self._call("exists", path)
        return self.disk.find(path) is not None

    def rename(self, old: str, new: str) -> None:
        check_path(new)
        self._call("rename", old)
        old_folder, old_name = self.disk.place(old)
        new_folder, new_name = self.disk.place(new)
        inode = old_folder.seen.get(old_name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        replaced = new_folder.seen.get(new_name)
        if isinstance(inode, Folder) or isinstance(replaced, Folder):
            raise IsADirectoryError(errno.EISDIR, "only files are renamed", old)
        if inode is not replaced:
            NameChange([(old_folder, old_name, None), (new_folder, new_name, inode)]).make()
            if replaced is not None:
                self.disk.unlinked(replaced)
        self.end()

    def unlink(self, path: str) -> None:
        self._call("unlink", path)
        inode = self.disk.find(path)
        if isinstance(inode, Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        if inode is not None:
            folder, name = self.disk.place(path)
            NameChange([(folder, name, None)]).make()
            self.disk.unlinked(inode)
        self.end()

    def remove_dir(self, path: str) -> None:
        assert path, "the whole disk is not removed"
        self._call("remove_dir", path)
        folder = self.disk.find(path)
        if isinstance(folder, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
        if folder is not None:
            self.disk.empty(folder, path)
            above, name = self.disk.place(path)
            NameChange([(above, name, None)]).make()
            del self.disk.folders[path]
        self.end()

    def sync_dir(self, path: str) -> None:
        self._call("sync_dir", path)
        if path not in self.disk.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        self.disk.folders[path].sync()
        self.end()

    def is_locked(self, path: str) -> bool:
        return path in self._locked

    def lock(self, path: str) -> FolderLock:
        self._call("lock", path)
        folder, name = self.disk.place(path)
        if path in self._locked:
            raise FolderLocked(f"{path} is locked by another process")
        if name not in folder.seen:
            self.disk.new_file(folder, name)
        self._locked.add(path)
        self.end()
        return SimLock(self._locked, path)

    def free_bytes(self) -> int:
        self._call("free_bytes", "")
        return self._room_bytes()

    # --- lives ----------------------------------------------------------------------------------

    def crash(self, choose: Choose) -> SimFiles:
        """Cut the power; return the machine that starts again, with what the plan and `choose` leave on its disk."""
        self.is_dead = True
        return self._machine_with(
            Survivors(self.plan, choose, self.disk.last_write_number).folder(self.disk.folders[""])
        )

    def kill(self) -> SimFiles:
        """End the process. What it wrote is there, and what was not synced is still not durable."""
        self.is_dead = True
        return self.copy()

    def copy(self) -> SimFiles:
        """A second machine in the same state, without handles, locks, faults and log."""
        return self._machine_with(Twins().folder(self.disk.folders[""]))

    def _machine_with(self, root: Folder) -> SimFiles:
        machine = SimFiles(self.plan.for_next_life())
        machine.disk = Disk(root)
        machine.disk.write_number = self.disk.write_number
        machine.disk.last_write_number = self.disk.last_write_number
        machine.last_write = self.last_write
        return machine

    # --- damage: what a bad disk does to bytes that were written well ------------------------------

    def flip(self, path: str, byte: int, bit: int) -> None:
        for image in self.disk.file(path).images():
            if byte < len(image):
                image[byte] ^= 1 << bit

    def zero_block(self, path: str, offset: int, size: int = 4096) -> None:
        for image in self.disk.file(path).images():
            count = len(image[offset : offset + size])
            image[offset : offset + count] = bytes(count)

    def truncate_durable(self, path: str, size: int) -> None:
        for image in self.disk.file(path).images():
            del image[size:]

    def delete(self, path: str) -> None:
        """A file is gone, whatever was synced."""
        self.disk.unlinked(self.disk.file(path))
        folder, name = self.disk.place(path)
        del folder.seen[name]
        folder.durable.pop(name, None)
        for change in folder.pending:
            change.parts = [part for part in change.parts if part[0] is not folder or part[1] != name]

    def swap(self, one: str, other: str) -> None:
        """Each file has the bytes of the other."""
        first, second = self.disk.file(one), self.disk.file(other)
        between = Inode()
        between.take_over(first)
        first.take_over(second)
        second.take_over(between)

    # --- looking ------------------------------------------------------------------------------

    def crash_points(self) -> list[int]:
        """Numbers of the calls so far that changed the disk, or made a change durable."""
        return [number for number, (name, _) in enumerate(self.calls, 1) if name in CHANGING_CALLS]

    def durable_bytes(self, path: str) -> bytes:
        """What a file would surely have after a crash, if it has its name."""
        return bytes(self.disk.file(path).durable)

    def contents(self) -> dict[str, bytes]:
        """All files as readers see them, by path."""
        return {
            f"{path}/{name}" if path else name: bytes(target.seen)
            for path, folder in sorted(self.disk.folders.items())
            for name, target in sorted(folder.seen.items())
            if isinstance(target, Inode)
        }

    # --- for SimFile ----------------------------------------------------------------------------

    def begin(self, name: str, path: str) -> Fault | None:
        """Count a call, and say what is to go wrong with it."""
        if self.is_dead or self._dies_after_this:
            # A call that failed did not come to its `end`.
            self.is_dead = True
            raise SimCrash(f"{name} {path} after the machine went down")
        self.calls.append((name, path))
        plan = self.plan
        if plan.crash_at == len(self.calls):
            if not plan.crash_after or name not in CHANGING_CALLS:
                self.is_dead = True
                raise SimCrash(f"before call {plan.crash_at}: {name} {path}")
            self._dies_after_this = True
        return plan.fault_for(name, path) if plan.faults else None

    def end(self) -> None:
        """A call has happened."""
        if self._dies_after_this:
            self.is_dead = True
            raise SimCrash(f"after call {len(self.calls)}")

    def write(self, inode: Inode, path: str, offset: int, data: bytes) -> int:
        """Write what there is room for; return how much that is."""
        data = data[: max(0, inode.allocated + self._room_bytes() - offset)]
        if not data:
            raise OSError(errno.ENOSPC, "no room on the simulated disk", path)
        self.last_write = (path, offset, len(data))
        self.disk.write(inode, offset, data)
        return len(data)

    def reserve(self, inode: Inode, path: str, size: int) -> None:
        if size - inode.allocated > self._room_bytes():
            raise OSError(errno.ENOSPC, "no room on the simulated disk", path)
        self.disk.allocate(inode, max(inode.allocated, size))
        if size > len(inode.seen):
            self.disk.resize(inode, size)

    # --- inside ---------------------------------------------------------------------------------

    def _call(self, name: str, path: str) -> None:
        check_path(path)
        fault = self.begin(name, path)
        if fault is not None and fault.error:
            raise fault.as_error(name, path)

    def _room_bytes(self) -> int:
        capacity = self.plan.capacity_bytes
        return ENDLESS_BYTES if capacity is None else max(0, capacity - self.disk.used_bytes)
