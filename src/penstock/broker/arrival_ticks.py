"""Has each queue note, about once a second, how many messages have arrived: searches by age look at that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.queues.arrivals import sample_arrivals
from penstock.queues.queue import Queue

TICK_S: Final = 1.0
# Queues that are asked at once; the others follow.
AT_ONCE_MAX: Final = 500


class ArrivalTicks:
    def __init__(self, queues: Callable[[], list[Queue]]) -> None:
        self._queues = queues
        self._next_s = 0.0
        # Those that are still to be asked.
        self._waiting: list[Queue] = []

    def check(self, now_s: float, wall_ms: int) -> None:
        """Called some times a second, with the monotonic and with the wall clock."""
        if not self._waiting and now_s >= self._next_s:
            self._next_s = now_s + TICK_S
            self._waiting = self._queues()
        for queue in self._waiting[-AT_ONCE_MAX:]:
            sample_arrivals(queue, wall_ms)
        del self._waiting[-AT_ONCE_MAX:]
