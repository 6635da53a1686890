"""When batches are written, who is told, and what a failing or full disk does to both."""

from __future__ import annotations

import errno

import pytest
from journal_house import FOLDER, House, bodies, envelope, held_house, replayed
from tests.disk.sim_files import FaultPlan, SimFiles

from penstock.journal.format import rows
from penstock.journal.format.layout import COMMIT_MARK, EVENTS_MAX, FIRST_BATCH_AT, HEADER_BYTES, HEAP_BYTES_MAX
from penstock.journal.options import JournalOptions
from penstock.journal.reading.replay import BatchView, replay
from penstock.message import Incoming

LATER = JournalOptions(sync_window_s=1.0, idle_s=5.0)


def writes(house: House) -> int:
    return [name for name, _ in house.files.calls].count("pwrite") - len(house.journal.segments.numbers())


def batch_flags(house: House) -> list[int]:
    flags: list[int] = []

    def visit(view: BatchView) -> None:
        flags.append(view.flags)

    replay(house.files, FOLDER, 0, 0, visit)
    return flags


# --- when ---------------------------------------------------------------------------------------------


def test_a_commit_without_rows_writes_nothing() -> None:
    house = House()
    for _ in range(5):
        house.journal.commit()
        house.journal.commit(urgent=True)
    assert writes(house) == 0
    assert house.journal.commit_due_s() is None


def test_rows_that_somebody_waits_for_are_written_at_the_end_of_the_turn() -> None:
    house = House(options=LATER)
    house.publish(0, [b"a"])
    house.journal.commit()
    assert writes(house) == 0
    house.wait()
    house.journal.commit()
    assert writes(house) == 1
    assert house.answers == [True]


def test_rows_that_nobody_waits_for_are_written_when_their_window_has_passed() -> None:
    house = House(options=LATER)
    house.clock.advance(10)
    house.journal.settle(3, 1, 0, 1, 10)
    assert house.journal.commit_due_s() == 11
    house.clock.advance(0.5)
    house.publish(0, [b"a"])
    house.journal.commit()
    assert (writes(house), house.journal.commit_due_s()) == (0, 11)
    house.clock.advance(0.5)
    house.journal.commit()
    assert writes(house) == 1


def test_much_is_written_without_waiting() -> None:
    house = House(options=JournalOptions(batch_bytes_max=1000, sync_window_s=1.0))
    house.publish(0, [b"x" * 500])
    assert not house.journal.wants_commit
    house.publish(1, [b"x" * 500])
    assert house.journal.wants_commit
    house.journal.commit()
    assert writes(house) == 1
    assert not house.journal.wants_commit


def test_the_hook_is_called_when_an_empty_batch_gets_its_first_row() -> None:
    house = held_house()
    calls: list[bool] = []
    house.journal.gathered = lambda: calls.append(house.journal.is_empty)
    house.publish(0, [b"a"])
    house.publish(1, [b"a"])
    house.journal.commit(urgent=True)
    assert len(calls) == 1
    house.journal.settle(3, 1, 0, 1, 1)
    assert len(calls) == 2
    # The rows that came meanwhile have a time at which they are due, and nobody has asked for it since.
    assert house.journal.commit_due_s() is None
    house.held.answer()
    assert len(calls) == 3
    assert house.journal.commit_due_s() is not None


def test_a_batch_is_one_write() -> None:
    house = House()
    for seq_id in range(50):
        house.publish(seq_id, [b"a", b"b"])
    house.commit()
    assert writes(house) == 1


# --- one write in flight --------------------------------------------------------------------------------


def test_while_a_sync_is_under_way_the_next_batch_gathers() -> None:
    house = held_house()
    first = house.journal.place
    house.publish(0, [b"a"])
    house.wait()
    house.journal.commit()
    assert house.journal.in_flight
    assert first.segment == 1
    assert house.journal.durable_lsn == 0
    second = house.journal.place
    house.publish(1, [b"b"])
    house.wait()
    house.journal.commit(urgent=True)
    assert (second.segment, writes(house), house.answers) == (-1, 1, [])
    # The answer commits at once what somebody waits for.
    house.held.answer()
    assert (second.segment, writes(house), house.answers) == (1, 2, [True])
    house.held.answer()
    assert house.answers == [True, True]
    assert not house.journal.in_flight
    assert house.journal.durable_lsn == house.journal.next_lsn


