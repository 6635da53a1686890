"""When who waits looks again."""

from __future__ import annotations

import pytest

from penstock.client.ladder import Ladder


def test_looks_come_often_at_first_and_then_once_a_second() -> None:
    ladder = Ladder(100.0)
    now_s = 100.0
    looks = []
    for _ in range(7):
        now_s += ladder.pause_s(now_s)
        looks.append(round(now_s - 100.0, 6))
    assert looks == [0.005, 0.025, 0.1, 0.5, 1.5, 2.5, 3.5]


def test_a_wait_that_began_long_ago_is_at_the_top() -> None:
    assert Ladder(0.0).pause_s(1000.0) == 1.0


def test_what_takes_time_in_between_skips_rungs() -> None:
    assert Ladder(0.0).pause_s(0.05) == pytest.approx(0.05)
