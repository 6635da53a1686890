"""What both faces set on their sockets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Final

from penstock.client.amqp.address import Address

# A read takes at most so much; it is also what may wait unread on our side.
READ_BYTES: Final = 256 * 1024
SEND_BYTES: Final = 1024 * 1024
# Without heartbeats it is the system that notices a dead peer: after a minute of silence it asks, four times.
KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


def set_options(setsockopt: Callable[[int, int, int], None]) -> None:
    """Send at once, and notice a peer that is gone without a word."""
    setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def tls_context(address: Address) -> ssl.SSLContext | None:
    """The broker's name and certificate are checked, always."""
    if not address.tls:
        return None
    context = ssl.create_default_context(cafile=address.cacertfile)
    if address.certfile is not None:
        context.load_cert_chain(address.certfile, address.keyfile)
    return context
