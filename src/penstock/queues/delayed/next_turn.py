"""Work that was too much for one turn: a call in a later one.

The schedule calls back once; an owner that still has something to do asks again.

Invariants
  1. However often it was asked for, there is one call for each time that the schedule comes to it.
  2. `soon` never means the millisecond in which it is asked: the broker reads sockets between two slices.

  3. After `stop` it calls nothing, and refers to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from penstock.queues.leaving.expiry import Expiring, ExpirySchedule


@final
class NextTurn(Expiring):
    def __init__(self, go_on: Callable[[int], None], expiries: ExpirySchedule) -> None:
        self._go_on = go_on
        self._expiries = expiries

    @property
    def is_awaited(self) -> bool:
        return self.armed_ms >= 0

    def soon(self, now_ms: int) -> None:
        self._expiries.arm(self, now_ms + 1)

    def at(self, due_ms: int) -> None:
        """Then, or earlier if it was asked for an earlier time already."""
        self._expiries.arm(self, due_ms)

    def expire_due(self, now_ms: int) -> None:
        self._go_on(now_ms)

    def stop(self) -> None:
        """Leave the schedule for good: the queue is deleted."""
        self._expiries.disarm(self)
        self._go_on = _stopped


def _stopped(now_ms: int) -> None:
    """Stands in for the call of a queue that is gone."""
