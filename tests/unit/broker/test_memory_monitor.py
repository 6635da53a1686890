"""The memory monitor: who is told to hold less, how much less, and who is left alone."""

from __future__ import annotations

import math
import sys

import pytest

from penstock import limits
from penstock.backing.volatile import VolatileBackingQueue
from penstock.broker.memory.memory_monitor import CHECK_S, MemoryMonitor, desired_duration, fair_share, payload_share
from penstock.message import Envelope, Incoming

LIMIT = 1_000_000


class PagingQueue(VolatileBackingQueue):
    """Says that it holds what a test wants, and notes every call that concerns its memory."""

    def __init__(self, ram_bytes: int, duration_s: float = math.inf) -> None:
        super().__init__()
        self.held = ram_bytes
        self.duration_s = duration_s
        self.calls: list[tuple[str, float]] = []

    def ram_bytes(self) -> int:
        return self.held

    def ram_duration(self) -> float:
        self.calls.append(("asked", 0.0))
        return self.duration_s

    def set_ram_duration_target(self, seconds: float) -> None:
        self.calls.append(("seconds", seconds))

    def set_ram_bytes_target(self, bytes_max: int) -> None:
        self.calls.append(("bytes", bytes_max))

    def told(self) -> list[tuple[str, float]]:
        """What it was told since the last time."""
        told = [call for call in self.calls if call[0] != "asked"]
        self.calls.clear()
        return told


class House:
    """A monitor and its queues, with a look every time one is due."""

    def __init__(self, *queues: PagingQueue) -> None:
        self.queues = list(queues)
        self.monitor = MemoryMonitor(LIMIT, lambda: self.queues)
        self.now_s = 100.0

    def look(self, disk_is_low: bool = False) -> None:
        self.now_s += CHECK_S
        assert self.monitor.check(self.now_s, disk_is_low)


def test_it_looks_at_once_and_then_every_two_and_a_half_seconds() -> None:
    monitor = MemoryMonitor(LIMIT, list)
    looks = [now_s for now_s in (7.0, 7.1, 9.4, 9.5, 9.6, 11.9, 12.0, 30.0, 32.4) if monitor.check(now_s)]
    assert looks == [7.0, 9.5, 12.0, 30.0]


