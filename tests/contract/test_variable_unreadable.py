"""The disk cannot read for a while: no message is written off, and those that can be read are served."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from penstock.backing.backing_queue import TIMEOUT_IDLE
from penstock.backing.variable.set_aside import FIRST_S, LONGEST_S
from tests.contract.variable_house import VariableHouse, plain_options

# Where bodies lie, and how they get there.
PLACES = ("journal/", "/qs/", "/shared/")


def house_with(place: str) -> VariableHouse:
    """Ten messages that are on the disk only, small ones in one batch each."""
    options = plain_options(embed_below=60 if place == "/shared/" else 0)
    options.journal.cache_bytes = options.journal.view_bytes = 0
    house = VariableHouse(options)
    for number in range(10):
        house.publish(b"%02d" % number * (40 if place == "/shared/" else 1))
        house.commit()
    house.push_alphas(100)
    if place == "/qs/":
        house.stored().move_home(house.node.journal.segments.position()[0], 100)
        house.checkpoint()
    return house


def fail_reads(house: VariableHouse, place: str) -> None:
    paths = {path for path in house.disk.contents() if place in path}
    assert paths
    for path in paths:
        house.disk.plan.fail(errno.EIO, "pread", path, forever=True)


def numbers(house: VariableHouse) -> list[int]:
    return [int(payload[:2]) for payload in house.drain()]


def try_again(house: VariableHouse) -> None:
    house.clock.advance(LONGEST_S)
    assert house.queue.needs_timeout() == TIMEOUT_IDLE
    house.queue.timeout()
    house.run_callbacks()


@pytest.mark.parametrize("place", PLACES)
def test_one_error_of_a_read_is_not_noticed(place: str) -> None:
    house = house_with(place)
    for _ in range(10):
        house.disk.plan.fail(errno.EIO, "pread")
        assert house.fetched(1)
        house.disk.plan.heal()
    assert house.status("unreadable") == house.status("lost") == 0


@pytest.mark.parametrize("place", PLACES)
def test_what_cannot_be_read_is_set_aside_said_and_served_when_it_can(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    house = house_with(place)
    house.numbered(10, 12)
    fail_reads(house, place)
    assert numbers(house) == [10, 11, 12], "what is behind them is served"
    assert house.status("unreadable") == house.queue.depth() == 10
    assert house.status("lost") == 0
    assert "cannot be read now" in caplog.text
    house.check()
    try_again(house)
    assert house.queue.drain_arrived() == 10, "consumers are told to try again"
    assert numbers(house) == []
    assert house.status("unreadable") == 10
    house.disk.plan.heal()
    try_again(house)
    assert house.queue.drain_arrived() == 10
    assert numbers(house) == list(range(10))
    assert house.queue.depth() == house.status("unreadable") == house.status("lost") == 0
    house.check()


@pytest.mark.parametrize("end", [VariableHouse.restart, VariableHouse.kill, VariableHouse.crash])
@pytest.mark.parametrize("place", PLACES)
def test_what_could_not_be_read_is_there_after_the_next_start(place: str, end: Callable[[VariableHouse], None]) -> None:
    house = house_with(place)
    fail_reads(house, place)
    assert numbers(house) == []
    house.disk.plan.heal()
    house.commit()
    house.checkpoint()
    end(house)
    assert numbers(house) == list(range(10))


def test_only_the_messages_that_lie_in_the_bad_place_are_set_aside() -> None:
    house = VariableHouse(plain_options(embed_below=60))
    for number in range(6):
        house.publish(b"%02d" % number * (40 if number in (1, 3) else 1))
    house.commit()
    house.push_alphas(100)
    fail_reads(house, "/shared/")
    assert numbers(house) == [0, 2, 4, 5]
    assert house.status("unreadable") == 2


@pytest.mark.parametrize("place", PLACES)
def test_fetching_by_number_sets_aside_and_browsing_leaves_out_what_cannot_be_read(place: str) -> None:
    house = house_with(place)
    fail_reads(house, place)
    assert house.queue.browse(0, 10, 1000) is None
    assert house.folded() == []
    assert len(house.queue) == 10
    assert house.queue.fetch_at([3, 4]) == []
    assert (len(house.queue), house.status("unreadable")) == (8, 2)
    house.check()
    house.disk.plan.heal()
    try_again(house)
    assert numbers(house) == list(range(10))


@pytest.mark.parametrize("drop", ["drop", "dropwhile", "purge"])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_dropped_is_not_read(place: str, drop: str) -> None:
    house = house_with(place)
    fail_reads(house, place)
    queue, reads = house.queue, house.status("disk_reads")
    if drop == "drop":
        assert [queue.drop(False) for _ in range(11)] == [*range(10), None]
    elif drop == "dropwhile":
        assert queue.dropwhile(lambda props: True) == 10
    else:
        assert queue.purge() == 10
    assert queue.depth() == queue.ready_bytes() == house.status("lost") == 0
    assert house.status("disk_reads") == reads
    house.check()
    house.commit()
    house.disk.plan.heal()
    house.kill()
    assert numbers(house) == []


@pytest.mark.parametrize("place", PLACES)
def test_what_the_queue_takes_from_the_head_to_keep_it_is_read_when_somebody_wants_it(place: str) -> None:
    house = house_with(place)
    fail_reads(house, place)
    reads = house.status("disk_reads")
    assert [house.queue.drop(True) for _ in range(3)] == [0, 1, 2]
    assert (house.queue.pending.ram_count(), house.status("disk_reads")) == (0, reads)
    house.check()
    house.disk.plan.heal()
    shown: list[int] = []
    house.queue.ackfold(lambda seq_id, entry: shown.append(int(entry[1][:2])), [0, 1, 2])
    assert shown == [0, 1, 2]
    assert house.queue.requeue([1, 2]) == 2
    assert numbers(house) == list(range(1, 10))
    house.check()


@pytest.mark.parametrize("place", PLACES)
def test_a_purge_takes_what_cannot_be_read_and_so_does_a_deletion(place: str) -> None:
    house = house_with(place)
    fail_reads(house, place)
    assert numbers(house) == []
    assert house.queue.purge() == 10
    assert house.queue.depth() == house.status("unreadable") == 0
    house.check()
    house.disk.plan.heal()
    house.commit()
    house.kill()
    assert numbers(house) == []


def test_the_index_cannot_be_read_and_consumers_are_told_when_it_may_be_tried_again() -> None:
    house = VariableHouse(plain_options())
    house.numbered(0, 19)
    house.commit()
    house.push_alphas(100)
    house.push_betas(100)
    house.queue.homes.give_back()
    fail_reads(house, "/idx/")
    with pytest.raises(OSError, match="EIO") as raised:
        house.drain()
    left = len(house.queue)
    house.queue.stalled(raised.value)
    house.clock.advance(FIRST_S / 2)
    assert not house.queue.aside.is_due()
    house.disk.plan.heal()
    try_again(house)
    assert house.queue.drain_arrived() == left
    assert numbers(house) == list(range(20))[-left:]
