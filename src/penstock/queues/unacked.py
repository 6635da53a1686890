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

from typing import Final, final

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

# Numbers are tried one by one unless so many times fewer are known. A client that leaves its oldest delivery unsettled
# for hours and then settles all must not cost a look at every tag of those hours.
SPARSE_FACTOR: Final = 8


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
        """Settle each of the tags; all must be known, or none is settled."""
        runs = self._runs
        run = runs.get(first_tag)
        if run is None:
            raise unknown_tag(first_tag)
        if first_tag == last_tag:
            del runs[first_tag]
            spans = [(run, first_tag + run.offset, 1)]
        else:
            for tag in range(first_tag + 1, last_tag + 1):
                if tag not in runs:
                    raise unknown_tag(tag)
            spans = self._pop(first_tag, last_tag)
        if first_tag == self._lowest:
            self._lowest = last_tag + 1
        return spans

    def take_through(self, tag: int) -> list[Span]:
        """Settle every tag up to this one, which must be known; 0 stands for all there are."""
        if tag == 0:
            return self.take_all()
        if tag not in self._runs:
            raise unknown_tag(tag)
        return self._pop_through(tag)

    def take_all(self) -> list[Span]:
        """Settle all, in the order of delivery."""
        if not self._runs:
            return []
        spans = self._pop_through(max(self._runs))
        assert not self._runs
        return spans

    def _pop_through(self, last_tag: int) -> list[Span]:
        if last_tag - self._lowest < SPARSE_FACTOR * len(self._runs):
            spans = self._pop(self._lowest, last_tag)
        else:
            spans = self._pop_sparse(last_tag)
        self._lowest = last_tag + 1
        return spans

    def _pop(self, first_tag: int, last_tag: int) -> list[Span]:
        """Take out what is known from first to last, looking at every number in between."""
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
            current = run
            start = tag
        if current is not None:
            spans.append((current, start + current.offset, last_tag + 1 - start))
        return spans

    def _pop_sparse(self, last_tag: int) -> list[Span]:
        """Take out what is known up to last, looking at known tags only: their numbers may be far apart."""
        tags = sorted([tag for tag in self._runs if tag <= last_tag])
        spans: list[Span] = []
        start = 0
        for index in range(1, len(tags) + 1):
            if index == len(tags) or tags[index] != tags[index - 1] + 1:
                spans.extend(self._pop(tags[start], tags[index - 1]))
                start = index
        return spans

    def restore(self, spans: list[Span]) -> None:
        """Make taken deliveries unsettled again."""
        for run, first_seq_id, count in spans:
            first_tag = first_seq_id - run.offset
            self.add(first_tag, count, run)
            self._lowest = min(self._lowest, first_tag)


def unknown_tag(tag: int) -> ChannelException:
    return precondition_failed(f"unknown delivery tag {tag}")
