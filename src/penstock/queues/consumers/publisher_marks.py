"""Who published which message of a queue: for consumers that do not want what their own connection publishes.

A message does not know its publisher, and only consumers with no-local ask for it, so the marks are kept beside the
queue while it has such a consumer. Messages whose publisher is not known (dead letters, and what was there before the
consumer or a restart) go to every consumer.

Three lists, in the order of seq_ids, say where a stretch begins, where it ends, and who published it. Runs of one
publisher that follow each other are one stretch. In a queue with priorities a stretch may be added between others.

Invariants
  1. Stretches do not overlap and are in order; the three lists have the same length.
  2. There are at most STRETCHES_MAX of them after each call. If more are needed for what is still in the queue, the
     lower ones are forgotten: those messages have no known publisher then.
  3. A seq_id outside of all stretches has no known publisher.

A publisher is any object, and is compared by identity.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from penstock.backing.backing_queue import BackingQueue
from penstock.message import Entry

# About 100 bytes each. Publishers that take turns message by message need one for each message.
STRETCHES_MAX: Final = 32_768


@final
class PublisherMarks:
    def __init__(self, backing: BackingQueue, stretches_max: int = STRETCHES_MAX) -> None:
        self._backing = backing
        self._firsts: list[int] = []
        # Behind the last message of the stretch.
        self._ends: list[int] = []
        self._publishers: list[object] = []
        self._stretches_max = stretches_max
        # How many consumers of the queue need the marks.
        self.consumer_count = 0

    def published(self, publisher: object, first_seq_id: int, count: int) -> None:
        end = first_seq_id + count
        index = bisect_right(self._firsts, first_seq_id)
        assert index == 0 or self._ends[index - 1] <= first_seq_id, "a message is published once"
        if index and self._ends[index - 1] == first_seq_id and self._publishers[index - 1] is publisher:
            self._ends[index - 1] = end
            return
        self._firsts.insert(index, first_seq_id)
        self._ends.insert(index, end)
        self._publishers.insert(index, publisher)
        if len(self._firsts) > self._stretches_max:
            self._prune()

    def is_by(self, publisher: object, seq_id: int) -> bool:
        """Return whether this publisher is known to have published the message."""
        index = bisect_right(self._firsts, seq_id) - 1
        return index >= 0 and seq_id < self._ends[index] and self._publishers[index] is publisher

    def moved(self, backing: BackingQueue) -> None:
        """The messages are in another backing now, under numbers whose publishers are not known."""
        self._backing = backing
        self._firsts.clear()
        self._ends.clear()
        self._publishers.clear()

    def stretch_count(self) -> int:
        return len(self._firsts)

    def _prune(self) -> None:
        """Forget what is below the oldest message, and if that is not enough, the lower half of the rest."""
        oldest: list[int] = []

        def note_first(seq_id: int, entry: Entry, is_pending: bool) -> bool:
            oldest.append(seq_id)
            return False

        self._backing.fold(note_first)
        gone = bisect_right(self._ends, oldest[0]) if oldest else len(self._ends)
        left = len(self._ends) - gone
        # Half of the room is free afterwards: pruning is rare.
        if left > self._stretches_max // 2:
            gone += left - self._stretches_max // 2
        del self._firsts[:gone]
        del self._ends[:gone]
        del self._publishers[:gone]

    def check_invariants(self) -> None:
        assert len(self._firsts) == len(self._ends) == len(self._publishers) <= self._stretches_max
        for index, first in enumerate(self._firsts):
            assert first < self._ends[index], "1: no stretch is empty"
            assert index == 0 or self._ends[index - 1] <= first, "1: stretches are in order"


@final
class NoLocal:
    """A consumer's wish not to get what its own connection publishes, and where it looks that up."""

    __slots__ = ("marks", "publisher")

    def __init__(self, publisher: object) -> None:
        self.publisher = publisher
        self.marks: PublisherMarks | None = None

    def refuses(self, seq_id: int) -> bool:
        return self.marks is not None and self.marks.is_by(self.publisher, seq_id)


def attached(marks: PublisherMarks | None, no_local: NoLocal, backing: BackingQueue) -> PublisherMarks:
    """A consumer with no-local comes to a queue: the marks that the queue keeps from now on."""
    if marks is None:
        marks = PublisherMarks(backing)
    no_local.marks = marks
    marks.consumer_count += 1
    return marks


def detached(marks: PublisherMarks, no_local: NoLocal) -> PublisherMarks | None:
    """Remove such a consumer; return the marks, or None when no consumer needs them any more."""
    assert no_local.marks is marks
    no_local.marks = None
    marks.consumer_count -= 1
    return marks if marks.consumer_count else None
