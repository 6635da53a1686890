"""What this machine can do without a broker: copy memory, and send bytes to itself."""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

MIB: Final = 1024 * 1024
# More than the caches of a processor hold: bodies that a broker copies are not in them any more.
COPIED_BYTES: Final = 64 * MIB
# As much as the load generator writes with one call, and a broker reads.
SENT_BYTES: Final = 256 * 1024


def copied_bytes_per_s(seconds: float) -> float:
    """Bytes that one core copies a second."""
    source = memoryview(bytearray(COPIED_BYTES))
    target = memoryview(bytearray(COPIED_BYTES))
    copied = 0
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        target[:] = source
        copied += COPIED_BYTES
    return copied / (time.monotonic() - start)


def loopback_bytes_per_s(seconds: float) -> float:
    """Bytes that go through one loopback connection a second: one thread sends, another receives."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        receiver, _ = server.accept()
        with receiver:
            until = time.monotonic() + seconds
            thread = threading.Thread(target=send_until, args=(sender, until))
            start = time.monotonic()
            thread.start()
            received = receive_all(receiver)
            took_s = time.monotonic() - start
            thread.join()
    return received / took_s


def send_until(sender: socket.socket, until_s: float) -> None:
    data = bytes(SENT_BYTES)
    while time.monotonic() < until_s:
        sender.sendall(data)
    sender.shutdown(socket.SHUT_WR)


def receive_all(receiver: socket.socket) -> int:
    room = bytearray(SENT_BYTES)
    received = 0
    while (count := receiver.recv_into(room)) > 0:
        received += count
    return received
