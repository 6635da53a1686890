"""Which cron entries are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.clock import ManualClock
from penstock.worker.cron import Cron
from penstock.worker.jobs.allow_list import NotRunnable
from penstock.worker.jobs.operator_code import load_allow_list
from penstock.worker.timetable import CronEntry, Timetable, entries_of, split_cron_line

# 2023-11-14 22:13:20 UTC
CLOCK_START = datetime.fromtimestamp(1_700_000_000, UTC)


def entry(expression: str, job: str = "m:f") -> CronEntry:
    return CronEntry(Cron(expression), job, "ticks")


def test_an_entry_is_due_at_its_slot_and_not_before() -> None:
    clock = ManualClock()
    timetable = Timetable([entry("* * * * *")], clock)
    assert timetable.seconds_to_next() == 40
    clock.advance(39.9)
    assert timetable.due() == []
    clock.advance(0.1)
    slot = CLOCK_START + timedelta(seconds=40)
    assert timetable.due() == [(entry_of(timetable), slot)]
    timetable.settled(entry_of(timetable), slot)
    assert timetable.due() == []
    assert timetable.seconds_to_next() == 60


def entry_of(timetable: Timetable) -> CronEntry:
    (only,) = timetable._next
    return only


def test_an_entry_stays_due_until_its_slot_is_settled() -> None:
    clock = ManualClock()
    timetable = Timetable([entry("* * * * *")], clock)
    clock.advance(40)
    assert timetable.due() == timetable.due() != []
    assert timetable.seconds_to_next() == 0


def test_of_several_slots_that_were_missed_the_last_is_put() -> None:
    clock = ManualClock()
    timetable = Timetable([entry("*/10 * * * *")], clock)
    clock.advance(3 * 24 * 3600)
    slots = [slot for _, slot in timetable.due()]
    assert slots == [datetime(2023, 11, 17, 22, 10, tzinfo=UTC)]


def test_the_same_entry_twice_is_one() -> None:
    assert len(Timetable([entry("@daily"), entry("@daily"), entry("@daily", "m:g")], ManualClock())) == 2


def test_without_entries_nothing_is_waited_for() -> None:
    assert Timetable([], ManualClock()).seconds_to_next() is None


def test_jobs_bring_their_own_entries() -> None:
    (found,) = entries_of(load_allow_list(apps=["tests.worker.shop"]).runnables(), "default")
    assert (found.job, found.queue, found.cron.text) == ("tests.worker.shop:tick", "ticks", "* * * * *")


def test_a_line_is_an_expression_and_a_name() -> None:
    cron, name = split_cron_line("*/5 * * * *  shop.mail:send ")
    assert (cron.text, name) == ("*/5 * * * *", "shop.mail:send")
    assert split_cron_line("@daily m:f")[0].text == "@daily"


@pytest.mark.parametrize("line", ["", "m:f", "* * * * *", "@daily f"])
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(NotRunnable, match="write five fields"):
        split_cron_line(line)
