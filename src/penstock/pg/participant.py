"""A participant of a queue in PostgreSQL: a session's producer or consumer, or a broker's node.

It has no connection and no clock: the caller passes the time in and does what it says, in this order.

    attach     `attach_parameters` go to the statement `attach`; `attached` gets the number that it returned
    look       reserve messages; then `found`, or `found_nothing`
    wait       when one of these returns True, the database is told (`set_waiting`) and then `told_waiting` is called.
               After telling the database that it waits, a participant looks once more: a put may have looked for
               waiting consumers just before. `next_look_s` says when to look again although no notification comes
    lost       the session is gone, and with it the lock that proved it alive; `attach` takes the number up again

A notification is a hint, and names one waiting participant (`moment_s`).
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from random import uniform
from typing import Final, Literal

Role = Literal["producer", "consumer"]

# While a queue is empty, the next looks come so long after the first one that found nothing. Later ones come when a
# notification does, and about once a second, for what no notification tells.
LOOKS_S: Final = (0.005, 0.025, 0.1, 0.5)
LATER_LOOKS_S: Final = 1.0
# Clocks are floats: a time that is as good as reached is reached.
ROUNDING_S: Final = 0.0005
# A notification names one waiting participant. The others look a moment later, in case it is busy or gone: by then it
# has taken what there was for it, and most of the others find nothing to do anyway.
MOMENT_S: Final = (0.01, 0.02)
# Between two sweeps, which return what the dead had reserved. With some chance in it, so that not all sweep together.
SWEEP_S: Final = (2.0, 4.0)


class Participant:
    def __init__(
        self, queue: str, role: Role, grace_s: float = 0.0, says_after_s: float = 0.0, stays_s: float = 0.0
    ) -> None:
        """`grace_s`: how long it may be without a session before its reservations go back to all.

        `says_after_s`: how long it finds nothing before it has the database notify. `stays_s`: how long, after a wait,
        it finds something at every look and still has the database notify, so that a consumer that is woken by every
        single message does not say each time that it waits.
        """
        self.queue = queue
        self._role: Role = role
        self._grace_s = grace_s
        self._says_after_s = says_after_s
        self._stays_s = stays_s
        # 0 = none yet. The session that held it may be gone.
        self.number = 0
        self.is_attached = False
        # The database is to notify, as far as it was told.
        self.is_waiting = False
        # When a look first found nothing; None: the last one found something, or there is reason to begin anew.
        self.empty_since_s: float | None = None
        self._waited_s = 0.0

    def attach_parameters(self) -> tuple[str, str, float, int | None]:
        return (self.queue, self._role, self._grace_s, self.number or None)

    def attached(self, number: int) -> bool:
        """The database knows it by this number. False: what an earlier number had reserved is not its own any more."""
        is_same = self.number in (0, number)
        self.number = number
        self.is_attached = True
        self.is_waiting = False
        self.empty_since_s = None
        return is_same

    def lost(self) -> None:
        """The session is gone, or the database has taken this participant for gone."""
        self.is_attached = self.is_waiting = False

    def found(self, now_s: float) -> bool:
        """A look found messages. True: tell the database not to notify any more."""
        if not self.is_waiting:
            self.empty_since_s = None
        return self.is_waiting and now_s - self._waited_s >= self._stays_s

    def found_nothing(self, now_s: float) -> bool:
        """A look found nothing. True: have the database notify from now on."""
        if self.empty_since_s is None:
            self.empty_since_s = now_s
        return not self.is_waiting and now_s - self.empty_since_s >= self._says_after_s

    def next_look_s(self, now_s: float) -> float:
        """Return how long to wait after a look that found nothing; `inf`: until a notification or a count says more.

        As long as the database was not told to notify, another look follows.
        """
        pause_s = soon_s(now_s if self.empty_since_s is None else self.empty_since_s, now_s)
        return LOOKS_S[0] if pause_s == inf and not self.is_waiting else pause_s

    def told_waiting(self, is_waiting: bool) -> None:
        """The database was told whether to notify."""
        self.is_waiting = is_waiting
        if not is_waiting:
            self.empty_since_s = None

    def waited(self, now_s: float) -> None:
        """A wait is over."""
        self._waited_s = now_s

    def hinted(self) -> None:
        """There may be something: look at once, and often if there is nothing."""
        self.empty_since_s = None


def soon_s(since_s: float, now_s: float) -> float:
    """Return how long to wait for a notification before the next of `LOOKS_S`; `inf` when all of them are over."""
    waited_s = now_s - since_s
    for look_s in LOOKS_S:
        if waited_s < look_s - ROUNDING_S:
            return look_s - waited_s
    return inf


def moment_s(named: str, numbers: Collection[str]) -> float:
    """Return how long those with these numbers leave a message to the one whom a notification names; "" means all."""
    return 0.0 if not named or named in numbers else uniform(*MOMENT_S)  # noqa: S311


class Chore:
    """Something to be done every now and then."""

    def __init__(self, every_s: tuple[float, float], first_s: float = 0.0) -> None:
        """From a time to a time between two, by chance. `first_s`: not before."""
        self._every_s = every_s
        self._next_s = first_s

    def is_due(self, now_s: float) -> bool:
        """Return whether to do it now; then the next one is planned."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + uniform(*self._every_s)  # noqa: S311
        return True
