"""The turn: connections with work pull from their queues, then every connection that has something to say writes once.

This is the last link of the wake-up chain queue -> consumer -> channel -> connection -> scheduler. A publish only
notifies; the pulling happens here, after everything that has arrived was parsed, so that one turn of the event loop
handles messages in batches. Connections take turns, one pull each, so that no consumer starves behind another.

Where there is a store, what the turn has gathered for the journal is written before the connections write, so that the
disk is at work meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import limits
from penstock.clock import Clock

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection
    from penstock.server.turn.flow import PublisherFlow
    from penstock.server.turn.store_turns import StoreTurns


class Scheduler:
    """Runs turns on the event loop while there is work."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, flow: PublisherFlow, after_turn: Callable[[], None], clock: Clock
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._flow = flow
        # Called after each turn; sets the timer of the next expiry.
        self._after_turn = after_turn
        # None: everything is in memory.
        self.store: StoreTurns | None = None
        # Connections that have notified consumers, in the order of their turn; each at most once.
        self._working: deque[Connection] = deque()
        # Connections with something in their output, in the order in which they got it.
        self._talking: list[Connection] = []
        # Whether the loop is going to call `_turn`.
        self.is_turn_due = False
        # Turns so far, for work that waits for a quiet moment.
        self.turn_count = 0

    def turn_soon(self) -> None:
        """Ask for a turn, which may be for the store alone."""
        if not self.is_turn_due:
            self.is_turn_due = True
            self._loop.call_soon(self._turn)

    def wake(self, connection: Connection) -> None:
        """The connection has notified consumers. Called once per connection until its turn."""
        self._working.append(connection)
        if not self.is_turn_due:
            self.is_turn_due = True
            self._loop.call_soon(self._turn)

    def flush_soon(self, connection: Connection) -> None:
        """The connection has output. Called once per connection until it was flushed."""
        self._talking.append(connection)
        if not self.is_turn_due:
            self.is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        store = self.store
        self.turn_count += 1
        try:
            self._deliver()
            if store is not None:
                store.commit()
            self._flush()
            if store is not None:
                self._flow.check_disk()
            if self._flow.is_throttling():
                self._flow.release()
            self._after_turn()
            if store is not None:
                store.end_turn()
        finally:
            # Whatever happens in a turn, the next one comes.
            if self._working or self._talking:
                self._loop.call_soon(self._turn)
            else:
                self.is_turn_due = False

    def _deliver(self) -> None:
        working = self._working
        budget = limits.TURN_MESSAGES_MAX
        until_s = self._clock.monotonic_s() + limits.DELIVER_TURN_S
        while working and budget > 0 and self._clock.monotonic_s() < until_s:
            connection = working.popleft()
            try:
                budget -= connection.deliver_some()
            except Exception:
                # A bug costs this connection its life; the others go on.
                connection.failed()
                continue
            if connection.has_work():
                working.append(connection)

    def _flush(self) -> None:
        talking = self._talking
        self._talking = []
        for connection in talking:
            try:
                connection.flush()
            except Exception:
                connection.failed()
