"""The only clock. Wall time for expiry and timestamps, monotonic time for rates and delays.

Everything in the core asks a `Clock`; tests and simulations hand it a `ManualClock` and move it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod


class Clock(ABC):
    """Where the time comes from."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Milliseconds since the epoch. May step; used for expiry, which must survive a restart."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """Seconds that only ever grow. Used for rates, heartbeats and delays."""


class SystemClock(Clock):
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock(Clock):
    """A clock that stands still until it is moved."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_s = 0.0

    def advance(self, seconds: float) -> None:
        assert seconds >= 0
        self._wall_ms += round(seconds * 1000)
        self._monotonic_s += seconds

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s
