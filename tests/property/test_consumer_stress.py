"""Publishers, flapping consumers and browsers around one consumer manager: no wake-up is lost, whatever the order.

A fake queue of numbered messages, some of them reserved for a group of consumers; a fake scheduler that lets consumers
with work pull in any order. HYPOTHESIS_PROFILE=deep searches much longer.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.queues.consumers import consumer_manager
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.consumers.consumer_manager import Availability, ConsumerManager
from penstock.queues.consumers.node_list import INTERESTED, NON_ACQUIRING, NOT_INTERESTED, NOTIFIED, REMOVED
from tests.effort import DEEP, examples

EXAMPLES, STEPS = examples(150, deep=5_000), 100 if DEEP else 60
CONSUMERS_MAX = 12
# Of a worker: takes everything; of a message: for everybody.
ANY = ""
GROUPS = st.sampled_from([ANY, "a", "b"])
PRIORITIES = st.sampled_from([0, 1, 5])


class Worker(Consumer):
    """Pulls with credit, and may be stopped by its connection."""

    def __init__(
        self, queue: FakeQueue, priority: int, acquires: bool = True, group: str = ANY, credit: int = 0
    ) -> None:
        super().__init__(f"c{queue.workers_made}", priority, acquires, no_ack=False, exclusive=False)
        self.queue = queue
        self.group = group
        # How many messages it may hold unacknowledged; 0 = any number.
        self.credit = credit
        self.writable = True
        self.unacked: list[tuple[int, str]] = []
        self.got_count = 0
        # A notification that was neither used by a pull nor given up by losing interest.
        self.notified = False

    def wants_work(self) -> bool:
        return self.writable and (self.credit == 0 or len(self.unacked) < self.credit)

    def notify_work(self) -> None:
        state = self.queue.manager.state_of(self)
        if self.acquires:
            assert state == NOTIFIED
            assert not self.notified, "told twice"
            self.notified = True
        else:
            assert state == NON_ACQUIRING
        self.queue.work.append(self)

    def cancelled_by_queue(self) -> None:
        raise AssertionError("the manager cancels nobody")


class FakeQueue(Availability):
    """Messages (number, group) in order. A message of a group is for consumers of that group and of no group."""

    def __init__(self) -> None:
        self.ready: list[tuple[int, str]] = []
        self.published_count = 0
        self.acked_count = 0
        self.workers_made = 0
        self.workers: list[Worker] = []
        # Consumers with work, in the order in which they were told; one may stand here twice, or have gone.
        self.work: deque[Worker] = deque()
        self.manager = ConsumerManager(self)
        self.questions = 0

    # --- what the manager asks

    def takeable(self, worker: Worker) -> int | None:
        """The index of the first message that the worker could get."""
        for index, (number, group) in enumerate(self.ready):
            if worker.acquires:
                if ANY in (group, worker.group) or group == worker.group:
                    return index
            elif number >= worker.browse_seq_id:
                return index
        return None

    def has_available(self, consumer: Consumer) -> bool:
        assert isinstance(consumer, Worker)
        self.questions += 1
        return self.takeable(consumer) is not None

    def available_count(self) -> int:
        return len(self.ready)

    # --- what happens to a queue

    def publish(self, count: int, group: str = ANY) -> None:
        first = self.published_count
        self.published_count += count
        self.ready.extend((number, group) for number in range(first, first + count))
        self.manager.notify_available(count)

    def requeue(self, messages: list[tuple[int, str]]) -> None:
        self.ready = sorted(self.ready + messages)
        self.manager.notify_available(len(messages))

    def add(self, worker: Worker) -> None:
        self.workers_made += 1
        self.workers.append(worker)
        self.manager.add(worker, worker.wants_work())

    def remove(self, worker: Worker) -> None:
        self.workers.remove(worker)
        self.manager.remove(worker)
        worker.notified = False

    def update_interest(self, worker: Worker) -> None:
        if not worker.wants_work():
            worker.notified = False
        self.manager.set_interest(worker, worker.wants_work())

    def pull(self, worker: Worker, early_interest: bool = True, late_publish: int = 0) -> bool:
        """One message for the worker. It may lose interest before or after the manager hears that it got one;
        and messages may come between its vain look and the manager's hearing of it."""
        if not self.manager.begin_pull(worker):
            worker.notified = False
            return False
        worker.notified = False
        index = self.takeable(worker)
        if index is None:
            if late_publish:
                self.publish(late_publish)
            self.manager.missed(worker)
            return False
        if worker.acquires:
            self.check_no_higher_priority_wants(worker)
            worker.unacked.append(self.ready.pop(index))
        else:
            worker.browse_seq_id = self.ready[index][0] + 1
        worker.got_count += 1
        if early_interest:
            self.update_interest(worker)
        self.manager.pulled(worker)
        self.update_interest(worker)
        if self.manager.state_of(worker) in (NOTIFIED, NON_ACQUIRING):
            worker.notified = worker.acquires
            self.work.append(worker)
        return True

    def check_no_higher_priority_wants(self, worker: Worker) -> None:
        for other in self.workers:
            if other.acquires and other.priority > worker.priority and other.wants_work():
                assert self.takeable(other) is None, "overtook a higher priority"

    def run_until_quiet(self, pick: random.Random | None = None) -> None:
        """Let all who have work pull until nobody has any: in turn, or in random order."""
        # Each pull takes a message, advances a browser, or uses up a notification; each of the latter follows from one
        # of the former.
        for _ in range(50 * (len(self.ready) + 1) * (len(self.workers) + 1) + len(self.work)):
            if not self.work:
                break
            if pick is not None:
                self.work.rotate(pick.randrange(len(self.work)))
            self.pull(self.work.popleft())
        assert not self.work, "they wake each other for ever"
        for worker in self.workers:
            assert not (worker.wants_work() and self.takeable(worker) is not None), "stalled"
            assert self.manager.state_of(worker) != NOTIFIED

    def check(self) -> None:
        """After every step: membership, sizes, notifications, no stall, nothing lost."""
        manager = self.manager
        manager.check_invariants()
        expected = dict.fromkeys(("interested", "not_interested", "notified", "non_acquiring"), 0)
        waiting, told = False, False
        for worker in self.workers:
            state = manager.state_of(worker)
            if not worker.wants_work():
                assert state == NOT_INTERESTED
                expected["not_interested"] += 1
            elif not worker.acquires:
                assert state == NON_ACQUIRING
                expected["non_acquiring"] += 1
            elif worker.notified:
                assert state == NOTIFIED
                assert worker in self.work, "notified, and has forgotten it"
                expected["notified"] += 1
                told = True
            else:
                assert state == INTERESTED
                expected["interested"] += 1
                waiting = waiting or self.takeable(worker) is not None
        assert manager.counts() == expected
        assert len(manager) == len(self.workers)
        assert told or not waiting, "a message and a consumer for it, and nobody was told"
        by_priority = sorted(self.workers, key=lambda worker: -worker.priority)
        assert manager.consumers() == by_priority
        active = [worker.priority for worker in by_priority if worker.acquires and worker.wants_work()]
        assert manager.highest_active_priority() == (active[0] if active else None)
        assert [manager.active_at(priority) for priority in (0, 1, 5)] == [active.count(p) for p in (0, 1, 5)]


class StressMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = FakeQueue()
        self.gone: list[Worker] = []

    def picked(self, pick: int) -> Worker:
        return self.queue.workers[pick % len(self.queue.workers)]

    def has_workers(self) -> bool:
        return bool(self.queue.workers)

    @initialize(workers=st.lists(st.tuples(PRIORITIES, GROUPS), min_size=2, max_size=6))
    def start_with_some(self, workers: list[tuple[int, str]]) -> None:
        for priority, group in workers:
            self.queue.add(Worker(self.queue, priority, group=group))

    @rule(count=st.integers(1, 6), group=GROUPS)
    def publish(self, count: int, group: str) -> None:
        self.queue.publish(count, group)

    @precondition(lambda self: len(self.queue.workers) < CONSUMERS_MAX)
    @rule(
        priority=PRIORITIES,
        acquires=st.sampled_from([True, True, True, False]),
        group=GROUPS,
        credit=st.integers(0, 3),
        writable=st.booleans(),
    )
    def add(self, priority: int, acquires: bool, group: str, credit: int, writable: bool) -> None:
        worker = Worker(self.queue, priority, acquires, group, credit if acquires else 0)
        worker.writable = writable
        self.queue.add(worker)

    @precondition(has_workers)
    @rule(pick=st.integers(0, 99), requeues=st.booleans())
    def remove(self, pick: int, requeues: bool) -> None:
        worker = self.picked(pick)
        self.queue.remove(worker)
        assert self.queue.manager.state_of(worker) == REMOVED
        if requeues and worker.unacked:
            self.queue.requeue(worker.unacked)
        else:
            self.queue.acked_count += len(worker.unacked)
        worker.unacked = []
        self.gone.append(worker)

    @precondition(has_workers)
    @rule(pick=st.integers(0, 99), writable=st.booleans())
    def flip_back_pressure(self, pick: int, writable: bool) -> None:
        worker = self.picked(pick)
        worker.writable = writable
        self.queue.update_interest(worker)

    @precondition(has_workers)
    @rule(pick=st.integers(0, 99), count=st.integers(1, 4), requeues=st.booleans())
    def settle(self, pick: int, count: int, requeues: bool) -> None:
        worker = self.picked(pick)
        settled, worker.unacked = worker.unacked[:count], worker.unacked[count:]
        if requeues and settled:
            self.queue.requeue(settled)
        else:
            self.queue.acked_count += len(settled)
        self.queue.update_interest(worker)

    @precondition(lambda self: self.queue.work)
    @rule(pick=st.integers(0, 99), early_interest=st.booleans(), late_publish=st.sampled_from([0, 0, 1, 3]))
    def run_one(self, pick: int, early_interest: bool, late_publish: int) -> None:
        self.queue.work.rotate(pick)
        self.queue.pull(self.queue.work.popleft(), early_interest, late_publish)

    @precondition(has_workers)
    @rule(pick=st.integers(0, 99))
    def pull_without_being_told(self, pick: int) -> None:
        self.queue.pull(self.picked(pick))

    @precondition(lambda self: self.queue.ready)
    @rule(count=st.integers(1, 3))
    def take_past_the_consumers(self, count: int) -> None:
        """basic.get, expiry, purge."""
        self.queue.acked_count += len(self.queue.ready[:count])
        del self.queue.ready[:count]

    @rule(seed=st.integers(0, 2**16))
    def run_until_quiet(self, seed: int) -> None:
        self.queue.run_until_quiet(random.Random(seed))

    @invariant()
    def everything_agrees(self) -> None:
        queue = self.queue
        queue.check()
        unacked = sum(len(worker.unacked) for worker in queue.workers if worker.acquires)
        assert queue.published_count == len(queue.ready) + unacked + queue.acked_count
        for worker in self.gone:
            assert queue.manager.state_of(worker) == REMOVED

    def teardown(self) -> None:
        self.queue.run_until_quiet()
        self.everything_agrees()
        if any(worker.acquires and worker.group == ANY and worker.wants_work() for worker in self.queue.workers):
            assert not self.queue.ready