def test_waiters_are_told_in_the_order_of_asking() -> None:
    house = held_house()
    order: list[str] = []
    house.publish(0, [b"a"])
    house.journal.when_durable(lambda _: order.append("first"))
    house.journal.when_durable(lambda _: order.append("second"))
    house.journal.commit()
    # Nothing is gathered: this one waits for what is in flight.
    house.journal.when_durable(lambda _: order.append("third"))
    house.publish(1, [b"b"])
    house.journal.when_durable(lambda _: order.append("fourth"))
    house.held.answer()
    assert order == ["first", "second", "third"]
    house.held.answer()
    assert order == ["first", "second", "third", "fourth"]
    house.journal.when_durable(lambda durable: order.append(str(durable)))
    assert order[-1] == "True"


def test_rows_that_nobody_waits_for_are_not_hurried_by_an_answer() -> None:
    house = held_house(LATER)
    house.publish(0, [b"a"])
    house.wait()
    house.journal.commit()
    house.publish(1, [b"b"])
    house.held.answer()
    assert writes(house) == 1


def test_a_waiter_may_publish_and_wait_again_without_end() -> None:
    house = House()
    rounds = 3000

    def again(durable: bool) -> None:
        assert durable
        house.answers.append(durable)
        if len(house.answers) < rounds:
            house.publish(len(house.answers), [b"next"])
            house.journal.when_durable(again)

    house.publish(0, [b"first"])
    house.journal.when_durable(again)
    house.journal.commit()
    assert len(house.answers) == rounds
    assert writes(house) == rounds


def test_files_to_sync_first_are_synced_before_the_segment_once() -> None:
    house = held_house()
    house.files.make_dir("store")
    stores = [house.files.create(f"store/{number}") for number in range(2)]
    house.journal.before_write.append(lambda: house.journal.sync_first(stores[1]))
    house.journal.sync_first(stores[0])
    house.journal.sync_first(stores[0])
    house.publish(0, [b"a"])
    house.wait()
    house.journal.commit()
    assert house.held.answer() == ["store/0", "store/1", house.path()]
    house.journal.before_write.clear()
    house.publish(1, [b"a"])
    house.journal.commit(urgent=True)
    assert house.held.answer() == [house.path()]


def test_hooks_run_before_the_batch_is_written() -> None:
    house = House()
    seen: list[int] = []
    house.journal.before_write.append(lambda: seen.append(house.journal.place.segment))
    house.publish(0, [b"a"])
    house.commit()
    house.journal.commit(urgent=True)
    assert seen == [-1]


# --- how safe -------------------------------------------------------------------------------------------


def test_with_os_a_batch_counts_as_durable_when_it_is_written() -> None:
    house = held_house(JournalOptions(confirm_sync="os"))
    house.publish(0, [b"a"])
    house.wait()
    assert house.answers == []
    house.journal.commit()
    assert house.answers == [True]
    assert not house.held.requests
    assert house.journal.durable_lsn == house.journal.next_lsn


def test_with_none_everything_counts_as_durable_at_once_and_is_written_later() -> None:
    house = held_house(JournalOptions(confirm_sync="none", sync_window_s=1.0))
    house.publish(0, [b"a"])
    house.wait()
    assert house.answers == [True]
    house.clock.advance(1)
    house.journal.commit()
    assert replayed(house.files).bodies == {(1, 0): bodies(b"a")[0]}
    assert not house.held.requests


# --- the commit mark ------------------------------------------------------------------------------------


def test_an_idle_journal_gets_one_commit_mark() -> None:
    house = House(options=LATER)
    house.clock.advance(1)
    house.publish(0, [b"a"])
    house.commit()
    assert house.journal.commit_due_s() == 6
    house.clock.advance(4)
    house.journal.commit()
    assert batch_flags(house) == [0]
    house.clock.advance(1)
    place = house.journal.place
    size = len(house.bytes())
    for _ in range(3):
        house.journal.commit()
        house.clock.advance(10)
    assert batch_flags(house) == [0, COMMIT_MARK]
    assert house.journal.commit_due_s() is None
    assert house.journal.place is place
    assert place.segment == -1
    assert len(house.bytes()) == size + HEADER_BYTES
    found = replayed(house.files)
    assert found.end.next_lsn == house.journal.next_lsn


