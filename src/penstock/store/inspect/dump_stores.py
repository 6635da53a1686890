"""Shows index files, store files and the states of queues; the other half of `dump`.

Invariants
  1. A slot or record is shown with its values only if its checksum is right; else as damaged.
  2. Records are found by hopping from head to head, from the beginning of the file on. Behind a record whose head is
     damaged nothing more is shown: bytes in a body may look like a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from penstock.store.queue import places
from penstock.store.queue.queue_index import SLOT_BYTES
from penstock.store.queue.queue_index import _decode as decode_slots
from penstock.store.queue.queue_state import BadState, decode_state
from penstock.store.shared.body_map import FILE_HEAD_BYTES
from penstock.store.shared.records import BadRecord, decode_record

# magic, version, slots per file, first seq_id.
_INDEX_HEAD: Final = Struct("<4sIIq")
_PLACES: Final = {
    places.MEMORY: "memory",
    places.JOURNAL: "journal",
    places.QUEUE_STORE: "queue store",
    places.MSG_STORE: "shared store",
}
_TEXT_BYTES_MAX: Final = 80


def printable(data: bytes) -> str:
    """Return text in which everything that could do something to a terminal is escaped."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join([letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text])


def dump_index(data: bytes) -> Iterator[dict[str, object]]:
    """The slots of an index file: where messages were paged out to, and then where they moved."""
    if len(data) < FILE_HEAD_BYTES:
        raise ValueError("it ends inside its head")
    magic, version, slots, first_seq_id = _INDEX_HEAD.unpack_from(data)
    yield {
        "record": "index",
        "magic": printable(magic),
        "version": version,
        "slots": slots,
        "first_seq_id": first_seq_id,
    }
    size = slots * SLOT_BYTES
    for area in (0, 1):
        area_bytes = data[FILE_HEAD_BYTES + area * size : FILE_HEAD_BYTES + (area + 1) * size]
        if not area_bytes:
            continue
        found, damaged = decode_slots(first_seq_id, first_seq_id + slots, area_bytes)
        for position, slot in enumerate(found):
            seq_id = first_seq_id + position
            if slot is not None:
                kind, flags, size_bytes, expiry_ms, segment, pos, entry = slot
                yield {
                    "record": "slot" if area == 0 else "moved",
                    "seq_id": seq_id,
                    "place": _PLACES.get(kind, f"kind {kind}"),
                    "persistent": 1 if flags & places.PERSISTENT else 0,
                    "delivered": 1 if flags & places.DELIVERED else 0,
                    "bytes": size_bytes,
                    "expiry_ms": expiry_ms,
                    "segment": segment,
                    "pos": pos,
                    "entry": entry,
                }
            elif seq_id in damaged:
                yield {"record": "damaged", "seq_id": seq_id, "area": area}


def dump_records(data: bytes) -> Iterator[dict[str, object]]:
    yield {"record": "store", "magic": printable(data[:4]), "bytes": len(data)}
    offset = FILE_HEAD_BYTES
    while offset < len(data):
        try:
            record = decode_record(data, offset)
        except BadRecord as bad:
            yield {"record": "damaged", "offset": offset, "text": str(bad)}
            if bad.size_bytes <= 0:
                # Rubbish, a hole, or the table at the end of a compacted file.
                return
            offset += bad.size_bytes
            continue
        body = record.body
        yield {
            "record": "message",
            "offset": offset,
            "record_bytes": record.size_bytes,
            "seq_id": record.seq_id,
            "address": record.address,
            "exchange": printable(record.envelope.exchange.encode("utf-8", "surrogateescape")),
            "routing_key": printable(record.envelope.routing_key.encode("utf-8", "surrogateescape")),
            "persistent": 1 if record.envelope.persistent else 0,
            "priority": record.envelope.priority,
            "expiry_ms": record.expiry_ms,
            "bytes": len(body) - 1,
            "body": printable(body) if len(body) <= _TEXT_BYTES_MAX else printable(body[:_TEXT_BYTES_MAX]) + "…",
        }
        offset += record.size_bytes


def dump_state(data: bytes) -> dict[str, object]:
    try:
        state = decode_state(data)
    except BadState as error:
        return {"record": "damaged", "text": str(error)}
    runs: list[object] = [
        {
            "seq_id": run.seq_id,
            "count": run.count,
            "place": _PLACES.get(run.kind, f"kind {run.kind}"),
            "segment": run.segment,
            "pos": run.pos,
            "entry": run.entry,
            "bytes": run.size_bytes(),
        }
        for run in state.runs
    ]
    return {
        "record": "queue",
        "number": state.queue_no,
        "vhost_id": state.vhost_id,
        "queue_id": state.queue_id,
        "lsn": state.lsn,
        "next_seq_id": state.next_seq_id,
        "next_deliver_seq_id": state.next_deliver_seq_id,
        "low": state.live.low,
        "messages": state.count,
        "bytes": state.size_bytes,
        "index_segments": sorted(state.index_segments),
        "runs": runs,
    }
