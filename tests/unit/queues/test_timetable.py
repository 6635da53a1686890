"""The timetable: what is due, in which order, and how little it takes to know that."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.effort import examples

from penstock.queues.delayed.timetable import DUE_MS_MAX, RUN_MAX, Timetable


@pytest.fixture
def timetable() -> Timetable:
    return Timetable(chunk_max=4)


def filled(*entries: tuple[int, int, int]) -> Timetable:
    timetable = Timetable(chunk_max=4)
    for due_ms, first, count in entries:
        timetable.add(due_ms, first, count)
    return timetable


def entries_of(timetable: Timetable) -> int:
    """How many entries it takes for its messages."""
    return sum(len(chunk.dues) for chunk in timetable._chunks)


def test_an_empty_timetable_has_nothing_due(timetable: Timetable) -> None:
    assert timetable.next_due_ms() == -1
    assert timetable.pop_due(DUE_MS_MAX, 10) == []
    assert timetable.upcoming(10) == []
    assert not timetable.has(0, 0)
    assert not timetable.remove(0, 0)
    assert len(timetable) == 0


def test_messages_come_out_by_due_time_and_then_by_number() -> None:
    timetable = filled((30, 0, 1), (10, 1, 1), (20, 5, 1), (20, 2, 1), (10, 7, 1))
    assert timetable.next_due_ms() == 10
    assert timetable.pop_due(30, 10) == [1, 7, 2, 5, 0]
    assert len(timetable) == 0


def test_what_is_not_due_stays() -> None:
    timetable = filled((10, 0, 1), (11, 1, 1))
    assert timetable.pop_due(9, 10) == []
    assert timetable.pop_due(10, 10) == [0]
    assert timetable.next_due_ms() == 11
    assert len(timetable) == 1


def test_a_run_is_popped_in_parts() -> None:
    timetable = filled((10, 0, 5), (10, 7, 2))
    assert timetable.pop_due(10, 3) == [0, 1, 2]
    assert timetable.pop_due(10, 3) == [3, 4, 7]
    assert timetable.pop_due(10, 0) == []
    assert timetable.pop_due(10, 3) == [8]
    timetable.check_invariants()


def test_a_million_messages_with_one_due_time_are_one_entry() -> None:
    timetable = filled((10, 0, 400_000))
    for first in range(400_000, 1_000_000, 1_000):
        timetable.add(10, first, 1_000)
    assert entries_of(timetable) == 1
    assert len(timetable) == 1_000_000


def test_a_run_too_long_for_one_entry_becomes_two() -> None:
    timetable = filled((10, 0, RUN_MAX), (10, RUN_MAX, 3))
    assert entries_of(timetable) == 2
    assert len(timetable) == RUN_MAX + 3
    assert timetable.has(10, RUN_MAX - 1)
    assert timetable.has(10, RUN_MAX + 2)


def test_the_latest_due_time_there_is_works() -> None:
    timetable = filled((DUE_MS_MAX, 0, 2), (0, 2, 1), (DUE_MS_MAX - 1, 3, 1))
    assert timetable.pop_due(DUE_MS_MAX - 1, 10) == [2, 3]
    assert timetable.next_due_ms() == DUE_MS_MAX
    assert timetable.upcoming(10, DUE_MS_MAX, 1) == [(DUE_MS_MAX, 1)]
    assert timetable.pop_due(DUE_MS_MAX, 10) == [0, 1]


@pytest.mark.parametrize(("removed", "left"), [(4, [5, 6, 7]), (6, [4, 5, 7]), (7, [4, 5, 6])])
def test_a_message_is_removed_from_its_run(removed: int, left: list[int]) -> None:
    timetable = filled((10, 4, 4))
    assert timetable.remove(10, removed)
    assert not timetable.has(10, removed)
    assert not timetable.remove(10, removed)
    assert len(timetable) == 3
    timetable.check_invariants()
    assert timetable.pop_due(10, 10) == left


def test_only_the_right_due_time_removes_a_message() -> None:
    timetable = filled((10, 4, 4), (30, 9, 1))
    assert not timetable.remove(11, 5)
    assert not timetable.remove(10, 3)
    assert not timetable.remove(10, 8)
    assert not timetable.remove(31, 9)
    assert len(timetable) == 5


def test_a_message_that_was_removed_can_wait_again_for_another_time() -> None:
    timetable = filled((10, 0, 3))
    assert timetable.remove(10, 1)
    timetable.add(20, 1, 1)
    assert timetable.pop_due(10, 10) == [0, 2]
    assert timetable.pop_due(20, 10) == [1]


def test_removals_from_the_middle_do_not_leave_many_small_chunks() -> None:
    timetable = Timetable(chunk_max=16)
    for seq_id in range(1_600):
        timetable.add(seq_id * 2, seq_id, 1)
    for seq_id in range(1_600):
        if seq_id % 16:
            assert timetable.remove(seq_id * 2, seq_id)
    timetable.check_invariants()
    assert len(timetable) == 100
    assert len(timetable._chunks) <= 100 // 4
    assert timetable.pop_due(DUE_MS_MAX, 1_000) == list(range(0, 1_600, 16))


def test_due_times_that_only_grow_fill_their_chunks() -> None:
    timetable = Timetable(chunk_max=16)
    for seq_id in range(1_500):
        timetable.add(seq_id, seq_id, 1)
    timetable.check_invariants()
    assert len(timetable._chunks) == 100


def test_upcoming_pages_through_everything_without_changing_it() -> None:
    timetable = filled((10, 0, 5), (7, 10, 2), (10, 20, 1), (12, 5, 3), (9, 30, 1), (8, 31, 1), (11, 32, 1))
    everything = timetable.upcoming(100)
    assert everything == sorted(everything)
    assert len(everything) == len(timetable)
    paged: list[tuple[int, int]] = []
    page = timetable.upcoming(3)
    while page:
        paged += page
        due_ms, seq_id = page[-1]
        page = timetable.upcoming(3, due_ms, seq_id + 1)
    assert paged == everything


def test_upcoming_begins_at_a_position_that_need_not_exist() -> None:
    timetable = filled((10, 0, 4), (20, 8, 2))
    assert timetable.upcoming(2, 10, 2) == [(10, 2), (10, 3)]
    assert timetable.upcoming(9, 10, 4) == [(20, 8), (20, 9)]
    assert timetable.upcoming(1, 15, 99) == [(20, 8)]
    assert timetable.upcoming(9, 20, 10) == []
    assert timetable.upcoming(0) == []


def test_a_cleared_timetable_begins_anew() -> None:
    timetable = filled(*[(due_ms, due_ms, 1) for due_ms in range(20)])
    timetable.clear()
    timetable.check_invariants()
    assert len(timetable) == 0
    timetable.add(5, 5, 1)
    timetable.check_invariants()
    assert timetable.upcoming(5) == [(5, 5)]


def test_many_random_messages_come_out_sorted_from_chunks_of_the_real_size() -> None:
    chance = random.Random(7)
    timetable = Timetable()
    dues = [chance.randrange(3_000) for _ in range(10_000)]
    for seq_id, due_ms in enumerate(dues):
        timetable.add(due_ms, seq_id, 1)
    gone = set(chance.sample(range(10_000), 5_000))
    for seq_id in gone:
        assert timetable.remove(dues[seq_id], seq_id)
    timetable.check_invariants()
    expected = [seq_id for _, seq_id in sorted(zip(dues, range(10_000), strict=True)) if seq_id not in gone]
    assert timetable.pop_due(DUE_MS_MAX, 10_000) == expected


class TimetableMachine(RuleBasedStateMachine):
    """Against a set of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.timetable = Timetable(chunk_max=4)
        self.held: set[tuple[int, int]] = set()
        self.next_seq_id = 0
        self.gone: list[tuple[int, int]] = []

    @rule(due_ms=st.integers(0, 12), count=st.integers(1, 5), gap=st.integers(0, 1))
    def add(self, due_ms: int, count: int, gap: int) -> None:
        first = self.next_seq_id + gap
        self.next_seq_id = first + count
        self.timetable.add(due_ms, first, count)
        self.held |= {(due_ms, seq_id) for seq_id in range(first, first + count)}

    @rule(due_ms=st.integers(0, 12), count=st.integers(1, 30))
    def add_every_second(self, due_ms: int, count: int) -> None:
        for _ in range(count):
            self.add(due_ms, 1, 1)

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), due_ms=st.integers(0, 12))
    def add_again(self, data: st.DataObject, due_ms: int) -> None:
        _, seq_id = self.gone.pop(data.draw(st.integers(0, len(self.gone) - 1)))
        self.timetable.add(due_ms, seq_id, 1)
        self.held.add((due_ms, seq_id))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), count=st.integers(1, 12))
    def remove(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.held))):
            pair = data.draw(st.sampled_from(sorted(self.held)))
            assert self.timetable.remove(*pair)
            self.held.remove(pair)
            self.gone.append(pair)

    @rule(due_ms=st.integers(0, 12), seq_id=st.integers(0, 60))
    def look_for(self, due_ms: int, seq_id: int) -> None:
        assert self.timetable.has(due_ms, seq_id) == ((due_ms, seq_id) in self.held)

    @rule(now_ms=st.integers(0, 13), count_max=st.integers(0, 40))
    def pop(self, now_ms: int, count_max: int) -> None:
        due = [pair for pair in sorted(self.held) if pair[0] <= now_ms][:count_max]
        assert self.timetable.due(now_ms, count_max) == [seq_id for _, seq_id in due]
        assert self.timetable.pop_due(now_ms, count_max) == [seq_id for _, seq_id in due]
        self.held -= set(due)
        self.gone += due

    @rule(due_ms=st.integers(0, 13), seq_id=st.integers(0, 60), count_max=st.integers(0, 40))
    def list_from(self, due_ms: int, seq_id: int, count_max: int) -> None:
        expected = [pair for pair in sorted(self.held) if pair >= (due_ms, seq_id)][:count_max]
        assert self.timetable.upcoming(count_max, due_ms, seq_id) == expected

    @invariant()
    def it_agrees(self) -> None:
        self.timetable.check_invariants()
        assert len(self.timetable) == len(self.held)
        assert self.timetable.next_due_ms() == min([due_ms for due_ms, _ in self.held], default=-1)
        assert self.timetable.upcoming(len(self.held) + 1) == sorted(self.held)


def test_any_sequence_of_calls_agrees_with_a_set_of_pairs() -> None:
    run_state_machine_as_test(TimetableMachine, settings=settings(max_examples=examples(100), stateful_step_count=30))