def test_no_wake_up_is_lost_whatever_publishers_and_consumers_do() -> None:
    run_state_machine_as_test(
        StressMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("seed", range(4))
def test_consumers_of_one_priority_get_equal_shares_while_they_are_always_interested(seed: int) -> None:
    pick = random.Random(seed)
    queue = FakeQueue()
    for _ in range(7):
        queue.add(Worker(queue, priority=0))
    for _ in range(400):
        queue.publish(pick.randint(1, 12))
        # Sometimes a backlog grows, sometimes all is taken.
        for _ in range(pick.randint(0, 12)):
            if queue.work:
                queue.pull(queue.work.popleft())
        queue.check()
    queue.run_until_quiet()
    shares = [worker.got_count for worker in queue.workers]
    assert sum(shares) == queue.published_count
    assert max(shares) - min(shares) <= len(shares), shares


def test_a_single_message_at_a_time_goes_round_all_consumers_strictly_in_turn() -> None:
    queue = FakeQueue()
    for _ in range(5):
        queue.add(Worker(queue, priority=0))
    for turn in range(23):
        queue.publish(1)
        queue.run_until_quiet()
        assert queue.workers[turn % 5].unacked[-1][0] == turn


def test_lower_priorities_share_what_a_higher_one_leaves() -> None:
    queue = FakeQueue()
    high = Worker(queue, priority=5, credit=3)
    lows = [Worker(queue, priority=0) for _ in range(4)]
    for worker in (high, *lows):
        queue.add(worker)
    for turn in range(1, 20):
        queue.publish(3 + len(lows))
        queue.run_until_quiet()
        assert high.got_count == 3 * turn
        assert [low.got_count for low in lows] == [turn] * len(lows)
        high.unacked.clear()
        queue.update_interest(high)
        queue.check()


class LineCounter:
    """Counts the lines that the manager and its lists execute: their steps, whatever the speed of the machine."""

    def __init__(self) -> None:
        self.folder = str(Path(consumer_manager.__file__).parent)
        self.lines = 0

    def __enter__(self) -> LineCounter:
        self.before = sys.gettrace()
        sys.settrace(self.enter_function)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def enter_function(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        return self.count if frame.f_code.co_filename.startswith(self.folder) else None

    def count(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        self.lines += event == "line"
        return self.count


class LeanQueue(FakeQueue):
    """Without the checks that look at all workers."""

    def check_no_higher_priority_wants(self, worker: Worker) -> None:
        pass

    def run_turn(self) -> None:
        while self.work:
            self.pull(self.work.popleft())
        assert not self.ready


def work_of_cycles(consumers: int, priorities: int) -> tuple[int, int]:
    """Lines executed and questions asked by some cycles of all that happens to a busy queue."""
    queue = LeanQueue()
    for index in range(consumers):
        queue.add(Worker(queue, priority=index % priorities))
    queue.questions = 0
    with LineCounter() as counter:
        for _ in range(10):
            queue.publish(2)
            queue.run_turn()
            queue.publish(1)
            first = queue.work[0]
            first.writable = False
            queue.update_interest(first)
            queue.run_turn()
            queue.publish(1)
            first.writable = True
            queue.update_interest(first)
            queue.run_turn()
            queue.publish(1)
            first = queue.work[0]
            queue.remove(first)
            queue.run_turn()
            queue.add(first)
    return counter.lines, queue.questions


@pytest.mark.skipif(not consumer_manager.__file__.endswith(".py"), reason="compiled code executes no lines")
def test_ten_thousand_consumers_cost_no_more_steps_than_ten() -> None:
    lines, questions = work_of_cycles(10, 1)
    assert lines > 0
    assert work_of_cycles(10_000, 1) == (lines, questions)


@pytest.mark.skipif(not consumer_manager.__file__.endswith(".py"), reason="compiled code executes no lines")
def test_ten_thousand_priorities_cost_only_a_binary_search_more() -> None:
    lines, questions = work_of_cycles(10, 10)
    many_lines, many_questions = work_of_cycles(10_000, 10_000)
    assert many_questions == questions
    # In each of the 10 cycles a level comes or goes at most 8 times, with log2(1000) more comparisons of a line each.
    assert many_lines - lines <= 10 * 8 * 10
