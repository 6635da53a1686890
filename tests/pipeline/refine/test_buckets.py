"""Histograms that can be merged, and the percentiles that come out of them."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.refine.buckets import merged, middle, quantiles

DURATIONS = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)
RANKS = (0.5, 0.95, 0.99)


def histogram(durations: list[int]) -> Counter[int]:
    return Counter(math.floor(math.log2(us) * 8) if us else -1 for us in durations)


@given(DURATIONS, DURATIONS)
def test_percentiles_of_merged_histograms_are_right_within_five_percent(one: list[int], other: list[int]) -> None:
    together = sorted([*one, *other])
    exact = [together[max(1, math.ceil(rank * len(together))) - 1] for rank in RANKS]
    found = quantiles(merged([histogram(one), histogram(other)]), RANKS)
    assert found == [pytest.approx(us, rel=0.05) for us in exact]


def test_nothing_has_no_percentiles() -> None:
    assert quantiles(merged([{}, {}]), RANKS) is None


def test_less_than_a_microsecond_is_zero() -> None:
    assert middle(-1) == 0.0
    assert quantiles({-1: 3}, RANKS) == [0.0, 0.0, 0.0]
