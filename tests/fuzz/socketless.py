"""A whole broker on an event loop of the test's own, whose clients are objects: no sockets, no threads, no waiting.

A test decides which bytes arrive together and when the event loop gets its turn, which is what the reader's fast paths
and the scheduler could depend on and must not.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any
from unittest import mock

from penstock import limits
from penstock.config import Config
from penstock.server.connection.connection import Connection
from penstock.server.server import Server

from .client_frames import HEADER, encode_all, handshake
from .server_frames import Said

DEADLINE_S = 60.0
# The event loop is quiet when nothing was written or read for so many passes.
QUIET_PASSES = 4


class MemoryTransport(asyncio.Transport):
    """The server's end of a connection to a client that is an object. Keeps what the server writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Connection, client_reads: bool) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000)})
        self._loop = loop
        self.protocol = protocol
        self.written = bytearray()
        # Counts everything that happens here.
        self.activity = 0
        # False: what is written stays in the buffer, as with a client that has stopped reading.
        self.client_reads = client_reads
        self._high_bytes = 64 * 1024
        self._writing_paused = False
        self._reading_paused = False
        self._closing = False
        # Bytes that arrived while the server was not reading.
        self._unread: list[bytes] = []

    # --- what the server calls --------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.activity += 1
        if self._closing:
            return
        self.written += data
        if not self.client_reads and not self._writing_paused and len(self.written) > self._high_bytes:
            self._writing_paused = True
            self.protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = high or self._high_bytes

    def get_write_buffer_size(self) -> int:
        return 0 if self.client_reads else len(self.written)

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        if self._unread:
            self._loop.call_soon(self._read_on)

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def is_closing(self) -> bool:
        return self._closing

    def write_eof(self) -> None:
        # The client hangs up as soon as it has read the end.
        self.close()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._unread.clear()
            self._loop.call_soon(self._lost)

    def abort(self) -> None:
        self.close()

    def _lost(self) -> None:
        self.activity += 1
        self.protocol.connection_lost(None)

    # --- what the test calls ----------------------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        """Bytes from the client."""
        self.activity += 1
        if self._closing:
            return
        if self._reading_paused or self._unread:
            self._unread.append(data)
        else:
            self.protocol.data_received(data)

    def _read_on(self) -> None:
        while self._unread and self.is_reading():
            self.activity += 1
            self.protocol.data_received(self._unread.pop(0))

    def client_reads_on(self) -> bytes:
        """The client empties the server's buffer once; what was in it."""
        data = bytes(self.written)
        self.written.clear()
        if self._writing_paused:
            self._writing_paused = False
            self.activity += 1
            self._loop.call_soon(self.protocol.resume_writing)
        return data

    def holds_unread(self) -> bool:
        return bool(self._unread) and not self._closing


class Client:
    """One connection to a `SocketlessServer`."""

    def __init__(self, bench: SocketlessServer, transport: MemoryTransport) -> None:
        self._bench = bench
        self.transport = transport

    def send(self, data: bytes) -> None:
        self.transport.arrive(data)

    def send_chunks(self, chunks: Iterable[bytes], turns_between: bool = False) -> None:
        for chunk in chunks:
            self.transport.arrive(chunk)
            if turns_between:
                self._bench.settle()

    def said(self) -> Said:
        return Said(bytes(self.transport.written))

    def take(self) -> bytes:
        """What the server has written since the last call."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        return data

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    def hang_up(self) -> None:
        self.transport.close()
        self._bench.settle()


class Complaints(logging.Handler):
    """Errors in the log, and log lines that a client has broken in two or filled with control characters."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []
        self.broken_lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if record.levelno >= logging.ERROR:
            self.found.append(f"logged: {logging.Formatter().format(record)}")
        elif not line.isprintable():
            self.broken_lines.append(line)


class SocketlessServer:
    """A server and its event loop. Nothing is cut short because the machine is slow: turns come when the test says."""

    def __init__(self, config: Config | None = None) -> None:
        self._patience = mock.patch.multiple(
            limits, PARSE_TURN_S=math.inf, DELIVER_TURN_S=math.inf, SETTLE_TURN_S=math.inf
        )
        self._patience.start()
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._unhandled)
        self.complaints = Complaints()
        self._logger = logging.getLogger("penstock")
        self._logger.addHandler(self.complaints)
        self._level_before = self._logger.level
        self._logger.setLevel(logging.INFO)
        self._transports: list[MemoryTransport] = []
        config = config or Config(login_refused_delay_s=0.0, heartbeat_s=0)
        config.port = 0
        self.server: Server = self.loop.run_until_complete(self._start(config))

    async def _start(self, config: Config) -> Server:
        server = Server(config)
        await server.start()
        return server

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.complaints.found.append(f"unhandled: {context.get('exception') or context['message']!r}")

    def connect(self, client_reads: bool = True) -> Client:
        """A connection of which the server has not heard a byte."""
        connection = Connection(self.server)
        transport = MemoryTransport(self.loop, connection, client_reads)
        self._transports.append(transport)
        # Timers need the running loop.
        self.run(lambda: connection.connection_made(transport))
        return Client(self, transport)

    def login(self, frame_bytes_max: int = 0, client_reads: bool = True) -> Client:
        """A connection that may open channels; what the server said so far is taken."""
        client = self.connect(client_reads)
        client.send(HEADER + encode_all(handshake(frame_bytes_max)))
        self.settle()
        client.take()
        return client

    def run(self, function: Callable[[], None]) -> None:
        self.loop.call_soon(function)
        self.settle()

    def settle(self) -> None:
        """Give the event loop its turns until nothing happens any more."""
        self.loop.run_until_complete(self._until_quiet())
        self._transports = [transport for transport in self._transports if not transport.is_closing()]

    async def _until_quiet(self) -> None:
        stop_at = time.monotonic() + DEADLINE_S
        quiet = 0
        while quiet < QUIET_PASSES:
            before = self._activity()
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._activity() == before else 0
            while any(transport.holds_unread() and transport.client_reads for transport in self._transports):
                await asyncio.sleep(0.001)
                quiet = 0
                assert time.monotonic() < stop_at, "the server does not read on"
            assert time.monotonic() < stop_at, "the server does not come to rest"

    def _activity(self) -> int:
        return sum(transport.activity for transport in self._transports)

    def check_clean(self) -> None:
        """Nothing went wrong inside the broker."""
        assert not self.complaints.found, self.complaints.found[:3]
        assert self.server.internal_errors == 0

    def close(self) -> None:
        for transport in self._transports:
            transport.close()
        self.settle()
        self.loop.run_until_complete(self.server.stop(timeout_s=1.0))
        self._logger.removeHandler(self.complaints)
        self._logger.setLevel(self._level_before)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self._patience.stop()

    def __enter__(self) -> SocketlessServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
