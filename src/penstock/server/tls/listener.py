"""Accepts connections, and leads them through their TLS handshakes to the protocols that speak within.

asyncio's own TLS servers make a protocol only when the handshake is over, so a client that never ends it would count
nowhere. Here the protocol is made, admitted and timed when the connection is accepted; it holds a `PendingTls` until
its transport is there.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from penstock import limits
from penstock.server.tls.contexts import TlsContexts
from penstock.server.tls.pending import PendingTls

log = logging.getLogger("penstock.tls")

# Returns the protocol of a new connection; None: it is not wanted.
Make = Callable[[PendingTls], asyncio.Protocol | None]
# Called when a connection ends before its handshake was over.
Lost = Callable[[asyncio.Protocol], None]


class TlsListener:
    def __init__(self, contexts: TlsContexts, handshake_s: float, make: Make, lost: Lost) -> None:
        self._contexts = contexts
        self._handshake_s = handshake_s
        self._make = make
        self._lost = lost
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        # A task that nobody refers to may be collected.
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    @property
    def handshake_count(self) -> int:
        """Connections whose handshakes are not over."""
        return len(self._handshakes)

    def bind(self, host: str, port: int) -> None:
        """Bind to every address that the name has; raises OSError."""
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                where = (address[0], self.port if port == 0 and self._sockets else port)
                self._sockets.append(socket.create_server(where, family=family, backlog=limits.ACCEPT_BACKLOG))
        except OSError:
            self.close()
            raise

    def start(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on what was bound, or on sockets that were bound elsewhere."""
        self._sockets += sockets or []
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            each.setblocking(False)
            self._accepting.append(loop.create_task(self._accept(loop, each)))

    async def _accept(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        while True:
            try:
                peer, _ = await loop.sock_accept(listening)
            except OSError as error:
                # Mostly there are no descriptors left. Others can be accepted when some are closed.
                log.warning("cannot accept a connection: %s", error.strerror or error)
                await asyncio.sleep(limits.ACCEPT_AGAIN_S)
                continue
            pending = PendingTls(peer)
            protocol = self._make(pending)
            if protocol is None:
                peer.close()
                continue
            task = loop.create_task(self._handshake(loop, peer, pending, protocol))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _handshake(
        self, loop: asyncio.AbstractEventLoop, peer: socket.socket, pending: PendingTls, protocol: asyncio.Protocol
    ) -> None:
        if pending.is_closing():
            peer.close()
            self._lost(protocol)
            return
        pending.begin(asyncio.current_task())
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                lambda: protocol,
                peer,
                ssl=self._contexts.current,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=limits.CLOSE_OK_S,
            )
        except (OSError, asyncio.CancelledError) as error:
            if isinstance(error, OSError):
                name = pending.get_extra_info("peername")
                reason = str(getattr(error, "reason", None) or error or type(error).__name__)
                log.warning("connection %s closed: TLS handshake failed: %s", address_text(name), ascii(reason)[:200])
            self._lost(protocol)
        finally:
            pending.begin(None)

    def close(self) -> None:
        for task in self._accepting:
            task.cancel()
        self._accepting.clear()
        for each in self._sockets:
            each.close()
        self._sockets.clear()


def address_text(name: object) -> str:
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unknown"
