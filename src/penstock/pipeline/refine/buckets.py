"""Histograms of durations that any program can merge: eight buckets for each doubling.

Bucket b holds durations from 2^(b/8) to 2^((b+1)/8) microseconds; bucket -1 is those of less than one microsecond. The
middle of a bucket is at most 4.5 % away from anything in it, so that is the error of a percentile taken from them.
Spark has better sketches (KLL, in the column beside); this one needs no Spark, and a report is there at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

PER_DOUBLING: Final = 8
BELOW_ONE: Final = -1


def merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the histogram of all durations together."""
    total: dict[int, int] = {}
    for histogram in histograms:
        for bucket, count in histogram.items():
            total[bucket] = total.get(bucket, 0) + count
    return total


def quantiles(histogram: Mapping[int, int], ranks: Sequence[float]) -> list[float] | None:
    """For each rank (0.5 is the median) a duration in µs, or None when there are no durations. Ranks ascend."""
    total = sum(histogram.values())
    if total == 0:
        return None
    found: list[float] = []
    below = 0
    for bucket in sorted(histogram):
        below += histogram[bucket]
        while len(found) < len(ranks) and below >= max(1, math.ceil(ranks[len(found)] * total)):
            found.append(middle(bucket))
    return found


def middle(bucket: int) -> float:
    """Return the duration, µs, that stands for all in a bucket."""
    return 0.0 if bucket <= BELOW_ONE else 2.0 ** ((bucket + 0.5) / PER_DOUBLING)
