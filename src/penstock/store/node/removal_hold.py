"""Keeps the files of a node from being removed while a backup copies them.

A backup takes a *lease*, which lapses unless it is renewed: a command that was killed holds nothing for long. While
there is a lease, no file that a checkpoint may name is removed or cut: journal segments, checkpoints, files of queues
and of the shared stores. What would have been removed meanwhile is removed afterwards, by the same rules.

Invariants
  1. A lease that lapsed, or was broken, is never valid again. A backup asks for it after its last byte, so it learns
     that files may have gone under its hands.
  2. A disk that gets full breaks all leases: the broker's own work comes first.

A crash forgets the leases. The next start removes what was left, as it always does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, final

from penstock import limits
from penstock.clock import Clock

log: Final = logging.getLogger("penstock.store")


@final
class RemovalHold:
    def __init__(self, clock: Clock, random_int: Callable[[int], int]) -> None:
        self._clock = clock
        self._random_int = random_int
        # When each lapses, in monotonic seconds.
        self._leases: dict[str, float] = {}
        # Removals that wait until there is no lease.
        self._later: list[Callable[[], None]] = []

    def take(self) -> str | None:
        """Return a new lease; None when there are too many."""
        self._forget_lapsed()
        if len(self._leases) >= limits.BACKUPS_MAX:
            return None
        lease = f"{self._random_int(128):032x}"
        self._leases[lease] = self._clock.monotonic_s() + limits.BACKUP_LEASE_S
        return lease

    def renew(self, lease: str) -> bool:
        """Let a lease last longer; False when it is not valid any more."""
        self._forget_lapsed()
        if lease not in self._leases:
            return False
        self._leases[lease] = self._clock.monotonic_s() + limits.BACKUP_LEASE_S
        return True

    def end(self, lease: str) -> bool:
        """Give a lease back; False when it was not valid any more."""
        self._forget_lapsed()
        return self._leases.pop(lease, None) is not None

    def break_all(self) -> None:
        self._leases.clear()

    def is_active(self) -> bool:
        """Return whether nothing may be removed now."""
        if not self._leases:
            return False
        self._forget_lapsed()
        return bool(self._leases)

    def remove_later(self, remove: Callable[[], None]) -> None:
        self._later.append(remove)

    def run_later(self) -> None:
        """Remove one of the things that had to wait, if nothing holds them any more."""
        if not self._later or self.is_active():
            return
        remove = self._later.pop()
        try:
            remove()
        except OSError as error:
            log.warning("what a backup has held cannot be removed now; the next start does it: %s", error)

    def _forget_lapsed(self) -> None:
        now_s = self._clock.monotonic_s()
        for lease in [lease for lease, until_s in self._leases.items() if until_s <= now_s]:
            del self._leases[lease]


def nothing_is_held() -> bool:
    return False
