"""Reading a range of the log as Arrow batches.

`read_range` is what readers call. The rows come in the order of their LSNs, and are the same each time, however the log
is cut into ranges. What cannot be read is a row that says so: nothing is raised because of damage, and no byte is shown
whose checksum is wrong. `SegmentGone` passes: it is no damage.

The column `problem` is about the columns that are asked for, since no others are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import numpy as np
import pyarrow as pa

from penstock.history.log import Log, SegmentIndex
from penstock.pipeline.columns import UNREADABLE
from penstock.pipeline.decode.columns.event_columns import EventColumns
from penstock.pipeline.decode.columns.piece import Piece
from penstock.pipeline.decode.columns.run_columns import RunColumns
from penstock.pipeline.decode.decoded import OF_PROPERTIES, DecodedGroup, RangeNames
from penstock.pipeline.decode.group.entries import Entries
from penstock.pipeline.decode.group.group import Group
from penstock.pipeline.decode.group.rows import KIND_TEXTS, NO_SEQ, RowFilter, Rows, decode_rows
from penstock.pipeline.decode.group.sanity import alone, is_sane, stretch_of
from penstock.pipeline.decode.group.sections import (
    ALL_OF_HEAP,
    NOTHING_OF_HEAP,
    PROPERTIES_OF_HEAP,
    Damage,
    HeapBytes,
    Walk,
)
from penstock.pipeline.decode.ranges import LogRange
from penstock.pipeline.decode.request import EVENTS_VIEW, Request

# Bodies and properties of one Arrow batch: its offsets have 32 bits, and several batches are in memory at once.
BATCH_BYTES_MAX: Final = 256 * 1024 * 1024
# Batches that are larger are not worth a copy.
MERGED_BYTES_MAX: Final = 4 * 1024 * 1024
PROBLEM: Final = "problem"


def read_range(
    log: Log, part: LogRange, request: Request, index: SegmentIndex | None = None
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a range, in batches of about `request.batch_rows`.

    The planner of the range has the index of its segment already, and can send it along: a log in another process
    would have to make it again, by a walk through the whole segment.
    """
    if index is None:
        index = log.index(part.segment)
    return _merged(_Reader(log, part, request, index).batches(), request)


def _merged(batches: Iterator[pa.RecordBatch], request: Request) -> Iterator[pa.RecordBatch]:
    """Small batches together: filters may leave little of each."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        batch_bytes = batch.get_total_buffer_size()
        if held and (rows + batch.num_rows > request.batch_rows or size + batch_bytes > MERGED_BYTES_MAX):
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch_bytes
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@final
class _Reader:
    __slots__ = ("_filter", "_index", "_log", "_names", "_part", "_request")

    def __init__(self, log: Log, part: LogRange, request: Request, index: SegmentIndex) -> None:
        self._log = log
        self._part = part
        self._request = request
        self._index = index
        self._filter = RowFilter(request, part, self._index)
        self._names = RangeNames(self._index)

    def batches(self) -> Iterator[pa.RecordBatch]:
        walk = Walk(self._log, self._part, self._index)
        for found in walk.groups(_heap_bytes(self._request)):
            if isinstance(found, Damage):
                yield from self._damage(found)
            else:
                yield from self._group(found)

    def _damage(self, damage: Damage) -> Iterator[pa.RecordBatch]:
        if self._filter.lets_damage_pass(damage.time_us):
            yield _unreadable(damage, self._request)

    def _group(self, group: Group) -> Iterator[pa.RecordBatch]:
        all_rows = decode_rows(group)
        entries = Entries(group)
        if is_sane(group, all_rows, entries):
            yield from self._decoded(group, all_rows, entries)
        elif len(group.batches) > 1:
            for number in range(len(group.batches)):
                yield from self._group(alone(group, number))
        else:
            batch = group.batches[0]
            if self._part.from_lsn <= batch.first_lsn:
                where = self._part.segment, *stretch_of(batch)
                yield from self._damage(Damage(*where, batch.first_lsn, batch.next_lsn, batch.wall_us))

    def _decoded(self, group: Group, all_rows: Rows, entries: Entries) -> Iterator[pa.RecordBatch]:
        wall_us = np.array([batch.wall_us for batch in group.batches])
        rows = self._filter.apply(all_rows, wall_us)
        if not len(rows):
            return
        if self._request.wants("exchange", "routing_key"):
            rows.route = self._names.routes.codes(all_rows, entries, rows)
        decoded = DecodedGroup(self._log, self._request, self._names, wall_us, rows, entries)
        if self._request.view == EVENTS_VIEW:
            for some in rows.pieces(self._request.batch_rows):
                yield from self._events(some, decoded)
        else:
            yield self._made(RunColumns(Piece(rows), decoded))

    def _events(self, rows: Rows, decoded: DecodedGroup) -> Iterator[pa.RecordBatch]:
        piece = Piece(rows)
        if piece.size > 1 and decoded.bytes_of(piece, BATCH_BYTES_MAX) > BATCH_BYTES_MAX:
            half = piece.size // 2
            yield from self._events(rows.events(0, half), decoded)
            yield from self._events(rows.events(half, piece.size), decoded)
        else:
            yield self._made(EventColumns(piece, decoded))

    def _made(self, columns: EventColumns | RunColumns) -> pa.RecordBatch:
        names = self._request.names
        arrays = {name: columns.column(name) for name in names if name != PROBLEM}
        # Last: what the other columns have met is in it.
        if PROBLEM in names:
            arrays[PROBLEM] = columns.problem()
        return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=self._request.schema)


def _heap_bytes(request: Request) -> HeapBytes:
    if request.view == EVENTS_VIEW and request.wants_bodies:
        return ALL_OF_HEAP
    return PROPERTIES_OF_HEAP if request.wants(*OF_PROPERTIES) else NOTHING_OF_HEAP


def _unreadable(damage: Damage, request: Request) -> pa.RecordBatch:
    """Return the row that stands for what is lost."""
    values: dict[str, object] = {
        "lsn": damage.first_lsn,
        "time": damage.time_us,
        "queue_no": -1,
        "seq": NO_SEQ,
        "count": damage.next_lsn - damage.first_lsn,
        "kind": KIND_TEXTS[UNREADABLE],
        "kind_no": UNREADABLE,
        "problem": damage.problem,
    }
    schema = request.schema
    return pa.RecordBatch.from_arrays([pa.array([values.get(f.name)], f.type) for f in schema], schema=schema)
