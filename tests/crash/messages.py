"""The messages of the crash tests: each says who it is, and its seal tells whether it came back as it was sent.

The id stands in the body and in the message-id property, so that a body under the wrong properties shows. The seal is
a checksum over everything that must survive: body, message-id, priority and delivery mode.
"""

from __future__ import annotations

import random
import zlib
from struct import pack

# Bodies are cut from this; it does not compress, and any two places differ.
BLOCK = random.Random(4096).randbytes(1 << 20)
# Bodies of 4096 bytes and more go to another store than smaller ones: be on both sides of it, and on it.
EDGE_SIZES = (4094, 4095, 4096, 4097, 4200)
FRAME_PAYLOAD_MAX = 131_072 - 8
DELIVERY_MODE, PRIORITY, MESSAGE_ID = 1 << 12, 1 << 11, 1 << 7
PROPERTY_FLAGS = DELIVERY_MODE | PRIORITY | MESSAGE_ID
PERSISTENT = 2
TRANSIENT = 1


def size_of(rng: random.Random) -> int:
    """Mostly small, some at the edge, some large, a few of several frames."""
    chance = rng.random()
    if chance < 0.85:
        return rng.randrange(400)
    if chance < 0.95:
        return rng.choice(EDGE_SIZES)
    if chance < 0.998:
        return 20 * 1024
    return 300_000


def body_of(message_id: str, size: int) -> bytes:
    """The id, a bar, and bytes up to `size`."""
    head = message_id.encode() + b"|"
    start = zlib.crc32(head) % (len(BLOCK) - 300_000)
    body = head + BLOCK[start : start + max(0, size - len(head))]
    return body + bytes(max(0, size - len(body)))


def seal_of(message_id: str, priority: int, mode: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(f"{message_id} {priority} {mode}".encode()))


def publish_frames(exchange: str, key: str, message_id: str, priority: int, mode: int, body: bytes) -> bytes:
    """A basic.publish on channel 1 with its content."""
    method = b"\x00\x3c\x00\x28\x00\x00" + _short(exchange) + _short(key) + b"\x00"
    header = pack(">HHQHBB", 60, 0, len(body), PROPERTY_FLAGS, mode, priority) + _short(message_id)
    frames = [_frame(1, method), _frame(2, header)]
    for start in range(0, len(body), FRAME_PAYLOAD_MAX):
        frames.append(_frame(3, body[start : start + FRAME_PAYLOAD_MAX]))
    return b"".join(frames)


def ack_frame(tag: int, multiple: bool) -> bytes:
    return _frame(1, pack(">HHQB", 60, 80, tag, multiple))


def nack_frame(tag: int, multiple: bool, requeue: bool) -> bytes:
    return _frame(1, pack(">HHQB", 60, 120, tag, multiple | requeue << 1))


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def _frame(kind: int, payload: bytes) -> bytes:
    return pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"
