"""The platters of a disk in memory: what is on them, and what is only on its way.

A file is an `Inode`: the bytes that readers see, the bytes that are durable, and the writes between the two in order. A
`Folder` has its names in the same two versions, and `NameChange`s between them. A `Disk` is a tree of these; it counts
its bytes. `sim_files` does the calls; here is what they are done to. `Twins` copies a disk with all of that.

Invariants
  1. `seen` is `durable` with all of `pending` applied, unless a failed sync has dropped what was pending.
  2. A bytearray that two inodes share is copied before either changes it: copies of a disk cost only what changes.
  3. A name change is applied whole or not at all while none of its folders was synced.

A crash keeps any subset of what is pending; see `sim_crash`.
"""

from __future__ import annotations

import errno

# (number, offset, data); (number, size, None) cuts or lengthens the file. Numbers grow over all files of a disk.
Write = tuple[int, int, bytes | None]


class Inode:
    """A file, whatever its name."""

    __slots__ = ("allocated", "durable", "durable_is_shared", "handles", "links", "pending", "seen", "seen_is_shared")

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.pending: list[Write] = []
        self.seen_is_shared = False
        self.durable_is_shared = False
        # Bytes that count against the capacity; less than the size when the file was lengthened without a reserve.
        self.allocated = 0
        self.links = 0
        self.handles = 0

    def apply(self, write: Write) -> None:
        """Change what readers see; the disk follows with the next sync."""
        self.pending.append(write)
        lay(self.own_seen(), write)

    def sync(self) -> None:
        if self.pending:
            durable = self.own_durable()
            for write in self.pending:
                lay(durable, write)
            self.pending.clear()

    def drop_pending(self) -> None:
        """What a failed sync does: readers still see it, nobody will write it."""
        self.pending.clear()

    def own_seen(self) -> bytearray:
        if self.seen_is_shared:
            self.seen = bytearray(self.seen)
            self.seen_is_shared = False
        return self.seen

    def own_durable(self) -> bytearray:
        if self.durable_is_shared:
            self.durable = bytearray(self.durable)
            self.durable_is_shared = False
        return self.durable

    def images(self) -> list[bytearray]:
        """Both versions of the bytes, for whoever damages them."""
        return [self.own_seen(), self.own_durable()]

    def take_over(self, other: Inode) -> None:
        """Have the same bytes as another file, in all versions."""
        self.seen, self.durable = other.seen, other.durable
        self.seen_is_shared = self.durable_is_shared = True
        other.seen_is_shared = other.durable_is_shared = True
        self.pending = list(other.pending)
        self.allocated = other.allocated


def lay(image: bytearray, write: Write) -> None:
    _, offset, data = write
    gap = offset - len(image)
    if gap > 0:
        image.extend(bytes(gap))
    if data is None:
        del image[offset:]
    else:
        image[offset : offset + len(data)] = data


class Folder:
    """Names of files and folders."""

    __slots__ = ("durable", "pending", "seen")

    def __init__(self) -> None:
        self.seen: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}
        self.pending: list[NameChange] = []

    def sync(self) -> None:
        for change in self.pending:
            change.apply_to(self, self.durable)
        self.pending.clear()


