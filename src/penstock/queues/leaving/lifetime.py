"""When an unused queue goes (x-expires).

Declaring the queue, getting a message from it, and the end of its last consumer are uses. The queue expires when the
time has passed since the last use and it has no consumer.

Invariants
  1. A queue with a consumer is not expired.
  2. A queue is not expired before its time has passed since the last use.
  3. The schedule wakes it not later than it could expire: it is armed once and looks then whether it was used
     meanwhile, so that using a queue costs no more than noting the time.

A crash or a restart is a use: the time begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from penstock.clock import Clock
from penstock.queues.leaving.expiry import Expiring, ExpirySchedule


@final
class Lifetime(Expiring):
    def __init__(
        self,
        idle_ms_max: int,
        has_consumers: Callable[[], bool],
        expired: Callable[[], None],
        expiries: ExpirySchedule,
        clock: Clock,
    ) -> None:
        self._idle_ms_max = idle_ms_max
        self._has_consumers = has_consumers
        self._expired = expired
        self._expiries = expiries
        self._clock = clock
        self._used_ms = 0
        self.used()

    def used(self) -> None:
        """Note a use of the queue."""
        self._used_ms = self._clock.wall_ms()
        if self.armed_ms < 0:
            self._expiries.arm(self, self._used_ms + self._idle_ms_max)

    def expire_due(self, now_ms: int) -> None:
        if self._has_consumers():
            # The last one that leaves counts as a use.
            return
        due_ms = self._used_ms + self._idle_ms_max
        if due_ms <= now_ms:
            self._expired()
        else:
            self._expiries.arm(self, due_ms)

    def stop(self) -> None:
        self._expiries.disarm(self)
