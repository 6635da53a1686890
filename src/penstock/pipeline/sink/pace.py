"""A rate that is not passed: a token bucket of one second's worth.

Tasks do not share a rate: each has a bucket of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Lets one through at a time, `per_second` of them at most; after a pause up to a second's worth at once."""

    def __init__(
        self,
        per_second: float,
        before_pause: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._before_pause = before_pause
        self._clock = clock
        self._pause = pause
        self._full = max(1.0, per_second)
        # A task that begins has saved nothing up.
        self._tokens = 1.0
        self._looked_at_s = clock()

    def wait(self) -> None:
        """Return when the next one may go."""
        now_s = self._clock()
        self._tokens = min(self._full, self._tokens + (now_s - self._looked_at_s) * self._per_second)
        self._looked_at_s = now_s
        if self._tokens < 1.0:
            self._before_pause()
            self._pause((1.0 - self._tokens) / self._per_second)
            now_s = self._clock()
            self._tokens += (now_s - self._looked_at_s) * self._per_second
            self._looked_at_s = now_s
        self._tokens -= 1.0
