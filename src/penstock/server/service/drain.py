"""A drain: what happens between the wish to stop and the stop, so that clients lose and repeat as little as possible.

Nothing new is delivered, publishers are told with connection.blocked, and no client can connect. Confirms, acks and
replies still go both ways. The drain is over when no delivery waits for its ack and no publish for its confirm, when
its time is up, or at a second signal. What is unacknowledged then goes back to its queue, as after any lost connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from penstock.wire import methods

if TYPE_CHECKING:
    from penstock.server.server import Server

log = logging.getLogger("penstock.server")

# How often it looks whether clients are done.
LOOK_S: Final = 0.02
REASON: Final = "the broker is shutting down"


class Drain:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._hurry = asyncio.Event()
        self._told: set[object] = set()

    def hurry(self) -> None:
        """End the drain now."""
        self._hurry.set()

    async def run(self, timeout_s: float) -> int:
        """Wait for clients, at most so long; return how many deliveries and publishes were left unanswered."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        await self._server.stop_accepting()
        left = self._outstanding()
        if left:
            log.info("waiting up to %g s for %d acks and confirms of clients", timeout_s, left)
        while left and loop.time() < end_s and not self._hurry.is_set():
            self._hold()
            try:
                await asyncio.wait_for(self._hurry.wait(), LOOK_S)
            except TimeoutError:
                left = self._outstanding()
        if left:
            log.info("%d acks and confirms are still missing; what is not acknowledged is delivered again", left)
        return left

    def _hold(self) -> None:
        """Deliver nothing more, also on channels that were opened meanwhile."""
        for connection in list(self._server.connections):
            if connection not in self._told and connection.opened and not connection.closing:
                self._told.add(connection)
                if connection.has_capability("connection.blocked"):
                    connection.send(0, methods.ConnectionBlocked(REASON))
            for channel in connection.channels.values():
                if not channel.flow_stopped:
                    channel.flow_stopped = True
                    channel.update_interest()

    def _outstanding(self) -> int:
        """Return how many deliveries wait for their ack and publishes for their confirm."""
        return sum(
            channel.outstanding()
            for connection in self._server.connections
            if connection.opened and not connection.closing
            for channel in connection.channels.values()
        )
