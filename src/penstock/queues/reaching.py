"""Reaching for a message in the middle of a queue, some thousand steps at a time.

What it owns: a consumer that wants nothing. It is never added to a queue and never notified. By letting it look, a
selection brings message after message onto its shelf, each look bounded as for any consumer with a filter; so a
message far from the head is reached over several calls, and no call takes long.

Life of the data: made when somebody first reaches into a queue, kept as long as the queue's selection, so that the next
call goes on where the last one stopped.

Invariants
  1. It never gets a message.
  2. One call brings at most `count_max` messages onto the shelf, and a look's worth more.
  3. What is shelved stays ready, as far as anybody outside can see, at its position and with its flags.

A crash leaves what a selection leaves. It does not take: `Selection.take` does.
"""

from __future__ import annotations

from typing import Final, final

from penstock import limits
from penstock.backing.backing_queue import BackingQueue
from penstock.message import Envelope
from penstock.queues.consumer import Consumer, ConsumerFilter
from penstock.queues.selection import Selection

# Messages that one call brings onto the shelf.
REACH_PER_CALL: Final = 10_000


@final
class WantsNothing(ConsumerFilter):
    """Refuses every message."""

    def accepts(self, seq_id: int, envelope: Envelope) -> bool:
        return False


@final
class Reacher(Consumer):
    """Looks, and takes nothing."""

    def __init__(self) -> None:
        super().__init__("", 0, True, False, False)
        self.filter = WantsNothing()

    def notify_work(self) -> None:
        """It is nobody's turn."""

    def cancelled_by_queue(self) -> None:
        """It never was a consumer of the queue."""


def reach(
    backing: BackingQueue, selection: Selection, reacher: Reacher, seq_id: int, count_max: int = REACH_PER_CALL
) -> int:
    """Bring messages up to `seq_id` onto the shelf, as far as one call goes.

    The number of the first message that is not there yet; -1 when there is none.
    """
    enough = len(backing) - count_max
    # Some looks may be at what is shelved already.
    for _ in range(2 * (count_max // limits.LOOKS_PER_FETCH) + 2):
        head = first_ready(backing)
        if head < 0 or head > seq_id or len(backing) <= enough or not selection.has_for(reacher):
            return head
        run = selection.fetch(reacher, 1, 0, True)
        assert run is None, "1: it got a message"
    return first_ready(backing)


def first_ready(backing: BackingQueue) -> int:
    """The number at the head of the backing; -1 when nothing is ready there."""
    run = backing.browse(0, 1, 0)
    return -1 if run is None else run.first_seq_id


def ready_among(backing: BackingQueue, seq_ids: list[int]) -> list[int]:
    """Those of the numbers, which are sorted, that are ready in the backing."""
    found: list[int] = []
    index = 0
    while index < len(seq_ids):
        stop = index + 1
        while stop < len(seq_ids) and seq_ids[stop] == seq_ids[stop - 1] + 1:
            stop += 1
        run = backing.browse(seq_ids[index], stop - index, limits.PULL_BYTES_MAX)
        if run is None:
            break
        last = run.first_seq_id + len(run.entries) - 1
        while index < len(seq_ids) and seq_ids[index] <= last:
            if seq_ids[index] >= run.first_seq_id:
                found.append(seq_ids[index])
            index += 1
    return found
