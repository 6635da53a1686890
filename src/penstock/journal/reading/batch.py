"""One batch, read back: its rows at once, its properties and bodies on demand.

A view is good as long as the file is open that it was made from. Decoded entries are plain tuples.

Invariants
  1. Rows and lengths were compared with their checksum before a view exists.
  2. No byte of the heap is handed out whose block was not compared with its checksum.
  3. A damaged block costs the entries that touch it: by their body, by their properties, by those they share, or by
     the name of their route. All other entries are served.

After a crash the heap of the last batch may not be whole: `heap_is_whole` finds that out.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import final

from penstock.disk.checksum import crc32
from penstock.journal.format.envelopes import NO_ENVELOPE, decode_envelope
from penstock.journal.format.layout import BLOCK_BYTES, LENGTH_BYTES, ROW, ROW_BYTES, BatchHeader
from penstock.journal.format.rows import (
    NAME,
    NAME_ROUTE,
    PERSISTENT,
    PUBLISHED,
    ROW_ARG,
    ROW_COUNT,
    ROW_ENTRY,
    ROW_FLAGS,
    ROW_KIND,
    ROW_ROUTE,
    SHARED_PROPS,
)
from penstock.journal.reading.segment_reader import SegmentReader
from penstock.message import Envelope

Decoded = tuple[Envelope, bytes] | None


class RottenBatch(Exception):
    """Bytes of a batch that were written are no longer what they were."""

    def __init__(self, segment: int, pos: int, what: str) -> None:
        super().__init__(f"journal segment {segment}, batch at {pos}: {what}")
        self.segment = segment
        self.pos = pos


@final
class BatchView:
    """A batch whose header and rows are good."""

    __slots__ = (
        "_block_crcs",
        "_body_at",
        "_header",
        "_props_at",
        "_reader",
        "body_len",
        "crc",
        "durable_lsn",
        "end",
        "first_lsn",
        "flags",
        "next_lsn",
        "pos",
        "props_len",
        "rows",
        "segment",
        "wall_us",
    )

    def __init__(self, reader: SegmentReader, header: BatchHeader, meta: bytes) -> None:
        self._reader = reader
        self._header = header
        self.segment = header.segment
        self.pos = header.pos
        # Position behind the batch.
        self.end = header.end
        self.first_lsn = header.first_lsn
        # LSN behind its last event.
        self.next_lsn = header.first_lsn + header.events
        self.durable_lsn = header.durable_lsn
        self.wall_us = header.wall_us
        self.flags = header.flags
        self.crc = header.crc
        at = header.rows * ROW_BYTES
        self.rows: list[tuple[int, ...]] = list(ROW.iter_unpack(meta[:at]))
        lengths = header.entries * LENGTH_BYTES
        self.props_len = array("i")
        self.props_len.frombytes(meta[at : at + lengths])
        self.body_len = array("i")
        self.body_len.frombytes(meta[at + lengths : at + 2 * lengths])
        self._block_crcs = array("I")
        self._block_crcs.frombytes(meta[at + 2 * lengths :])
        # Offsets in the heap by entry, made when they are needed.
        self._props_at: list[int] = []
        self._body_at: list[int] = []

    def follows(self, prev_crc: int) -> bool:
        """Return whether it was written behind the batch with that header; -1 when that one is not known."""
        return prev_crc in (-1, self._header.prev_crc)

    def props(self, entry: int) -> bytes:
        """Return the properties that the entry itself carries; RottenBatch when they are damaged."""
        props_at, _ = self.offsets()
        return self._checked(props_at[entry], self.props_len[entry])

    def body(self, entry: int) -> bytes:
        _, body_at = self.offsets()
        return self._checked(body_at[entry], self.body_len[entry])

    def offsets(self) -> tuple[list[int], list[int]]:
        """Where the properties and the bodies begin in the heap, by entry, and where they end."""
        if not self._body_at:
            self._props_at = list(accumulate(self.props_len, initial=0))
            self._body_at = list(accumulate(self.body_len, initial=self._header.props_bytes))
        return self._props_at, self._body_at

    def read_heap(self) -> tuple[bytes, list[int]]:
        """Return all properties and bodies, and the numbers of the blocks in it that are damaged."""
        header = self._header
        size = header.props_bytes + header.body_bytes
        heap = self._reader.bytes_at(header.heap_at, size)
        if len(heap) == size and crc32(heap, self._seed()) == header.heap_crc:
            return heap, []
        # A file that became shorter: zeros keep the offsets, and their blocks are found to be bad.
        heap += bytes(size - len(heap))
        return heap, [block for block in range(header.blocks) if not self._is_good(heap, 0, block)]

    def heap_is_whole(self) -> bool:
        _, bad = self.read_heap()
        return not bad

    def _checked(self, start: int, size: int) -> bytes:
        """Return a stretch of the heap, read and checked by whole blocks."""
        if size == 0:
            return b""
        first = start // BLOCK_BYTES
        last = (start + size - 1) // BLOCK_BYTES
        heap_bytes = self._header.props_bytes + self._header.body_bytes
        end = min((last + 1) * BLOCK_BYTES, heap_bytes)
        data = self._reader.bytes_at(self._header.heap_at + first * BLOCK_BYTES, end - first * BLOCK_BYTES)
        for block in range(first, last + 1):
            if not self._is_good(data, first, block):
                raise RottenBatch(self.segment, self.pos, f"block {block} of its heap is damaged")
        at = start - first * BLOCK_BYTES
        return data[at : at + size]

    def _is_good(self, data: bytes, first: int, block: int) -> bool:
        """Return whether a block is what was written; `data` begins with block `first`."""
        at = (block - first) * BLOCK_BYTES
        before = self._block_crcs[block - 1] if block > 0 else self._seed()
        return crc32(data[at : at + BLOCK_BYTES], before) == self._block_crcs[block]

    def _seed(self) -> int:
        head = self._reader.head
        assert head is not None
        return head.seed


def view_at(reader: SegmentReader, pos: int) -> BatchView | None:
    """Return the batch at a position; None unless its header, rows and lengths are good."""
    if reader.head is None:
        return None
    header = reader.header_at(pos)
    if header is None:
        return None
    meta = reader.bytes_at(header.meta_at, header.heap_at - header.meta_at)
    if crc32(meta, reader.head.seed) != header.meta_crc:
        return None
    return BatchView(reader, header, meta)


def decode_entries(view: BatchView) -> list[Decoded]:
    """Return the messages of a batch by entry; None for those that are damaged. Texts come with NO_ENVELOPE."""
    heap, bad_blocks = view.read_heap()
    props_at, body_at = view.offsets()
    bad = set(bad_blocks)
    decoded: list[Decoded] = [None] * len(view.body_len)
    routes: dict[int, bytes] = {}
    for row in view.rows:
        first = row[ROW_ENTRY]
        if first < 0 or decoded[first] is not None:
            # No entry, or those of a row before it (fan-out).
            continue
        if row[ROW_KIND] == PUBLISHED:
            if row[ROW_ROUTE] in routes:
                _decode_run(row, heap, bad, props_at, body_at, routes[row[ROW_ROUTE]], decoded)
        elif _is_readable(body_at, first, bad):
            text = heap[body_at[first] : body_at[first + 1]]
            decoded[first] = (NO_ENVELOPE, text)
            if row[ROW_KIND] == NAME and row[ROW_ARG] == NAME_ROUTE:
                routes[row[ROW_ROUTE]] = text
    return decoded


def _decode_run(
    row: tuple[int, ...],
    heap: bytes,
    bad: set[int],
    props_at: list[int],
    body_at: list[int],
    address: bytes,
    decoded: list[Decoded],
) -> None:
    first = row[ROW_ENTRY]
    end = first + row[ROW_COUNT]
    persistent = row[ROW_FLAGS] & PERSISTENT != 0
    priority = row[ROW_ARG]
    if row[ROW_FLAGS] & SHARED_PROPS:
        if not _is_readable(props_at, first, bad):
            return
        envelope = decode_envelope(address, heap[props_at[first] : props_at[first + 1]], persistent, priority)
        for entry in range(first, end):
            if not bad or _is_readable(body_at, entry, bad):
                decoded[entry] = (envelope, heap[body_at[entry] : body_at[entry + 1]])
        return
    for entry in range(first, end):
        if not bad or (_is_readable(props_at, entry, bad) and _is_readable(body_at, entry, bad)):
            envelope = decode_envelope(address, heap[props_at[entry] : props_at[entry + 1]], persistent, priority)
            decoded[entry] = (envelope, heap[body_at[entry] : body_at[entry + 1]])


def _is_readable(offsets: list[int], entry: int, bad: set[int]) -> bool:
    """Return whether all blocks between two offsets are good."""
    if not bad:
        return True
    start, end = offsets[entry], offsets[entry + 1]
    return start == end or bad.isdisjoint(range(start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1))
