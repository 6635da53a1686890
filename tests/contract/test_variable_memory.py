"""A backlog does not cost memory: what is in RAM is bounded, by count of objects, however messages came in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.backing.variable.paging import PagingOptions
from penstock.journal.options import JournalOptions
from penstock.store.node.options import StoreOptions
from tests.contract.variable_house import VariableHouse
from tests.effort import examples

COUNT = examples(200_000)
PADDING = b"x" * 92
# Where eviction begins, and what one batch of the journal may add before it can be evicted.
IN_RAM_MAX = 2048 + 8192 + 1000
# Permitted positions, the batch that is waited for, what one call adds; and one step of reading before q2 joins it.
POSITIONS_MAX = 4096 + 4096 + 200 + 2048


def big_house() -> VariableHouse:
    """The numbers of a real node."""
    return VariableHouse(StoreOptions(JournalOptions(), reserve_bytes=0), PagingOptions())


def payload(number: int) -> bytes:
    return b"%08d" % number + PADDING


def bodies(first: int, count: int) -> list[bytes]:
    return [payload(number) for number in range(first, first + count)]


def drained(house: VariableHouse) -> Iterator[int]:
    while not house.queue.is_empty():
        run = house.queue.fetch(1000, 1 << 20, False)
        assert run is not None
        for entry in run.entries:
            yield int(entry[1][:8])


def expect_bounded(house: VariableHouse) -> None:
    status = house.queue.status()
    assert int(status["messages_ram"]) <= IN_RAM_MAX
    assert int(status["positions"]) <= POSITIONS_MAX
    assert len(house.queue.zones.q1) + len(house.queue.zones.q4) <= IN_RAM_MAX


@pytest.mark.slow
def test_two_hundred_thousand_persistent_messages_in_runs_stay_out_of_ram_and_the_index() -> None:
    house = big_house()
    for first in range(0, COUNT, 500):
        house.publish(*bodies(first, 500))
        house.commit()
        expect_bounded(house)
    assert house.status("disk_writes") == 0
    assert house.status("positions") <= COUNT // 500 + 1
    assert len(house.queue) == COUNT
    assert all(number == expected for expected, number in enumerate(drained(house)))
    assert house.queue.tail.next_seq_id == COUNT


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_thousand_persistent_messages_one_by_one_stay_out_of_ram() -> None:
    house = big_house()
    for number in range(COUNT):
        house.publish(payload(number))
        house.node.journal.commit(urgent=True)
        if number % 100 == 0:
            expect_bounded(house)
    assert house.status("disk_writes") == 0
    assert house.status("delta") > COUNT - IN_RAM_MAX - POSITIONS_MAX
    taken = 0
    for expected, number in enumerate(drained(house)):
        assert number == expected
        taken += 1
        if number % 1000 == 0:
            expect_bounded(house)
    assert taken == COUNT


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_a_hundred_thousand_unacked_messages_are_paged_out(persistent: bool) -> None:
    house = big_house()
    house.persistent = persistent
    for first in range(0, 100_000, 500):
        house.publish(*bodies(first, 500))
        house.commit()
    unacked = 0
    while not house.queue.is_empty():
        run = house.queue.fetch(200, 1 << 20, True)
        assert run is not None
        unacked += len(run.entries)
        if unacked % 10_000 == 0:
            house.commit()
            expect_bounded(house)
    expect_bounded(house)
    assert (house.queue.pending.count, unacked) == (100_000, 100_000)
    assert len(house.queue.pending.runs()) <= 100_000 // 100, "runs, not messages"
    assert house.queue.requeue(range(100_000)) == 100_000
    for _ in range(200):
        house.queue.resume()
    expect_bounded(house)
    assert all(number == expected for expected, number in enumerate(drained(house)))


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
@pytest.mark.parametrize("run", [1, 3, 50], ids=["one-by-one", "threes", "fifties"])
def test_with_small_numbers_ram_does_not_grow_with_the_backlog(persistent: bool, run: int) -> None:
    """The same for every test run: eleven hundred messages, a cap of twenty, segments of sixteen."""
    house = VariableHouse(
        StoreOptions(JournalOptions(), index_slots=16, reserve_bytes=0),
        PagingOptions(cap=20, slack=30, io_batch=16, slice_count=100, read_ahead_count=16),
    )
    house.persistent = persistent
    most = [0, 0]
    for first in range(0, 1100, run):
        house.publish(*bodies(first, run))
        house.commit()
        most = [max(most[0], house.status("messages_ram")), max(most[1], house.status("positions"))]
    count = len(house.queue)
    assert most[0] <= 20 + 30 + 2 * run
    assert most[1] <= 16 + 16 + run + 2
    house.check()
    unacked = 0
    while not house.queue.is_empty():
        taken = house.queue.fetch(10, 1 << 20, True)
        assert taken is not None
        assert [int(entry[1][:8]) for entry in taken.entries] == list(range(unacked, unacked + len(taken.entries)))
        unacked += len(taken.entries)
        assert house.status("messages_ram") <= 20 + 30 + 2 * run + 16
    house.check()
    assert unacked == count
