"""The window of a queue that refuses duplicates: what it knows, and how it stays in step with a queue of keys."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.effort import examples

from penstock.queues.intake.dedup_window import EXPIRED_PER_ADD, DedupWindow

# More than there are in any window here.
MANY = 1000


@pytest.fixture
def window() -> DedupWindow:
    return DedupWindow(3)


def test_a_key_is_known_until_its_time_is_over(window: DedupWindow) -> None:
    assert not window.is_known(b"a", 0)
    assert window.add(b"a", 0, 10) == 0
    assert window.is_known(b"a", 9)
    assert not window.is_known(b"a", 10)
    assert not window.is_known(b"b", 0)


def test_a_key_without_a_time_is_known_until_it_is_pushed_out(window: DedupWindow) -> None:
    window.add(b"a", 0, -1)
    assert window.expire(10**15, MANY) == 0
    assert window.is_known(b"a", 10**15)
    assert [window.add(key, 0, -1) for key in (b"b", b"c", b"d")] == [0, 0, 1]
    assert not window.is_known(b"a", 0)
    assert window.is_known(b"b", 0)
    assert len(window) == 3


def test_expired_keys_leave_at_the_head(window: DedupWindow) -> None:
    window.add(b"a", 0, 10)
    window.add(b"b", 0, 20)
    window.add(b"c", 0, 30)
    assert window.next_expiry_ms() == 10
    assert window.expire(9, MANY) == 0
    assert window.expire(20, MANY) == 2
    assert len(window) == 1
    assert window.next_expiry_ms() == 30


def test_a_key_that_has_expired_behind_another_is_unknown_but_keeps_its_slot(window: DedupWindow) -> None:
    window.add(b"long", 0, 100)
    window.add(b"short", 0, 10)
    assert window.expire(50, MANY) == 0
    assert not window.is_known(b"short", 50)
    assert window.is_known(b"long", 50)
    assert len(window) == 2
    assert window.expire(100, MANY) == 2


def test_who_is_pushed_out_takes_expired_ones_behind_it_along(window: DedupWindow) -> None:
    window.add(b"long", 0, 1000)
    window.add(b"x", 0, 10)
    window.add(b"y", 0, 10)
    assert window.add(b"z", 50, 1000) == 3
    assert window.is_known(b"z", 50)
    assert len(window) == 1


def test_a_key_seen_again_outlives_its_first_slot(window: DedupWindow) -> None:
    window.add(b"long", 0, 1000)
    window.add(b"a", 0, 10)
    window.add(b"a", 20, 500)
    assert window.is_known(b"a", 20)
    assert window.forget(2) == 2
    assert window.is_known(b"a", 20)
    assert window.forget(2) == 1
    assert not window.is_known(b"a", 20)


def test_equal_expiries_of_one_key_are_slots_of_their_own(window: DedupWindow) -> None:
    window.add(b"a", 0, 100)
    window.add(b"a", 0, 100)
    assert window.forget(1) == 1
    assert window.is_known(b"a", 50)
    window.check_invariants()


def test_a_key_whose_time_is_over_already_leaves_as_it_comes(window: DedupWindow) -> None:
    assert window.add(b"a", 50, 50) == 1
    assert len(window) == 0
    assert window.next_expiry_ms() == -1


def test_one_key_that_comes_lets_few_expired_ones_go() -> None:
    window = DedupWindow(100)
    for number in range(50):
        window.add(b"%d" % number, 0, 10)
    assert window.add(b"new", 10, 20) == EXPIRED_PER_ADD
    assert not window.is_known(b"49", 10)
    assert window.expire(10, 5) == 5
    assert len(window) == 51 - EXPIRED_PER_ADD - 5
    assert window.next_expiry_ms() == 10
    assert window.expire(10, MANY) == 45 - EXPIRED_PER_ADD
    assert window.next_expiry_ms() == 20


def test_a_full_window_makes_room_and_lets_few_expired_ones_go() -> None:
    window = DedupWindow(50)
    window.add(b"long", 0, 1000)
    for number in range(49):
        window.add(b"%d" % number, 0, 10)
    assert window.add(b"new", 10, 20) == 1 + EXPIRED_PER_ADD
    window.check_invariants()


class WindowMachine(RuleBasedStateMachine):
    """Beside a queue of keys whose heads are dropped as the window says; the queue says who is known."""

    window: DedupWindow

    @initialize(count_max=st.integers(1, 5))
    def begin(self, count_max: int) -> None:
        self.window = DedupWindow(count_max)
        self.count_max = count_max
        self.companion: list[tuple[bytes, int]] = []
        self.now_ms = 0

    def known(self, key: bytes) -> bool:
        # The latest message of a key says how long it is known.
        expiries = [expiry_ms for other, expiry_ms in self.companion if other == key]
        return bool(expiries) and not 0 <= expiries[-1] <= self.now_ms

    @rule(key=st.sampled_from([b"a", b"b", b"c", b"d"]), lasting=st.integers(-1, 9), even_if_known=st.booleans())
    def add(self, key: bytes, lasting: int, even_if_known: bool) -> None:
        if self.window.is_known(key, self.now_ms) and not even_if_known:
            return
        expiry_ms = -1 if lasting < 0 else self.now_ms + lasting
        self.companion.append((key, expiry_ms))
        del self.companion[: self.window.add(key, self.now_ms, expiry_ms)]

    @rule(passed_ms=st.integers(1, 6))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def expire(self) -> None:
        due_ms = self.window.next_expiry_ms()
        left = self.window.expire(self.now_ms, MANY)
        assert (left > 0) == (0 <= due_ms <= self.now_ms)
        assert all(0 <= expiry_ms <= self.now_ms for _, expiry_ms in self.companion[:left])
        del self.companion[:left]

    @rule(count=st.integers(0, 3))
    def forget(self, count: int) -> None:
        del self.companion[: self.window.forget(count)]

    @rule()
    def restart(self) -> None:
        """What the companion queue has is added again; nothing is known that was not, and nothing is forgotten."""
        before = [self.known(key) for key in (b"a", b"b", b"c", b"d")]
        self.window = DedupWindow(self.count_max)
        recovered, self.companion = self.companion, []
        for key, expiry_ms in recovered:
            self.companion.append((key, expiry_ms))
            del self.companion[: self.window.add(key, self.now_ms, expiry_ms)]
        assert [self.window.is_known(key, self.now_ms) for key in (b"a", b"b", b"c", b"d")] == before

    @invariant()
    def it_agrees(self) -> None:
        self.window.check_invariants()
        assert len(self.window) == len(self.companion)
        for key in (b"a", b"b", b"c", b"d"):
            assert self.window.is_known(key, self.now_ms) == self.known(key)


def test_window_and_companion_queue_stay_in_step() -> None:
    run_state_machine_as_test(WindowMachine, settings=settings(max_examples=examples(150), stateful_step_count=40))
