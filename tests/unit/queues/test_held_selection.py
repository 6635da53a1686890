"""The order of held messages: who is moved on when, in which order, and in how small steps."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from queue_house import Inbox
from tests.contract.variable_house import VariableHouse, eager_paging
from tests.effort import examples

from penstock import limits
from penstock.backing.backing_queue import BackingQueue
from penstock.backing.volatile import VolatileBackingQueue
from penstock.clock import ManualClock
from penstock.message import Envelope, Incoming, MessageProps
from penstock.queues.delayed.held_selection import HeldSelection
from penstock.queues.leaving.dead_letters import EXPIRED
from penstock.queues.leaving.expiry import Expiring, ExpirySchedule
from penstock.queues.selection.selection import SelectionHost

START_MS = 1_000
MANY = 1_000_000


class Undertaker(SelectionHost):
    """A queue that moves on what it is told to dead-letter, or, when the target refuses, gives it back in the same
    turn."""

    def __init__(self, backing: BackingQueue) -> None:
        self.backing = backing
        self.clock = ManualClock(START_MS)
        self.handed_over: list[int] = []
        self.turns: list[int] = []
        self.selection: HeldSelection | None = None
        self.refuses = False

    def dead_letter(self, seq_ids: Sequence[int], reason: str) -> None:
        assert reason == EXPIRED
        self.turns.append(len(seq_ids))
        if self.refuses:
            assert self.selection is not None
            assert self.selection.returned(seq_ids) == []
            return
        self.handed_over += seq_ids
        assert self.backing.ack(seq_ids) == len(seq_ids), "what is handed_over was pending"

    def became_available(self, count: int) -> None:
        raise AssertionError("nothing of it is ever available")

    def wall_ms(self) -> int:
        return self.clock.wall_ms()

    def wake_at(self, due_ms: int) -> None:
        pass


class HeldHouse:
    """A companion queue: backing and selection, and a clock that the test moves."""

    def __init__(
        self,
        backing: BackingQueue | None = None,
        releases: int = MANY,
        fill: int = MANY,
        fill_bytes: int = MANY,
        listed: int = MANY,
    ) -> None:
        self.backing = VolatileBackingQueue() if backing is None else backing
        self.host = Undertaker(self.backing)
        self.held = HeldSelection(self.host, self.backing, releases, fill, fill_bytes, listed)
        self.host.selection = self.held

    def publish(self, *dues_ms: int | None, size: int = 3) -> list[int]:
        """One message for each due time; neighbours with one due time are published as a run. Their numbers."""
        seq_ids: list[int] = []
        at = 0
        while at < len(dues_ms):
            due_ms = dues_ms[at]
            count = 1
            while at + count < len(dues_ms) and dues_ms[at + count] == due_ms:
                count += 1
            props = None if due_ms is None else MessageProps(due_ms)
            bodies = [b"x" * size + b"\xce"] * count
            first = self.backing.publish(Incoming(Envelope("", "q", b"\x00\x00", True), bodies), props)
            self.held.published(first, count)
            seq_ids += range(first, first + count)
            at += count
        return seq_ids

    def is_filling(self) -> bool:
        return self.held.is_filling

    def unread(self) -> int:
        """How many are not on the timetable yet."""
        return len(self.backing) - len(self.held._timetable)

    def expire_at(self, now_ms: int) -> list[int]:
        """What one call moves on."""
        if now_ms > self.host.clock.wall_ms():
            self.host.clock.advance((now_ms - self.host.clock.wall_ms()) / 1000)
        before = len(self.host.handed_over)
        self.held.expire(now_ms)
        self.held.check_invariants()
        return self.host.handed_over[before:]


@pytest.fixture
def house() -> HeldHouse:
    return HeldHouse()


def test_messages_are_moved_on_when_they_are_due_and_not_before(house: HeldHouse) -> None:
    house.publish(3_000, 2_000, 4_000)
    assert house.held.next_expiry_ms() == 2_000
    assert house.expire_at(1_999) == []
    assert house.expire_at(3_000) == [1, 0]
    assert house.held.next_expiry_ms() == 4_000
    assert house.expire_at(4_000) == [2]
    assert house.held.next_expiry_ms() == -1


def test_a_message_without_a_due_time_is_due_at_once(house: HeldHouse) -> None:
    house.publish(2_000, None, -1)
    assert house.held.next_expiry_ms() == 0
    assert house.expire_at(START_MS) == [1, 2]


def test_a_due_time_in_the_far_future_is_kept(house: HeldHouse) -> None:
    house.publish(2**63 - 1, 2_000)
    assert house.expire_at(2**40) == [1]
    assert house.held.next_expiry_ms() == 2**63 - 1


def test_held_messages_stay_ready_in_the_backing_and_are_counted_there(house: HeldHouse) -> None:
    house.publish(2_000, 2_000, 3_000, size=10)
    assert (len(house.backing), house.backing.ready_bytes(), house.backing.pending_bytes()) == (3, 30, 0)
    assert (house.held.ready_count(), house.held.ready_bytes()) == (0, 0)
    assert house.held.leaves_ready()
    house.expire_at(2_000)
    assert len(house.backing) == house.backing.depth() == len(house.held._timetable) == 1


def test_nobody_is_given_a_held_message(house: HeldHouse) -> None:
    house.publish(None, 2_000)
    inbox = Inbox()
    assert not house.held.has_for(inbox)
    assert house.held.fetch(inbox, 10, 1_000, True) is None
    assert house.held.fetch(None, 1, 0, False) is None
    house.held.consumer_gone(inbox)
    assert len(house.held._timetable) == 2
    assert house.held.is_needed()


def test_a_run_of_messages_that_are_due_together_is_one_entry(house: HeldHouse) -> None:
    house.publish(*[2_000] * 100, 3_000, *[2_000] * 100)
    assert sum(len(chunk.dues) for chunk in house.held._timetable._chunks) == 3
    assert house.expire_at(2_000) == [*range(100), *range(101, 201)]


def test_messages_published_apart_for_one_time_are_one_entry_too() -> None:
    house = HeldHouse()
    for _ in range(50):
        house.publish(2_000)
    assert sum(len(chunk.dues) for chunk in house.held._timetable._chunks) == 1


def test_releases_are_cut_into_turns() -> None:
    house = HeldHouse(releases=2)
    house.publish(2_000, 2_001, 2_000, 2_002, 2_001)
    assert house.expire_at(2_500) == [0, 2]
    assert house.held.next_expiry_ms() == 2_501, "the rest has its turn, but not in this millisecond"
    house.host.clock.advance(1)
    assert house.held.next_expiry_ms() == 2_501
    assert house.expire_at(3_500) == [1, 4]
    assert house.expire_at(3_501) == [3]
    assert house.host.turns == [2, 2, 1]


class Waker(Expiring):
    """Does as a queue does: expires, and arms itself for the next time."""

    def __init__(self, house: HeldHouse, schedule: ExpirySchedule) -> None:
        self._house = house
        self._schedule = schedule

    def expire_due(self, now_ms: int) -> None:
        self._house.held.expire(now_ms)
        self.arm()

    def arm(self) -> None:
        next_ms = self._house.held.next_expiry_ms()
        if next_ms >= 0:
            self._schedule.arm(self, next_ms)


def test_a_schedule_that_runs_what_is_due_comes_to_an_end_after_one_slice() -> None:
    backing = VolatileBackingQueue()
    backing.publish(Incoming(Envelope("", "q", b"\x00\x00"), [b"x\xce"] * 10), MessageProps(1_500))
    house = HeldHouse(backing, releases=3, fill=4)
    schedule = ExpirySchedule()
    waker = Waker(house, schedule)
    waker.arm()
    house.host.clock.advance(1)
    seen: list[tuple[int, int]] = []
    while schedule.next_due_ms() >= 0:
        schedule.run_due(house.host.clock.wall_ms())
        seen.append((house.unread(), len(house.host.handed_over)))
        house.host.clock.advance(0.001)
    assert seen == [(6, 0), (2, 0), (0, 3), (0, 6), (0, 9), (0, 10)]


def test_a_clock_that_was_set_back_does_not_keep_due_messages_waiting() -> None:
    house = HeldHouse(releases=1)
    house.publish(500, 600)
    assert house.expire_at(9_000) == [0]
    house.host.clock = ManualClock(700)
    assert house.held.next_expiry_ms() == 600
    assert house.expire_at(700) == [1]


def test_what_could_not_be_moved_waits_under_its_own_due_time(house: HeldHouse) -> None:
    house.publish(2_000, 1_500, 9_000)
    house.host.refuses = True
    assert house.expire_at(2_000) == []
    assert len(house.held._timetable) == 3
    assert house.held.next_expiry_ms() == 2_001
    house.host.refuses = False
    assert house.expire_at(2_001) == [1, 0]


@pytest.mark.parametrize(("due", "pause_ms"), [(1, 1), (4, 2), (12, 4), (400, limits.HELD_PAUSE_MS_MAX)])
def test_after_many_were_released_the_next_wait_for_company(due: int, pause_ms: int) -> None:
    house = HeldHouse()
    house.publish(*[2_000] * due, 2_001)
    assert len(house.expire_at(2_000)) == due
    house.host.clock = ManualClock(2_000)
    assert house.held.next_expiry_ms() == 2_000 + pause_ms


def test_what_one_turn_could_not_release_does_not_wait() -> None:
    house = HeldHouse(releases=40)
    house.publish(*[2_000] * 50)
    assert len(house.expire_at(2_000)) == 40
    house.host.clock = ManualClock(2_000)
    assert house.held.next_expiry_ms() == 2_001


def test_what_is_returned_twice_waits_once(house: HeldHouse) -> None:
    house.publish(2_000, 2_000)
    assert house.held.take([1]) == [1]
    assert house.held.returned([1, 1, 0, 77]) == []
    assert house.held.returned([1]) == []
    assert len(house.held._timetable) == 2
    assert house.expire_at(2_000) == [0, 1]


def test_a_message_that_was_taken_is_the_callers_and_is_not_moved_on(house: HeldHouse) -> None:
    house.publish(2_000, 2_000, 2_000, 1_500)
    assert house.held.take([3, 1, 1, 99]) == [3, 1]
    assert house.held.take([1]) == []
    assert len(house.held._timetable) == 2
    assert (len(house.backing), house.backing.depth()) == (2, 4)
    assert house.expire_at(2_000) == [0, 2]
    house.held.settled([3, 1])
    assert house.backing.ack([3, 1]) == 2


def test_a_purge_forgets_what_is_held_and_leaves_what_was_taken(house: HeldHouse) -> None:
    house.publish(5_000, 2_000, 4_000, 3_000)
    house.held.take([2])
    assert house.held.purge() == 0
    assert house.backing.purge() == 3
    assert len(house.held._timetable) == 0
    assert house.backing.depth() == 1
    assert house.held.next_expiry_ms() == -1
    house.held.returned([2])
    assert house.expire_at(4_000) == [2]
    house.publish(4_500)
    assert house.expire_at(4_500) == [4]


def test_what_a_purge_could_not_remove_is_noted_anew(house: HeldHouse) -> None:
    house.publish(5_000, 2_000)
    assert house.held.purge() == 0
    assert house.is_filling()
    assert house.held.next_expiry_ms() == 0
    assert house.expire_at(3_000) == [1]
    assert house.held.next_expiry_ms() == 5_000


def test_listings_are_in_the_order_of_due_times_and_in_pages() -> None:
    house = HeldHouse(listed=3)
    house.publish(5_000, 2_000, 4_000, 2_000, 3_000)
    assert house.held.shelved_ids() == [1, 3, 4]
    assert house.held.upcoming(2, 3_000, 5) == [(4_000, 2), (5_000, 0)]


# --- filling ------------------------------------------------------------------------------------------


def recovered(count: int, fill: int, fill_bytes: int = MANY, size: int = 3) -> HeldHouse:
    """A queue with messages of the last run, the later ones due earlier."""
    backing = VolatileBackingQueue()
    for number in range(count):
        backing.publish(Incoming(Envelope("", "q", b"\x00\x00"), [b"x" * size + b"\xce"]), MessageProps(5_000 - number))
    return HeldHouse(backing, fill=fill, fill_bytes=fill_bytes)


def test_after_a_start_due_times_are_read_in_slices() -> None:
    house = recovered(10, fill=4)
    assert house.is_filling()
    house.held.published(-1, 10)
    assert len(house.held._timetable) == 4
    assert house.is_filling()
    assert house.held.next_expiry_ms() == 0
    assert house.expire_at(START_MS) == []
    assert len(house.held._timetable) == 8
    assert house.held.next_expiry_ms() == START_MS + 1
    house.expire_at(START_MS + 1)
    assert not house.is_filling()
    assert house.held.next_expiry_ms() == 4_991


def test_slices_are_bounded_by_bytes_too() -> None:
    house = recovered(10, fill=MANY, fill_bytes=100_000, size=60_000)
    house.held.published(-1, 10)
    assert len(house.held._timetable) == 2
    assert house.is_filling()


def test_nothing_is_moved_on_before_all_due_times_are_known() -> None:
    house = recovered(10, fill=4)
    house.held.published(-1, 10)
    assert house.expire_at(9_000) == []
    assert house.expire_at(9_001) == list(range(9, -1, -1))


def test_publishing_while_it_is_filling_reads_no_further_slice() -> None:
    house = recovered(10, fill=4)
    house.held.published(-1, 10)
    for _ in range(5):
        house.publish(1_500)
    assert len(house.held._timetable) == 4
    for turn in range(3):
        house.expire_at(START_MS + turn)
    assert not house.is_filling()
    assert house.held.shelved_ids()[:6] == [10, 11, 12, 13, 14, 9]


def test_a_run_longer_than_a_slice_is_noted_in_slices() -> None:
    house = HeldHouse(fill=4)
    house.publish(*[2_000] * 9)
    assert house.is_filling()
    house.expire_at(START_MS)
    house.expire_at(START_MS + 1)
    assert not house.is_filling()
    assert len(house.held._timetable) == 9


def test_a_purge_while_it_is_filling_leaves_the_rest_to_the_queue() -> None:
    house = recovered(10, fill=4)
    house.held.published(-1, 10)
    house.held.purge()
    assert house.backing.purge() == 10
    assert not house.is_filling()
    assert house.held.next_expiry_ms() == -1


# --- on disk --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["restart", "kill", "crash"])
def test_due_times_outlive_the_broker(ending: str) -> None:
    disk = VariableHouse(paging=eager_paging())
    house = HeldHouse(disk.queue)
    house.publish(5_000, 3_000, 3_000, None, 4_000, 2_000, 3_000)
    disk.commit()
    assert house.expire_at(2_000) == [3, 5]
    disk.commit()
    getattr(disk, ending)()
    house = HeldHouse(disk.queue, fill=2)
    house.held.published(-1, len(disk.queue))
    while house.is_filling():
        house.expire_at(START_MS)
    assert house.held.upcoming(9, 0, 0) == [(3_000, 1), (3_000, 2), (3_000, 6), (4_000, 4), (5_000, 0)]
    assert house.held.take([4]) == [4]
    assert house.expire_at(9_000) == [1, 2, 6, 0]


def test_what_the_disk_does_not_give_now_is_due_again() -> None:
    disk = VariableHouse(paging=eager_paging())
    house = HeldHouse(disk.queue)
    for number in range(20):
        house.publish(3_000 - number)
        disk.commit()
    disk.queue.homes.give_back()
    disk.disk.plan.fail(errno.EMFILE, "open", forever=True)
    with pytest.raises(OSError, match="EMFILE"):
        house.held.expire(3_000)
    with pytest.raises(OSError, match="EMFILE"):
        house.held.take(range(20))
    disk.disk.plan.heal()
    assert len(disk.queue) == 20
    assert house.expire_at(3_000) == list(range(19, -1, -1))


def test_bodies_of_held_messages_leave_memory() -> None:
    disk = VariableHouse(paging=eager_paging(cap=2))
    house = HeldHouse(disk.queue)
    for number in range(40):
        house.publish(5_000 - number)
        disk.commit()
    assert disk.queue.zones.ram_count <= 4
    assert disk.queue.zones.delta_count > 20
    assert house.expire_at(5_000) == list(range(39, -1, -1))


# --- a model ----------------------------------------------------------------------------------------------


class HeldMachine(RuleBasedStateMachine):
    """Against a dict of due times."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = VariableHouse(paging=eager_paging())
        self.begin()
        # What is held, and what was taken, by number.
        self.due_ms: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.now_ms = START_MS

    def begin(self) -> None:
        self.house = HeldHouse(self.disk.queue, releases=3, fill=4)

    @rule(dues_ms=st.lists(st.one_of(st.none(), st.integers(900, 1_050)), min_size=1, max_size=6))
    def publish(self, dues_ms: list[int | None]) -> None:
        for seq_id, due_ms in zip(self.house.publish(*dues_ms), dues_ms, strict=True):
            assert seq_id not in self.due_ms
            self.due_ms[seq_id] = due_ms or 0

    @rule(passed_ms=st.integers(0, 40))
    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        unread = self.house.unread()
        due = sorted([(due_ms, seq_id) for seq_id, due_ms in self.due_ms.items() if due_ms <= self.now_ms])
        expected = [] if unread > 4 else [seq_id for _, seq_id in due[:3]]
        assert self.house.expire_at(self.now_ms) == expected
        for seq_id in expected:
            del self.due_ms[seq_id]

    @precondition(lambda self: self.due_ms)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        wanted = data.draw(st.lists(st.sampled_from(sorted(self.due_ms)), unique=True, max_size=3))
        assert self.house.held.take(wanted) == wanted
        for seq_id in wanted:
            self.taken[seq_id] = self.due_ms.pop(seq_id)

    @precondition(lambda self: self.taken)
    @rule(back=st.booleans())
    def settle(self, back: bool) -> None:
        if back:
            self.house.held.returned(list(self.taken))
            self.due_ms.update(self.taken)
        else:
            self.house.held.settled(list(self.taken))
            self.disk.queue.ack(list(self.taken))
        self.taken.clear()

    @rule()
    def refuse(self) -> None:
        self.house.host.refuses = True
        self.house.expire_at(self.now_ms)
        self.house.host.refuses = False

    @rule(power_fails=st.booleans())
    def stop_and_start(self, power_fails: bool) -> None:
        self.disk.commit()
        if power_fails:
            self.disk.crash()
        else:
            self.disk.restart()
        # What was taken and not settled is held again.
        self.due_ms.update(self.taken)
        self.taken.clear()
        self.begin()
        self.house.held.published(-1, len(self.disk.queue))

    @invariant()
    def it_agrees(self) -> None:
        self.house.held.check_invariants()
        assert len(self.disk.queue) == len(self.due_ms)
        if not self.house.unread():
            by_due_time = sorted([(due_ms, seq_id) for seq_id, due_ms in self.due_ms.items()])
            assert self.house.held.shelved_ids() == [seq_id for _, seq_id in by_due_time]


def test_any_sequence_of_calls_agrees_with_a_dict_of_due_times() -> None:
    run_state_machine_as_test(HeldMachine, settings=settings(max_examples=examples(60), stateful_step_count=25))
