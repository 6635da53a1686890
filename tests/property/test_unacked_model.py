"""Any sequence of deliveries and settlements leaves the unsettled deliveries as a plain dict has them.

HYPOTHESIS_PROFILE=deep searches much longer.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.backing.backing_queue import BackingQueue
from penstock.backing.volatile import VolatileBackingQueue
from penstock.clock import ManualClock
from penstock.errors import ChannelException
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.queue import Queue
from penstock.queues.queue_owner import QueueOwner
from penstock.server.channel.unacked import Span, Unacked, UnackedRun
from tests.effort import DEEP, examples
from tests.taken import all_taken, taken_through

EXAMPLES, STEPS = examples(60, deep=1_500), 60 if DEEP else 30


class Nobody(QueueOwner):
    def last_consumer_gone(self, queue: Queue) -> None:
        raise AssertionError("there are no consumers here")

    def open_backing(self, queue: Queue) -> BackingQueue:
        raise AssertionError("it has one")


def make_queue(name: str) -> Queue:
    return Queue(name, "/", False, False, None, {}, VolatileBackingQueue(), ManualClock(), ExpirySchedule(), Nobody())


# Where a message came from: the queue's name and its position there.
Origin = tuple[str, int]


class UnackedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.unacked = Unacked()
        self.queues = [make_queue("a"), make_queue("b")]
        self.next_seq_id = [0, 0]
        self.next_tag = 1
        self.model: dict[int, Origin] = {}
        # Settled within a transaction: spans as they were taken, and what they stand for.
        self.held: list[tuple[list[Span], dict[int, Origin]]] = []

    @rule(which=st.integers(0, 1), count=st.integers(1, 6), skipped=st.integers(0, 2))
    def deliver(self, which: int, count: int, skipped: int) -> None:
        first = self.next_seq_id[which] + skipped
        self.unacked.add(self.next_tag, count, UnackedRun(self.queues[which], None, first - self.next_tag))
        for index in range(count):
            self.model[self.next_tag + index] = (self.queues[which].name, first + index)
        self.next_tag += count
        self.next_seq_id[which] = first + count

    @rule(count=st.integers(1, 500))
    def tags_pass_that_are_never_unsettled(self, count: int) -> None:
        """Deliveries without acknowledgement."""
        self.next_tag += count

    @rule(data=st.data(), length=st.integers(1, 6), keep=st.booleans())
    def take(self, data: st.DataObject, length: int, keep: bool) -> None:
        first = data.draw(self.tags())
        wanted = list(range(first, first + length))
        unknown = [tag for tag in wanted if tag not in self.model]
        if unknown:
            with pytest.raises(ChannelException, match=f"unknown delivery tag {unknown[0]}$"):
                self.unacked.take(first, first + length - 1)
        else:
            self.settle(self.unacked.take(first, first + length - 1), wanted, keep)

    @rule(data=st.data(), keep=st.booleans())
    def take_through(self, data: st.DataObject, keep: bool) -> None:
        tag = data.draw(self.tags())
        if tag and tag not in self.model:
            with pytest.raises(ChannelException, match=f"unknown delivery tag {tag}$"):
                taken_through(self.unacked, tag)
        else:
            covered = sorted(known for known in self.model if known <= tag or tag == 0)
            self.settle(taken_through(self.unacked, tag), covered, keep)

    @rule(keep=st.booleans())
    def take_all(self, keep: bool) -> None:
        self.settle(all_taken(self.unacked), sorted(self.model), keep)

    @rule()
    def roll_back(self) -> None:
        for spans, origins in self.held:
            self.unacked.restore(spans, None)
            self.model.update(origins)
        self.held.clear()

    @rule()
    def commit(self) -> None:
        self.held.clear()

    def tags(self) -> st.SearchStrategy[int]:
        anything = st.integers(0, self.next_tag + 2)
        return st.sampled_from(sorted(self.model)) | anything if self.model else anything

    def settle(self, spans: list[Span], tags: list[int], keep: bool) -> None:
        taken = [(run.queue.name, first_seq_id + index) for run, first_seq_id, count in spans for index in range(count)]
        origins = {tag: self.model.pop(tag) for tag in tags}
        # Each message once, in the order of delivery.
        assert taken == list(origins.values())
        assert all(count > 0 for _, _, count in spans)
        if keep:
            self.held.append((spans, origins))

    @invariant()
    def they_are_as_many(self) -> None:
        assert len(self.unacked) == len(self.model)

    def teardown(self) -> None:
        self.take_all(keep=False)
        assert len(self.unacked) == 0


def test_unsettled_deliveries_are_those_of_a_plain_dict() -> None:
    run_state_machine_as_test(
        UnackedMachine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
    )
