"""The floor: an id below which a consumer expects nothing that is ready.

It spares the server the walk over what was taken long ago but cannot be vacuumed yet, because some old transaction
could still see it. It is only a hint. With several consumers the order is fuzzy, so what was taken last says little;
the lowest of the last few says more. Messages that come back have old ids: every second, and after a requeue, one looks
without it.

Does not know the queue, only what it was told.
"""

from __future__ import annotations

from collections import deque
from typing import Final

# The oldest ready message is the one chosen with a chance of one in (number of consumers) at least, so after so many of
# our own reservations, and as many of everybody else's, nothing older than all of them is likely to be left.
LOOKS_REMEMBERED: Final = 32
SECONDS_WITH_FLOOR: Final = 1.0
# A look without floor that took less than this may follow every look that found nothing. Not so while waiting: who is
# woken together with others, for one message, finds nothing most of the time.
CHEAP_WALK_S: Final = 0.02
SECONDS_BETWEEN_WALKS: Final = 0.05
NEVER_S: Final = float("inf")


class Floor:
    """What one consumer knows about the head of its queue."""

    def __init__(self) -> None:
        self._lowest: deque[int] = deque(maxlen=LOOKS_REMEMBERED)
        self._walked_at_s = 0.0
        self._walk_s = 0.0
        self._is_known = False
        # When to look without floor because a look with it found nothing; NEVER_S: there was no such look since.
        self.walk_at_s = NEVER_S

    def value(self, now_s: float) -> int:
        """The floor for a look at this time; 0 = look at everything."""
        if not self._is_known or len(self._lowest) < LOOKS_REMEMBERED:
            return 0
        if now_s - self._walked_at_s >= SECONDS_WITH_FLOOR:
            return 0
        return min(self._lowest)

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

    def taken(self, lowest_id: int) -> None:
        """This was the lowest id that a look found."""
        self._lowest.append(lowest_id)

    def forget(self) -> None:
        """Something older may be ready: the next look is without floor."""
        self._is_known = False
