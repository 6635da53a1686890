"""The schedule of expiries: who is woken, when, and how often."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.queues.leaving.expiry import STALE_MIN, Expiring, ExpirySchedule


class Sleeper(Expiring):
    """Notes when it was woken, and arms itself again for the times that it was given."""

    def __init__(self, schedule: ExpirySchedule, *again_ms: int) -> None:
        self._schedule = schedule
        self._again_ms = list(again_ms)
        self.woken: list[int] = []

    def expire_due(self, now_ms: int) -> None:
        self.woken.append(now_ms)
        if self._again_ms:
            self._schedule.arm(self, self._again_ms.pop(0))


@pytest.fixture
def schedule() -> ExpirySchedule:
    return ExpirySchedule()


def test_nothing_is_due_when_nobody_is_armed(schedule: ExpirySchedule) -> None:
    assert schedule.next_due_ms() == -1
    schedule.run_due(10**15)
    assert len(schedule._heap) == 0


def test_a_queue_is_woken_once_when_its_time_has_come(schedule: ExpirySchedule) -> None:
    queue = Sleeper(schedule)
    schedule.arm(queue, 100)
    schedule.run_due(99)
    assert queue.woken == []
    schedule.run_due(100)
    schedule.run_due(101)
    assert queue.woken == [100]
    assert schedule.next_due_ms() == -1


def test_an_earlier_time_counts_and_a_later_one_does_not(schedule: ExpirySchedule) -> None:
    queue = Sleeper(schedule)
    schedule.arm(queue, 100)
    schedule.arm(queue, 200)
    assert schedule.next_due_ms() == 100
    schedule.arm(queue, 50)
    assert schedule.next_due_ms() == 50
    schedule.run_due(300)
    assert queue.woken == [300]


class Failing(Expiring):
    """Raises when it is woken."""

    def expire_due(self, now_ms: int) -> None:
        raise RuntimeError("a bug")


def test_a_queue_that_fails_when_it_is_woken_does_not_keep_the_others_asleep(schedule: ExpirySchedule) -> None:
    early, late = Sleeper(schedule), Sleeper(schedule)
    for due_ms, queue in enumerate([early, Failing(), late]):
        schedule.arm(queue, due_ms)
    with pytest.raises(RuntimeError, match="a bug"):
        schedule.run_due(100)
    assert (early.woken, late.woken) == ([100], [100])


def test_a_queue_may_arm_itself_again_while_it_is_woken(schedule: ExpirySchedule) -> None:
    queue = Sleeper(schedule, 150, 120)
    schedule.arm(queue, 100)
    schedule.arm(queue, 50)
    schedule.run_due(60)
    assert queue.woken == [60]
    assert schedule.next_due_ms() == 150
    schedule.run_due(100)
    assert queue.woken == [60]
    schedule.run_due(150)
    # Armed for a time that has passed already, it is woken in the same go.
    assert queue.woken == [60, 150, 150]


def test_queues_with_the_same_due_time_are_all_woken(schedule: ExpirySchedule) -> None:
    queues = [Sleeper(schedule) for _ in range(5)]
    for queue in queues:
        schedule.arm(queue, 100)
    schedule.run_due(100)
    assert [queue.woken for queue in queues] == [[100]] * 5


def test_a_disarmed_queue_is_not_woken(schedule: ExpirySchedule) -> None:
    queue, other = Sleeper(schedule), Sleeper(schedule)
    schedule.arm(queue, 100)
    schedule.arm(other, 200)
    schedule.disarm(queue)
    schedule.disarm(queue)
    assert schedule.next_due_ms() == 200
    schedule.run_due(300)
    assert (queue.woken, other.woken) == ([], [300])


def test_ever_earlier_times_do_not_pile_up(schedule: ExpirySchedule) -> None:
    queue = Sleeper(schedule)
    for due_ms in range(10_000, 0, -1):
        schedule.arm(queue, due_ms)
    assert len(schedule._heap) <= 2 + STALE_MIN
    assert schedule.next_due_ms() == 1


def test_queues_that_come_and_go_do_not_pile_up(schedule: ExpirySchedule) -> None:
    stays = Sleeper(schedule)
    schedule.arm(stays, 10**12)
    for _ in range(1000):
        queue = Sleeper(schedule)
        schedule.arm(queue, 10**13)
        schedule.disarm(queue)
    assert len(schedule._heap) <= 2 + STALE_MIN
    assert schedule.next_due_ms() == 10**12


STEPS = st.one_of(
    st.tuples(st.just("arm"), st.integers(0, 5), st.integers(0, 100)),
    st.tuples(st.just("disarm"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("run"), st.just(0), st.integers(0, 30)),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=200))
def test_everyone_is_woken_exactly_when_the_earliest_time_it_was_armed_for_has_come(
    steps: list[tuple[str, int, int]],
) -> None:
    schedule = ExpirySchedule()
    queues = [Sleeper(schedule) for _ in range(6)]
    armed: dict[int, int] = {}
    now = 0
    for step, number, time in steps:
        if step == "arm":
            schedule.arm(queues[number], now + time)
            armed[number] = min(armed.get(number, now + time), now + time)
        elif step == "disarm":
            schedule.disarm(queues[number])
            armed.pop(number, None)
        else:
            now += time
            for queue in queues:
                queue.woken.clear()
            schedule.run_due(now)
            due = {number for number, due_ms in armed.items() if due_ms <= now}
            assert {number for number, queue in enumerate(queues) if queue.woken} == due
            assert all(len(queue.woken) <= 1 for queue in queues)
            armed = {number: due_ms for number, due_ms in armed.items() if due_ms > now}
        assert schedule.next_due_ms() == min(armed.values(), default=-1)
        assert len(schedule._heap) <= 2 * len(armed) + STALE_MIN
