"""The rows of a group as parallel arrays: filtered, clipped and cut, before anything is made of them.

A row stands for `count` events on consecutive messages. Every filter is exact on rows: a kind, a queue and a time are
those of all its events, and bounds of LSN and seq cut a piece out of it. So nothing has to be filtered afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

import numpy as np

from penstock.history.log import SegmentIndex
from penstock.journal.format.rows import COMMIT, DEFINE, DELIVERED, FORGET, NAME, PUBLISHED, SHARED_PROPS
from penstock.pipeline.columns import KINDS, TAKEN, UNREADABLE
from penstock.pipeline.decode.group.group import Bools, Group, Ints
from penstock.pipeline.decode.ranges import LogRange, is_wanted
from penstock.pipeline.decode.request import Request

ROW: Final = np.dtype(
    [
        ("seq", "<i8"),
        ("queue", "<i4"),
        ("actor", "<i4"),
        ("count", "<i4"),
        ("route", "<i4"),
        ("entry", "<i4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("arg", "<i2"),
        ("number", "<i8"),
    ]
)

UNKNOWN: Final = "unknown"
# Of a row that is about no single message.
NO_SEQ: Final = -1
# DELIVERED with this actor: the queue itself has it.
NOBODY: Final = -1
# Kinds about the journal itself: they take LSNs and are no events of messages.
HIDDEN: Final = frozenset({NAME, DEFINE, COMMIT})
# kind_no -> kind, for every number that can be in a row or that a view adds.
KIND_TEXTS: Final[list[str]] = [KINDS.get(number, UNKNOWN) for number in range(256)]
IS_KNOWN_KIND: Final[Bools] = np.array([number in KINDS for number in range(256)])


def is_wanted_kind(kind_no: int, request: Request) -> bool:
    return request.kinds is None or KIND_TEXTS[kind_no] in request.kinds


@final
class Rows:
    """Parallel arrays, one element for each row. `cut` and `select` make new ones."""

    __slots__ = (
        "actor",
        "arg",
        "batch",
        "count",
        "entry",
        "flags",
        "kind",
        "lsn",
        "number",
        "props_entry",
        "queue",
        "route",
        "run_count",
        "seq",
        "skipped",
    )

    lsn: Ints
    seq: Ints
    count: Ints
    batch: Ints
    queue: Ints
    actor: Ints
    kind: Ints
    flags: Ints
    arg: Ints
    number: Ints
    route: Ints
    # Among all entries of the group; -1 for none. Properties that are shared have one entry for all events of a row.
    entry: Ints
    props_entry: Ints
    # Events of the whole run, and those in front of `seq` that were cut off.
    run_count: Ints
    skipped: Ints

    def __len__(self) -> int:
        return len(self.lsn)

    @property
    def published(self) -> Bools:
        return np.equal(self.kind, PUBLISHED)

    def select(self, which: Any) -> Rows:
        """Return some of the rows: a mask or a slice."""
        chosen = Rows()
        for name in Rows.__slots__:
            setattr(chosen, name, getattr(self, name)[which])
        return chosen

    def clip(self, begin: Ints, end: Ints) -> Rows:
        """Of each row the events [begin, end); rows of which nothing is left are gone."""
        which = begin < end
        rows = self if which.all() else self.select(which)
        begin, end = begin[which], end[which]
        if not begin.any() and (end == rows.count).all():
            return rows
        clipped = rows.select(slice(None))
        clipped.lsn = rows.lsn + begin
        clipped.seq = rows.seq + begin
        clipped.count = end - begin
        clipped.skipped = rows.skipped + begin
        clipped.entry = np.where(rows.entry >= 0, rows.entry + begin, rows.entry)
        is_shared = (rows.flags & SHARED_PROPS) != 0
        clipped.props_entry = np.where(is_shared | (rows.entry < 0), rows.props_entry, rows.props_entry + begin)
        return clipped

    def events(self, start: int, stop: int) -> Rows:
        """Return the events [start, stop), counted over all rows."""
        ends = np.cumsum(self.count)
        begins = ends - self.count
        first = int(np.searchsorted(ends, start, "right"))
        last = int(np.searchsorted(begins, stop, "left"))
        rows = self.select(slice(first, last))
        begin = np.maximum(start - begins[first:last], 0)
        return rows.clip(begin, np.minimum(stop - begins[first:last], rows.count))

    def pieces(self, events_max: int) -> Iterator[Rows]:
        """Rows with at most so many events, one after the other."""
        total = int(self.count.sum())
        if 0 < total <= events_max:
            yield self
            return
        pieces = -(-total // events_max)
        for piece in range(pieces):
            yield self.events(total * piece // pieces, total * (piece + 1) // pieces)


def decode_rows(group: Group) -> Rows:
    """Return all rows of a group, those about the journal itself included."""
    table = np.frombuffer(group.rows(), ROW)
    row_counts = np.array([batch.rows for batch in group.batches])
    rows = Rows()
    rows.count = table["count"].astype(np.int64)
    rows.batch = np.repeat(np.arange(len(row_counts)), row_counts)
    event_counts = np.array([batch.next_lsn - batch.first_lsn for batch in group.batches])
    entry_counts = np.array([batch.entries for batch in group.batches])
    events_before = np.cumsum(event_counts) - event_counts
    base = np.array([batch.first_lsn for batch in group.batches]) - events_before
    rows.lsn = np.cumsum(rows.count) - rows.count + base[rows.batch]
    kind = table["kind"].astype(np.int64)
    rows.actor = table["actor"].astype(np.int64)
    rows.kind = np.where((kind == DELIVERED) & (rows.actor == NOBODY), TAKEN, kind)
    rows.seq = np.where(kind == FORGET, NO_SEQ, table["seq"])
    rows.queue = table["queue"].astype(np.int64)
    rows.flags = table["flags"].astype(np.int64)
    rows.arg = table["arg"].astype(np.int64)
    rows.number = table["number"].astype(np.int64)
    rows.route = table["route"].astype(np.int64)
    entry = table["entry"].astype(np.int64)
    entries_before = np.cumsum(entry_counts) - entry_counts
    rows.entry = np.where(entry >= 0, entry + entries_before[rows.batch], -1)
    rows.props_entry = rows.entry
    rows.run_count = rows.count
    rows.skipped = np.zeros_like(rows.count)
    return rows


@final
class RowFilter:
    __slots__ = ("_kinds", "_part", "_queues", "_request")

    def __init__(self, request: Request, part: LogRange, index: SegmentIndex) -> None:
        self._request = request
        self._part = part
        self._kinds: Bools = np.array([_is_shown(kind_no, request) for kind_no in range(256)])
        self._queues: Ints | None = None
        if request.vhost is not None or request.queues is not None:
            wanted = [number for number, name in index.queues.items() if is_wanted(name, request)]
            self._queues = np.array(wanted, dtype=np.int64)

    def apply(self, rows: Rows, wall_us: Ints) -> Rows:
        """Return the rows, and the parts of rows, that are asked for."""
        which = self._kinds[rows.kind]
        if self._queues is not None:
            which &= np.isin(rows.queue, self._queues)
        if self._request.min_us is not None or self._request.max_us is not None:
            which &= self._in_time(wall_us)[rows.batch]
        rows = rows if which.all() else rows.select(which)
        return self._clip(rows) if len(rows) else rows

    def lets_damage_pass(self, time_us: int) -> bool:
        """Return whether a row of kind `unreadable` is asked for: it has neither a queue nor a seq to speak of."""
        request = self._request
        if not is_wanted_kind(UNREADABLE, request) or request.vhost is not None or request.queues is not None:
            return False
        if request.min_seq is not None and request.min_seq > NO_SEQ:
            return False
        if request.max_seq is not None and request.max_seq <= NO_SEQ:
            return False
        return bool(self._in_time(np.array([time_us]))[0])

    def _in_time(self, wall_us: Ints) -> Bools:
        which = np.ones(len(wall_us), dtype=np.bool_)
        if self._request.min_us is not None:
            which &= wall_us >= self._request.min_us
        if self._request.max_us is not None:
            which &= wall_us < self._request.max_us
        return which

    def _clip(self, rows: Rows) -> Rows:
        part, request = self._part, self._request
        is_inside = rows.lsn[0] >= part.from_lsn and rows.lsn[-1] + rows.count[-1] <= part.to_lsn
        if is_inside and request.min_seq is None and request.max_seq is None:
            return rows
        begin = np.maximum(part.from_lsn - rows.lsn, 0)
        end = np.minimum(part.to_lsn - rows.lsn, rows.count)
        if request.min_seq is not None:
            begin = np.maximum(begin, request.min_seq - rows.seq)
        if request.max_seq is not None:
            end = np.minimum(end, request.max_seq - rows.seq)
        return rows.clip(begin, end)


def _is_shown(kind_no: int, request: Request) -> bool:
    """Return whether a kind is in the views, and asked for."""
    return kind_no not in HIDDEN and is_wanted_kind(kind_no, request)