def test_a_busy_journal_gets_no_commit_mark_and_the_next_idle_time_gets_one() -> None:
    house = House(options=LATER)
    for seq_id in range(3):
        house.publish(seq_id, [b"a"])
        house.commit()
        house.clock.advance(4)
        house.journal.commit()
    assert batch_flags(house) == [0, 0, 0]
    house.clock.advance(4)
    house.journal.commit()
    house.publish(9, [b"a"])
    house.commit()
    house.clock.advance(5)
    house.journal.commit()
    assert batch_flags(house) == [0, 0, 0, COMMIT_MARK, 0, COMMIT_MARK]


def test_nobody_waits_for_a_mark() -> None:
    house = held_house(LATER)
    house.publish(0, [b"a"])
    house.journal.commit(urgent=True)
    house.held.answer()
    house.clock.advance(5)
    house.journal.commit()
    assert house.journal.in_flight
    house.wait()
    assert house.answers == [True]


def test_a_mark_goes_behind_the_batch_that_it_vouches_for() -> None:
    house = House(options=LATER)
    house.publish(0, [b"a"])
    house.commit()
    house.journal.roll()
    house.clock.advance(5)
    house.journal.commit()
    assert house.journal.segments.numbers() == [1]
    assert batch_flags(house) == [0, COMMIT_MARK]
    assert house.journal.segments.position()[0] == 2


# --- failures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_failed_write_or_sync_is_final(call: str) -> None:
    house = House()
    house.publish(0, [b"good"])
    house.wait()
    house.journal.commit()
    house.files.plan.fail(errno.EIO, call)
    house.publish(1, [b"bad"])
    house.wait()
    house.wait()
    house.journal.commit()
    assert house.answers == [True, False, False]
    assert house.journal.failed is not None
    assert house.journal.failed.errno == errno.EIO
    durable = house.journal.durable_lsn
    count = len(house.files.calls)
    house.publish(2, [b"later"])
    house.wait()
    house.journal.commit(urgent=True)
    assert house.answers[-1] is False
    assert house.journal.is_empty
    assert len(house.files.calls) == count
    assert house.journal.durable_lsn == durable
    assert house.journal.commit_due_s() is None


def test_who_gathers_while_a_sync_fails_is_told_too() -> None:
    house = held_house()
    house.publish(0, [b"a"])
    house.wait()
    house.journal.commit()
    house.publish(1, [b"b"])
    house.wait()
    house.files.plan.fail(errno.EIO, "fdatasync")
    house.held.answer()
    assert house.answers == [False, False]
    assert not house.held.requests


def test_a_file_that_must_be_synced_first_and_cannot_fails_the_batch() -> None:
    house = House()
    house.files.make_dir("store")
    house.journal.sync_first(house.files.create("store/x"))
    house.files.plan.fail(errno.EIO, "fdatasync", "store")
    house.publish(0, [b"a"])
    house.wait()
    house.journal.commit()
    assert house.answers == [False]
    assert house.journal.failed is not None


def full_house(room: int) -> House:
    """A disk with so much room left behind a first batch."""
    house = House(SimFiles(FaultPlan()))
    house.publish(0, [b"first"])
    house.commit()
    house.files.plan.capacity_bytes = len(house.bytes()) + room
    return house


@pytest.mark.parametrize("room", [0, 1, 95, 96, 150, 250])
def test_on_a_full_disk_the_waiters_are_refused_and_the_batch_is_kept(room: int) -> None:
    house = full_house(room)
    size = len(house.bytes())
    place = house.journal.place
    house.publish(1, [b"second" * 50])
    house.wait()
    house.journal.commit()
    assert house.answers == [False]
    assert house.journal.failed is None
    assert place.segment == -1
    # Nothing of it is left on the disk.
    assert len(house.bytes()) == size
    house.publish(2, [b"third"])
    house.files.plan.capacity_bytes = None
    house.wait()
    house.journal.commit()
    assert house.answers == [False, True]
    assert place.segment == 1
    assert set(replayed(house.files).bodies) == {(1, 0), (1, 1), (1, 2)}


