"""Two clients on real sockets: one that sends anything, and an innocent one that must not notice."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from pamqp import base, commands

from tests.server.amqp_client import Client

from .client_frames import Frame, encode_all
from .server_frames import Said

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
        self._client = Client("127.0.0.1", port).handshake()
        self._client.open_channel(1)
        self._client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        self._client.declare(1, self.QUEUE, exclusive=True)
        self._client.consume(1, self.QUEUE, "mine")
        self._delivered = 0

    def check_service(self) -> None:
        """A message goes through the broker, is confirmed, delivered and acknowledged."""
        self._delivered += 1
        payload = f"message {self._delivered}".encode()
        self._client.publish(1, self.QUEUE, payload)
        self._client.expect(commands.Basic.Ack)
        message = self._client.message()
        assert message.body == payload
        assert (message.method.delivery_tag, message.method.redelivered) == (self._delivered, False)
        assert not self._client.seen(base.Frame), "it is told something else"
        self._client.ack(1, self._delivered)

    def remove(self, left: list[Frame]) -> None:
        """Delete what others have left behind; `left` are methods that are answered, on channel 1."""
        self._client.socket.sendall(encode_all(left))
        for _ in left:
            self._client.expect(base.Frame, 1)

    def __enter__(self) -> InnocentClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.drop()
