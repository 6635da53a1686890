# unasync: written by hand in each face.
"""A socket to an AMQP broker, with deadlines. `client/aio/amqp/socket.py` is the other one.

Several threads may wait for what arrives: one of them reads, and the others look again when it has. The socket never
blocks, so that a thread that sends and one that waits do not hold each other up, with TLS neither.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import ssl
import threading
from collections.abc import Callable
from time import monotonic

from penstock.client.amqp.address import Address
from penstock.client.amqp.sockets import READ_BYTES, set_options, tls_context

# What there was nothing of, or no room for, just now.
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Socket:
    """Raises OSError for everything that goes wrong."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        # A TLS socket is for one thread at a time; nobody waits within this.
        self._touching = threading.Lock()
        # Guards `is_reading`, and wakes those who wait for who reads.
        self._turn = threading.Condition()
        self.is_reading = False

    @classmethod
    def connect(cls, address: Address) -> Socket:
        context = tls_context(address)
        connected = socket.create_connection((address.host, address.port), timeout=address.timeout_s)
        try:
            set_options(connected.setsockopt)
            if context is not None:
                connected = context.wrap_socket(connected, server_hostname=address.host)
        except BaseException:
            connected.close()
            raise
        return cls(connected)

    def send(self, data: bytes, timeout_s: float) -> None:
        """Send all of it. The broker may take any time, as long as it takes something within each timeout."""
        view = memoryview(data)
        try:
            while view:
                try:
                    with self._touching:
                        sent = self._socket.send(view)
                except NOT_NOW as error:
                    if not self._wait(not isinstance(error, ssl.SSLWantReadError), monotonic() + timeout_s):
                        raise TimeoutError from None
                else:
                    view = view[sent:]
        except BaseException:
            # Part of a frame may be on its way, and nothing can follow it.
            self.close()
            raise

    def receive(self, deadline_s: float, take: Callable[[bytes], None], done: Callable[[], bool]) -> bool:
        """Hand what arrives to `take`; False when nothing has until the deadline, or when another thread has read."""
        with self._turn:
            # Looked at here, since another thread may have read it between the caller's look and now.
            if done():
                return False
            if self.is_reading:
                self._turn.wait(None if deadline_s == math.inf else max(0.0, deadline_s - monotonic()))
                return False
            self.is_reading = True
        try:
            data = self._read(deadline_s)
            if data:
                take(data)
        finally:
            with self._turn:
                self.is_reading = False
                self._turn.notify_all()
        return bool(data)

    def _read(self, deadline_s: float) -> bytes:
        while True:
            try:
                with self._touching:
                    data = self._socket.recv(READ_BYTES)
            except NOT_NOW as error:
                if not self._wait(isinstance(error, ssl.SSLWantWriteError), deadline_s):
                    return b""
                continue
            if not data:
                raise ConnectionResetError("the broker hung up")
            return data

    def _wait(self, for_room: bool, deadline_s: float) -> bool:
        """Whether it can be read from, or written to, before the deadline."""
        if self._socket.fileno() < 0:
            raise ConnectionResetError("another thread has hung up")
        left_s = None if deadline_s == math.inf else max(0.0, deadline_s - monotonic())
        if not hasattr(select, "poll"):
            reads, writes = ([], [self._socket]) if for_room else ([self._socket], [])
            return any(select.select(reads, writes, [], left_s))
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT if for_room else select.POLLIN)
        return bool(poll.poll(None if left_s is None else math.ceil(left_s * 1000)))

    def close(self) -> None:
        # It wakes who waits for it; closing alone does not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