def test_a_full_disk_is_not_tried_in_every_turn() -> None:
    house = full_house(0)
    house.publish(1, [b"second"])
    house.wait()
    house.clock.advance(1)
    house.journal.commit()
    count = len(house.files.calls)
    house.journal.commit()
    house.journal.commit()
    assert len(house.files.calls) == count
    house.clock.advance(0.01)
    house.files.plan.capacity_bytes = None
    house.journal.commit()
    assert set(replayed(house.files).bodies) == {(1, 0), (1, 1)}


def test_room_that_is_made_is_used_at_once() -> None:
    house = full_house(100)
    asked: list[bool] = []

    def make_room() -> bool:
        asked.append(True)
        house.files.plan.capacity_bytes = None
        return True

    house.journal.disk_full = make_room
    house.publish(1, [b"second" * 50])
    house.wait()
    house.journal.commit()
    assert (house.answers, asked) == ([True], [True])


def test_who_promises_room_and_has_none_is_not_asked_for_ever() -> None:
    house = full_house(0)
    asked: list[bool] = []

    def promise() -> bool:
        asked.append(True)
        return True

    house.journal.disk_full = promise
    house.publish(1, [b"second"])
    house.wait()
    house.journal.commit()
    assert house.answers == [False]
    assert 1 <= len(asked) < 10


def test_no_room_for_a_new_segment_is_a_full_disk_too() -> None:
    house = full_house(1000)
    house.journal.roll()
    house.publish(1, [b"second"])
    house.wait()
    house.journal.commit()
    assert house.answers == [False]
    assert house.journal.segments.numbers() == [1]
    house.files.plan.capacity_bytes = None
    house.wait()
    house.journal.commit()
    assert house.answers == [False, True]
    assert house.journal.segments.numbers() == [1, 2]
    assert set(replayed(house.files).bodies) == {(1, 0), (1, 1)}


def test_no_room_for_what_a_hook_writes_is_a_full_disk_too() -> None:
    house = full_house(10_000)
    is_full = [True]

    def flush() -> None:
        if is_full[0]:
            raise OSError(errno.ENOSPC, "no room for the store")

    house.journal.before_write.append(flush)
    house.publish(1, [b"second"])
    house.wait()
    house.journal.commit()
    is_full[0] = False
    house.wait()
    house.journal.commit()
    assert house.answers == [False, True]


def test_no_room_for_a_mark_troubles_nobody() -> None:
    house = full_house(10)
    size = len(house.bytes())
    house.clock.advance(1)
    house.journal.commit()
    assert house.journal.failed is None
    assert house.journal.commit_due_s() is None
    assert len(house.bytes()) == size


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN])
@pytest.mark.parametrize("call", ["create", "pwrite"])
def test_a_machine_that_is_out_of_descriptors_or_memory_lets_waiters_wait(call: str, number: int) -> None:
    house = House()
    house.commit_one(b"first")
    house.journal.roll()
    house.files.plan.fail(number, call, forever=True)
    house.publish(1, [b"second"])
    house.wait()
    house.journal.commit()
    assert house.journal.failed is None
    assert house.journal.stalled is not None
    assert house.journal.stalled.errno == number
    house.publish(2, [b"third"])
    house.wait()
    # It is not tried in every turn, but it is tried.
    count = len(house.files.calls)
    house.journal.commit()
    assert len(house.files.calls) == count
    due_s = house.journal.commit_due_s()
    assert due_s is not None
    house.clock.advance(due_s - house.clock.monotonic_s())
    house.journal.commit()
    assert len(house.files.calls) > count
    assert house.answers == []
    house.files.plan.faults.clear()
    house.clock.advance(1)
    house.journal.commit()
    assert house.answers == [True, True]
    assert house.journal.stalled is None
    assert set(replayed(house.files).bodies) == {(1, 0), (1, 1), (1, 2)}


