"""Walks one segment and remembers what readers need: where batches stand, when they were written, who has which number.

`SegmentWalk` goes on where it stopped, so that following a segment that grows costs what was added. It accepts batches
by the rules of `journal.reading.replay`, and only those that are known to be durable: the header of a later batch says
so, a later segment is there, or the caller knows it from a checkpoint. What stands behind them is looked at again next
time, for it may be torn, or be overwritten after a write that failed.

Damage is stepped over: the walk goes on with the next valid header. There is a mark behind it, and the LSNs of the
marks show what is missing.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.disk.checksum import crc32
from penstock.history.log import Mark, SegmentIndex
from penstock.journal.format import rows
from penstock.journal.format.layout import FIRST_BATCH_AT, HEADER_BYTES, ROW, ROW_BYTES, BatchHeader, decode_header
from penstock.journal.reading.batch import BatchView, RottenBatch
from penstock.journal.reading.replay import NO_LIMIT
from penstock.journal.reading.segment_reader import SegmentReader

MARK_BYTES: Final = 1024 * 1024
# Where the kind stands in a row.
_KIND_AT: Final = 28


class _OpenMark:
    """A mark whose stretch may still grow."""

    __slots__ = ("lsn", "max_us", "min_us", "pos")

    def __init__(self, header: BatchHeader) -> None:
        self.pos = header.pos
        self.lsn = header.first_lsn
        self.min_us = self.max_us = header.wall_us

    def frozen(self) -> Mark:
        return Mark(self.pos, self.lsn, self.min_us, self.max_us)


class SegmentWalk:
    def __init__(self, number: int, first_lsn: int, mark_bytes: int = MARK_BYTES) -> None:
        self.number = number
        self.first_lsn = first_lsn
        # Behind the last durable batch.
        self.pos = FIRST_BATCH_AT
        self.next_lsn = first_lsn
        # Wall clock of the last durable batch that has events; 0 when there is none.
        self.last_us = 0
        # Nothing can come any more: a later segment is there, and this one was walked since.
        self.is_complete = False
        self.queues: dict[int, dict[str, Any]] = {}
        self.consumers: dict[int, dict[str, Any]] = {}
        self._mark_bytes = mark_bytes
        self._marks: list[_OpenMark] = []
        self._prev_crc = -1
        self._index: SegmentIndex | None = None

    @property
    def name_count(self) -> int:
        return len(self.queues) + len(self.consumers)

    def advance(self, reader: SegmentReader, limit: int = NO_LIMIT, proven_lsn: int = 0) -> None:
        """Go on to the last durable batch. `limit` is the first LSN of a later segment; NO_LIMIT when there is none.

        Everything below `proven_lsn` is known to be durable from elsewhere.
        """
        if self.is_complete or reader.head is None:
            return
        reader.refresh()
        durable_lsn = max(self.first_lsn, proven_lsn) if limit == NO_LIMIT else limit
        pending: list[tuple[BatchHeader, bytes]] = []
        pos, next_lsn, prev_crc = self.pos, self.next_lsn, self._prev_crc
        while pos < reader.size:
            header = decode_header(reader.bytes_at(pos, HEADER_BYTES), 0, self.number, pos)
            if header is None or header.salt != reader.head.salt or not _fits(header, next_lsn, prev_crc):
                meta = None
            else:
                # This is true of a batch, too, that is not there as a whole.
                durable_lsn = max(durable_lsn, header.durable_lsn)
                meta = _checked_meta(reader, header)
            if header is None or meta is None:
                header = reader.find_header(pos, next_lsn)
                if header is None or header.first_lsn + header.events > limit:
                    break
                pos, prev_crc = header.pos, -1
                continue
            next_lsn = header.first_lsn + header.events
            if next_lsn > limit:
                break
            pos, prev_crc = header.end, header.crc
            pending.append((header, meta))
            pending = self._accept_durable(reader, pending, durable_lsn)
        self._accept_durable(reader, pending, durable_lsn)
        self.is_complete = limit != NO_LIMIT

    def index(self) -> SegmentIndex:
        """What is known now. The same object as long as nothing was added."""
        if self._index is None or self._index.end_pos != self.pos:
            self._index = SegmentIndex(
                self.number,
                self.first_lsn,
                self.next_lsn,
                self.pos,
                tuple(mark.frozen() for mark in self._marks),
                dict(self.queues),
                dict(self.consumers),
            )
        return self._index

    def _accept_durable(
        self, reader: SegmentReader, pending: list[tuple[BatchHeader, bytes]], durable_lsn: int
    ) -> list[tuple[BatchHeader, bytes]]:
        """Take what is durable by now; return what is left."""
        for position, (header, meta) in enumerate(pending):
            if header.first_lsn + header.events > durable_lsn:
                return pending[position:]
            self._accept(reader, header, meta)
        return []

    def _accept(self, reader: SegmentReader, header: BatchHeader, meta: bytes) -> None:
        marks = self._marks
        if not marks or header.pos >= marks[-1].pos + self._mark_bytes or header.pos != self.pos:
            marks.append(_OpenMark(header))
        mark = marks[-1]
        mark.min_us = min(mark.min_us, header.wall_us)
        mark.max_us = max(mark.max_us, header.wall_us)
        self.pos = header.end
        self.next_lsn = header.first_lsn + header.events
        self._prev_crc = header.crc
        if header.events > 0:
            self.last_us = header.wall_us
        kinds = meta[_KIND_AT : header.rows * ROW_BYTES : ROW_BYTES]
        at = kinds.find(rows.NAME)
        view: BatchView | None = None
        while at >= 0:
            row = ROW.unpack_from(meta, at * ROW_BYTES)
            if row[rows.ROW_ARG] in (rows.NAME_QUEUE, rows.NAME_CONSUMER):
                view = view or BatchView(reader, header, meta)
                self._name(row, view)
            at = kinds.find(rows.NAME, at + 1)

    def _name(self, row: tuple[int, ...], view: BatchView) -> None:
        try:
            text = view.body(row[rows.ROW_ENTRY])
        except (RottenBatch, IndexError):
            return
        if row[rows.ROW_ARG] == rows.NAME_QUEUE:
            self.queues[row[rows.ROW_SEQ]] = parse_queue_label(text)
        else:
            self.consumers[row[rows.ROW_SEQ]] = parse_consumer(text)


def batch_of(reader: SegmentReader, index: SegmentIndex, lsn: int) -> tuple[int, int]:
    """Position and wall clock of the batch that holds an event of the segment, or of the next one that is readable."""
    pos, wall_us = index.end_pos, 0
    starts = [mark for mark in index.marks if mark.lsn <= lsn] or list(index.marks)
    if not starts:
        return pos, wall_us
    at = starts[-1].pos
    while at < index.end_pos:
        header = reader.header_at(at) or reader.find_header(at, index.first_lsn)
        if header is None:
            break
        if header.first_lsn + header.events > lsn:
            return header.pos, header.wall_us
        at = header.end
    return pos, wall_us


def parse_queue_label(label: bytes) -> dict[str, Any]:
    """`<vhost_id>/<queue_id> {json}` as a name. A text of another form is the name of the queue, as it stands."""
    ids, _, text = label.partition(b" ")
    vhost_id, slash, _ = ids.partition(b"/")
    named = _json_object(text)
    if slash and isinstance(named.get("vhost"), str) and isinstance(named.get("queue"), str):
        return {"vhost": named["vhost"], "queue": named["queue"], "vhost_id": vhost_id.decode("utf-8", "replace")}
    shown = (text if slash else label).decode("utf-8", "replace")
    return {"vhost": None, "queue": shown, "vhost_id": vhost_id.decode("utf-8", "replace") if slash else None}


def parse_consumer(text: bytes) -> dict[str, Any]:
    """Return the JSON of a consumer's name. A text of another form is its tag."""
    return _json_object(text) or {"consumer": text.decode("utf-8", "replace"), "connection": None}


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _fits(header: BatchHeader, next_lsn: int, prev_crc: int) -> bool:
    """Return whether the header can be that of the batch that comes next."""
    return header.first_lsn >= next_lsn and prev_crc in (-1, header.prev_crc)


def _checked_meta(reader: SegmentReader, header: BatchHeader) -> bytes | None:
    """Return rows, lengths and checksums of a batch; None unless they are good and the batch is inside the file."""
    if header.end > reader.size or reader.head is None:
        return None
    meta = reader.bytes_at(header.meta_at, header.heap_at - header.meta_at)
    return meta if crc32(meta, reader.head.seed) == header.meta_crc else None
