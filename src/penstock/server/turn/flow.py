"""Throttles publishers: by the pace of the consumers they feed, by an overflow rule, and by the pace of the disk.

A publisher that is faster than its consumers would only grow a backlog. So a connection that has fed a queue whose
consumers are behind is not read for a while: until they have caught up, or until it shows that they do not take
messages at a good pace anyway (then a backlog is what the publisher wants, and the memory alarm is the limit).

A disk that is slower than the publishers has the same effect: while a sync is under way, or while the machine has no
descriptor for another file, the next batch gathers in memory. A connection that publishes while much is gathered is not
read until the batch is written. Acks, gets and everything else goes on, up to a second mark at which no connection is
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock import limits
from penstock.queues.queue import Queue

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection
    from penstock.store.node.node_store import NodeStore


class ThrottledPublishers:
    """A queue that is behind, and the publishers that wait for it."""

    __slots__ = ("checks", "connections", "delivered_before", "turns_before")

    def __init__(self, delivered_before: int, turns_before: int) -> None:
        # In the order in which they were throttled.
        self.connections: dict[Connection, None] = {}
        # At the last check that found a good pace: what had been delivered, and how many turns there had been.
        self.delivered_before = delivered_before
        self.turns_before = turns_before
        self.checks = 0


class PublisherFlow:
    """Which publishers are throttled, and why."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Looked at by the scheduler after each turn.
        self.throttled: dict[Queue, ThrottledPublishers] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Turns of the scheduler while a publisher was throttled.
        self._turns = 0
        self._node: NodeStore | None = None
        self._connections: Collection[Connection] = ()
        # Those that are not read until the gathered batch is written.
        self._waiting_for_disk: dict[Connection, None] = {}

    def use_disk(self, node: NodeStore, connections: Collection[Connection]) -> None:
        """Throttle publishers by what this store has gathered; `connections` are all there are."""
        self._node = node
        self._connections = connections

    def is_throttling(self) -> bool:
        """Return whether a publisher is throttled."""
        return bool(self.throttled) or bool(self._waiting_for_disk)

    def is_disk_behind(self) -> bool:
        """Return whether more is gathered for the disk than publishers may add to."""
        return self._node is not None and self._node.gathered_bytes > limits.GATHERED_BYTES_HIGH

    def check_disk(self) -> None:
        """Stop reading every connection if very much is gathered. Called in each turn of a broker with a store."""
        if self._node is not None and self._node.gathered_bytes > limits.GATHERED_BYTES_MAX:
            for connection in self._connections:
                self._throttle_for_disk(connection)

    def _throttle_for_disk(self, connection: Connection) -> None:
        if connection not in self._waiting_for_disk and not connection.closing:
            self._waiting_for_disk[connection] = None
            connection.stop_reading("store")

    def _release_for_disk(self) -> None:
        waiting = list(self._waiting_for_disk)
        self._waiting_for_disk.clear()
        for connection in waiting:
            connection.resume_reading("store")

    def after_publish(self, connection: Connection, queues: list[Queue]) -> None:
        """The connection has published to these queues; throttle it if one of them is behind, or the disk is."""
        if self.is_disk_behind():
            self._throttle_for_disk(connection)
            return
        for queue in queues:
            if queue.congestion is not None or queue.backing.is_congested():
                self._throttle(connection, queue)
                return
            if (
                len(queue.backing) > limits.THROTTLE_READY_MESSAGES
                or queue.backing.ready_bytes() > limits.THROTTLE_READY_BYTES
            ) and self._keeps_pace(queue):
                self._throttle(connection, queue)
                return

    def _keeps_pace(self, queue: Queue) -> bool:
        """Return whether the consumers may catch up: not when they were found slow, and have not taken much since."""
        if not queue.consumer_count():
            return False
        if queue.slow_at < 0:
            return True
        if queue.delivered_count - queue.slow_at < limits.THROTTLE_PACE_MESSAGES:
            return False
        queue.slow_at = -1
        return True

    def _throttle(self, connection: Connection, queue: Queue) -> None:
        throttled = self.throttled.get(queue)
        if throttled is None:
            throttled = self.throttled[queue] = ThrottledPublishers(queue.delivered_count, self._turns)
        throttled.connections[connection] = None
        connection.stop_reading("flow")
        if self._timer is None:
            self._timer = self._loop.call_later(limits.THROTTLE_CHECK_S, self._check_pace)

    def release(self) -> None:
        """Let go the publishers of queues that have caught up. Called after each turn while one is throttled."""
        self._turns += 1
        if self._waiting_for_disk and not self.is_disk_behind():
            self._release_for_disk()
        for queue in list(self.throttled):
            if queue.congestion is not None and not queue.deleted:
                if queue.congestion.is_relieved():
                    self._let_go(queue)
            elif not queue.deleted and queue.backing.is_congested():
                continue
            elif queue.deleted or (
                len(queue.backing) <= limits.RELEASE_READY_MESSAGES
                and queue.backing.ready_bytes() <= limits.THROTTLE_READY_BYTES // 2
            ):
                self._let_go(queue)

    def _check_pace(self) -> None:
        self._timer = None
        for queue, throttled in list(self.throttled.items()):
            if not queue.deleted and (queue.congestion is not None or queue.backing.is_congested()):
                # They wait as long as it takes: that is what its overflow rule says.
                continue
            if (
                queue.delivered_count - throttled.delivered_before >= limits.THROTTLE_PACE_MESSAGES
                and not queue.deleted
            ):
                throttled.delivered_before = queue.delivered_count
                throttled.turns_before = self._turns
                throttled.checks = 0
                continue
            throttled.checks += 1
            # On a busy machine the time may be up before the consumers had a turn: then they get some more of it.
            if (
                queue.deleted
                or self._turns - throttled.turns_before >= 2
                or throttled.checks >= limits.THROTTLE_CHECKS_MAX
            ):
                queue.slow_at = queue.delivered_count
                self._let_go(queue)
        if self.throttled:
            self._timer = self._loop.call_later(limits.THROTTLE_CHECK_S, self._check_pace)

    def forget(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        self._waiting_for_disk.pop(connection, None)
        for throttled in self.throttled.values():
            throttled.connections.pop(connection, None)

    def _let_go(self, queue: Queue) -> None:
        for connection in self.throttled.pop(queue).connections:
            connection.resume_reading("flow")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.throttled.clear()
        self._waiting_for_disk.clear()
