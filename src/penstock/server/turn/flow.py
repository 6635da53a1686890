"""Holding publishers back: by the pace of the consumers they feed, by an overflow rule, and by the pace of the disk.

A publisher that is faster than its consumers would only grow a backlog. So a connection that has fed a queue whose
consumers are behind is not read for a while: until they have caught up, or until it shows that they do not take
messages at a good pace anyway (then a backlog is what the publisher wants, and the memory alarm is the limit).

A disk that is slower than the publishers has the same effect: while a sync is under way, or while the machine has no
descriptor for another file, the next batch gathers in memory. Who publishes while much is gathered is not read until
the batch is written. Acks, gets and everything else goes on, up to a second mark at which no connection is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from penstock import limits
from penstock.queues.queue import Queue

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection
    from penstock.store.node.node_store import NodeStore


class HeldQueue:
    """A queue that is behind, and the publishers that wait for it."""

    __slots__ = ("checks", "connections", "delivered_before", "turns_before")

    def __init__(self, delivered_before: int, turns_before: int) -> None:
        # In the order in which they were held.
        self.connections: dict[Connection, None] = {}
        # At the last check that found a good pace: what had been delivered, and how many turns there had been.
        self.delivered_before = delivered_before
        self.turns_before = turns_before
        # Checks since then.
        self.checks = 0


class PublisherFlow:
    """Which publishers are held back, and why."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Looked at by the scheduler after each turn.
        self.holding: dict[Queue, HeldQueue] = {}
        # Queues whose consumers did not keep the pace when last looked at, with what had been delivered then.
        self._slow: WeakKeyDictionary[Queue, int] = WeakKeyDictionary()
        self._timer: asyncio.TimerHandle | None = None
        # Turns of the scheduler while somebody was held.
        self._turns = 0
        self._node: NodeStore | None = None
        self._connections: Collection[Connection] = ()
        # Those that are not read until the gathered batch is written.
        self._waiting_for_disk: dict[Connection, None] = {}

    def use_disk(self, node: NodeStore, connections: Collection[Connection]) -> None:
        """Hold publishers back by what this store has gathered; `connections` are all there are."""
        self._node = node
        self._connections = connections

    def is_holding(self) -> bool:
        """Whether somebody is held back."""
        return bool(self.holding) or bool(self._waiting_for_disk)

    def is_disk_behind(self) -> bool:
        """Whether more is gathered for the disk than publishers may add to."""
        return self._node is not None and self._node.gathered_bytes > limits.GATHERED_BYTES_HIGH

    def check_disk(self) -> None:
        """Stop reading every connection if very much is gathered. Called in each turn of a broker with a store."""
        if self._node is not None and self._node.gathered_bytes > limits.GATHERED_BYTES_MAX:
            for connection in self._connections:
                self._hold_for_disk(connection)

    def _hold_for_disk(self, connection: Connection) -> None:
        if connection not in self._waiting_for_disk and not connection.closing:
            self._waiting_for_disk[connection] = None
            connection.stop_reading("store")

    def _release_for_disk(self) -> None:
        waiting = list(self._waiting_for_disk)
        self._waiting_for_disk.clear()
        for connection in waiting:
            connection.resume_reading("store")

    def after_publish(self, connection: Connection, queues: list[Queue]) -> None:
        """The connection has published to these queues; hold it if one of them is behind, or the disk is."""
        if self.is_disk_behind():
            self._hold_for_disk(connection)
            return
        for queue in queues:
            if queue.congestion is not None or queue.backing.is_congested():
                self._hold(connection, queue)
                return
            if (
                len(queue.backing) > limits.HOLD_READY_MESSAGES or queue.backing.ready_bytes() > limits.HOLD_READY_BYTES
            ) and self._keeps_pace(queue):
                self._hold(connection, queue)
                return

    def _keeps_pace(self, queue: Queue) -> bool:
        """Whether the consumers may catch up: not when they were found slow, and have not taken much since."""
        if not queue.consumer_count():
            return False
        slow_at = self._slow.get(queue)
        if slow_at is None:
            return True
        if queue.delivered_count - slow_at < limits.HOLD_PACE_MESSAGES:
            return False
        del self._slow[queue]
        return True

    def _hold(self, connection: Connection, queue: Queue) -> None:
        held = self.holding.get(queue)
        if held is None:
            held = self.holding[queue] = HeldQueue(queue.delivered_count, self._turns)
        held.connections[connection] = None
        connection.stop_reading("flow")
        if self._timer is None:
            self._timer = self._loop.call_later(limits.HOLD_CHECK_S, self._check_pace)

    def release(self) -> None:
        """Let go the publishers of queues that have caught up. Called after each turn while somebody is held."""
        self._turns += 1
        if self._waiting_for_disk and not self.is_disk_behind():
            self._release_for_disk()
        for queue in list(self.holding):
            if queue.congestion is not None and not queue.deleted:
                if queue.congestion.is_relieved():
                    self._let_go(queue)
            elif not queue.deleted and queue.backing.is_congested():
                continue
            elif queue.deleted or (
                len(queue.backing) <= limits.RELEASE_READY_MESSAGES
                and queue.backing.ready_bytes() <= limits.HOLD_READY_BYTES // 2
            ):
                self._let_go(queue)

    def _check_pace(self) -> None:
        self._timer = None
        for queue, held in list(self.holding.items()):
            if not queue.deleted and (queue.congestion is not None or queue.backing.is_congested()):
                # They wait as long as it takes: that is what its overflow rule says.
                continue
            if queue.delivered_count - held.delivered_before >= limits.HOLD_PACE_MESSAGES and not queue.deleted:
                held.delivered_before = queue.delivered_count
                held.turns_before = self._turns
                held.checks = 0
                continue
            held.checks += 1
            # On a busy machine the time may be up before the consumers had a turn: then they get some more of it.
            if queue.deleted or self._turns - held.turns_before >= 2 or held.checks >= limits.HOLD_CHECKS_MAX:
                self._slow[queue] = queue.delivered_count
                self._let_go(queue)
        if self.holding:
            self._timer = self._loop.call_later(limits.HOLD_CHECK_S, self._check_pace)

    def forget(self, connection: Connection) -> None:
        """The connection is gone, and nobody waits for its queues in its name."""
        self._waiting_for_disk.pop(connection, None)
        for held in self.holding.values():
            held.connections.pop(connection, None)

    def _let_go(self, queue: Queue) -> None:
        for connection in self.holding.pop(queue).connections:
            connection.resume_reading("flow")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.holding.clear()
        self._waiting_for_disk.clear()
