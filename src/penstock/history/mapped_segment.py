"""A segment in the address space: the decoder touches the pages that it needs, and copies none.

A log's window of rows and bodies is read by NumPy and Arrow, which take memory as it is. With `pread` the bodies would
be copied although perhaps no column needs them.

The bytes below a segment's durable end never change, so a mapped page stays what it is. A disk that fails under it, or
a recovery that cuts off a torn batch, ends the process (SIGBUS), where `pread` would raise or return less. So this is
for processes that may end, like those of a Spark task; the broker reads instead.
"""

from __future__ import annotations

import mmap
import os
from typing import final

from penstock.disk.files import File


@final
class MappedSegment:
    __slots__ = ("_memory", "_view", "number")

    def __init__(self, number: int, file: File) -> None:
        self.number = number
        self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(self._memory, "madvise"):
            self._memory.madvise(mmap.MADV_SEQUENTIAL)
        self._view = memoryview(self._memory)

    def __len__(self) -> int:
        return len(self._view)

    def view(self, offset: int, size: int) -> memoryview:
        return self._view[offset : offset + size]


def can_map() -> bool:
    """Not where a file that is mapped cannot be removed: retention would fail."""
    return os.name == "posix"
