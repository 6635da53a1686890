"""JSON with its length in front, over a socket between the worker and a child. Nothing is ever unpickled."""

from __future__ import annotations

import json
import socket
from typing import Any

_HEAD_BYTES = 4
# A call carries its message's payload, which AMQP limits to 128 MiB; JSON may make it longer.
FRAME_BYTES_MAX = 512 * 1024 * 1024
_RECEIVE_BYTES = 256 * 1024

Frame = dict[str, Any]


class BadFrame(Exception):
    """The other side sent what is no frame: the code of a job has written to its socket."""


def encode(frame: Frame) -> bytes:
    body = json.dumps(frame).encode()
    return len(body).to_bytes(_HEAD_BYTES, "big") + body


class FrameReader:
    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Frame | None:
        """Return the next whole frame; None: there is none yet."""
        if len(self._buffer) < _HEAD_BYTES:
            return None
        size = int.from_bytes(self._buffer[:_HEAD_BYTES], "big")
        if size > FRAME_BYTES_MAX:
            raise BadFrame(f"a frame of {size} bytes")
        end = _HEAD_BYTES + size
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEAD_BYTES:end])
        del self._buffer[:end]
        try:
            frame = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadFrame(f"a frame that is no JSON: {error}") from error
        if not isinstance(frame, dict):
            raise BadFrame("a frame that is no object")
        return frame


def receive(connection: socket.socket, reader: FrameReader) -> Frame | None:
    """Wait for the next frame; None: the other side has gone."""
    while True:
        frame = reader.next()
        if frame is not None:
            return frame
        data = connection.recv(_RECEIVE_BYTES)
        if not data:
            return None
        reader.feed(data)


def receive_ready(connection: socket.socket, reader: FrameReader) -> int | None:
    """Read what has come to a socket that does not block: how many bytes; None: the other side has gone."""
    try:
        data = connection.recv(_RECEIVE_BYTES)
    except BlockingIOError:
        return 0
    except ConnectionError:
        return None
    reader.feed(data)
    return len(data) or None
