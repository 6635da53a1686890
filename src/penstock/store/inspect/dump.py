"""Shows what is in a file of the data folder, record by record, for people and scripts.

The ending of a file says what it is: `.pnj` journal segments, `.ckpt` checkpoints, `.qi` queue indexes, `.qs` queue
stores, `.pms` shared stores. A record is a dict of plain values, with "record" as its kind; damage is a record too, and
what can be read behind it follows.

Invariants
  1. Nothing is written.
  2. Values are ints, strings, and lists and dicts of them. Bytes become text in which every octet that is not printable
     is escaped: what a client chose cannot reach a terminal.
  3. At most `limit` records are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from penstock.disk.files import Files, read_file
from penstock.journal.format import rows
from penstock.journal.format.layout import COMMIT_MARK, FIRST_BATCH_AT, SUFFIX, segment_number
from penstock.journal.reading.batch import BatchView, RottenBatch, view_at
from penstock.journal.reading.segment_reader import SegmentReader
from penstock.store.inspect.dump_stores import dump_index, dump_records, dump_state, printable
from penstock.store.node import checkpoint
from penstock.store.node.queue_names import parse_label

Shown = dict[str, object]

_KINDS: Final = {
    rows.PUBLISHED: "published",
    rows.DELIVERED: "delivered",
    rows.ACKED: "acked",
    rows.REJECTED: "rejected",
    rows.REQUEUED: "requeued",
    rows.EXPIRED: "expired",
    rows.DEAD_LETTERED: "dead-lettered",
    rows.DROPPED: "dropped",
    rows.PURGED: "purged",
    rows.FETCHED: "fetched",
    rows.LOST: "lost",
    rows.MOVED: "moved",
    rows.GIVEN: "given",
    rows.RETURNED: "returned",
    rows.NAME: "name",
    rows.DEFINE: "define",
    rows.FORGET: "forget",
    rows.COMMIT: "commit",
}
# Who got a message, and why one died; as `backing.outcomes` has it.
_THE_QUEUE: Final = -1
_REASONS: Final = ("", "rejected", "expired", "maxlen", "delivery_limit")
# Of a body or a text.
_TEXT_BYTES_MAX: Final = 80


def dump(files: Files, path: str, limit: int) -> Iterator[Shown]:
    """The records of a file. Raises ValueError for a file of another kind, and when nothing in it can be read."""
    for number, record in enumerate(_records(files, path)):
        if number >= limit:
            return
        yield record


def _records(files: Files, path: str) -> Iterator[Shown]:
    if path.endswith(SUFFIX):
        return _dump_segment(files, path)
    if path.endswith(checkpoint.SUFFIX):
        return _dump_checkpoint(read_file(files, path))
    if path.endswith(".qi"):
        return dump_index(read_file(files, path))
    if path.endswith((".qs", ".pms")):
        return dump_records(read_file(files, path))
    raise ValueError("it is none of the files that penstock writes: .pnj, .ckpt, .qi, .qs, .pms")


# --- the journal --------------------------------------------------------------------------------------


@final
class _Names:
    """What numbers stand for: in the segment, and routes in the batch."""

    def __init__(self) -> None:
        self.queues: dict[int, str] = {}
        self.consumers: dict[int, str] = {}
        self.routes: dict[int, str] = {}


def _dump_segment(files: Files, path: str) -> Iterator[Shown]:
    folder, _, name = path.rpartition("/")
    number = segment_number(name)
    if number < 0 or not folder:
        raise ValueError("a journal segment is called journal/<number>.pnj")
    reader = SegmentReader(files, folder, number)
    try:
        if reader.head is None:
            raise ValueError("the head of the segment is damaged")
        yield {
            "record": "segment",
            "segment": number,
            "first_lsn": reader.head.first_lsn,
            "wall_us": reader.head.wall_us,
            "bytes": reader.size,
        }
        names = _Names()
        pos = FIRST_BATCH_AT
        while pos < reader.size:
            view = view_at(reader, pos)
            if view is None:
                found = reader.find_header(pos, 0)
                end = reader.size if found is None else found.pos
                yield {"record": "damaged", "pos": pos, "bytes": end - pos}
                pos = end
            else:
                yield from _dump_batch(view, names)
                pos = view.end
    finally:
        reader.close()


def _dump_batch(batch: BatchView, names: _Names) -> Iterator[Shown]:
    yield {
        "record": "batch",
        "pos": batch.pos,
        "bytes": batch.end - batch.pos,
        "first_lsn": batch.first_lsn,
        "durable_lsn": batch.durable_lsn,
        "wall_us": batch.wall_us,
        "rows": len(batch.rows),
        "entries": len(batch.body_len),
        "commit_mark": 1 if batch.flags & COMMIT_MARK else 0,
    }
    names.routes = {}
    lsn = batch.first_lsn
    for row in batch.rows:
        yield _dump_row(batch, row, lsn, names)
        lsn += row[rows.ROW_COUNT]


def _dump_row(batch: BatchView, row: tuple[int, ...], lsn: int, names: _Names) -> Shown:
    kind = row[rows.ROW_KIND]
    shown: Shown = {"record": _KINDS.get(kind, f"kind {kind}"), "lsn": lsn}
    if kind == rows.NAME:
        _dump_name(batch, row, names, shown)
        return shown
    if kind == rows.DEFINE:
        shown["text"] = _text(batch, row[rows.ROW_ENTRY], -1)
        return shown
    queue = row[rows.ROW_QUEUE]
    shown["queue"] = names.queues.get(queue, f"number {queue}")
    if kind == rows.FORGET:
        return shown
    shown["seq_id"] = row[rows.ROW_SEQ]
    shown["count"] = row[rows.ROW_COUNT]
    if kind != rows.PUBLISHED:
        shown["bytes"] = row[rows.ROW_NUMBER]
        _dump_who_and_why(row, names, shown)
        return shown
    entry = row[rows.ROW_ENTRY]
    shown["route"] = names.routes.get(row[rows.ROW_ROUTE], f"number {row[rows.ROW_ROUTE]}")
    shown["priority"] = row[rows.ROW_ARG]
    shown["expiry_ms"] = row[rows.ROW_NUMBER]
    shown["entry"] = entry
    shown["bytes"] = sum(batch.body_len[entry : entry + row[rows.ROW_COUNT]]) - row[rows.ROW_COUNT]
    if row[rows.ROW_FLAGS] & rows.REFERENCE:
        shown["shared"] = 1
        del shown["bytes"]
    else:
        shown["body"] = _text(batch, entry, _TEXT_BYTES_MAX)
    return shown


def _dump_who_and_why(row: tuple[int, ...], names: _Names, shown: Shown) -> None:
    """Who got the messages, and why they died, where the row says so."""
    actor = row[rows.ROW_ACTOR]
    if actor == _THE_QUEUE:
        shown["to"] = "the queue itself"
    elif actor:
        shown["to"] = names.consumers.get(actor, f"number {actor}")
    reason = row[rows.ROW_ARG]
    if reason:
        shown["reason"] = _REASONS[reason] if 0 < reason < len(_REASONS) else f"number {reason}"


def _dump_name(batch: BatchView, row: tuple[int, ...], names: _Names, shown: Shown) -> None:
    number = row[rows.ROW_SEQ]
    shown["number"] = number
    try:
        text = batch.body(row[rows.ROW_ENTRY])
    except RottenBatch as error:
        shown["damaged"] = str(error)
        return
    if row[rows.ROW_ARG] == rows.NAME_QUEUE:
        name = parse_label(text)
        names.queues[number] = printable(text) if name is None else name.shown()
        shown["names"] = "queue"
        shown["text"] = printable(text)
    elif row[rows.ROW_ARG] == rows.NAME_CONSUMER:
        names.consumers[number] = printable(text)
        shown["names"] = "consumer"
        shown["text"] = names.consumers[number]
    else:
        name_end = 1 + text[0]
        names.routes[number] = f"{printable(text[1:name_end])!r} {printable(text[name_end + 1 :])!r}"
        shown["names"] = "route"
        shown["text"] = names.routes[number]


def _text(batch: BatchView, entry: int, bytes_max: int) -> str:
    try:
        body = batch.body(entry)
    except RottenBatch as error:
        return f"damaged: {error}"
    if bytes_max < 0 or len(body) <= bytes_max:
        return printable(body)
    return printable(body[:bytes_max]) + "…"


# --- checkpoints --------------------------------------------------------------------------------------


def _dump_checkpoint(data: bytes) -> Iterator[Shown]:
    try:
        header = checkpoint.decode_header(data)
        yield {
            "record": "checkpoint",
            "number": header.number,
            "wall_ms": header.wall_ms,
            "clean": 1 if header.clean else 0,
            "definitions_lsn": header.definitions_lsn,
            "replay_segment": header.replay_segment,
            "replay_pos": header.replay_pos,
            "replay_lsn": header.replay_lsn,
            "next_segment": header.next_segment,
            "next_queue_no": header.next_queue_no,
            "needed_segment": header.needed_segment,
        }
        for kind, payload in checkpoint.read_records(data, header.salt):
            if kind == checkpoint.DEFINITIONS:
                yield {"record": "definitions", "text": printable(payload)}
            elif kind == checkpoint.NAME:
                number, label = checkpoint.split_name(payload)
                yield {"record": "name", "number": number, "text": printable(label)}
            else:
                yield dump_state(payload)
    except checkpoint.BadCheckpoint as error:
        yield {"record": "damaged", "text": str(error)}
