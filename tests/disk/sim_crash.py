"""What a power cut leaves of a disk in memory.

Everything that was synced, and of the rest what the plan says: nothing, everything, or anything. "Anything" is chosen
write by write and name by name; a write survives whole, not at all, up to any byte, or without some of its sectors.

Invariants
  1. What was synced is there. What was never written is not, except zeros where sectors went missing.
  2. Names and bytes survive on their own: a file may be there without its bytes, or its bytes without a name, which is
     to be gone.
  3. The same disk, plan and choices leave the same.

A crash does not change the disk that it happens to: the next one may have another outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.disk.sim_disk import Folder, Inode, NameChange, Write, lay
from tests.disk.sim_faults import FaultPlan, Survival

# choose(n) is an int in 0 … n-1: the only chance there is.
Choose = Callable[[int], int]

SECTOR_BYTES: Final = 512


class Survivors:
    """Decides, write by write and name by name, what one crash leaves."""

    def __init__(self, plan: FaultPlan, choose: Choose, last_write: int) -> None:
        self._survival = plan.survival
        self._holes = plan.holes
        self._torn_at = plan.torn_at
        self._choose = choose
        # The number of the write that `torn_at` is about.
        self._last_write = last_write
        # A rename stands in two folders, and a file may have two names: each is decided once.
        self._decided: dict[NameChange, bool] = {}
        self._inodes: dict[Inode, Inode] = {}

    def folder(self, old: Folder) -> Folder:
        """A folder with everything in it as it is found after the crash. All of that is durable."""
        names = dict(old.durable)
        for change in old.pending:
            if change not in self._decided:
                self._decided[change] = self._is_kept()
            if self._decided[change]:
                change.apply_to(old, names)
        new = Folder()
        for name, target in names.items():
            new.seen[name] = self.folder(target) if isinstance(target, Folder) else self._inode(target)
        new.durable = dict(new.seen)
        return new

    def _is_kept(self) -> bool:
        if self._survival is Survival.ANYTHING:
            return self._choose(2) == 0
        return self._survival is Survival.EVERYTHING

    def _inode(self, old: Inode) -> Inode:
        if old in self._inodes:
            return self._inodes[old]
        new = Inode()
        kept = self._kept_writes(old.pending)
        if kept:
            new.durable = bytearray(old.durable)
            for write in kept:
                lay(new.durable, write)
        else:
            new.durable = old.durable
            old.durable_is_shared = True
        new.seen = new.durable
        new.seen_is_shared = new.durable_is_shared = True
        new.allocated = len(new.durable)
        self._inodes[old] = new
        return new

    def _kept_writes(self, pending: list[Write]) -> list[Write]:
        if self._torn_at is None:
            return self._choose_writes(pending)
        torn = [part for write in pending if write[0] == self._last_write for part in prefix(write, self._torn_at)]
        others = [write for write in pending if write[0] != self._last_write]
        # In order of their numbers: a truncate may follow the last write.
        return sorted(self._choose_writes(others) + torn, key=lambda write: write[0])

    def _choose_writes(self, pending: list[Write]) -> list[Write]:
        if not pending or self._survival is Survival.NOTHING:
            return []
        if self._survival is Survival.EVERYTHING:
            return pending
        way = self._choose(4)
        if way == 0:
            return pending
        if way == 1:
            return []
        if way == 2:
            # In order up to some point: what disks mostly do.
            count = self._choose(len(pending))
            return pending[:count] + self._part_of(pending[count])
        return [part for write in pending for part in self._part_of(write)]

    def _part_of(self, write: Write) -> list[Write]:
        data = write[2]
        if data is None:
            return [write] if self._choose(2) == 0 else []
        way = self._choose(4 if self._holes else 3)
        if way == 0:
            return [write]
        if way == 1:
            return []
        if way == 2:
            return prefix(write, self._choose(len(data) + 1))
        return self._with_hole(write, data)

    def _with_hole(self, write: Write, data: bytes) -> list[Write]:
        """The write without some of its sectors. The file is as long as if they had been written."""
        number, offset, _ = write
        end = offset + len(data)
        first = offset // SECTOR_BYTES
        sectors = -(-end // SECTOR_BYTES) - first
        start = first + self._choose(sectors)
        stop = start + 1 + self._choose(first + sectors - start)
        hole_start = max(start * SECTOR_BYTES - offset, 0)
        hole_end = min(stop * SECTOR_BYTES - offset, len(data))
        parts: list[Write] = [(number, offset, data[:hole_start])]
        if hole_end < len(data):
            parts.append((number, offset + hole_end, data[hole_end:]))
        else:
            parts.append((number, end, b""))
        return parts


def prefix(write: Write, size: int) -> list[Write]:
    """The first bytes of a write; a write of which nothing is left does not even lengthen the file."""
    number, offset, data = write
    if data is None or size >= len(data):
        return [write]
    return [(number, offset, data[:size])] if size > 0 else []
