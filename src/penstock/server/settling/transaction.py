"""tx: publishes and acknowledgements that happen at commit, all of them, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock import limits
from penstock.message import Entry
from penstock.queues.queue import Queue
from penstock.server.channel.unacked import Span

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel
    from penstock.server.channel.publishing import Prepared, PublishRoute

# How a delivery is settled.
ACK = 0
REJECT = 1
REQUEUE = 2


class TxEntries:
    """Plain messages with envelopes of their own, which all go to the same queues."""

    __slots__ = ("entries", "queues", "route")

    def __init__(self, route: PublishRoute, queues: list[Queue], entries: list[Entry]) -> None:
        self.route = route
        self.queues = queues
        self.entries = entries


# Those, or a run of one envelope.
TxPublish = TxEntries | tuple["PublishRoute", "Prepared", list[bytes]]


class Transaction:
    """What a transactional channel has not committed yet."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        # Routed when they were published; queues that are deleted before the commit drop out.
        self._publishes: list[TxPublish] = []
        self._settled: list[tuple[list[Span], int]] = []
        # Counted by the connection until they are committed or forgotten.
        self._bytes = 0

    def published(self, route: PublishRoute, prepared: Prepared, bodies: Sequence[bytes]) -> None:
        size = sum(map(len, bodies)) + len(bodies) * limits.MESSAGE_OVERHEAD_BYTES + len(prepared.properties)
        self._channel.connection.count_partial(size)
        self._bytes += size
        self._publishes.append((route, prepared, list(bodies)))

    def published_entries(self, route: PublishRoute, queues: list[Queue], entries: list[Entry]) -> None:
        """Plain messages that all go to the same queues."""
        size = sum([len(body) + len(envelope.properties) for envelope, body, _ in entries])
        size += len(entries) * limits.MESSAGE_OVERHEAD_BYTES
        self._channel.connection.count_partial(size)
        self._bytes += size
        self._publishes.append(TxEntries(route, queues, entries))

    def settled(self, spans: list[Span], how: int) -> None:
        self._settled.append((spans, how))

    def take(self) -> tuple[list[TxPublish], list[tuple[list[Span], int]]]:
        """What is to be committed; the next transaction begins."""
        self._uncount()
        publishes, self._publishes = self._publishes, []
        settled, self._settled = self._settled, []
        return publishes, settled

    def is_empty(self) -> bool:
        return not self._publishes and not self._settled

    def undo_last(self) -> None:
        """Forget a publish, or make deliveries that were settled together unsettled again."""
        self._uncount()
        if self._publishes:
            self._publishes.pop()
        else:
            spans, _ = self._settled.pop()
            self._channel.unacked.restore(spans)

    def _uncount(self) -> None:
        self._channel.connection.count_partial(-self._bytes)
        self._bytes = 0
