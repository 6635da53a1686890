"""What a channel has delivered and the client has not yet settled, by delivery tag.

What it owns: a dict from delivery tag to the *run* that the message was delivered in. Tags of a run are consecutive, as
are its seq_ids, so the run only keeps the difference between the two; adding a run of n messages makes one object, and
an ack of many tags is answered with few spans.

Life of the data: `add` at delivery; `take`, `take_through` at ack, nack, reject; `take_all` when the channel closes or
recovers.

Invariants
  1. A tag is in the dict exactly from its delivery to its settling.
  2. No tag below `_lowest` is in the dict.
  3. Tags grow: a run that is added starts above all tags that were ever added.
Nothing survives a crash: the backing queue knows what was pending. It does not talk to queues: callers do.
"""

from __future__ import annotations

from typing import final

from penstock.errors import ChannelException, precondition_failed
from penstock.queues.consumer import Consumer
from penstock.queues.queue import Queue


@final
class UnackedRun:
    """Where the messages of consecutive tags came from."""

    __slots__ = ("consumer", "offset", "queue")

    def __init__(self, queue: Queue, consumer: Consumer | None, offset: int) -> None:
        self.queue = queue
        # None for basic.get.
        self.consumer = consumer
        # seq_id = tag + offset.
        self.offset = offset


# Consecutive messages of one run: (run, first seq_id, count).
Span = tuple[UnackedRun, int, int]


@final
class Unacked:
    """The unsettled deliveries of one channel."""

    __slots__ = ("_lowest", "_runs")

    def __init__(self) -> None:
        self._runs: dict[int, UnackedRun] = {}
        self._lowest = 1

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, first_tag: int, count: int, run: UnackedRun) -> None:
        if count == 1:
            self._runs[first_tag] = run
        else:
            self._runs.update(dict.fromkeys(range(first_tag, first_tag + count), run))

    def take(self, first_tag: int, last_tag: int) -> list[Span]:
        """Settle each of the tags; all must be known."""
        spans = self._pop(first_tag, last_tag, True)
        if first_tag == self._lowest:
            self._lowest = last_tag + 1
        return spans

    def take_through(self, tag: int) -> list[Span]:
        """Settle every tag up to this one, which must be known; 0 stands for all there are."""
        if tag == 0:
            return self.take_all()
        if tag not in self._runs:
            raise unknown_tag(tag)
        spans = self._pop(self._lowest, tag, False)
        self._lowest = tag + 1
        return spans

    def take_all(self) -> list[Span]:
        """Settle all, in the order of delivery."""
        if not self._runs:
            return []
        last = max(self._runs)
        spans = self._pop(self._lowest, last, False)
        self._lowest = last + 1
        assert not self._runs
        return spans

    def _pop(self, first_tag: int, last_tag: int, strict: bool) -> list[Span]:
        spans: list[Span] = []
        pop = self._runs.pop
        current: UnackedRun | None = None
        start = first_tag
        for tag in range(first_tag, last_tag + 1):
            run = pop(tag, None)
            if run is current:
                continue
            if current is not None:
                spans.append((current, start + current.offset, tag - start))
            if run is None and strict:
                # The error closes the channel, which requeues what is unsettled: nothing may be lost from here.
                self.restore(spans)
                raise unknown_tag(tag)
            current = run
            start = tag
        if current is not None:
            spans.append((current, start + current.offset, last_tag + 1 - start))
        return spans

    def restore(self, spans: list[Span]) -> None:
        """Make taken deliveries unsettled again."""
        for run, first_seq_id, count in spans:
            first_tag = first_seq_id - run.offset
            self.add(first_tag, count, run)
            self._lowest = min(self._lowest, first_tag)


def unknown_tag(tag: int) -> ChannelException:
    return precondition_failed(f"unknown delivery tag {tag}")
