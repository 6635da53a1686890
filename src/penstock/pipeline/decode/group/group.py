"""Batches that stand in one piece of memory, and what is known about the damage in their heaps.

A batch in a group has good rows and lengths. A byte of its heap is used only if its block was compared with the block's
checksum: either in advance (`check_all`, `check_front`) or by `stretch`, which checks what it hands out.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from penstock.disk.checksum import crc32
from penstock.journal.format.layout import BLOCK_BYTES, CRC_BYTES, LENGTH_BYTES, ROW_BYTES

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Lengths = NDArray[np.int32]


class Batch(NamedTuple):
    """A batch whose header, rows and lengths are good. `meta_at` and `heap_at` are offsets in the window."""

    # Position in the segment of the batch behind it.
    end: int
    first_lsn: int
    next_lsn: int
    wall_us: int
    crc: int
    rows: int
    entries: int
    props_bytes: int
    heap_bytes: int
    heap_crc: int
    meta_at: int
    heap_at: int


@final
class Group:
    """Some batches of a window, a stretch of the segment that was read at once."""

    __slots__ = ("_checked_bytes", "_whole_heaps", "bad_blocks", "batches", "events", "seed", "window")

    def __init__(self, window: memoryview, seed: int) -> None:
        self.window = window
        self.batches: list[Batch] = []
        self.events = 0
        # Which blocks are damaged, by batch: of those batches that have any, as far as they were checked.
        self.bad_blocks: dict[int, Bools] = {}
        self.seed = seed
        # How much of the heap, from its beginning, is known to be good; by batch, of those that were checked.
        self._checked_bytes: dict[int, int] = {}
        self._whole_heaps = 0

    @property
    def is_whole(self) -> bool:
        """Whether every heap was compared with its checksum in advance, and all of them are good."""
        return self._whole_heaps == len(self.batches)

    def check_all(self) -> None:
        """Check the heap of the last batch with one call, and if that fails each block of it alone."""
        batch = self.batches[-1]
        heap = self.window[batch.heap_at : batch.heap_at + batch.heap_bytes]
        if crc32(heap, self.seed) == batch.heap_crc:
            self._checked_bytes[len(self.batches) - 1] = batch.heap_bytes
            self._whole_heaps += 1
        else:
            self._find_bad_blocks(batch.heap_bytes)

    def check_front(self) -> None:
        """Check the blocks that hold the properties of the last batch, with one call if they are good."""
        number = len(self.batches) - 1
        batch = self.batches[number]
        if batch.props_bytes == 0:
            return
        last = (batch.props_bytes - 1) // BLOCK_BYTES
        front = min((last + 1) * BLOCK_BYTES, batch.heap_bytes)
        if crc32(self.window[batch.heap_at : batch.heap_at + front], self.seed) == self._block_crc(number, last):
            self._checked_bytes[number] = front
        else:
            self._find_bad_blocks(batch.props_bytes)

    def stretch(self, number: int, start: int, size: int) -> bytes | None:
        """Return bytes of a batch's heap; None when a block that they touch is damaged."""
        if start + size > self._checked_bytes.get(number, 0):
            for block in range(start // BLOCK_BYTES, -(-(start + size) // BLOCK_BYTES)):
                if not self._is_good(number, block):
                    return None
        at = self.batches[number].heap_at + start
        return bytes(self.window[at : at + size])

    def _find_bad_blocks(self, size: int) -> None:
        number = len(self.batches) - 1
        bad = np.array([not self._is_good(number, block) for block in range(-(-size // BLOCK_BYTES))], dtype=np.bool_)
        if bad.any():
            self.bad_blocks[number] = bad

    def _is_good(self, number: int, block: int) -> bool:
        batch = self.batches[number]
        start = block * BLOCK_BYTES
        end = min(start + BLOCK_BYTES, batch.heap_bytes)
        before = self._block_crc(number, block - 1) if block > 0 else self.seed
        data = self.window[batch.heap_at + start : batch.heap_at + end]
        return crc32(data, before) == self._block_crc(number, block)

    def _block_crc(self, number: int, block: int) -> int:
        batch = self.batches[number]
        at = batch.meta_at + batch.rows * ROW_BYTES + batch.entries * 2 * LENGTH_BYTES + block * CRC_BYTES
        return int.from_bytes(self.window[at : at + CRC_BYTES], "little")

    def rows(self) -> bytes:
        window = self.window
        return b"".join([window[batch.meta_at : batch.meta_at + batch.rows * ROW_BYTES] for batch in self.batches])

    def lengths(self) -> tuple[Lengths, Lengths]:
        """Of properties, and of bodies, by entry."""
        window = self.window
        props: list[memoryview] = []
        bodies: list[memoryview] = []
        for batch in self.batches:
            at = batch.meta_at + batch.rows * ROW_BYTES
            size = batch.entries * LENGTH_BYTES
            props.append(window[at : at + size])
            bodies.append(window[at + size : at + 2 * size])
        return _joined_lengths(props), _joined_lengths(bodies)


def _joined_lengths(parts: list[memoryview]) -> Lengths:
    return np.frombuffer(b"".join(parts), "<i4")
