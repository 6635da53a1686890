"""tx: publishes and acknowledgements that happen at commit, all of them, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.message import Incoming
from penstock.server.channel.unacked import Span, TxSettled, Unacked

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel
    from penstock.server.channel.publishing import Prepared, PublishRoute

# How a delivery is settled.
ACK = 0
REJECT = 1
REQUEUE = 2


# Where it came from, where it goes, and what it is.
TxPublish = tuple["PublishRoute", "Prepared", Incoming]


class Transaction:
    """What a transactional channel has not committed yet."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        # Routed when they were published; queues that are deleted before the commit drop out.
        self._publishes: list[TxPublish] = []
        self._settled: list[TxSettled] = []
        # Counted by the connection until they are committed or forgotten.
        self._bytes = 0

    def published(self, route: PublishRoute, prepared: Prepared, incoming: Incoming) -> None:
        entries = incoming.entries
        described = [incoming.envelope] if entries is None else [entry[0] for entry in entries]
        size = incoming.size_bytes + incoming.count * limits.MESSAGE_OVERHEAD_BYTES
        size += sum([len(envelope.properties) for envelope in described])
        self._channel.connection.count_partial(size)
        self._bytes += size
        self._publishes.append((route, prepared, incoming))

    def settled(self, spans: list[Span], detached: Unacked | None, how: int) -> None:
        self._settled.append((spans, detached, how))

    def take(self) -> tuple[list[TxPublish], list[TxSettled]]:
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
            spans, detached, _ = self._settled.pop()
            self._channel.unacked.restore(spans, detached)

    def _uncount(self) -> None:
        self._channel.connection.count_partial(-self._bytes)
        self._bytes = 0
