"""Cron expressions and their moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.cron import Cron, CronError

BERLIN = ZoneInfo("Europe/Berlin")


def moments(expression: str, start: datetime, count: int, zone: ZoneInfo | None = None) -> list[str]:
    """The next ones, as the zone's clocks show them."""
    cron = Cron(expression)
    found = []
    for _ in islice(range(count), count):
        start = cron.next_after(start, zone or UTC)
        found.append(start.astimezone(zone or UTC).strftime("%a %Y-%m-%d %H:%M%z"))
    return found


START = datetime(2026, 11, 16, 9, 58, 30, tzinfo=UTC)  # a Monday


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", ["Mon 2026-11-16 09:59+0000", "Mon 2026-11-16 10:00+0000"]),
        ("*/20 * * * *", ["Mon 2026-11-16 10:00+0000", "Mon 2026-11-16 10:20+0000"]),
        ("5-15/5 10 * * *", ["Mon 2026-11-16 10:05+0000", "Mon 2026-11-16 10:10+0000"]),
        ("0 8,20 * * *", ["Mon 2026-11-16 20:00+0000", "Tue 2026-11-17 08:00+0000"]),
        ("0 0 * * mon-fri", ["Tue 2026-11-17 00:00+0000", "Wed 2026-11-18 00:00+0000"]),
        ("0 0 * * SUN", ["Sun 2026-11-22 00:00+0000", "Sun 2026-11-29 00:00+0000"]),
        ("0 0 * * 7", ["Sun 2026-11-22 00:00+0000"]),
        ("0 0 1 jan,Feb *", ["Fri 2027-01-01 00:00+0000", "Mon 2027-02-01 00:00+0000"]),
        ("0 0 31 * *", ["Thu 2026-12-31 00:00+0000", "Sun 2027-01-31 00:00+0000", "Wed 2027-03-31 00:00+0000"]),
        ("0 0 29 2 *", ["Tue 2028-02-29 00:00+0000", "Sun 2032-02-29 00:00+0000"]),
        # Both day fields: either is enough.
        ("0 0 20 * wed", ["Wed 2026-11-18 00:00+0000", "Fri 2026-11-20 00:00+0000"]),
        # One of them begins with a star: both must fit.
        ("0 0 */2 * wed", ["Wed 2026-11-25 00:00+0000", "Wed 2026-12-09 00:00+0000"]),
        ("@hourly", ["Mon 2026-11-16 10:00+0000"]),
        ("@daily", ["Tue 2026-11-17 00:00+0000"]),
        ("@midnight", ["Tue 2026-11-17 00:00+0000"]),
        ("@weekly", ["Sun 2026-11-22 00:00+0000"]),
        ("@Monthly", ["Tue 2026-12-01 00:00+0000"]),
        ("@yearly", ["Fri 2027-01-01 00:00+0000"]),
        ("@annually", ["Fri 2027-01-01 00:00+0000"]),
    ],
)
def test_the_next_moments(expression: str, expected: list[str]) -> None:
    assert moments(expression, START, len(expected)) == expected


def test_29_february_is_found_over_a_century_that_is_no_leap_year() -> None:
    assert Cron("0 0 29 2 *").next_after(datetime(2096, 3, 1, tzinfo=UTC)) == datetime(2104, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("@reboot", "five fields"),
        ("60 * * * *", "minute '60': a number from 0 to 59"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day '0'"),
        ("* * * 13 *", "month '13'"),
        ("* * * * 8", "weekday '8'"),
        ("* * * * monday", "one of sun, mon"),
        ("*/0 * * * *", "minute '0'"),
        ("5/10 * * * *", "a step needs a range"),
        ("30-10 * * * *", "a range goes upwards"),
        ("1,,2 * * * *", "minute ''"),
        ("-5 * * * *", "minute ''"),
        ("+5 * * * *", r"minute '\+5'"),
        ("\N{ARABIC-INDIC DIGIT FIVE} * * * *", "minute"),
        ("0 0 30 2 *", "no such day"),
        ("0 0 31 4,6,9,11 *", "no such day"),
    ],
)
def test_a_bad_expression_is_refused_with_the_reason(expression: str, why: str) -> None:
    with pytest.raises(CronError, match=why):
        Cron(expression)


def test_a_time_in_the_gap_comes_as_much_later() -> None:
    # At 02:00 on 29 March 2026 clocks go to 03:00.
    start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert moments("30 2 * * *", start, 2, BERLIN) == ["Sun 2026-03-29 03:30+0200", "Mon 2026-03-30 02:30+0200"]


def test_what_comes_every_few_minutes_goes_on_over_a_gap_without_doubles() -> None:
    start = datetime(2026, 3, 29, 0, 20, tzinfo=UTC)
    assert moments("*/30 * * * *", start, 4, BERLIN) == [
        "Sun 2026-03-29 01:30+0100",
        "Sun 2026-03-29 03:00+0200",
        "Sun 2026-03-29 03:30+0200",
        "Sun 2026-03-29 04:00+0200",
    ]


def test_a_time_that_comes_twice_is_taken_once() -> None:
    # At 03:00 on 25 October 2026 clocks go back to 02:00.
    start = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert moments("30 2 * * *", start, 2, BERLIN) == ["Sun 2026-10-25 02:30+0200", "Mon 2026-10-26 02:30+0100"]


def test_with_every_hour_both_times_are_taken() -> None:
    start = datetime(2026, 10, 24, 23, 45, tzinfo=UTC)
    assert moments("*/30 * * * *", start, 5, BERLIN) == [
        "Sun 2026-10-25 02:00+0200",
        "Sun 2026-10-25 02:30+0200",
        "Sun 2026-10-25 02:00+0100",
        "Sun 2026-10-25 02:30+0100",
        "Sun 2026-10-25 03:00+0100",
    ]


def test_a_day_that_was_left_out_comes_a_day_later() -> None:
    # Samoa had no 30 December 2011.
    zone = ZoneInfo("Pacific/Apia")
    start = datetime(2011, 12, 29, 8, tzinfo=zone)
    assert moments("0 7 30 12 *", start, 1, zone) == ["Sat 2011-12-31 07:00+1400"]


ZONES = [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia")]
EXPRESSIONS = ["* * * * *", "*/7 * * * *", "30 2 * * *", "15,45 1-3 * * sun", "0 0 1 * *", "0 12 */3 * *", "5 0 * 3 *"]


@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    start=st.integers(1_324_000_000, 1_800_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
)
def test_moments_only_go_forward_and_none_is_between_two(expression: str, zone: ZoneInfo, start: datetime) -> None:
    cron = Cron(expression)
    found = [start]
    for _ in range(4):
        found.append(cron.next_after(found[-1], zone))
    assert all(before < after for before, after in pairwise(found))
    for before, after in pairwise(found[1:]):
        middle = before + (after - before) / 2
        assert cron.next_after(middle, zone) == after
        assert cron.last_until(middle, zone) == before
        assert cron.last_until(after, zone) == after
        assert cron.last_until(after - timedelta(microseconds=1), zone) == before
