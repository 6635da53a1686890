"""tx: publishes and acknowledgements that happen at commit, all of them, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock import limits
from penstock.backing.postgres import PgBackingQueue
from penstock.errors import precondition_failed
from penstock.message import ConfirmToken
from penstock.queues.unacked import Span

if TYPE_CHECKING:
    from penstock.server.channel import Channel
    from penstock.server.publishing import Prepared, PublishRoute

# How a delivery is settled.
ACK = 0
REJECT = 1
REQUEUE = 2


class Refusal(ConfirmToken):
    """Notes whether a queue has refused a message. Whether it is safe is not asked: the whole transaction waits."""

    __slots__ = ("refused",)

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.refused = False

    def refuse(self) -> None:
        self.refused = True


class Outcome:
    """What becomes of the publishes of a commit that go to PostgreSQL: known when the database has answered to all."""

    def __init__(self) -> None:
        self.waiting = 0
        self.is_refused = False
        self._when_known: Callable[[bool], None] | None = None

    def then(self, when_known: Callable[[bool], None]) -> None:
        """Tell whether all of them are safe; at once when that is known."""
        self._when_known = when_known
        self._tell()

    def answered(self, is_safe: bool) -> None:
        self.waiting -= 1
        self.is_refused = self.is_refused or not is_safe
        self._tell()

    def _tell(self) -> None:
        if self.waiting == 0 and self._when_known is not None:
            when_known, self._when_known = self._when_known, None
            when_known(not self.is_refused)


class AwaitedPut(ConfirmToken):
    """Of one message that goes to PostgreSQL, and perhaps to other queues as well."""

    __slots__ = ("_is_over", "_outcome")

    def __init__(self, waiting: int, outcome: Outcome) -> None:
        super().__init__(waiting)
        outcome.waiting += 1
        self._outcome = outcome
        self._is_over = False

    def complete(self) -> None:
        self._answered(True)

    def refuse(self) -> None:
        self._answered(False)

    def _answered(self, is_safe: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self._outcome.answered(is_safe)


class Transaction:
    """What a transactional channel has not committed yet."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        # Routed when they were published; queues that are deleted before the commit drop out.
        self._publishes: list[tuple[PublishRoute, Prepared, Sequence[bytes]]] = []
        self._settled: list[tuple[list[Span], int]] = []
        # Counted by the connection until they are committed or forgotten.
        self._bytes = 0

    def published(self, route: PublishRoute, prepared: Prepared, bodies: Sequence[bytes]) -> None:
        size = sum(map(len, bodies)) + len(bodies) * limits.MESSAGE_OVERHEAD_BYTES + len(prepared.properties)
        self._channel.connection.count_partial(size)
        self._bytes += size
        self._publishes.append((route, prepared, bodies))

    def settled(self, spans: list[Span], how: int) -> None:
        self._settled.append((spans, how))

    def commit(self) -> Outcome:
        """Do it all, on one thread and within one turn: nobody sees half of it.

        What goes to PostgreSQL is on its way then, also within one transaction there.
        """
        outcome = Outcome()
        self._uncount()
        publishes, self._publishes = self._publishes, []
        settled, self._settled = self._settled, []
        channel = self._channel
        refused = False
        for route, prepared, bodies in publishes:
            prepared.queues = prepared.living_queues()
            if any(isinstance(queue.backing, PgBackingQueue) for queue in prepared.queues):
                for body in bodies:
                    channel.publisher.publish_now(route, prepared, [body], AwaitedPut(len(prepared.queues), outcome))
                continue
            if not prepared.takes_singly:
                channel.publisher.publish_now(route, prepared, bodies)
                continue
            for body in bodies:
                token = Refusal(len(prepared.queues))
                channel.publisher.publish_now(route, prepared, [body], token)
                refused = refused or token.refused
        for spans, how in settled:
            channel.settle(spans, how)
        if refused:
            raise precondition_failed("partial tx completion")
        return outcome

    def rollback(self) -> None:
        """Forget the publishes; acknowledged deliveries are unacknowledged again."""
        self._uncount()
        self._publishes.clear()
        settled, self._settled = self._settled, []
        for spans, _ in settled:
            self._channel.unacked.restore(spans)

    def _uncount(self) -> None:
        self._channel.connection.count_partial(-self._bytes)
        self._bytes = 0
