"""Frames: type, channel, size, payload, FRAME-END.

Frames are read in `server/connection`, in a loop over the bytes that arrived, because a call per frame would cost more
than the reading. The constants of that loop are here.

Invariants
  1. Every frame made here ends with FRAME-END and fits into the frame size it was given.
  2. A body is handed in with its FRAME-END octet (see `message`): a body that fits into one frame is not copied to be
     framed, its frame head is put in front of it.
"""

from __future__ import annotations

from typing import Final

from penstock import limits

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
# Class 60 and weight 0, the start of every content header.
CONTENT_HEADER_START: Final = b"\x00\x3c\x00\x00"
# What is to be written, in order.
Piece = bytes | memoryview

# Class, weight and body size stand before the properties in a content header.
CONTENT_HEADER_BYTES: Final = 12


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One whole frame."""
    return b"%c%b%b%b\xce" % (kind, channel.to_bytes(2, "big"), len(payload).to_bytes(4, "big"), payload)


def method_frame(channel: int, payload: bytes) -> bytes:
    return frame(METHOD, channel, payload)


def header_frame(channel: int, body_size: int, properties: bytes) -> bytes:
    """Return the content header frame of a message with a body of so many bytes."""
    return frame(HEADER, channel, CONTENT_HEADER_START + body_size.to_bytes(8, "big") + properties)


def body_frame_head(channel: int, size: int) -> bytes:
    """What stands before the body in a body frame."""
    return b"\x03%b%b" % (channel.to_bytes(2, "big"), size.to_bytes(4, "big"))


def content_frames(channel: int, properties: bytes, body: bytes, frame_bytes_max: int) -> bytes:
    """Header frame and body frames of a message; `body` ends with FRAME-END (invariant 2)."""
    return b"".join(content_pieces(channel, properties, body, frame_bytes_max))


def content_pieces(channel: int, properties: bytes, body: bytes, frame_bytes_max: int) -> list[Piece]:
    """Return the same in pieces. The body is not copied."""
    size = len(body) - 1
    head = header_frame(channel, size, properties)
    if size == 0:
        return [head]
    if size <= frame_bytes_max - limits.FRAME_OVERHEAD_BYTES:
        return [head, body_frame_head(channel, size), body]
    return [head, *body_pieces(channel, body, frame_bytes_max)]


def body_pieces(channel: int, body: bytes, frame_bytes_max: int) -> list[Piece]:
    """Return the body frames of a body that does not fit into one, in pieces. The body itself is not copied."""
    size = len(body) - 1
    step = frame_bytes_max - limits.FRAME_OVERHEAD_BYTES
    pieces: list[Piece] = []
    view = memoryview(body)
    for start in range(0, size, step):
        stop = min(start + step, size)
        pieces.append(body_frame_head(channel, stop - start))
        pieces.append(view[start:stop])
        pieces.append(b"\xce")
    return pieces
