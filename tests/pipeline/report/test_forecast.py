"""The forecast: when a backlog will be empty, or a queue full."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="needs the lake: pip install 'penstock[pipeline]'")

from penstock.pipeline.jobs.forecast import forecast as command
from penstock.pipeline.report.forecast import forecast, forecast_text, limit_of
from penstock.pipeline.report.outlook import slopes
from tests.pipeline.report.gold_lake import gold_row, lake_with


def falling(minutes: int, start: int, by: int, queue: str = "orders") -> list[dict[str, object]]:
    """A queue from which `by` messages go in each minute, or to which they come when it is below 0."""
    return [
        gold_row(
            minute,
            queue,
            depth=start - by * (minute + 1),
            published=max(0, -by),
            ended=max(0, by),
            acked=max(0, by),
        )
        for minute in range(minutes)
    ]


def test_a_backlog_that_shrinks_is_empty_in_a_while(tmp_path: Path) -> None:
    (queue,) = forecast(lake_with(tmp_path / "lake", falling(10, 6000, 60))).queues
    assert (queue.verdict, queue.depth, queue.slope, queue.out_rate) == ("empties", 5400, -1.0, 1.0)
    assert (queue.seconds, queue.seconds_soonest, queue.seconds_latest) == (5400, 5400, 5400)
    assert queue.text == "empty in 1.5 h (1.5 h to 1.5 h)"


def test_a_queue_that_grows_is_full_when_it_has_a_limit(tmp_path: Path) -> None:
    lake = lake_with(
        tmp_path / "lake", [*falling(10, 0, -120), *falling(10, 0, -60, "full"), *falling(10, 0, -60, "free")]
    )
    found = {each.queue: each for each in forecast(lake, limits={"orders": 2400, "full": 600}).queues}
    assert (found["orders"].verdict, found["orders"].seconds) == ("fills", 600.0)
    assert found["full"].text == "full now"
    assert found["free"].text == "grows by 1/s (1/s to 1/s)"


def test_a_queue_that_nothing_happens_to_is_steady_or_empty(tmp_path: Path) -> None:
    rows = [gold_row(0, "held", published=5, depth=5), gold_row(0, "idle", published=5, ended=5, acked=5, depth=0)]
    lake = lake_with(tmp_path / "lake", [*rows, gold_row(30, "other", published=1, depth=1)])
    found = {each.queue: each.text for each in forecast(lake).queues}
    assert (found["held"], found["idle"]) == ("steady", "empty now")


def test_minutes_without_a_row_count_as_quiet(tmp_path: Path) -> None:
    rows = [gold_row(minute, depth=1000 - 60 * (minute // 2), ended=60, acked=60) for minute in range(0, 21, 2)]
    (queue,) = forecast(lake_with(tmp_path / "lake", rows), minutes=21).queues
    assert queue.slope == pytest.approx(-0.5, rel=0.1)
    assert queue.out_rate == 0.5


def test_only_the_last_minutes_count(tmp_path: Path) -> None:
    rows = [*falling(60, 0, -60), *(gold_row(60 + minute, depth=3600 - 60 * minute) for minute in range(10))]
    (queue,) = forecast(lake_with(tmp_path / "lake", rows), minutes=10).queues
    assert queue.verdict == "empties"


@given(st.integers(-500, 500), st.integers(0, 10_000), st.integers(5, 400), st.integers(0, 10**6))
def test_one_burst_does_not_bend_the_line(per_minute: int, start: int, minutes: int, burst: int) -> None:
    depths = [start + per_minute * number for number in range(minutes)]
    depths[minutes // 2] += burst
    assert slopes(depths)[0] == pytest.approx(per_minute / 60, abs=1e-9)


def test_one_minute_alone_says_nothing() -> None:
    assert slopes([7]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("text", "limit"), [("orders=5", ("orders", 5)), ("a=b=5", ("a=b", 5))])
def test_a_limit_is_a_queue_and_a_number(text: str, limit: tuple[str, int]) -> None:
    assert limit_of(text) == limit


@pytest.mark.parametrize("text", ["orders", "=5", "orders=", "orders=-1", "orders=x", "orders=\u0665"])
def test_anything_else_is_no_limit(text: str) -> None:
    with pytest.raises(ValueError, match="QUEUE=N"):
        limit_of(text)


def test_the_command_answers_in_words_and_in_json(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", falling(10, 6000, 60))
    assert "empty in 1.5 h" in forecast_text(forecast(lake), 80)
    given = ["--lake", str(tmp_path / "lake")]
    told = CliRunner().invoke(command, given)
    assert (told.exit_code, "empty in 1.5 h" in told.stdout) == (0, True)
    told = CliRunner().invoke(command, [*given, "--json"])
    assert told.exit_code == 0
    assert json.loads(told.stdout)["queues"][0]["text"].startswith("empty in")
    told = CliRunner().invoke(command, [*given, "--limit", "orders"])
    assert (told.exit_code, "QUEUE=N" in told.stderr) == (2, True)
