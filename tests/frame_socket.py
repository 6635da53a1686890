"""The end of an AMQP connection for tests: a blocking socket, read frame by frame.

It never waits for time to pass: every wait ends with bytes, with the end of the connection or at a deadline. Clients
differ in what they make of a frame: `tests/server/amqp_client.py` has methods of pamqp, `tests/crash/link.py` reads
deliveries and confirms by the thousand, and `tests/differential/wire_client.py` sends and writes down what no client
would. Nothing of penstock is used, so that a mistake in its codec cannot hide itself.
"""

from __future__ import annotations

import select
import socket
import time
from struct import Struct, pack
from typing import Any, NamedTuple

from pamqp import frame as pamqp_frame

DEADLINE_S = 60.0
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
# What a server answers to a protocol that it does not speak, taken for a frame: its first letter is the kind.
OTHER_PROTOCOL = PROTOCOL_HEADER[0]
FRAME_END = b"\xce"
HEAD = Struct(">BHI")
RECEIVE_BYTES = 262_144


class ConnectionEnded(Exception):
    """The broker closed the connection or the socket."""


class Silence(AssertionError):
    """The server did not say what is waited for before the deadline."""


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes

    def decoded(self) -> Any:
        """What pamqp makes of it."""
        raw = HEAD.pack(self.kind, self.channel, len(self.payload)) + self.payload + FRAME_END
        return pamqp_frame.unmarshal(raw)[2]


class FrameSocket:
    """Connected. What is not yet whole of a frame waits in a buffer."""

    def __init__(self, host: str, port: int, receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            if receive_buffer_bytes:
                # Must be set before the connection is made, to count for the window.
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            self.socket.settimeout(DEADLINE_S)
            self.socket.connect((host, port))
        except BaseException:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)
        self._buffer = bytearray()

    def next_frame(self, deadline: float) -> Frame:
        """Wait for it. ConnectionEnded when there is none any more, Silence when the deadline passes."""
        while (frame := self.take_frame()) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise Silence(f"no answer in {DEADLINE_S:.0f} s")
            self.receive(left_s)
        return frame

    def take_frame(self) -> Frame | None:
        """Return the first frame that has come, or None when none is whole."""
        buffer = self._buffer
        if len(buffer) <= HEAD.size:
            return None
        if buffer.startswith(PROTOCOL_HEADER[:4]):
            payload = bytes(buffer[: len(PROTOCOL_HEADER)])
            del buffer[: len(PROTOCOL_HEADER)]
            return Frame(OTHER_PROTOCOL, 0, payload)
        kind, channel, size = HEAD.unpack_from(buffer)
        end = HEAD.size + size
        if len(buffer) <= end:
            return None
        payload = bytes(buffer[HEAD.size : end])
        assert buffer[end] == FRAME_END[0], f"frame end {buffer[end]:#x} after {payload!r}"
        del buffer[: end + 1]
        return Frame(kind, channel, payload)

    def receive(self, timeout_s: float) -> bool:
        """Read once; False when nothing came in time. ConnectionEnded at the end of the stream."""
        try:
            if not self._poll.poll(timeout_s * 1000):
                return False
            data = self.socket.recv(RECEIVE_BYTES)
        except OSError as error:
            raise ConnectionEnded(str(error)) from error
        if not data:
            raise ConnectionEnded("end of the stream")
        self._buffer += data
        return True

    def drop(self) -> None:
        """Close the socket without a word."""
        self.socket.close()

    def reset(self) -> None:
        """Close the socket as a crashed machine would: with a reset, what is on its way is lost."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        self.socket.close()
