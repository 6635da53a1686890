"""Faults on purpose, so that clients can be tested against a broker that misbehaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
