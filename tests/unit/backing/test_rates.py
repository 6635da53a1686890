"""Rates: averages by elapsed time, durations, targets."""

from __future__ import annotations

import math

import pytest

from penstock.backing.variable.rates import HALF_LIFE_S, UNLIMITED, Rates
from penstock.clock import ManualClock


class CountingClock(ManualClock):
    """Knows how often it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def monotonic_s(self) -> float:
        self.reads += 1
        return super().monotonic_s()


def at_rate(clock: ManualClock, rates: Rates, per_second: int, seconds: int) -> None:
    """Messages go in and out, one update a second."""
    for _ in range(seconds):
        rates.ins += per_second
        rates.outs += per_second
        clock.advance(1.0)
        rates.update()


def test_a_new_queue_has_no_rates_and_its_messages_last_for_ever() -> None:
    rates = Rates(ManualClock())
    assert rates.total() == 0.0
    assert rates.ram_duration(1_000, 10) == math.inf


def test_after_one_half_life_an_average_is_half_of_what_came() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    rates.ins, rates.outs, rates.ack_ins, rates.ack_outs = 1_000, 500, 200, 100
    clock.advance(HALF_LIFE_S)
    rates.update()
    found = (rates.in_rate, rates.out_rate, rates.ack_in_rate, rates.ack_out_rate)
    assert found == pytest.approx((100.0, 50.0, 20.0, 10.0))
    assert (rates.ins, rates.outs, rates.ack_ins, rates.ack_outs) == (0, 0, 0, 0)
    clock.advance(HALF_LIFE_S)
    rates.update()
    assert rates.total() == pytest.approx(90.0)


def test_the_average_depends_on_the_time_and_not_on_the_number_of_updates() -> None:
    clock = ManualClock()
    often, once = Rates(clock), Rates(clock)
    for _ in range(100):
        often.ins += 7
        once.ins += 7
        clock.advance(0.05)
        often.update()
    once.update()
    assert often.in_rate == pytest.approx(once.in_rate)


def test_a_steady_rate_is_what_the_average_comes_to() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    at_rate(clock, rates, 250, seconds=120)
    assert rates.in_rate == pytest.approx(250.0, rel=1e-4)
    clock.advance(3_600.0)
    rates.update()
    assert rates.is_standstill()


def test_an_update_without_time_in_between_changes_nothing_and_loses_no_count() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    rates.ins = 1_000
    rates.update()
    assert (rates.ins, rates.in_rate) == (1_000, 0.0)
    clock.advance(HALF_LIFE_S)
    rates.update()
    assert rates.in_rate == pytest.approx(100.0)
    rates.update()
    assert rates.in_rate == pytest.approx(100.0)


def test_averages_are_made_again_after_more_than_a_hundred_messages() -> None:
    """The clock is not read before."""
    clock = CountingClock()
    rates = Rates(clock)
    reads = clock.reads
    clock.advance(1.0)
    rates.ins, rates.outs = 60, 40
    rates.ack_ins = 1_000
    rates.update_if_due()
    assert (rates.in_rate, clock.reads) == (0.0, reads)
    rates.outs += 1
    rates.update_if_due()
    assert rates.in_rate > 0.0
    assert (rates.ins, rates.outs, rates.ack_ins) == (0, 0, 0)


def test_a_duration_is_the_mean_of_now_and_before_over_the_mean_rate() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    rates.ins = 1_000
    clock.advance(HALF_LIFE_S)
    assert rates.ram_duration(600, 200) == pytest.approx(800 / (4 * 100.0))
    assert rates.ram_duration(400, 0) == pytest.approx((600 + 400 + 200) / (4 * 100.0))
    assert rates.ram_duration(0, 0) == pytest.approx(400 / (4 * 100.0))
    assert rates.ram_duration(0, 0) == 0.0


@pytest.mark.parametrize("counter", ["ins", "outs", "ack_ins", "ack_outs"])
def test_one_rate_above_standstill_makes_a_duration_finite(counter: str) -> None:
    clock = ManualClock()
    rates = Rates(clock)
    setattr(rates, counter, 1)
    clock.advance(HALF_LIFE_S)
    assert rates.ram_duration(10, 0) == pytest.approx(10 / (4 * 0.1))
    clock.advance(HALF_LIFE_S * 4)
    assert rates.ram_duration(10, 0) == math.inf


def test_a_target_is_what_lasts_for_the_duration_rounded_down() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    rates.ins = 1_000
    rates.ack_outs = 15
    clock.advance(HALF_LIFE_S)
    rates.update()
    assert rates.target_ram_count(1.0) == 101
    assert rates.target_ram_count(0.5) == 50
    assert rates.target_ram_count(0.0) == 0


@pytest.mark.parametrize("moving", [False, True], ids=["standstill", "moving"])
def test_an_infinite_duration_is_no_limit(moving: bool) -> None:
    clock = ManualClock()
    rates = Rates(clock)
    rates.ins = 1_000 * moving
    clock.advance(1.0)
    rates.update()
    assert rates.target_ram_count(math.inf) == UNLIMITED
    assert rates.target_ram_count(1e300) == (UNLIMITED if moving else 0)


def test_a_burst_in_no_time_at_all_leaves_the_rates_finite() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    for _ in range(1_000):
        rates.ins += 1_000_000
        clock.advance(1e-9)
        rates.update()
    assert 0.0 < rates.in_rate < math.inf
    clock.advance(1e9)
    rates.update()
    assert rates.in_rate < 1.0
