"""The audit log: order, rotation, torn lines, a disk that is full, filters, pages."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from tests.disk.sim_faults import FaultPlan
from tests.disk.sim_files import SimFiles

from penstock.broker.audit.audit_log import AuditLog, file_numbers, file_path
from penstock.broker.audit.event import Event
from penstock.broker.audit.reading import Filter, read_page, records
from penstock.broker.operations.actor import Actor, owner
from penstock.clock import ManualClock
from penstock.disk.files import Files, write_all

ANN = Actor("ann", [], "10.1.2.3:4567", "amqp", lambda vhost: True)


def numbers(files: Files, wanted: Filter | None = None) -> list[Any]:
    return [record.get("number", record["event"]) for record in records(files, wanted or Filter())]


def write(log: AuditLog, first: int, last: int) -> None:
    for number in range(first, last + 1):
        log.note(ANN, Event("queue.created", {"number": number}))
    log.flush()


def pages(files: Files) -> list[list[Any]]:
    """All pages, newest first."""
    found, before = [], None
    while True:
        page, before = read_page(files, Filter(), before)
        found.append([record["number"] for record in page])
        if before is None:
            return found


def test_records_are_read_in_the_order_of_acts_and_go_on_after_a_restart() -> None:
    files = SimFiles()
    for first in (1, 4):
        log = AuditLog(ManualClock(), files)
        write(log, first, first + 2)
        log.close()
    assert numbers(files) == [1, 2, 3, 4, 5, 6]
    assert pages(files) == [[6, 5, 4, 3, 2, 1]]


def test_a_record_says_who_and_from_where() -> None:
    files = SimFiles()
    log = AuditLog(ManualClock(wall_ms=1234), files)
    log.note(ANN, Event("queue.deleted", {"vhost": "/", "name": "q"}))
    log.note(owner("control"), Event("user.created", {"name": "bob"}))
    log.flush()
    deleted, created = records(files, Filter())
    assert deleted == {
        "time_ms": 1234,
        "event": "queue.deleted",
        "user": "ann",
        "via": "amqp",
        "address": "10.1.2.3:4567",
        "vhost": "/",
        "name": "q",
    }
    assert created == {"time_ms": 1234, "event": "user.created", "user": "(owner)", "via": "control", "name": "bob"}


def test_the_oldest_file_goes_when_all_together_are_too_large() -> None:
    files = SimFiles()
    log = AuditLog(ManualClock(), files, bytes_max=900, file_bytes_max=300)
    for number in range(1, 41):
        write(log, number, number)
    kept = numbers(files)
    assert kept == list(range(kept[0], 41))
    assert 1 < kept[0] < 40
    assert len(file_numbers(files)) <= 4
    assert [each for page in pages(files) for each in page] == kept[::-1]


def test_a_torn_line_is_passed_over_and_the_next_record_begins_a_new_one() -> None:
    files = SimFiles()
    log = AuditLog(ManualClock(), files)
    write(log, 1, 2)
    file = files.open(file_path(1))
    write_all(file, [b'{"time_ms":12,"ev'], file.size())
    file.close()
    write(AuditLog(ManualClock(), files), 3, 3)
    assert numbers(files) == [1, 2, 3]
    assert pages(files) == [[3, 2, 1]]


def test_records_that_a_full_disk_has_lost_are_counted_and_the_broker_goes_on() -> None:
    plan = FaultPlan()
    files = SimFiles(plan)
    log = AuditLog(ManualClock(), files)
    write(log, 1, 1)
    plan.fail(errno.ENOSPC, "pwrite", "audit/00000001.jsonl")
    write(log, 2, 4)
    write(log, 5, 5)
    assert numbers(files) == [1, "audit.lost", 5]
    assert [record["count"] for record in records(files, Filter(event="audit.lost"))] == [3]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(), ["queue.created", "queue.deleted", "user.created"]),
        (Filter(since_ms=200), ["queue.deleted", "user.created"]),
        (Filter(until_ms=300), ["queue.created", "queue.deleted"]),
        (Filter(user="ann"), ["queue.created", "user.created"]),
        (Filter(event="queue.*"), ["queue.created", "queue.deleted"]),
        (Filter(event="queue.deleted"), ["queue.deleted"]),
        (Filter(event="queue"), []),
        (Filter(user="nobody"), []),
    ],
)
def test_a_filter_chooses_by_time_user_and_event(wanted: Filter, expected: list[str]) -> None:
    files, clock = SimFiles(), ManualClock(wall_ms=100)
    log = AuditLog(clock, files)
    for user, event in (("ann", "queue.created"), ("bob", "queue.deleted"), ("ann", "user.created")):
        log.note(Actor(user, [], "", "amqp", lambda vhost: True), Event(event, {}))
        clock.advance(0.1)
    log.flush()
    assert [record["event"] for record in records(files, wanted)] == expected


def test_pages_of_a_log_that_is_larger_than_one_have_every_record_once() -> None:
    files = SimFiles()
    log = AuditLog(ManualClock(), files, file_bytes_max=1024 * 1024)
    for first in range(1, 12_001, 500):
        write(log, first, first + 499)
    found = pages(files)
    assert len(found) >= 3
    assert [each for page in found for each in page] == list(range(12_000, 0, -1))


def test_a_broker_without_a_disk_remembers_the_last_records() -> None:
    log = AuditLog(ManualClock())
    write(log, 1, 3)
    assert [record["number"] for record in log.recent] == [1, 2, 3]
