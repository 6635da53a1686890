"""Has each queue note, about once a second, how many messages have arrived: searches by age look at that."""

from __future__ import annotations

from typing import Final

from penstock.broker.vhost import VHost

TICK_S: Final = 1.0


class ArrivalTicks:
    """Of one broker."""

    def __init__(self, vhosts: dict[str, VHost]) -> None:
        self._vhosts = vhosts
        self._next_s = 0.0

    def check(self, now_s: float, wall_ms: int) -> None:
        """Called some times a second, with the monotonic and with the wall clock."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + TICK_S
        for vhost in self._vhosts.values():
            for queue in vhost.all_queues():
                queue.sample_arrivals(wall_ms)
