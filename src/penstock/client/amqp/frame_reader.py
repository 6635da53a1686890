"""Frames from bytes that arrive in any pieces."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.errors import frame_error
from penstock.limits import FRAME_HEAD_BYTES, FRAME_OVERHEAD_BYTES
from penstock.wire import frames

KINDS: Final = (frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT)


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes


class FrameReader:
    def __init__(self, frame_bytes_max: int) -> None:
        # What was agreed on in connection.tune; until then what we would agree to.
        self.frame_bytes_max = frame_bytes_max
        self._data = bytearray()
        self._pos = 0
        self._is_first = True

    def feed(self, data: bytes) -> None:
        # What was read is cut away once per feed: cutting at every frame would copy the rest each time.
        del self._data[: self._pos]
        self._pos = 0
        self._data += data

    def next(self) -> Frame | None:
        """Return the next whole frame, or None; raises 501 for what is no frame."""
        data, pos = self._data, self._pos
        if len(data) - pos < FRAME_HEAD_BYTES:
            return None
        kind = data[pos]
        if kind not in KINDS:
            raise self._no_frame(bytes(data[pos : pos + FRAME_HEAD_BYTES]))
        channel = data[pos + 1] << 8 | data[pos + 2]
        size = int.from_bytes(data[pos + 3 : pos + 7], "big")
        if size > self.frame_bytes_max - FRAME_OVERHEAD_BYTES:
            raise frame_error(f"a frame of {size} bytes, where at most {self.frame_bytes_max} were agreed on")
        end = pos + FRAME_HEAD_BYTES + size
        if end >= len(data):
            return None
        if data[end] != frames.END:
            raise frame_error("a frame does not end where it says")
        self._pos = end + 1
        self._is_first = False
        return Frame(kind, channel, bytes(data[pos + FRAME_HEAD_BYTES : end]))

    def _no_frame(self, found: bytes) -> Exception:
        if self._is_first and found[:4] == b"AMQP":
            return frame_error("it wants another version of AMQP than 0-9-1")
        if self._is_first:
            return frame_error(f"it does not speak AMQP: {found!r}")
        return frame_error(f"a frame of unknown type {found[0]}")
