"""The floor: an id below which a participant expects nothing that is ready.

It spares the database the walk over rows that were taken long ago and cannot be vacuumed yet, because some old
transaction could still see them. It is only a hint. Messages that come back have old ids: every second, and whenever
something older may be ready, the participant looks without it.

How high the floor may be depends on the order that is promised. A session's order is fuzzy where there are several
consumers: `RecentLooks` is the lowest id of its last few looks. A broker's window is the front of its queue, and ids
are given before the commit: `AgedReach` has only ids that were reached a second ago.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SECONDS_WITH_FLOOR: Final = 1.0
# The oldest ready message is the one chosen with a chance of one in (number of consumers) at least, so after so many of
# our own reservations, and as many of each other consumer's, nothing older than all of them is likely to be left.
LOOKS_REMEMBERED: Final = 32
# How old a reach has to be. What another node has put may come to light below what was taken last, and goes before what
# that node puts next.
REACH_AGE_S: Final = 1.0
# A look without floor that took less than this may follow every look that found nothing. Not so while waiting: who is
# woken together with others, for one message, finds nothing most of the time.
CHEAP_WALK_S: Final = 0.02
SECONDS_BETWEEN_WALKS: Final = 0.05
NEVER_S: Final = float("inf")


class RecentLooks:
    """The lowest ids of the last looks."""

    def __init__(self) -> None:
        self._lowest: deque[int] = deque(maxlen=LOOKS_REMEMBERED)

    def taken(self, lowest_id: int, highest_id: int) -> None:
        self._lowest.append(lowest_id)

    def floor(self, now_s: float) -> int:
        """0 = not enough is known."""
        return min(self._lowest) if len(self._lowest) == LOOKS_REMEMBERED else 0

    def forget(self) -> None:
        """Old ids are as good as new ones here: they leave one by one."""


class AgedReach:
    """How far the looks had come at least `REACH_AGE_S` ago."""

    def __init__(self, now_s: float) -> None:
        self._reach = 0
        # The reach when it was last noted, and the time before.
        self._then = self._before = 0
        self._noted_s = now_s

    def taken(self, lowest_id: int, highest_id: int) -> None:
        self._reach = max(self._reach, highest_id)

    def floor(self, now_s: float) -> int:
        """0 = not enough is known."""
        if now_s - self._noted_s >= REACH_AGE_S:
            self._noted_s = now_s
            self._before, self._then = self._then, self._reach
        return self._before + 1 if self._before else 0

    def forget(self) -> None:
        self._reach = self._then = self._before = 0


class Floor:
    def __init__(self, memory: RecentLooks | AgedReach) -> None:
        self._memory = memory
        self._walked_at_s = 0.0
        self._walk_s = 0.0
        self._is_known = False
        # When to look without floor because a look with it found nothing; NEVER_S: there was no such look since.
        self.walk_at_s = NEVER_S

    def value(self, now_s: float) -> int:
        """Return the floor for a look at this time; 0 = look at everything."""
        floor = self._memory.floor(now_s)
        return floor if self._is_known and now_s - self._walked_at_s < SECONDS_WITH_FLOOR else 0

    def may_walk(self, now_s: float, is_waiting: bool = False) -> bool:
        """A look with floor found nothing: whether to look without it now. If not, `walk_at_s` says when."""
        every_s = SECONDS_BETWEEN_WALKS if is_waiting else 0.0
        if self._walk_s >= CHEAP_WALK_S:
            every_s = SECONDS_WITH_FLOOR
        self.walk_at_s = self._walked_at_s + every_s
        return now_s >= self.walk_at_s

    def walked(self, started_s: float, now_s: float) -> None:
        """There was a look without floor."""
        self._is_known = True
        self._walked_at_s = now_s
        self._walk_s = now_s - started_s
        self.walk_at_s = NEVER_S

    def taken(self, lowest_id: int, highest_id: int) -> None:
        """A look found messages from this id to that one."""
        self._memory.taken(lowest_id, highest_id)

    def look_at_all(self) -> None:
        """Something older may be ready: the next look is without floor."""
        self._is_known = False

    def forget(self) -> None:
        """What was taken has gone back: begin anew."""
        self._is_known = False
        self._memory.forget()