def test_a_kept_batch_is_not_built_again_for_every_try() -> None:
    house = full_house(0)
    house.publish(1, [b"second"])
    house.wait()
    house.journal.commit()
    first_try_us = house.clock.wall_ms() * 1000
    house.clock.advance(100)
    house.files.plan.capacity_bytes = None
    house.journal.commit()
    times: list[int] = []

    def visit(view: BatchView) -> None:
        times.append(view.wall_us)

    replay(house.files, FOLDER, 0, 0, visit)
    assert times[1] == first_try_us


def test_a_large_batch_on_a_full_disk_is_not_built_again_for_every_publish() -> None:
    house = House(options=JournalOptions(batch_bytes_max=1000))
    house.commit_one(b"first")
    house.files.plan.capacity_bytes = len(house.bytes())
    house.publish(1, [b"x" * 2000])
    house.wait()
    house.journal.commit()
    count = len(house.files.calls)
    for number in range(10):
        house.publish(2 + number, [b"more"])
        house.wait()
        house.journal.commit()
    assert len(house.files.calls) == count
    house.clock.advance(1)
    house.journal.commit()
    assert house.answers == [False] * 11


@pytest.mark.parametrize("ending", ["durable", "failed", "full", "closed"])
def test_a_waiter_that_raises_keeps_no_other_one_from_its_answer(ending: str) -> None:
    house = held_house()
    raised: list[Exception] = []
    house.journal.waiter_failed = raised.append

    def bad(durable: bool) -> None:
        raise KeyError("a bug")

    if ending == "full":
        house.files.plan.capacity_bytes = len(house.bytes())
    house.publish(0, [b"a"])
    house.wait()
    house.journal.when_durable(bad)
    house.wait()
    house.journal.commit()
    if ending == "durable":
        house.held.answer()
    elif ending == "failed":
        house.journal.fail(OSError(errno.EIO, "broken"))
    elif ending == "closed":
        house.journal.close()
    assert house.answers == [ending == "durable"] * 2
    assert [type(error) for error in raised] == [KeyError]


def test_what_a_waiter_raises_comes_out_when_all_are_told_and_nobody_takes_it() -> None:
    house = House()

    def bad(durable: bool) -> None:
        raise KeyError("a bug")

    house.publish(0, [b"a"])
    house.journal.when_durable(bad)
    house.wait()
    with pytest.raises(KeyError):
        house.journal.commit()
    assert house.answers == [True]


def test_a_batch_beyond_the_limits_of_the_format_is_refused_and_not_written() -> None:
    house = House()
    house.publish(0, [b"a"])
    house.journal._entries.body_bytes = HEAP_BYTES_MAX
    house.wait()
    house.journal.commit()
    assert house.answers == [False]
    assert house.journal.failed is not None
    assert len(house.bytes()) == FIRST_BATCH_AT


@pytest.mark.parametrize(("events", "is_written"), [(EVENTS_MAX, True), (EVENTS_MAX + 1, False)])
def test_a_batch_has_no_more_events_than_its_header_can_count(events: int, is_written: bool) -> None:
    house = House()
    # A name is written with the first.
    house.journal.settle(rows.PURGED, 1, 0, 1, 0)
    while (left := events - house.journal.next_lsn) > 0:
        house.journal.settle(rows.PURGED, 1, house.journal.next_lsn, min(left, 2**31 - 1), 0)
    house.wait()
    house.journal.commit()
    assert house.answers == [is_written]
    if is_written:
        assert replayed(house.files).end.next_lsn == events
    else:
        assert "events" in str(house.journal.failed)
        assert len(house.bytes()) == FIRST_BATCH_AT


def test_short_writes_are_continued() -> None:
    house = House()
    house.files.plan.short_write(7, forever=True)
    house.publish(0, [b"body" * 20])
    house.commit()
    assert replayed(house.files).bodies == {(1, 0): bodies(b"body" * 20)[0]}


def test_closing_tells_those_who_still_wait() -> None:
    house = held_house()
    house.publish(0, [b"a"])
    house.wait()
    house.journal.commit()
    house.journal.publish(1, 1, Incoming(envelope(), bodies(b"b")), -1)
    house.wait()
    house.journal.close()
    assert house.answers == [False, False]
