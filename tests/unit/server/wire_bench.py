"""A server without sockets on a loop that the test turns: clients hand it frames and read what it wrote, with pamqp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fake_loop import FakeLoop
from pamqp import base, body, commands, frame, header

from penstock.broker.vhost.vhost import VHost
from penstock.config import Config
from penstock.queues.queue import Queue
from penstock.server.channel.channel import Channel
from penstock.server.connection.connection import Connection
from penstock.server.server import Server

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
CAPABILITIES = {"consumer_cancel_notify": True, "authentication_failure_close": True}


class Listener:
    """What the server believes to listen with."""

    def __init__(self) -> None:
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return ("nowhere", 0)

    def close(self) -> None:
        pass


class ServerLoop(FakeLoop):
    """A loop on which a server can start to listen."""

    async def create_server(self, factory: Callable[[], Connection], *args: Any, **options: Any) -> Any:
        self.factory = factory
        return Listener()


class MemoryTransport(asyncio.Transport):
    """Keeps what the server writes."""

    def __init__(self, loop: FakeLoop, protocol: Connection) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000)})
        self._loop = loop
        self._protocol = protocol
        self._closing = False
        self.written = bytearray()
        self.is_paused = False
        # What the client has not read, as the server is told.
        self.unread_bytes = 0
        # False: the client stays when the server has said its last word.
        self.hangs_up = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self._closing

    def write_eof(self) -> None:
        if self.hangs_up:
            self.close()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class Client:
    """One connection: frames are sent at once, and read after the loop has come to rest."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.connection = bench.loop.factory()
        self.transport = MemoryTransport(bench.loop, self.connection)
        self.connection.connection_made(self.transport)

    def log_in(self, user: str = "guest") -> None:
        self.transport_data(PROTOCOL_HEADER)
        start_ok = commands.Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", f"\0{user}\0{user}", "en_US")
        for method in (start_ok, commands.Connection.TuneOk(0, 4096, 0), commands.Connection.Open("/")):
            self.send(method, channel=0)
        assert isinstance(self.read()[-1], commands.Connection.OpenOk)

    def transport_data(self, data: bytes) -> None:
        self.connection.data_received(data)

    def send(self, *methods: base.Frame, channel: int = 1) -> None:
        """All of them in one piece."""
        self.transport_data(b"".join(frame.marshal(method, channel) for method in methods))

    def publish(self, exchange: str, key: str, *texts: bytes, mandatory: bool = False, **properties: Any) -> None:
        """A run of messages in one piece."""
        data = b""
        for text in texts:
            data += frame.marshal(commands.Basic.Publish(0, exchange, key, mandatory), 1)
            content_header = header.ContentHeader(0, len(text), commands.Basic.Properties(**properties))
            data += frame.marshal(content_header, 1)
            if text:
                data += frame.marshal(body.ContentBody(text), 1)
        self.transport_data(data)

    def read(self) -> list[Any]:
        """Frames that the server has sent since the last look."""
        self._bench.loop.run()
        data, found = bytes(self.transport.written), []
        self.transport.written.clear()
        while data:
            size, _, value = frame.unmarshal(data)
            found.append(value)
            data = data[size:]
        return found

    def call(self, method: base.Frame, channel: int = 1) -> list[Any]:
        self.send(method, channel=channel)
        return self.read()

    def get(self, queue: str = "q") -> tuple[bytes, bool] | None:
        """One message without acknowledgement: its body and whether it is redelivered."""
        answer = self.call(commands.Basic.Get(0, queue, True))
        if isinstance(answer[0], commands.Basic.GetEmpty):
            return None
        return b"".join(part.value for part in answer[2:]), answer[0].redelivered

    def channel(self, number: int = 1) -> Channel:
        return self.connection.channels[number]


class Bench:
    """A server and its loop."""

    def __init__(self, server: Server | None = None) -> None:
        self.loop = ServerLoop()
        self.server = server or Server(Config())
        start = self.server.start()
        asyncio._set_running_loop(self.loop)
        try:
            start.send(None)
        except StopIteration:
            pass
        finally:
            asyncio._set_running_loop(None)

    @property
    def vhost(self) -> VHost:
        return self.server.broker.vhosts["/"]

    def client(self, user: str = "guest") -> Client:
        """Logged in, with channel 1 open."""
        client = Client(self)
        client.log_in(user)
        client.call(commands.Channel.Open())
        return client

    def queue(self, name: str = "q") -> Queue:
        return self.vhost.declare_queue(name, False, False, None, {})
