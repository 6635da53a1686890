"""The history of a queue: its finalized messages, in a durable queue beside it that drops the oldest ones.

Each carries how many were finalized before it, so that the count outlives those that were dropped.
"""

from __future__ import annotations

from penstock.broker.vhost.vhost import VHost
from penstock.client.engine import records
from penstock.client.engine.names import history_of
from penstock.client.engine.records import Finalized
from penstock.client.message import Message
from penstock.fields import Table
from penstock.message import Envelope, Incoming
from penstock.queues.queue import Queue

# One look at the disk; what is between two looks is RAM.
PAGE_MESSAGES = 1_000
PAGE_BYTES = 16 << 20

Kept = tuple[int, Envelope, bytes]


class History:
    def __init__(self, vhost: VHost, arguments: Table) -> None:
        """`arguments` say how much a history keeps."""
        self._vhost = vhost
        self._arguments = arguments
        # By queue; read from the newest message when it is first asked for.
        self._totals: dict[str, int] = {}

    def add(self, name: str, message: Envelope, body: bytes, finalized: Finalized) -> None:
        """In the turn in which the message is acked."""
        self._totals[name] = self.total(name) + 1
        queue = self._vhost.queues.get(history_of(name))
        if queue is None:
            queue = self._vhost.declare_queue(history_of(name), True, False, None, self._arguments)
        queue.publish(Incoming(records.history_envelope(message, finalized, self._totals[name]), [body]), None)

    def forget(self, name: str) -> None:
        """The queue is dropped, and its history with it."""
        self._totals.pop(name, None)

    def total(self, name: str) -> int:
        """Return how many messages were ever finalized."""
        if name not in self._totals:
            found = self._last(name, 1)
            self._totals[name] = records.finalized_number(found[0][1]) if found else 0
        return self._totals[name]

    def last(self, name: str, limit: int) -> list[Message]:
        """Newest first."""
        return [
            records.finalized_message(name, seq_id, envelope, body)
            for seq_id, envelope, body in self._last(name, limit)
        ]

    def _last(self, name: str, limit: int) -> list[Kept]:
        queue = self._vhost.queues.get(history_of(name))
        if queue is None:
            return []
        found: list[Kept] = []
        end = int(queue.backing.status()["next_seq_id"])
        stride = limit
        while end > 0 and len(found) < min(limit, queue.ready_count()):
            start = max(0, end - stride)
            page = _between(queue, start, end)
            found.extend(reversed(page))
            end = start
            # A crash leaves a gap of thousands of numbers.
            stride = min(limit - len(found), PAGE_MESSAGES) if page else 2 * stride
        return found[:limit]


def _between(queue: Queue, start: int, end: int) -> list[Kept]:
    page: list[Kept] = []
    while start < end:
        run = queue.backing.browse(start, end - start, PAGE_BYTES)
        if run is None:
            break
        for index, (envelope, body, _) in enumerate(run.entries):
            if run.first_seq_id + index < end:
                page.append((run.first_seq_id + index, envelope, body))
        start = run.first_seq_id + len(run.entries)
    return page
