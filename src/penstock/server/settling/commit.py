"""A commit under way: the publishes and settlements of a transaction, done in slices when there are very many.

A commit is one batch of the journal, whatever its size: as long as its slices follow each other the journal gathers and
does not write, so that a crash finds all of it or nothing. Confirms of others wait as long. Queues that take part hand
out nothing meanwhile, and methods that ask about them wait, so that no client sees half of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.call_all import call_all
from penstock.errors import precondition_failed
from penstock.message import ConfirmToken, Incoming
from penstock.queues.queue import Queue
from penstock.server.channel.publishing import Prepared, Publisher, PublishRoute
from penstock.server.channel.unacked import TxSettled
from penstock.server.connection.awaited_answer import AwaitedAnswer
from penstock.server.settling.sliced import Sliced
from penstock.server.settling.span_slices import SpanSlices
from penstock.server.settling.transaction import ACK, TxPublish
from penstock.wire import methods

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel

# Calls back when everything gathered so far is on disk, or cannot be.
WhenDurable = Callable[[Callable[[bool], None]], None]


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


class Commit(Sliced):
    def __init__(self, channel: Channel, publishes: list[TxPublish], settled: list[TxSettled]) -> None:
        super().__init__()
        self._channel = channel
        self._connection = channel.connection
        # Its own: the channel may be closed before the last slice.
        self._publisher = Publisher(channel)
        # Backwards, so that what is done can be let go of.
        self._publishes = publishes[::-1]
        self._settled = settled[::-1]
        # Of the settlement that is being done.
        self._spans = SpanSlices([], ACK)
        self._outcome = Outcome()
        self._is_refused = False
        self._is_ended = False
        node = channel.connection.broker.node
        self._journal = None if node is None else node.journal
        self._first_lsn = 0 if self._journal is None else self._journal.next_lsn
        self._queues: list[Queue] = []

    def is_over(self) -> bool:
        return not self._publishes and not self._settled and self._spans.is_over()

    def begin(self) -> None:
        targets = [queue for publish in self._publishes for queue in _targets(publish)]
        sources = [run.queue for spans, _, _ in self._settled for run, _, _ in spans]
        for _, detached, _ in self._settled:
            if detached is not None:
                sources += detached.queues()
        self._queues = list(dict.fromkeys([*targets, *self._spans.queues(), *sources]))
        for queue in self._queues:
            queue.settling_begun(self, True)
        if self._journal is not None:
            self._journal.hold()
        self._connection.settling_begun()

    def end(self) -> None:
        """Everything is done: answer when it is safe."""
        if self._is_ended:
            return
        self._is_ended = True
        queues, self._queues = self._queues, []
        calls: list[Callable[[], None]] = [partial(queue.settling_over, self, True) for queue in queues]
        if queues and self._journal is not None:
            calls.append(self._journal.release)
        calls.append(self._answer)
        if queues:
            calls.append(self._connection.settling_over)
        call_all([*calls, *self.take_calls()])

    def do_next(self) -> int:
        try:
            if self._publishes:
                route, prepared, incoming = self._publishes.pop()
                prepared.queues = prepared.living_queues()
                self._publish(route, prepared, incoming)
            elif self._spans.is_over():
                spans, detached, how = self._settled.pop()
                self._spans = SpanSlices(spans, how, [] if detached is None else [detached])
                self._channel.offer_before(self._spans)
            else:
                self._channel.settle_slice([self._spans.take()], self._spans.how)
        except Exception:
            # The rest is done, as it was before the client sent its commit.
            self._connection.failed()
        return 0

    def _publish(self, route: PublishRoute, prepared: Prepared, incoming: Incoming) -> None:
        """What goes to PostgreSQL is on its way then, also within one transaction there."""
        count = len(prepared.queues)
        if any(queue.backing.IS_REMOTE for queue in prepared.queues):
            for one in incoming.singly():
                self._publisher.publish_now(route, prepared, one, AwaitedPut(count, self._outcome))
            return
        if not prepared.takes_singly:
            self._publisher.publish_now(route, prepared, incoming)
            return
        for one in incoming.singly():
            token = Refusal(count)
            self._publisher.publish_now(route, prepared, one, token)
            self._is_refused = self._is_refused or token.refused

    def _answer(self) -> None:
        channel, connection = self._channel, self._connection
        if connection.closing or channel.closing:
            return
        if self._is_refused:
            connection.close_channel(channel, precondition_failed("partial tx completion"), methods.TxCommit.INDEX)
            return
        journal, outcome = self._journal, self._outcome
        on_disk = None if journal is None or journal.next_lsn == self._first_lsn else journal.when_durable
        if on_disk is None and not outcome.waiting:
            # Nothing of it lasts: transient messages, and acks of such.
            channel.send(methods.TxCommitOk())
        elif not outcome.waiting:
            assert on_disk is not None
            AwaitedAnswer(channel, methods.TxCommitOk()).wait_with(on_disk)
        else:
            failure = "the broker could not write to its disk or to PostgreSQL"
            AwaitedAnswer(channel, methods.TxCommitOk(), failure).wait_with(partial(_both, outcome, on_disk))


def _both(outcome: Outcome, on_disk: WhenDurable | None, answer: Callable[[bool], None]) -> None:
    """What went to PostgreSQL is committed there, and the rest is on disk."""

    def put(is_safe: bool) -> None:
        if is_safe and on_disk is not None:
            on_disk(answer)
        else:
            answer(is_safe)

    outcome.then(put)


def _targets(publish: TxPublish) -> list[Queue]:
    return publish[1].queues
