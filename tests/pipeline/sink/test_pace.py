"""The token bucket, on a clock of its own."""

from __future__ import annotations

import pytest

from penstock.pipeline.sink.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.pushes = 0

    def __call__(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds

    def push(self) -> None:
        self.pushes += 1


@pytest.mark.parametrize("per_second", [0.5, 10.0, 4_000.0])
def test_no_more_than_the_rate_go_through(per_second: float) -> None:
    clock = Clock()
    pace = Pace(per_second, clock.push, clock, clock.pause)
    for _ in range(101):
        pace.wait()
    # The first one goes at once.
    assert clock.now_s - 100.0 == pytest.approx(100 / per_second)
    assert clock.pushes == 100


def test_after_a_pause_a_second_s_worth_goes_at_once() -> None:
    clock = Clock()
    pace = Pace(10.0, clock.push, clock, clock.pause)
    clock.now_s += 3600
    for _ in range(10):
        pace.wait()
    assert clock.now_s == 3700
    pace.wait()
    assert clock.now_s == pytest.approx(3700.1)
