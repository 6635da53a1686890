"""When to look again while waiting: often at first, then once a second.

A notification is a hint, and the first ones can be missed: a put may have looked for who waits just before we said so.
So who begins to wait looks again soon, and later only now and then, for what no notification tells.
"""

from __future__ import annotations

from typing import Final

# Seconds since the beginning; then every second.
RUNGS_S: Final = (0.005, 0.025, 0.1, 0.5)
LAST_RUNG_S: Final = 1.0
ROUNDING_S: Final = 0.0005


class Ladder:
    """The rungs of one wait."""

    def __init__(self, since_s: float) -> None:
        self._since_s = since_s

    def pause_s(self, now_s: float) -> float:
        """How long to wait for a notification before looking again."""
        waited_s = now_s - self._since_s
        for rung_s in RUNGS_S:
            # Clocks are floats: a rung that is as good as reached is reached.
            if waited_s < rung_s - ROUNDING_S:
                return rung_s - waited_s
        return LAST_RUNG_S
