"""Uvicorn as a broker wants it: without signals, with a limit on connections and on how long they may wait.

Imported only where a door is opened: uvicorn is an extra.

What this does not do: TLS. Whoever needs it puts a proxy in front.
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

CONNECTIONS_MAX: Final = 64
# So long a connection may be without a request: before its first one, between two, and while one is being sent.
WAIT_S: Final = 30.0
# What requests under way are given when the broker stops.
GRACE_S: Final = 1


class GuardedProtocol(H11Protocol):
    """One connection. Uvicorn lets those wait for ever that never send a whole request; this does not."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # An answer is two writes, and the second one must not wait for the first to be acknowledged.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_cycle: object = None
        self._looking = self.loop.call_later(WAIT_S, self._look)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._looking.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no request, maybe behind an answer: then no other one can follow, and nobody is told."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()

    def _look(self) -> None:
        """Cut it when since the last look no request has come and none was under way."""
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
        """After the server has ended: those that did not end with it."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, GuardedProtocol):
                connection.transport.abort()


def make_server(app: Any) -> QuietServer:
    return QuietServer(
        uvicorn.Config(
            app,
            http=GuardedProtocol,
            ws="none",
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # It warns of each request that is none, and anybody can send those.
            log_level="error",
            access_log=False,
            # Who asks is who is connected, whatever headers say: it decides whether a guest is let in.
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=int(WAIT_S),
            timeout_graceful_shutdown=GRACE_S,
        )
    )
