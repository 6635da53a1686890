"""A purge of a queue in which so much is ready that one turn of the loop has no time for all of it.

What was ready when it began goes, slice by slice. What is published meanwhile stays. What comes back meanwhile goes
too, as if it had come back before, but for what a selection keeps on its shelf: there it stays.
"""

from __future__ import annotations

from typing import final

from penstock import limits
from penstock.backing.outcomes import PURGED
from penstock.queues.queue import Queue


@final
class Purging:
    """One purge under way. The queue hands out nothing until it is over."""

    __slots__ = ("_is_backing_long", "_queue", "_shelved")

    def __init__(self, queue: Queue, is_backing_long: bool, shelved: list[int]) -> None:
        self._queue = queue
        self._is_backing_long = is_backing_long
        self._shelved = shelved

    def purge_some(self, count_max: int) -> int:
        """Remove about `count_max` messages; return 0 when the purge is over."""
        queue = self._queue
        if queue.deleted or queue.crashed:
            return 0
        purged = self._purge_backing(count_max)
        while not purged and self._shelved and queue.selection is not None:
            some = self._shelved[-count_max:]
            del self._shelved[-count_max:]
            purged = queue.backing.ack(queue.selection.take(some), PURGED)
        queue.expiry.forget_if_empty()
        return purged

    def _purge_backing(self, count_max: int) -> int:
        if self._is_backing_long:
            return self._queue.backing.purge_some(count_max)
        # All of it, before anything else can be published.
        self._is_backing_long = True
        return self._queue.backing.purge()


def begin_purge(queue: Queue) -> Purging | None:
    """Return a purge in slices; None when there is so little to do that `Queue.purge` does it at once."""
    selection = queue.selection
    if selection is not None and selection.leaves_ready():
        return None
    is_backing_long = queue.backing.begin_purge()
    if selection is None:
        return Purging(queue, True, []) if is_backing_long else None
    if not is_backing_long and selection.ready_count() <= limits.SETTLE_AT_ONCE:
        return None
    return Purging(queue, is_backing_long, sorted(selection.shelved_ids(), reverse=True))
