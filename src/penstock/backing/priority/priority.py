"""Opening priority queues over the backing queues of a vhost.

It translates the id of a queue into the ids of its levels, the recoveries of the levels into one for the queue, and
back. A caller that starts the wrapped backing queues itself, because they hold other queues too, names the levels with
`inner_ids` and joins what it gets with `combined_recovery`.

Invariants
  1. A queue and its levels come back as clean only when all the levels do.
  2. A level that exists is opened before the queue is used. When it is not known which exist, all of them are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.backing.backing_queue import AsyncCallback, BackingQueues, Recovery
from penstock.backing.priority.priority_levels import inner_id
from penstock.backing.priority.priority_queue import PriorityBackingQueue


class PriorityBackingQueues(BackingQueues):
    """Queues of one x-max-priority."""

    def __init__(
        self, inner: BackingQueues, max_priority: int, level_exists: Callable[[str], bool] | None = None
    ) -> None:
        self._inner = inner
        self._max_priority = max_priority
        # Whether the inner backing found anything for an inner id. None = not known (invariant 2).
        self._level_exists = level_exists

    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        inner: list[str] = []
        for queue_id in queue_ids:
            inner.extend(inner_ids(queue_id, self._max_priority))
        found = self._inner.start(inner)
        count = self._max_priority + 1
        return [combined_recovery(found[index : index + count]) for index in range(0, len(found), count)]

    def stop(self) -> None:
        self._inner.stop()

    def open(
        self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback
    ) -> PriorityBackingQueue:
        queue = PriorityBackingQueue(self._inner, queue_id, durable, self._max_priority, callback)
        if recovery is None:
            return queue
        for level, one in enumerate(inner_ids(queue_id, self._max_priority)):
            if self._level_exists is None or self._level_exists(one):
                queue.open_level(level, recovery)
        return queue

    def delete_crashed(self, queue_id: str) -> None:
        for one in inner_ids(queue_id, self._max_priority):
            self._inner.delete_crashed(one)


def inner_ids(queue_id: str, max_priority: int) -> list[str]:
    """What the levels of a queue are called, level 0 first."""
    return [inner_id(queue_id, level) for level in range(max_priority + 1)]


def combined_recovery(levels: Sequence[Recovery]) -> Recovery:
    """Return the recovery of a queue from those of all its levels, level 0 first."""
    return Recovery(all([one.clean for one in levels]))
