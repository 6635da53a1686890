"""Faults on purpose, so that clients can be tested against a broker that misbehaves.

Used by `penstock.testing`; a broker that was started by the command line has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.server.channel import Channel
    from penstock.server.connection import Connection
    from penstock.server.server import Server


class Faults:
    """What goes wrong at present. Call on the broker's own thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        # Publishes in confirm mode are refused: not queued, answered with basic.nack.
        self.refuse_confirms = False
        # Confirms are sent this much later.
        self.confirm_delay_s = 0.0

    def cut_connections(self) -> int:
        """Cut every connection without a word; return how many."""
        connections = list(self._server.connections)
        for connection in connections:
            connection.drop()
        return len(connections)

    def holds_confirms(self, connection: Connection, channels: Iterable[Channel]) -> bool:
        """True when the confirms of these channels are sent later."""
        if self.confirm_delay_s <= 0:
            return False
        for channel in channels:
            self._server.loop.call_later(self.confirm_delay_s, self._confirm, connection, channel)
        return True

    def _confirm(self, connection: Connection, channel: Channel) -> None:
        channel.flush_confirms()
        connection.flush()
