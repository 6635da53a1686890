"""tx: publishes and acknowledgements that happen at commit, all of them, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.queues.unacked import Span

if TYPE_CHECKING:
    from penstock.server.channel import Channel
    from penstock.server.publishing import PublishRoute

# How a delivery is settled.
ACK = 0
REJECT = 1
REQUEUE = 2


class Transaction:
    """What a transactional channel has not committed yet."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._publishes: list[tuple[PublishRoute, bytes, Sequence[bytes]]] = []
        self._settled: list[tuple[list[Span], int]] = []

    def published(self, route: PublishRoute, properties: bytes, bodies: Sequence[bytes]) -> None:
        self._publishes.append((route, properties, bodies))

    def settled(self, spans: list[Span], how: int) -> None:
        self._settled.append((spans, how))

    def commit(self) -> None:
        """Do it all, on one thread and within one turn: nobody sees half of it."""
        publishes, self._publishes = self._publishes, []
        settled, self._settled = self._settled, []
        channel = self._channel
        channel.transaction = None
        try:
            for route, properties, bodies in publishes:
                channel.publisher.publish(route, route.prepare(properties), bodies)
            for spans, how in settled:
                channel.settle(spans, how)
        finally:
            channel.transaction = self

    def rollback(self) -> None:
        """Forget the publishes; acknowledged deliveries are unacknowledged again."""
        self._publishes.clear()
        settled, self._settled = self._settled, []
        for spans, _ in settled:
            self._channel.unacked.restore(spans)
