"""The arithmetic of the PostgreSQL benchmark: rates, quantiles, shares of a rate, who else used the machine."""

from __future__ import annotations

import pytest
from benches.postgres.disturbance import Reading, foreign_share
from benches.postgres.figures import Call, Timed, held_share, in_ms, quantile, together, within
from benches.postgres.pinned import pinned_metrics


def test_a_rate_counts_the_time_in_calls_only() -> None:
    assert Timed([0.5, 1.5], 200).per_s == 100.0
    assert Timed([], 0).per_s == 0.0


def test_what_takes_three_steps_takes_the_time_of_all_three() -> None:
    assert together(100.0, 50.0, 100.0) == pytest.approx(25.0)
    assert together(100.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1.0), (0.25, 1.0), (0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (1.0, 4.0)]
)
def test_a_quantile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], share) == value


def test_quantiles_have_names_with_their_unit_and_nothing_has_none() -> None:
    assert in_ms([0.002, 0.001], "put", (50, 99)) == {"put_p50_ms": 1.0, "put_p99_ms": 2.0}
    assert in_ms([], "put", (50,)) == {}


def test_a_window_has_its_start_and_not_its_end() -> None:
    calls = [Call(0.0, 0.1), Call(1.0, 0.1), Call(2.0, 0.1)]
    assert within(calls, 1.0, 2.0) == [calls[1]]


def test_a_held_rate_is_one_when_as_many_were_taken_as_offered() -> None:
    calls = [Call(at / 10, 0.001) for at in range(20)]
    assert held_share(calls, 0.0, 2.0, 10.0) == 1.0
    assert held_share(calls, 0.0, 4.0, 10.0) == 0.5


def test_a_pinned_horizon_is_judged_by_its_last_third() -> None:
    free = [Call(at / 10, 0.001) for at in range(10)]
    early = [Call(at / 10, 0.002) for at in range(10)]
    late = [Call(2 + at / 5, 0.004) for at in range(5)]
    metrics = pinned_metrics(free, [*early, *late], per_s=10.0, seconds=3.0)
    assert metrics["free_share"] == 1.0
    assert metrics["late_share"] == 0.5
    assert metrics["late_done_per_s"] == 5.0
    assert [metrics[f"{when}_reserve_p50_ms"] for when in ("free", "early", "late")] == [1.0, 2.0, 4.0]


def test_others_are_what_was_busy_besides_us_and_what_the_hypervisor_took() -> None:
    before = Reading(at_s=0.0, busy_s=100.0, steal_s=1.0, own_s=10.0)
    after = Reading(at_s=10.0, busy_s=112.0, steal_s=2.0, own_s=17.0)
    assert foreign_share(before, after, cores=2) == pytest.approx((5.0 + 1.0) / 20.0)


def test_clocks_that_tick_differently_do_not_make_others_negative() -> None:
    before = Reading(0.0, 100.0, 0.0, 10.0)
    after = Reading(1.0, 101.0, 0.0, 11.5)
    assert foreign_share(before, after, cores=2) == 0.0
