"""Alarms: conditions under which publishers are blocked until they pass."""

from __future__ import annotations

from collections.abc import Callable

# The alarm is over when memory use has fallen to this share of the limit, so that it does not flap.
CLEAR_SHARE = 0.9


class MemoryAlarm:
    """Waiting messages take too much memory."""

    def __init__(self, bytes_max: int, used_bytes: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self.active = False
        self._used_bytes = used_bytes

    def check(self) -> bool:
        """Look again; True when the alarm went on or off."""
        used = self._used_bytes()
        active = used > self.bytes_max if not self.active else used > self.bytes_max * CLEAR_SHARE
        changed = active != self.active
        self.active = active
        return changed
