"""The only clock. Wall time for expiry and timestamps, monotonic time for rates and delays.

Everything in the core asks a `Clock`; tests and simulations hand it a `ManualClock` and move it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Final

from penstock.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock(ABC):
    """Where the time comes from."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Return milliseconds since the epoch. May step; used for expiry, which must survive a restart."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """Return seconds that only ever grow. Used for rates, heartbeats and delays."""

    def date_ms(self) -> int:
        """What the machine's clock shows now, for timestamps that people and other programs read."""
        return self.wall_ms()


class SystemClock(Clock):
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


# A clock that is behind by less than this was read at another moment, or is being slewed; it was not set.
STEP_MS: Final = 100


class SteadyClock(Clock):
    """Wall time that does not go back when the machine's clock is set back: it goes on at the pace of monotonic time.

    Due times are wall times, since they must survive a restart. With this clock, what is due in a second is due in a
    second, also when the machine's clock is set back by an hour meanwhile. When that is set forward, this one follows.
    """

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        # How far this clock is ahead of the machine's.
        self._ahead_ms = 0
        self._last_ms = inner.wall_ms()
        self._last_s = inner.monotonic_s()

    def wall_ms(self) -> int:
        now_ms = self._inner.wall_ms() + self._ahead_ms
        now_s = self._inner.monotonic_s()
        expected_ms = self._last_ms + int((now_s - self._last_s) * 1000)
        if now_ms < expected_ms - STEP_MS:
            self._ahead_ms += expected_ms - now_ms
            now_ms = expected_ms
        elif now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        self._last_s = now_s
        return now_ms

    def monotonic_s(self) -> float:
        return self._inner.monotonic_s()

    def date_ms(self) -> int:
        return self._inner.wall_ms()


@mypyc_attr(allow_interpreted_subclasses=True)
class ManualClock(Clock):
    """A clock that stands still until it is moved."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_s = 0.0

    def advance(self, seconds: float) -> None:
        assert seconds >= 0
        self._wall_ms += round(seconds * 1000)
        self._monotonic_s += seconds

    def step(self, seconds: float) -> None:
        """Somebody sets the clock forward, or back; no time passes."""
        self._wall_ms += round(seconds * 1000)

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s
