"""The batches of a range, hopped over by their headers, and handed on in groups.

A batch is too small to be an Arrow batch. So a large window of the segment is read at once, and the batches in it go on
together: NumPy and Arrow see their sections as one, and take properties and bodies from where they are in the window.

Every header and all rows and lengths are compared with their checksums, and by the same rule as in
`journal.reading.replay`: behind damage only a header with the right salt, position and LSN is taken. The heap is
checked as far as it is wanted. LSNs that cannot be read are handed on as `Damage`, where they would have been.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, final

from penstock.disk.checksum import crc32
from penstock.history.log import Log, SegmentIndex
from penstock.journal.format.layout import (
    ALIGN_BYTES,
    CRC_BYTES,
    FIRST_BATCH_AT,
    HEAD_BYTES,
    HEAD_COPY_AT,
    HEADER,
    HEADER_BYTES,
    HEADER_CRC,
    HEADER_MAGIC,
    LENGTH_BYTES,
    ROW_BYTES,
    SALT_AT,
    VERSION,
    BatchHeader,
    SegmentHead,
    decode_head,
    decode_header,
)
from penstock.pipeline.decode.group.group import Batch, Group
from penstock.pipeline.decode.ranges import LogRange

# Read at once; half of what one request over HTTP may ask for. A batch that is larger is read as a whole.
WINDOW_BYTES: Final = 4 * 1024 * 1024
# How much of the heap is compared with its checksum in advance; the rest is checked block by block when it is read.
HeapBytes = str
NOTHING_OF_HEAP: Final[HeapBytes] = "nothing"
PROPERTIES_OF_HEAP: Final[HeapBytes] = "properties"
ALL_OF_HEAP: Final[HeapBytes] = "all"
NO_BYTES: Final = memoryview(b"")


class Damage(NamedTuple):
    """Events [first_lsn, next_lsn) that were durable and cannot be read."""

    segment: int
    pos: int
    bytes: int
    first_lsn: int
    next_lsn: int
    # Wall clock of the last batch before them.
    time_us: int

    @property
    def problem(self) -> str:
        where = f"segment {self.segment}, bytes {self.pos} to {self.pos + self.bytes}"
        return f"{where}: events {self.first_lsn} to {self.next_lsn - 1} cannot be read"


@final
class Walk:
    __slots__ = (
        "_damaged_from",
        "_head",
        "_index",
        "_last_us",
        "_log",
        "_next_lsn",
        "_part",
        "_prev_crc",
        "_window",
        "_window_at",
    )

    def __init__(self, log: Log, part: LogRange, index: SegmentIndex) -> None:
        self._log = log
        self._part = part
        self._index = index
        self._window = NO_BYTES
        self._window_at = 0
        self._head = _read_head(log, part.segment)
        # Of the batch before; -1 when it is not known.
        self._prev_crc = -1
        self._last_us = self._head.wall_us if self._head is not None else 0
        # Where the bytes begin that could not be read; -1 when the batch before was good.
        self._damaged_from = -1
        self._next_lsn = part.from_lsn
        for mark in index.marks:
            if mark.pos == part.from_pos:
                self._next_lsn = mark.lsn
        if part.from_pos <= FIRST_BATCH_AT:
            self._next_lsn = index.first_lsn

    @property
    def seed(self) -> int:
        """Where the checksums of the segment start."""
        return self._head.seed if self._head is not None else 0

    def groups(self, heap_bytes: HeapBytes) -> Iterator[Group | Damage]:
        """All batches that have events of the range, and what is lost, in the order of LSNs."""
        part = self._part
        pos = part.from_pos
        while pos < part.to_pos and self._next_lsn < part.to_lsn:
            if self._load(pos, HEADER_BYTES):
                group = Group(self._window, self.seed)
                end = self._hop(group, pos, heap_bytes)
                if group.events > 0:
                    yield group
                if end > pos:
                    pos = end
                    continue
                batch = self._batch_at(pos)
                if batch is not None:
                    # It was the window that ended, or LSNs are missing in front of it.
                    damage = self._loss(pos, batch.first_lsn)
                    if damage is not None:
                        yield damage
                    self._next_lsn = batch.first_lsn
                    self._damaged_from = -1
                    continue
            if self._damaged_from < 0:
                self._damaged_from = pos
            self._prev_crc = -1
            pos = self._find_header(pos)
        if self._next_lsn < part.to_lsn:
            damage = self._loss(pos, self._lsn_behind())
            if damage is not None:
                yield damage

    # --- batches ----------------------------------------------------------------------------------

    def _hop(self, group: Group, pos: int, heap_bytes: HeapBytes) -> int:
        """Gather the good batches from `pos` on that are in the window and follow each other; the end of the last."""
        part = self._part
        while pos < part.to_pos and self._next_lsn < part.to_lsn:
            batch = self._batch_in_window(pos)
            if batch is None or batch.first_lsn != self._next_lsn:
                break
            self._next_lsn = batch.next_lsn
            self._prev_crc = batch.crc
            self._last_us = batch.wall_us
            pos = batch.end
            if batch.rows > 0 and batch.next_lsn > part.from_lsn:
                group.batches.append(batch)
                group.events += batch.next_lsn - batch.first_lsn
                if heap_bytes == ALL_OF_HEAP:
                    group.check_all()
                elif heap_bytes == PROPERTIES_OF_HEAP:
                    group.check_front()
        return pos

    def _batch_at(self, pos: int) -> Batch | None:
        """Return the batch at a position; None unless it is there as a whole and its header and meta are good."""
        if not self._load(pos, HEADER_BYTES):
            return None
        header = self._header_in_window(pos)
        if header is None or not self._load(pos, header.end - pos):
            return None
        return self._batch_in_window(pos)

    def _header_in_window(self, pos: int) -> BatchHeader | None:
        at = pos - self._window_at
        return decode_header(bytes(self._window[at : at + HEADER_BYTES]), 0, self._part.segment, pos)

    def _batch_in_window(self, pos: int) -> Batch | None:
        """Return the same, without reading: None, too, if the window ends before the batch does."""
        at = pos - self._window_at
        window, head = self._window, self._head
        if at + HEADER_BYTES > len(window) or head is None:
            return None
        (magic, version, _, salt, own, first_lsn, _, wall_us, prev_crc, events, rows, entries, props_bytes,
         body_bytes, blocks, meta_crc, heap_crc, segment, _) = HEADER.unpack_from(window, at)  # fmt: skip
        if magic != HEADER_MAGIC or version != VERSION or own != pos or salt != head.salt:
            return None
        meta_at = at + HEADER_BYTES
        crc: int = HEADER_CRC.unpack_from(window, meta_at - CRC_BYTES)[0]
        if segment != self._part.segment or crc32(window[at : meta_at - CRC_BYTES], head.seed) != crc:
            return None
        if first_lsn < self._next_lsn or self._prev_crc not in (-1, prev_crc):
            return None
        heap_at = meta_at + rows * ROW_BYTES + entries * 2 * LENGTH_BYTES + blocks * CRC_BYTES
        end = self._window_at + heap_at + props_bytes + body_bytes
        end += -end % ALIGN_BYTES
        if end > self._window_at + len(window) or crc32(window[meta_at:heap_at], head.seed) != meta_crc:
            return None
        return Batch(
            end, first_lsn, first_lsn + events, wall_us, crc, rows, entries, props_bytes, props_bytes + body_bytes,
            heap_crc, meta_at, heap_at,
        )  # fmt: skip

    def _load(self, pos: int, size: int) -> bool:
        """Have the bytes at a position in the window; False when the segment ends before they do."""
        at = pos - self._window_at
        if at >= 0 and at + size <= len(self._window):
            return True
        wanted = max(size, min(WINDOW_BYTES, self._part.to_pos - pos))
        self._window = self._log.view(self._part.segment, pos, wanted)
        self._window_at = pos
        return size <= len(self._window)

    # --- damage -----------------------------------------------------------------------------------

    def _find_header(self, after: int) -> int:
        """Position of the next header behind damage; the end of the range when there is none."""
        end = self._part.to_pos
        if self._head is None:
            return end
        # The salt is searched for, and not the magic: clients do not know it, so they cannot make this slow.
        salt = self._head.salt.to_bytes(8, "little")
        start = after + ALIGN_BYTES
        searched, searched_at = b"", -1
        while start + HEADER_BYTES <= end:
            if not self._load(start, HEADER_BYTES):
                return end
            if searched_at != self._window_at:
                searched, searched_at = bytes(self._window), self._window_at
            at = searched.find(salt, start - searched_at + SALT_AT)
            if at < 0:
                # A header may stand across two windows.
                start = self._window_at + len(self._window) - HEADER_BYTES + 1
                if self._window_at + len(self._window) >= end:
                    return end
                self._window = NO_BYTES
                continue
            start = self._window_at + at - SALT_AT
            if not self._load(start, HEADER_BYTES):
                return end
            header = self._header_in_window(start)
            if header is not None and min(header.first_lsn, header.durable_lsn) >= self._next_lsn:
                return start
            start += 1
        return end

    def _loss(self, pos: int, next_lsn: int) -> Damage | None:
        """What is missing in front of the LSN that stands at `pos`, if it is for this range to say so."""
        if not (self._part.from_lsn <= self._next_lsn < next_lsn):
            return None
        begin = self._damaged_from if self._damaged_from >= 0 else pos
        return Damage(self._part.segment, begin, pos - begin, self._next_lsn, next_lsn, self._last_us)

    def _lsn_behind(self) -> int:
        """Return the LSN that stands behind the range, wherever that is."""
        for mark in self._index.marks:
            if mark.pos == self._part.to_pos:
                return max(mark.lsn, self._part.to_lsn)
        for segment in self._log.state().segments:
            if segment.number > self._part.segment:
                return max(segment.first_lsn, self._part.to_lsn)
        return max(self._index.next_lsn, self._part.to_lsn)


def _read_head(log: Log, segment: int) -> SegmentHead | None:
    data = log.read(segment, 0, FIRST_BATCH_AT + HEADER_BYTES)
    for at in (0, HEAD_COPY_AT):
        head = decode_head(data[at : at + HEAD_BYTES], segment)
        if head is not None:
            return head
    first = decode_header(data, FIRST_BATCH_AT, segment, FIRST_BATCH_AT)
    return None if first is None else SegmentHead(first.salt, first.first_lsn, first.wall_us)