class NameChange:
    """A create, mkdir, rename or unlink: names that appear (with what they stand for) or go (None)."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[tuple[Folder, str, Inode | Folder | None]]) -> None:
        self.parts = parts

    def make(self) -> None:
        """Show it to readers; the disk follows when the folders are synced."""
        for folder, _, _ in self.parts:
            if not folder.pending or folder.pending[-1] is not self:
                self.apply_to(folder, folder.seen)
                folder.pending.append(self)

    def apply_to(self, folder: Folder, names: dict[str, Inode | Folder]) -> None:
        for changed, name, target in self.parts:
            if changed is not folder:
                continue
            if target is None:
                names.pop(name, None)
            else:
                names[name] = target


class Disk:
    """Folders and files by path, and the room that they take."""

    def __init__(self, root: Folder) -> None:
        # Every folder that can be reached, by its path.
        self.folders: dict[str, Folder] = {}
        self.used_bytes = 0
        self.write_number = 0
        # Of the last pwrite; truncates have numbers too.
        self.last_write_number = 0
        found = [("", root)]
        while found:
            path, folder = found.pop()
            self.folders[path] = folder
            for name, target in folder.seen.items():
                if isinstance(target, Folder):
                    found.append((f"{path}/{name}" if path else name, target))
                    continue
                target.links += 1
                if target.links == 1:
                    self.used_bytes += target.allocated

    def place(self, path: str) -> tuple[Folder, str]:
        """The folder that a path is in, and the name there."""
        above, _, name = path.rpartition("/")
        if above not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", above)
        return self.folders[above], name

    def find(self, path: str) -> Inode | Folder | None:
        if path in self.folders:
            return self.folders[path]
        above, _, name = path.rpartition("/")
        folder = self.folders.get(above)
        return None if folder is None else folder.seen.get(name)

    def file(self, path: str) -> Inode:
        inode = self.find(path)
        assert isinstance(inode, Inode), f"no file {path}"
        return inode

    def new_file(self, folder: Folder, name: str) -> Inode:
        inode = Inode()
        inode.links = 1
        NameChange([(folder, name, inode)]).make()
        return inode

    def write(self, inode: Inode, offset: int, data: bytes) -> None:
        self.allocate(inode, max(inode.allocated, offset + len(data)))
        self.write_number += 1
        self.last_write_number = self.write_number
        inode.apply((self.write_number, offset, data))

    def resize(self, inode: Inode, size: int) -> None:
        self.allocate(inode, min(inode.allocated, size))
        self.write_number += 1
        inode.apply((self.write_number, size, None))

    def allocate(self, inode: Inode, size: int) -> None:
        self.used_bytes += size - inode.allocated
        inode.allocated = size

    def unlinked(self, inode: Inode) -> None:
        """One name less leads to a file."""
        inode.links -= 1
        self.free_if_unused(inode)

    def free_if_unused(self, inode: Inode) -> None:
        if inode.links == 0 and inode.handles == 0:
            self.allocate(inode, 0)

    def empty(self, folder: Folder, path: str) -> None:
        """Take everything out of a folder, with each name a change of its own."""
        for name, target in list(folder.seen.items()):
            if isinstance(target, Folder):
                self.empty(target, f"{path}/{name}")
                del self.folders[f"{path}/{name}"]
            else:
                self.unlinked(target)
            NameChange([(folder, name, None)]).make()


class Twins:
    """A copy of a disk: every file, folder and pending change exactly once, however many names lead to it."""

    def __init__(self) -> None:
        self._inodes: dict[Inode, Inode] = {}
        self._folders: dict[Folder, Folder] = {}
        self._changes: dict[NameChange, NameChange] = {}

    def folder(self, old: Folder) -> Folder:
        if old not in self._folders:
            # Known before its names are copied: a pending change leads back to it.
            new = self._folders[old] = Folder()
            new.seen = {name: self._target(target) for name, target in old.seen.items()}
            new.durable = {name: self._target(target) for name, target in old.durable.items()}
            new.pending = [self._change(change) for change in old.pending]
        return self._folders[old]

    def _target(self, old: Inode | Folder) -> Inode | Folder:
        if isinstance(old, Folder):
            return self.folder(old)
        if old not in self._inodes:
            new = self._inodes[old] = Inode()
            new.take_over(old)
        return self._inodes[old]

    def _change(self, old: NameChange) -> NameChange:
        if old not in self._changes:
            new = self._changes[old] = NameChange([])
            new.parts = [
                (self.folder(folder), name, None if target is None else self._target(target))
                for folder, name, target in old.parts
            ]
        return self._changes[old]
