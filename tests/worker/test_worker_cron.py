"""Cron: slots are put once, however many workers there are."""

from __future__ import annotations

import os
import threading

import pytest

from penstock.client.sync.session import Session
from penstock.clock import ManualClock
from penstock.worker.jobs.operator_code import load_allow_list
from penstock.worker.timetable import Timetable, entries_of
from tests.worker.running import SHOP, Recorder, make_worker, work

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork; the worker runs jobs inline there"),
]


def timetable(clock: ManualClock) -> Timetable:
    """The shop's: one job, every minute. The clock starts 40 seconds before the next."""
    return Timetable(entries_of(load_allow_list(apps=[SHOP]).runnables(), "default"), clock)


def test_a_slot_is_put_when_its_time_has_come_and_run(session: Session) -> None:
    clock = ManualClock()
    table = timetable(clock)
    clock.advance(39)
    assert work(session, "ticks", timetable=table, clock=clock).reports == []
    clock.advance(1)
    recorder = work(session, "ticks", timetable=table, clock=clock)
    assert recorder.slots == ["2023-11-14T22:14:00+00:00"]
    assert [(report.outcome, report.note) for report in recorder.reports] == [("done", '"tock"')]
    assert work(session, "ticks", timetable=table, clock=clock).slots == []


def test_of_two_workers_one_puts_the_slot(session: Session) -> None:
    # AMQP has no slots: docs/jobs.md says to have cron on one worker only.
    puts = [0, 1] if session.has_slots else [1, 1]
    clock = ManualClock()
    tables = [timetable(clock), timetable(clock)]
    for _ in range(3):
        clock.advance(60)
        recorders = [work(session, "ticks", timetable=table, clock=clock) for table in tables]
        assert sorted(len(recorder.slots) for recorder in recorders) == puts
        assert sum(len(recorder.reports) for recorder in recorders) == sum(puts)


def test_workers_that_come_at_the_same_moment_put_one_slot(penstock_url: str) -> None:
    clock = ManualClock()
    tables = [timetable(clock) for _ in range(4)]
    clock.advance(60)
    recorders = [Recorder() for _ in tables]
    workers = []
    sessions = [Session(penstock_url) for _ in tables]
    for session, table, recorder in zip(sessions, tables, recorders, strict=True):
        # No job is run here: the queue is another one.
        worker = make_worker(session, "other", timetable=table, clock=clock, recorder=recorder)
        workers.append(threading.Thread(target=worker.run))
    for worker_thread in workers:
        worker_thread.start()
    for worker_thread in workers:
        worker_thread.join()
    assert sum(len(recorder.slots) for recorder in recorders) == 1
    assert sessions[0].stats("ticks").ready_count == 1
    for session in sessions:
        session.close()


def test_a_worker_that_stops_puts_no_slot(session: Session) -> None:
    clock = ManualClock()
    table = timetable(clock)
    clock.advance(60)
    recorder = Recorder()
    worker = make_worker(session, "ticks", timetable=table, clock=clock, recorder=recorder)
    worker.stop()
    worker.run()
    assert recorder.slots == []


def test_where_workers_cannot_agree_they_say_so(session: Session) -> None:
    clock = ManualClock()
    recorder = work(session, "ticks", timetable=timetable(clock), clock=clock)
    assert ["have cron on one of them only" in text for text in recorder.problems] == [True] * (not session.has_slots)