def test_below_half_of_the_memory_nobody_is_asked_or_told() -> None:
    house = House(PagingQueue(LIMIT // 2 - 2, 10.0), PagingQueue(1, 10.0))
    house.look()
    assert [queue.calls for queue in house.queues] == [[], []]
    assert (house.monitor.desired_duration_s, house.monitor.share_bytes) == (math.inf, -1)


def test_a_queue_that_holds_more_than_its_targets_is_told_both() -> None:
    queue = PagingQueue(600_000, 12.0)
    queue.publish(Incoming(Envelope("", "key", b""), [b"x" * limits.MESSAGE_OVERHEAD_BYTES + b"\xce"]), None)
    house = House(queue)
    house.look()
    assert house.monitor.desired_duration_s == pytest.approx((12.0 + 1.0) / 0.6)
    assert house.monitor.share_bytes == 500_000
    # Half of what the message costs is payload.
    assert queue.told() == [("seconds", house.monitor.desired_duration_s), ("bytes", 250_000)]


def test_idle_queues_are_neither_asked_nor_told() -> None:
    """W-3: memory pressure does not wake thousands of queues."""
    idle = [PagingQueue(0, 5.0) for _ in range(1_000)]
    busy = PagingQueue(900_000, 20.0)
    house = House(*idle, busy)
    for _ in range(3):
        house.look()
    assert all(queue.calls == [] for queue in idle)
    assert busy.told() != []


def test_a_queue_within_its_targets_is_not_told() -> None:
    small, large = PagingQueue(10_000, 1.0), PagingQueue(900_000, 99.0)
    house = House(small, large)
    house.look()
    assert 1.0 < house.monitor.desired_duration_s < 99.0
    assert 10_000 < house.monitor.share_bytes < 900_000
    assert small.told() == []
    assert len(large.told()) == 2


@pytest.mark.parametrize(
    ("held", "duration_s"), [(900_000, 1.0), (100_000, 99.0)], ids=["too many bytes", "for too long"]
)
def test_one_target_exceeded_is_enough(held: int, duration_s: float) -> None:
    queue = PagingQueue(held, duration_s)
    others = [PagingQueue(200_000, 1.0) for _ in range(4)]
    house = House(queue, *others)
    house.look()
    assert len(queue.told()) == 2


def test_the_same_target_is_told_once_and_another_one_while_it_is_exceeded() -> None:
    queue = PagingQueue(900_000, 20.0)
    house = House(queue)
    house.look()
    assert len(queue.told()) == 2
    house.look()
    assert queue.told() == []
    queue.duration_s = 10.0
    house.look()
    assert queue.told()[0] == ("seconds", house.monitor.desired_duration_s)


def test_a_tighter_target_is_not_told_to_a_queue_that_keeps_it_already() -> None:
    queue, other = PagingQueue(900_000, 20.0), PagingQueue(10_000, 20.0)
    house = House(queue, other)
    house.look()
    assert len(queue.told()) == 2
    queue.held, queue.duration_s = 10_000, 0.1
    other.held, other.duration_s = 900_000, 10.0
    before_s = house.monitor.desired_duration_s
    house.look()
    assert house.monitor.desired_duration_s < before_s
    assert queue.told() == []
    assert len(other.told()) == 2


def test_targets_are_lifted_when_memory_is_free_again() -> None:
    queue, untouched = PagingQueue(900_000, 20.0), PagingQueue(1_000, 0.5)
    house = House(queue, untouched)
    house.look()
    queue.told()
    queue.held = 400_000
    house.look()
    assert queue.told() == [("seconds", math.inf), ("bytes", -1)]
    assert untouched.told() == []
    house.look()
    assert queue.calls == []


def test_a_looser_target_is_told_to_those_that_had_a_tighter_one() -> None:
    queue, other = PagingQueue(900_000, 20.0), PagingQueue(90_000, 1.0)
    house = House(queue, other)
    house.look()
    first = queue.told()
    queue.held, queue.duration_s = 100_000, 2.0
    other.held, other.duration_s = 450_000, 80.0
    house.look()
    second = queue.told()
    assert second[0][0] == "seconds"
    assert second[0][1] > first[0][1]


def test_a_queue_without_messages_in_ram_is_told_of_its_freedom_when_it_has_some() -> None:
    queue = PagingQueue(900_000, 20.0)
    house = House(queue)
    house.look()
    queue.told()
    queue.held = 0
    house.look()
    assert queue.calls == []
    queue.held = 5
    house.look()
    assert queue.told() == [("seconds", math.inf), ("bytes", -1)]


def test_a_queue_that_is_not_among_the_largest_any_more_gets_its_freedom_too_but_not_under_pressure() -> None:
    queue, larger = PagingQueue(900_000, 20.0), PagingQueue(900_000, 20.0)
    house = House(queue, larger)
    house.look()
    assert queue.told()
    house.queues.remove(queue)
    house.monitor.relieve(queue)
    assert queue.calls == []
    larger.held = 5
    house.look()
    house.monitor.relieve(queue)
    house.monitor.relieve(queue)
    assert queue.told() == [("seconds", math.inf), ("bytes", -1)]


def test_a_deleted_queue_is_forgotten() -> None:
    queue = PagingQueue(900_000, 20.0)
    house = House(queue)
    known = sys.getrefcount(queue)
    house.look()
    assert queue.told()
    assert sys.getrefcount(queue) == known
    house.queues.remove(queue)
    house.look()
    assert queue.calls == []


def test_nothing_is_paged_out_while_the_disk_is_low() -> None:
    queue = PagingQueue(900_000, 20.0)
    house = House(queue)
    house.look(disk_is_low=True)
    assert queue.calls == []
    house.look()
    assert len(queue.told()) == 2
    house.look(disk_is_low=True)
    assert queue.told() == [("seconds", math.inf), ("bytes", -1)]


def test_queues_that_stand_still_or_do_not_page_are_cut_by_bytes_alone() -> None:
    still, volatile, small = PagingQueue(500_000), PagingQueue(500_000, 0.0), PagingQueue(1_000)
    house = House(still, volatile, small)
    house.look()
    assert house.monitor.desired_duration_s == math.inf
    assert [name for name, _ in still.told()] == ["seconds", "bytes"]
    assert [name for name, _ in volatile.told()] == ["seconds", "bytes"]
    assert small.told() == []


@pytest.mark.parametrize(
    ("durations_s", "ratio", "expected"),
    [
        ([10.0], 0.5, 22.0),
        ([10.0], 0.949, 11.0 / 0.949),
        ([10.0], 0.95, 10.0 / 0.95),
        ([10.0], 2.0, 5.0),
        ([10.0, 30.0, math.inf, 0.0], 1.0, 20.0),
        ([], 1.0, math.inf),
        ([math.inf, 0.0], 1.0, math.inf),
    ],
)
def test_the_desired_duration_is_the_mean_over_how_full_memory_is(
    durations_s: list[float], ratio: float, expected: float
) -> None:
    """MM-1"""
    assert desired_duration(durations_s, ratio) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("held", "budget", "share"),
    [
        ([100], 60, 60),
        ([100, 100], 60, 30),
        ([10, 100], 60, 50),
        ([2_000, 10, 1_000, 20], 130, 50),
        ([1, 2, 3], 100, 100),
        ([5, 5], 0, 0),
        ([], 100, 100),
    ],
)
def test_a_share_cuts_the_largest_first(held: list[int], budget: int, share: int) -> None:
    assert fair_share(held, budget) == share
    assert sum(min(one, share) for one in held) <= budget


def test_the_payload_of_a_share_leaves_room_for_what_messages_cost_besides() -> None:
    queue = VolatileBackingQueue()
    assert payload_share(queue, 1_000) == 0
    queue.publish(Incoming(Envelope("", "key", b""), [b"x" * 3 * limits.MESSAGE_OVERHEAD_BYTES + b"\xce"] * 10), None)
    queue.fetch(5, 1 << 30, True)
    assert payload_share(queue, 1_000) == 750
