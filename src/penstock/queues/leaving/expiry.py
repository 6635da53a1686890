"""One schedule for all queues of a broker: when do the messages at their heads expire?

A queue is armed for the expiry of its head message and comes back when that is due; it drops what has expired and arms
itself again. The server asks for the next due time and sets one timer.

Invariants
  1. A queue is armed under one number. An entry of the heap whose number is not armed any more is stale and is skipped.
  2. `next_due_ms` is never later than the expiry of any armed queue's head.
  3. Stale entries never outnumber the armed queues by more than STALE_MIN: due times lie years ahead, and what waits
     for them may long be gone. They are two integers each and lead to nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final

from penstock.call_all import call_all
from penstock.native import mypyc_attr

# So few stale entries are not worth a look at the whole heap.
STALE_MIN: Final = 64


@mypyc_attr(allow_interpreted_subclasses=True)
class Expiring(ABC):
    """Something with a due time; a queue."""

    # The time for which it is armed, -1 when it is not, and its number in the schedule. Changed by the schedule only.
    armed_ms: int = -1
    armed_number: int = -1

    @abstractmethod
    def expire_due(self, now_ms: int) -> None:
        """Do what is due. May arm itself again."""


class ExpirySchedule:
    """All armed queues, the earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._armed: dict[int, Expiring] = {}
        self._number = 0

    def arm(self, queue: Expiring, due_ms: int) -> None:
        """Wake the queue at `due_ms`, unless it wakes earlier anyway."""
        if 0 <= queue.armed_ms <= due_ms:
            return
        if queue.armed_ms >= 0:
            del self._armed[queue.armed_number]
        self._number += 1
        queue.armed_ms = due_ms
        queue.armed_number = self._number
        self._armed[self._number] = queue
        heappush(self._heap, (due_ms, self._number))
        self._drop_stale()

    def disarm(self, queue: Expiring) -> None:
        """The queue is gone, and is not to be woken."""
        if queue.armed_ms >= 0:
            queue.armed_ms = -1
            del self._armed[queue.armed_number]
            self._drop_stale()

    def _drop_stale(self) -> None:
        if len(self._heap) <= 2 * len(self._armed) + STALE_MIN:
            return
        self._heap = [entry for entry in self._heap if entry[1] in self._armed]
        heapify(self._heap)

    def next_due_ms(self) -> int:
        """Return the earliest due time; -1 when nothing is armed."""
        heap = self._heap
        while heap and heap[0][1] not in self._armed:
            heappop(heap)
        return heap[0][0] if heap else -1

    def run_due(self, now_ms: int) -> None:
        """Wake every queue whose time has come."""
        while self._heap and self._heap[0][0] <= now_ms:
            calls: list[Callable[[], None]] = []
            while self._heap and self._heap[0][0] <= now_ms:
                queue = self._armed.pop(heappop(self._heap)[1], None)
                if queue is not None:
                    queue.armed_ms = -1
                    calls.append(partial(queue.expire_due, now_ms))
            call_all(calls)
