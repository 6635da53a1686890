"""How long a failed job waits before it is tried again."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Each attempt waits `factor` times longer than the one before, up to `max_s`.

    `jitter` is the part of the wait that chance decides, so that jobs that failed together do not come back together:
    with 0.2 a wait of 10 seconds is one between 8 and 10.
    """

    first_s: float = 5.0
    factor: float = 2.0
    max_s: float = 3600.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not (0 <= self.first_s < math.inf and 0 <= self.max_s < math.inf):
            raise ValueError("a backoff's first_s and max_s are seconds, 0 or more")
        if not 1 <= self.factor < math.inf:
            raise ValueError("a backoff's factor is 1 or more")
        if not 0 <= self.jitter <= 1:
            raise ValueError("a backoff's jitter is between 0 and 1")

    def delay_s(self, attempt: int, chance: float) -> float:
        """The wait after attempt number `attempt` (the first is 1) failed; `chance` is in [0, 1)."""
        assert attempt >= 1
        try:
            longest = min(self.max_s, self.first_s * self.factor ** (attempt - 1))
        except OverflowError:
            longest = self.max_s
        return longest * (1 - self.jitter * chance)
