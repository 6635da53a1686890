"""One message as bytes, the same in a queue's own store and in the shared store.

A record is everything that is needed to make the message again: its envelope, its body with the FRAME-END octet, its
expiry, and who it is (the seq_id in a queue's store, the address in the shared store). It is encoded when a message is
paged out or moves home, is never changed in place, and goes with its file. docs/formats/queue-store.md has the layout.

Invariants
  1. The length of a record is believed only after the CRC of the 48 bytes that hold it is right.
  2. Every byte of a record is covered: the head by the head CRC, head and rest by the whole CRC, which goes on from the
     head CRC, so that one pass makes both. A record that is decoded is the record that was encoded.
  3. `decode_record(encode_record(...))` has an equal envelope, octet for octet, also where a routing key is not UTF-8.
  4. Records are found by their position only. Nothing ever searches for the magic: bodies may contain it.

A crash may leave any part of a record that was not synced. Decoding such a part raises `BadRecord`, never answers
wrongly.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final

from penstock.disk.checksum import crc32
from penstock.message import Envelope
from penstock.store.queue.places import StoreError

MAGIC: Final = b"PnR1"
# magic, bytes of the record, seq_id, expiry_ms, address, expiration_ms, bytes of the properties, bytes of exchange and
# routing key, flags, priority.
_HEAD: Final = Struct("<4sIqqqqIHBB")
# CRC of the head, CRC of everything.
_CRCS: Final = Struct("<II")
_HEAD_AND_CRCS: Final = Struct("<4sIqqqqIHBBII")
_HEAD_BYTES: Final = 48
# Before the variable part: the head and its two CRCs.
RECORD_HEAD_BYTES: Final = 56

_PERSISTENT: Final = 1

# As they stand in a record, with the CRCs.
Head = tuple[bytes, int, int, int, int, int, int, int, int, int, int, int]


class BadRecord(StoreError):
    """A record cannot be read.

    `size_bytes` and `seq_id` are -1 unless the head could be trusted; with them the reader can step over the record.
    `path` is empty while the file is not known. `before` has the records in front of it, when several
    were to be read.
    """

    def __init__(self, why: str, offset: int, seq_id: int = -1, size_bytes: int = -1, path: str = "") -> None:
        who = f" of seq_id {seq_id}" if seq_id >= 0 else ""
        where = f" in {path}" if path else ""
        super().__init__(f"the record{who} at offset {offset}{where} {why}")
        self.why = why
        self.offset = offset
        self.seq_id = seq_id
        self.size_bytes = size_bytes
        self.path = path
        self.before: list[Record] = []

    def found_in(self, path: str, base: int, before: list[Record]) -> BadRecord:
        """Return the same error with the name of the file and the position at which the bytes began."""
        placed = BadRecord(self.why, base + self.offset, self.seq_id, self.size_bytes, path)
        placed.before = before
        return placed


@final
class Record:
    """A decoded record."""

    __slots__ = ("address", "body", "envelope", "expiry_ms", "seq_id", "size_bytes")

    def __init__(
        self, size_bytes: int, seq_id: int, envelope: Envelope, body: bytes, expiry_ms: int, address: int
    ) -> None:
        # On disk, all of it.
        self.size_bytes = size_bytes
        # In its queue; -1 in the shared store.
        self.seq_id = seq_id
        self.envelope = envelope
        # With the FRAME-END octet.
        self.body = body
        self.expiry_ms = expiry_ms
        # Where the shared store put it first; -1 in a queue's store.
        self.address = address


def encode_record(seq_id: int, envelope: Envelope, body: bytes, expiry_ms: int, address: int = -1) -> bytes:
    head = encode_head(seq_id, envelope, len(body), expiry_ms, address)
    return encode_front(head, envelope, crc32(body, front_crc(head, envelope))) + body


def encode_head(seq_id: int, envelope: Envelope, body_bytes: int, expiry_ms: int, address: int) -> bytes:
    """What a record begins with, up to its CRCs."""
    route = envelope.address
    properties = envelope.properties
    return _HEAD.pack(
        MAGIC,
        RECORD_HEAD_BYTES + len(route) + len(properties) + body_bytes,
        seq_id,
        expiry_ms,
        address,
        envelope.expiration_ms,
        len(properties),
        len(route),
        _PERSISTENT if envelope.persistent else 0,
        envelope.priority,
    )


def front_crc(head: bytes, envelope: Envelope) -> int:
    """Return the CRC of what is covered before the body: that of the whole record goes on from it."""
    return crc32(envelope.properties, crc32(envelope.address, crc32(head)))


def encode_front(head: bytes, envelope: Envelope, whole_crc: int) -> bytes:
    return b"".join((head, _CRCS.pack(crc32(head), whole_crc), envelope.address, envelope.properties))


def record_bytes(data: bytes, offset: int) -> int:
    """How long the record at an offset is, from its head alone, of which at least RECORD_HEAD_BYTES must be there."""
    return _trusted_head(data, offset)[1]


def decode_record(data: bytes, offset: int, like: Envelope | None = None) -> Record:
    """Return the record at an offset of `data`. Raises BadRecord.

    An envelope that is equal to `like` is that object: messages that were published alike stay cheap.
    """
    (
        _,
        size,
        seq_id,
        expiry_ms,
        address,
        expiration_ms,
        properties_bytes,
        route_bytes,
        flags,
        priority,
        head_crc,
        whole_crc,
    ) = _trusted_head(data, offset)
    end = offset + size
    start = offset + RECORD_HEAD_BYTES
    if end > len(data):
        raise BadRecord(f"has {size} bytes, of which {len(data) - offset} are there", offset, seq_id, size)
    if crc32(data[start:end], head_crc) != whole_crc:
        raise BadRecord("is damaged: its checksum is wrong", offset, seq_id, size)
    middle = start + route_bytes
    body_at = middle + properties_bytes
    route = data[start:middle]
    properties = data[middle:body_at]
    envelope = _envelope(route, properties, flags, priority, expiration_ms, like)
    return Record(size, seq_id, envelope, data[body_at:end], expiry_ms, address)


def record_front_bytes(data: bytes, offset: int) -> int:
    """Return how much stands before the body, from the head alone."""
    head = _trusted_head(data, offset)
    return RECORD_HEAD_BYTES + head[6] + head[7]


def body_crc_start(front: bytes) -> int:
    """Return what the CRC of a body goes on from, given what stands before it. Raises BadRecord."""
    return crc32(front[RECORD_HEAD_BYTES:], _trusted_head(front, 0)[10])


def decode_parts(front: bytes, body: bytes, whole_crc: int) -> Record:
    """Return a record of which the body was read by itself, with this CRC. Raises BadRecord."""
    head = _trusted_head(front, 0)
    size, seq_id = head[1], head[2]
    if len(front) + len(body) != size or len(front) != RECORD_HEAD_BYTES + head[6] + head[7]:
        raise BadRecord(f"has {size} bytes, of which {len(front) + len(body)} are there", 0, seq_id, size)
    shared = front[RECORD_HEAD_BYTES:]
    if whole_crc != head[11]:
        raise BadRecord("is damaged: its checksum is wrong", 0, seq_id, size)
    envelope = _envelope(shared[: head[7]], shared[head[7] :], head[8], head[9], head[5], None)
    return Record(size, seq_id, envelope, body, head[3], head[4])


def _envelope(
    route: bytes, properties: bytes, flags: int, priority: int, expiration_ms: int, like: Envelope | None
) -> Envelope:
    persistent = flags & _PERSISTENT != 0
    if (
        like is not None
        and like.address == route
        and like.properties == properties
        and like.persistent == persistent
        and like.priority == priority
        and like.expiration_ms == expiration_ms
    ):
        return like
    exchange_end = 1 + route[0]
    return Envelope(
        route[1:exchange_end].decode(),
        route[exchange_end + 1 :].decode("utf-8", "surrogateescape"),
        properties,
        persistent,
        priority,
        expiration_ms,
        route,
    )


def _trusted_head(data: bytes, offset: int) -> Head:
    start = offset + RECORD_HEAD_BYTES
    if start > len(data):
        raise BadRecord(f"ends after {max(0, len(data) - offset)} bytes, inside its head", offset)
    head: Head = _HEAD_AND_CRCS.unpack_from(data, offset)
    if head[0] != MAGIC:
        raise BadRecord("is damaged: it does not begin like a record", offset)
    if crc32(data[offset : offset + _HEAD_BYTES]) != head[10]:
        raise BadRecord("is damaged: the checksum of its head is wrong", offset)
    if head[1] < RECORD_HEAD_BYTES + head[6] + head[7]:
        raise BadRecord("is damaged: its lengths contradict each other", offset)
    return head
