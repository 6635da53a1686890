"""When messages arrived, roughly, at no cost to publishers.

A tick takes a sample (next seq_id, wall-clock milliseconds) of a queue about once a second, if something was published
since the last one. A message arrived not later than the first sample that is above its number. When there are
SAMPLES_MAX, every second one goes, so that old arrivals are known less exactly: to about a hundredth of their age, or
to a tick.

Invariants
  1. Numbers of samples grow strictly.
  2. There are never more than `samples_max` of them.
  3. A message is never said to be older than it is, as far as the clock was right.
  4. Of messages that were there before the broker's start nothing is known.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, final

from penstock.backing.nothing_yet import NOTHING_YET

if TYPE_CHECKING:
    from penstock.queues.queue import Queue

# About 16 bytes each, and two small objects.
SAMPLES_MAX: Final = 512


@final
class Arrivals:
    def __init__(self, known_from: int = 0, samples_max: int = SAMPLES_MAX) -> None:
        """`known_from`: the number of the first message that this run of the broker has seen coming."""
        assert samples_max >= 4
        self._known_from = known_from
        # What was published when the last sample was taken.
        self.published_count = -1
        self._samples_max = samples_max
        self._seq_ids: list[int] = []
        self._walls: list[int] = []

    def __len__(self) -> int:
        return len(self._seq_ids)

    def sample(self, next_seq_id: int, wall_ms: int) -> None:
        """Everything below `next_seq_id` is there by now."""
        if next_seq_id <= (self._seq_ids[-1] if self._seq_ids else self._known_from):
            return
        self._seq_ids.append(next_seq_id)
        self._walls.append(wall_ms)
        if len(self._seq_ids) > self._samples_max:
            del self._seq_ids[-2::-2]
            del self._walls[-2::-2]

    def arrived_ms(self, seq_id: int, now_ms: int) -> int:
        """Return when the message came, to the next sample; -1 when that is not known."""
        if seq_id < self._known_from:
            return -1
        index = bisect_right(self._seq_ids, seq_id)
        # What came after the last tick came just now.
        return self._walls[index] if index < len(self._walls) else now_ms

    def check_invariants(self) -> None:
        assert len(self._seq_ids) == len(self._walls) <= self._samples_max, "2: too many samples"
        pairs = zip(self._seq_ids[:-1], self._seq_ids[1:], strict=True)
        assert all([before < after for before, after in pairs]), "1: numbers do not grow"


def arrivals_since(queue: Queue) -> Arrivals | None:
    """For a queue that was just opened; None where numbers do not tell who came first, or nothing came yet."""
    if queue.has_priorities or queue.backing is NOTHING_YET:
        return None
    return Arrivals(_next_seq_id(queue))


def sample_arrivals(queue: Queue, now_ms: int) -> None:
    """Called about once a second."""
    arrivals = queue.arrivals
    if arrivals is None:
        if queue.crashed or queue.has_priorities or queue.backing is NOTHING_YET:
            return
        arrivals = queue.arrivals = Arrivals()
    if arrivals.published_count != queue.published_count and not queue.crashed:
        arrivals.published_count = queue.published_count
        arrivals.sample(_next_seq_id(queue), now_ms)


def arrived_ms(queue: Queue, seq_id: int) -> int:
    """Return when a message came, roughly; -1 when that is not known."""
    if queue.arrivals is None:
        # No tick since the queue was made: what is there came just now, unless numbers tell nothing.
        return -1 if queue.has_priorities else queue.wall_ms()
    return queue.arrivals.arrived_ms(seq_id, queue.wall_ms())


def _next_seq_id(queue: Queue) -> int:
    return int(queue.backing.status()["next_seq_id"])
