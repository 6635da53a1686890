"""Deliveries that were settled together, taken a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from penstock import limits
from penstock.queues.queue import Queue
from penstock.server.channel.unacked import Span, Unacked
from penstock.server.settling.transaction import REJECT


@final
class SpanSlices:
    """The spans of one settlement that are still to be done."""

    def __init__(self, spans: list[Span], how: int, left: Sequence[Unacked] = ()) -> None:
        """`left`: further deliveries, detached because there are so many, or of channels that are over."""
        self.how = how
        self._spans = spans
        self._next = 0
        # The next one last; none is empty.
        self._left = list(reversed(left))
        self._queues: dict[Queue, None] | None = None

    def is_over(self) -> bool:
        return self._next == len(self._spans) and not self._left

    def restore_undone(self) -> bool:
        """Do some of what is to be done before any is taken: what a transaction had settled is unsettled again."""
        return bool(self._left) and self._left[-1].restore_undone(limits.SETTLE_AT_ONCE)

    def take(self) -> Span:
        """Return the next span, or as much of it as is done at once."""
        if self._next == len(self._spans):
            self._spans = self._left[-1].take_oldest(limits.SETTLE_MESSAGES_MAX)
            self._next = 0
            if not self._left[-1].stretch_count():
                self._left.pop()
        run, first_seq_id, count = span = self._spans[self._next]
        if self.how == REJECT and count > limits.REJECT_AT_ONCE:
            # Each may become a dead letter with headers of its own.
            rest = count - limits.REJECT_AT_ONCE
            self._spans[self._next] = (run, first_seq_id + limits.REJECT_AT_ONCE, rest)
            return (run, first_seq_id, limits.REJECT_AT_ONCE)
        self._next += 1
        return span

    def queues(self) -> dict[Queue, None]:
        """Return the queues of what there was when this was asked first, each once."""
        found = self._queues
        if found is None:
            found = self._queues = dict.fromkeys([run.queue for run, _, _ in self._spans[self._next :]])
            for unacked in self._left:
                found.update(unacked.queues())
        return found
