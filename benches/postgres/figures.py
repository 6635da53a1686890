"""From durations to figures: rates, and quantiles in milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MS_PER_S: Final = 1000.0
US_PER_S: Final = 1_000_000.0


@dataclass(frozen=True)
class Timed:
    """Calls one after the other: how long each took, and how many messages they moved together."""

    durations_s: Sequence[float]
    messages: int

    @property
    def per_s(self) -> float:
        total = sum(self.durations_s)
        return self.messages / total if total else 0.0


def together(*rates_per_s: float) -> float:
    """Messages a second when each goes through all of these, one after the other."""
    return 1 / sum(1 / rate for rate in rates_per_s) if all(rates_per_s) else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def in_ms(values_s: Sequence[float], prefix: str, shares: Sequence[int]) -> dict[str, float]:
    """{"prefix_p50_ms": …}; empty where nothing was measured."""
    if not values_s:
        return {}
    return {f"{prefix}_p{share}_ms": quantile(values_s, share / 100) * MS_PER_S for share in shares}


@dataclass(frozen=True)
class Call:
    """When a call began, since the start of its phase, and how long it took."""

    at_s: float
    took_s: float


def within(calls: Sequence[Call], start_s: float, end_s: float) -> list[Call]:
    return [call for call in calls if start_s <= call.at_s < end_s]


def held_share(calls: Sequence[Call], start_s: float, end_s: float, offered_per_s: float) -> float:
    """Messages taken one by one in this time, of those that were offered in it."""
    return len(within(calls, start_s, end_s)) / (end_s - start_s) / offered_per_s
