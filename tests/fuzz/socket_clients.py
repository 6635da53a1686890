"""Two clients on real sockets: one that sends anything, and an innocent one that must not notice."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from penstock.wire import frames, methods

from .client_frames import HEADER, Frame, encode_all, handshake, method, publish
from .server_frames import Said, split

DEADLINE_S = 60.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    stop_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < stop_at, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.001)


def send_and_hang_up(port: int, chunks: Iterable[bytes], reads: bool = True) -> Said:
    """Send everything, shut down the sending side, and return what the server said until the end of the connection."""
    heard = bytearray()
    broken = False
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for chunk in chunks:
                client.sendall(chunk)
            client.shutdown(socket.SHUT_WR)
            while reads and (data := client.recv(65_536)):
                heard += data
        except TimeoutError:
            raise AssertionError("the server neither answers nor hangs up") from None
        except OSError:
            # The server has closed while we were sending. What it said before that may be lost: TCP says so.
            broken = True
    return Said(bytes(heard), cut_short=broken or not reads)


class InnocentClient:
    """Publishes with confirms, consumes, acknowledges; and expects to be served while others misbehave."""

    QUEUE = "kept by the innocent"

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._delivered = 0
        self._send([*handshake(), method(1, methods.ChannelOpen()), method(1, methods.ConfirmSelect())], HEADER)
        self._send(
            [
                method(1, methods.QueueDeclare(self.QUEUE, exclusive=True)),
                method(1, methods.BasicConsume(self.QUEUE, "mine")),
            ]
        )
        self._hear_until(lambda heard: any(isinstance(each, methods.BasicConsumeOk) for each in heard.methods_only()))

    def _send(self, sent: list[Frame], before: bytes = b"") -> None:
        self._socket.sendall(before + encode_all(sent))

    def _hear_until(self, enough: Callable[[Heard], bool]) -> Heard:
        heard = Heard()
        while not enough(heard):
            data = self._socket.recv(65_536)
            assert data, f"the server has hung up on the innocent: {heard.methods_only()}"
            found, self._rest = split(self._rest + data)
            heard.frames += found
        return heard

    def check_service(self) -> None:
        """A message goes through the broker, is confirmed, delivered and acknowledged."""
        self._delivered += 1
        payload = f"message {self._delivered}".encode()
        self._send(publish(1, "", self.QUEUE, payload))
        heard = self._hear_until(lambda heard: heard.is_served(payload))
        for each in heard.methods_only():
            assert isinstance(each, methods.BasicAck | methods.BasicDeliver), each
            if isinstance(each, methods.BasicDeliver):
                assert each.delivery_tag == self._delivered
                assert not each.redelivered
        self._send([method(1, methods.BasicAck(self._delivered))])

    def remove(self, left: list[Frame]) -> None:
        """Delete what others have left behind; `left` are methods that are answered, on channel 1."""
        if left:
            self._send(left)
            self._hear_until(lambda heard: len(heard.methods_only()) == len(left))

    def __enter__(self) -> InnocentClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


class Heard:
    """What the innocent client has heard."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def methods_only(self) -> list[methods.Method]:
        return [
            methods.decode_method(frame.payload, 0, len(frame.payload))
            for frame in self.frames
            if frame.kind == frames.METHOD
        ]

    def is_served(self, payload: bytes) -> bool:
        confirmed = any(isinstance(each, methods.BasicAck) for each in self.methods_only())
        return confirmed and any(frame.kind == frames.BODY and frame.payload == payload for frame in self.frames)
