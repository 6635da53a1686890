"""Uvicorn as a broker wants it: without signals, with a limit on connections and on how long they may wait.

It is imported only where an HTTP listener is opened, since uvicorn is an extra. With TLS, the listener's connections go
through a listener of the same kind as those of AMQP, so that slow handshakes are bounded and certificates are renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.limits import HANDSHAKE_S
from penstock.server.connection.admission import address_key
from penstock.server.tls.contexts import TlsContexts
from penstock.server.tls.listener import TlsListener
from penstock.server.tls.pending import PendingTls

# What a client hears that is one too many: then it knows that it may come again.
REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\nRetry-After: 5\r\n"
    b"Content-Length: 21\r\n\r\ntoo many connections\n"
)
# So long a connection may be without a request: before its first one, between two, and while one is being sent.
WAIT_S: Final = 30.0
# What requests under way are given when the broker stops.
GRACE_S: Final = 1


class GuardedProtocol(H11Protocol):
    """One connection. Uvicorn lets those wait for ever that never send a whole request; this does not."""

    # Connections at a time, and from one address.
    connections_max: int = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # An answer is two writes, and the second one must not wait for the first to be acknowledged.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_cycle: object = None
        self._looking = self.loop.call_later(WAIT_S, self._look)
        if self._is_one_too_many():
            transport.write(REFUSAL)
            transport.close()

    def _is_one_too_many(self) -> bool:
        if len(self.connections) > self.connections_max:
            return True
        host = self._host()
        alike = [each for each in self.connections if isinstance(each, GuardedProtocol) and each._host() == host]
        # An address with its whole share leaves some to the others.
        return len(alike) > max(1, self.connections_max * 3 // 4)

    def _host(self) -> str:
        return "" if self.client is None else address_key(self.client[0])

    def connection_lost(self, exc: Exception | None) -> None:
        self._looking.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with 400; if a response has already started, only close the connection."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()

    def _look(self) -> None:
        """Close the connection if it has been idle since the last check."""
        cycle = self.cycle
        is_waiting = cycle is None or cycle.response_complete
        if is_waiting and cycle is self._last_cycle:
            self.transport.abort()
            return
        self._last_cycle = cycle
        self._looking = self.loop.call_later(WAIT_S, self._look)


class QuietServer(uvicorn.Server):
    """Leaves signals to the program that it runs in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def cut_connections(self) -> None:
        """Close connections that did not end with the server."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, GuardedProtocol):
                connection.transport.abort()


class TlsServer(QuietServer):
    """Serves within TLS: uvicorn's protocols are given transports that are secured."""

    def __init__(self, config: uvicorn.Config, tls: TlsContexts, connections_max: int) -> None:
        super().__init__(config)
        self._connections_max = connections_max
        self._listener = TlsListener(tls, HANDSHAKE_S, self._make, _forget)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on sockets that are given, as uvicorn does, but within TLS."""
        await self.lifespan.startup()
        self.servers = []
        self._listener.start([each.dup() for each in sockets or []])
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._listener.close()
        await super().shutdown(sockets)

    def _make(self, pending: PendingTls) -> asyncio.Protocol | None:
        if self._listener.handshake_count >= self._connections_max:
            return None
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


def _forget(protocol: asyncio.Protocol) -> None:
    """A connection whose handshake failed was never one of uvicorn's."""


def make_server(app: Any, connections_max: int, tls: TlsContexts | None = None) -> QuietServer:
    """Return a server for the app that has at most so many connections at a time."""
    protocol = type("LimitedProtocol", (GuardedProtocol,), {"connections_max": connections_max})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        # It warns of each request that is not HTTP, and any client can send those.
        log_level="error",
        access_log=False,
        # The address is that of the connection, whatever headers say: it decides whether a guest is let in.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(WAIT_S),
        timeout_graceful_shutdown=GRACE_S,
    )
    return QuietServer(config) if tls is None else TlsServer(config, tls, connections_max)
