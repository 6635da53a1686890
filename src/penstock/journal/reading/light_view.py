"""One batch for reads of a part of it: where each entry is, and how to check it, without decoding the others.

A view has the checked columns of a batch, but no bytes of messages and no open file: each read is handed the segment. A
message costs one or two blocks of the heap, and neighbours share theirs. The address of the last route is kept, since
most messages of a batch have the same.

Invariants
  1. `_starts` has the first entry of each run in order, each once: rows of a fan-out name the entries that others had.
     `_routes` and `_kinds` are those of the first row that names the run.
  2. What `read` and `read_run` answer equals the entry in `batch.decode_entries`, and was compared with its checksum.
  3. `size_bytes` is what the view takes in RAM, with the largest address that it may keep.
  4. Reads in order are counted, and each count ends in one decoding of the whole batch: so in any order of reads the
     time is at most about twice that of the better of both ways.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Final, final

from penstock.disk.checksum import crc32
from penstock.journal.format.envelopes import NO_ENVELOPE, decode_envelope
from penstock.journal.format.layout import BLOCK_BYTES, CRC_BYTES, LENGTH_BYTES, ROW_BYTES, BatchHeader
from penstock.journal.format.rows import NAME, NAME_ROUTE, PERSISTENT, PUBLISHED, SHARED_PROPS
from penstock.journal.reading.batch import Decoded
from penstock.journal.reading.segment_reader import SegmentReader

# A row as words of four bytes: how many, and where some fields are. Kind, flags and arg share one.
_ROW_WORDS: Final = ROW_BYTES // 4
_ROUTE_WORD: Final = 5
_ENTRY_WORD: Final = 6
_KIND_WORD: Final = 7
# That word of a row which names a route.
_NAMES_ROUTE: Final = NAME_ROUTE << 16 | NAME

# Roughly, in bytes that are checked in the same time: one read of an entry alone; one entry of a batch decoded whole.
_READ_COSTS: Final = 16 * 1024
_ENTRY_COSTS: Final = 400
# What a decoded entry takes beyond its bytes: a tuple, a bytes object, a place in the list.
ENTRY_BYTES: Final = 100
# The object, the heads of its arrays, its place in a dict, and the longest address.
_FIXED_BYTES: Final = 1700


@final
class LightView:
    __slots__ = (
        "_block_crcs",
        "_body_at",
        "_heap_at",
        "_heap_bytes",
        "_kinds",
        "_last_address",
        "_last_entry",
        "_last_route",
        "_name_entries",
        "_name_routes",
        "_props_at",
        "_reads_in_order",
        "_reads_max",
        "_routes",
        "_seed",
        "_starts",
        "decoded_bytes",
        "size_bytes",
    )

    def __init__(self, header: BatchHeader, meta: bytes, seed: int) -> None:
        self._heap_at = header.heap_at
        self._heap_bytes = header.props_bytes + header.body_bytes
        self.decoded_bytes = decoded_bytes(header)
        self._seed = seed
        lengths_at = header.rows * ROW_BYTES
        words = array("i", meta[:lengths_at])
        entries = words[_ENTRY_WORD::_ROW_WORDS]
        entries.reverse()
        # Backwards, so that the first row of a run is the one that stays.
        row_of = dict(zip(entries, range(header.rows - 1, -1, -1), strict=True))
        row_of.pop(-1, None)
        starts = sorted(row_of)
        rows = [row_of[start] for start in starts]
        self._starts = array("i", starts)
        self._routes = _picked(words[_ROUTE_WORD::_ROW_WORDS], rows)
        self._kinds = _picked(words[_KIND_WORD::_ROW_WORDS], rows)
        kinds = self._kinds
        named = [index for index in range(len(kinds)) if kinds[index] == _NAMES_ROUTE]
        names = sorted([(self._routes[index], starts[index]) for index in named])
        self._name_routes = array("i", [route for route, _ in names])
        self._name_entries = array("i", [entry for _, entry in names])
        size = header.entries * LENGTH_BYTES
        bodies_at = lengths_at + size
        # Where they begin in the heap, by entry, and where the last one ends.
        self._props_at = array("I", accumulate(array("i", meta[lengths_at:bodies_at]), initial=0))
        self._body_at = array(
            "I", accumulate(array("i", meta[bodies_at : bodies_at + size]), initial=header.props_bytes)
        )
        self._block_crcs = array("I", meta[bodies_at + size :])
        self._last_route = -1
        self._last_address = b""
        self._last_entry = -1
        self._reads_in_order = 0
        # So many cost as much as the whole batch. A few that happen to be in order are no reason to read more.
        self._reads_max = max(8, (self._heap_bytes + header.entries * _ENTRY_COSTS) // _READ_COSTS)
        columns = len(self._starts) + len(self._routes) + len(self._kinds) + 2 * len(self._name_routes)
        offsets = len(self._props_at) + len(self._body_at)
        self.size_bytes = _FIXED_BYTES + 4 * (columns + offsets) + CRC_BYTES * len(self._block_crcs)

    def is_worth_decoding(self, entry: int) -> bool:
        """Note that an entry is read now; whether so many were read in order that all of them will be wanted."""
        self._reads_in_order = self._reads_in_order + 1 if entry > self._last_entry else 1
        self._last_entry = entry
        if self._reads_in_order < self._reads_max:
            return False
        self._reads_in_order = 0
        return True

    def read(self, reader: SegmentReader, entry: int) -> Decoded:
        """One entry, out of the segment that the view was made of; None when it is damaged, or when there is none."""
        run = bisect_right(self._starts, entry) - 1
        if run < 0 or entry >= len(self._body_at) - 1:
            return None
        body = self._between(reader, self._body_at[entry], self._body_at[entry + 1])
        if body is None:
            return None
        word = self._kinds[run]
        if word & 0xFF != PUBLISHED:
            return NO_ENVELOPE, body
        flags = word >> 8 & 0xFF
        described = self._starts[run] if flags & SHARED_PROPS else entry
        properties = self._between(reader, self._props_at[described], self._props_at[described + 1])
        route = self._routes[run]
        address = self._last_address if route == self._last_route else self._address(reader, route)
        if properties is None or address is None:
            return None
        # The priority is what is left of the word, with its sign.
        return decode_envelope(address, properties, flags & PERSISTENT != 0, word >> 16), body

    def read_run(self, reader: SegmentReader, first: int, count: int) -> list[Decoded]:
        """Entries that follow each other, as `read` answers for each; fewer behind the last. Costs what they take."""
        end = min(first + count, len(self._body_at) - 1)
        if first < 0 or first >= end:
            return []
        bodies = self._between(reader, self._body_at[first], self._body_at[end])
        props = self._between(reader, self._props_at[first], self._props_at[end])
        if bodies is None or props is None:
            # Some of it is damaged: each for itself.
            return [self.read(reader, entry) for entry in range(first, end)]
        found: list[Decoded] = []
        run = bisect_right(self._starts, first) - 1
        while first < end:
            following = self._starts[run + 1] if run + 1 < len(self._starts) else end
            stop = min(end, following)
            self._read_part(reader, run, first, stop, bodies, props, found)
            first = stop
            run += 1
        return found

    def _read_part(
        self,
        reader: SegmentReader,
        run: int,
        first: int,
        stop: int,
        bodies: bytes,
        props: bytes,
        found: list[Decoded],
    ) -> None:
        """Entries of one run. `bodies` and `props` are those of all entries of a read, from the one behind `found`."""
        body_at, props_at = self._body_at, self._props_at
        begun = first - len(found)
        from_byte = body_at[begun]
        word = self._kinds[run]
        if word & 0xFF != PUBLISHED:
            for entry in range(first, stop):
                found.append((NO_ENVELOPE, bodies[body_at[entry] - from_byte : body_at[entry + 1] - from_byte]))
            return
        flags = word >> 8 & 0xFF
        is_shared = flags & SHARED_PROPS != 0
        address = self._address(reader, self._routes[run])
        properties = self._span(reader, props_at, self._starts[run]) if is_shared else b""
        if address is None or properties is None:
            found.extend([None] * (stop - first))
            return
        is_persistent = flags & PERSISTENT != 0
        if is_shared:
            envelope = decode_envelope(address, properties, is_persistent, word >> 16)
            for entry in range(first, stop):
                found.append((envelope, bodies[body_at[entry] - from_byte : body_at[entry + 1] - from_byte]))
            return
        props_from = props_at[begun]
        for entry in range(first, stop):
            properties = props[props_at[entry] - props_from : props_at[entry + 1] - props_from]
            envelope = decode_envelope(address, properties, is_persistent, word >> 16)
            found.append((envelope, bodies[body_at[entry] - from_byte : body_at[entry + 1] - from_byte]))

    def _address(self, reader: SegmentReader, route: int) -> bytes | None:
        """Exchange and routing key; None when they are damaged."""
        if route == self._last_route:
            return self._last_address
        index = bisect_left(self._name_routes, route)
        if index == len(self._name_routes) or self._name_routes[index] != route:
            return None
        address = self._span(reader, self._body_at, self._name_entries[index])
        if address is not None:
            self._last_route = route
            self._last_address = address
        return address

    def _span(self, reader: SegmentReader, offsets: array[int], entry: int) -> bytes | None:
        return self._between(reader, offsets[entry], offsets[entry + 1])

    def _between(self, reader: SegmentReader, start: int, stop: int) -> bytes | None:
        """Return a stretch of the heap, read and checked by whole blocks; None when one of them is damaged."""
        size = stop - start
        if size == 0:
            return b""
        first = start // BLOCK_BYTES
        behind = (start + size - 1) // BLOCK_BYTES + 1
        from_byte = first * BLOCK_BYTES
        # Not through the window of the reader: reads out of order would fill it anew each time.
        data = reader.file.pread(min(behind * BLOCK_BYTES, self._heap_bytes) - from_byte, self._heap_at + from_byte)
        crcs = self._block_crcs
        # Each checksum goes on from the one before, so one call checks all of them.
        if crc32(data, crcs[first - 1] if first > 0 else self._seed) != crcs[behind - 1]:
            return None
        return data[start - from_byte : start - from_byte + size]


def decoded_bytes(header: BatchHeader) -> int:
    """What a batch takes in RAM when it is decoded whole."""
    return header.end - header.pos + header.entries * ENTRY_BYTES


def _picked(column: array[int], rows: list[int]) -> array[int]:
    return array("i", [column[row] for row in rows])


def light_view_at(reader: SegmentReader, pos: int) -> LightView | None:
    """Return the batch at a position; None unless its header, rows and lengths are good."""
    if reader.head is None:
        return None
    header = reader.header_at(pos)
    if header is None:
        return None
    meta = reader.bytes_at(header.meta_at, header.heap_at - header.meta_at)
    if crc32(meta, reader.head.seed) != header.meta_crc:
        return None
    return LightView(header, meta, reader.head.seed)
