"""Which messages are not gone: the map against a set, at every boundary."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from penstock.store.queue.live_map import LiveMap


class Model:
    """A set of what is gone, over a few hundred seq_ids."""

    def __init__(self, slots: int, end: int) -> None:
        self.map = LiveMap(slots)
        self.end = end
        self.gone: set[int] = set()

    def remove(self, seq_id: int, count: int) -> None:
        self.map.remove(seq_id, count)
        self.gone.update(range(seq_id, seq_id + count))

    def check(self) -> None:
        live = [seq_id for seq_id in range(self.end) if seq_id not in self.gone]
        self.map.check_invariants()
        assert [seq_id for seq_id in range(self.end) if self.map.is_live(seq_id)] == live
        assert self.map.count(self.end) == len(live)
        runs = self.map.live_runs(0, self.end)
        assert [seq_id for first, count in runs for seq_id in range(first, first + count)] == live
        assert all(one[0] + one[1] < other[0] for one, other in pairwise(runs)), "runs that touch"
        self.check_first_runs(live)
        for segment in range(self.end // self.map.slots):
            numbers = set(range(segment * self.map.slots, (segment + 1) * self.map.slots))
            assert self.map.segment_is_gone(segment) == (numbers <= self.gone)

    def check_first_runs(self, live: list[int]) -> None:
        """Steps from one stretch to the next meet everything that is live, and stop at each end."""
        for end in (self.end, self.end // 2 + 1):
            found: list[int] = []
            start = 0
            while start < end:
                first, start = self.map.first_run(start, end)
                found += range(first, start)
            assert found == [seq_id for seq_id in live if seq_id < end]


def test_in_the_beginning_everything_is_live() -> None:
    live = LiveMap(4)
    assert (live.low, live.masks(), live.count(0), live.count(9)) == (0, {}, 0, 9)
    assert live.live_runs(0, 9) == [(0, 9)]
    assert live.live_runs(3, 3) == live.live_runs(5, 2) == []
    assert not live.is_live(-1)


def test_messages_that_go_in_order_leave_nothing_but_the_low_mark() -> None:
    live = LiveMap(4)
    for seq_id in range(0, 30, 3):
        live.remove(seq_id, 3)
        assert (live.low, live.masks()) == (seq_id + 3, {})


@pytest.mark.parametrize("slots", [1, 2, 4, 5])
def test_messages_that_go_backwards_leave_nothing_in_the_end(slots: int) -> None:
    live = LiveMap(slots)
    for seq_id in range(20, 0, -1):
        live.remove(seq_id, 1)
    assert (live.low, live.count(21)) == (0, 1)
    live.remove(0, 1)
    assert (live.low, live.masks()) == (21, {})


@pytest.mark.parametrize("seed", range(30))
def test_it_is_what_a_set_would_be(seed: int) -> None:
    rng = random.Random(seed)
    model = Model(rng.choice([1, 2, 3, 7, 64]), 200)
    for _ in range(60):
        first = rng.randrange(200)
        model.remove(first, min(rng.choice([1, 1, 2, 5, 40]), 200 - first))
        model.check()
        start, end = rng.randrange(200), rng.randrange(220)
        runs = model.map.live_runs(start, end)
        listed = [seq_id for one, count in runs for seq_id in range(one, one + count)]
        assert listed == [seq_id for seq_id in range(start, end) if seq_id not in model.gone]


def test_removing_nothing_and_removing_twice_change_nothing() -> None:
    model = Model(4, 30)
    model.remove(3, 9)
    before = (model.map.low, model.map.masks())
    for first, count in ((3, 9), (5, 1), (0, 0), (7, 0), (11, 1)):
        model.map.remove(first, count)
        assert (model.map.low, model.map.masks()) == before
    model.remove(0, 3)
    model.map.remove(0, 12)
    model.map.remove(2, -5)
    assert (model.map.low, model.map.masks()) == (12, {})
    model.check()


@pytest.mark.parametrize("seed", range(30))
def test_what_is_gone_in_either_of_two_maps_is_gone_in_their_sum(seed: int) -> None:
    rng = random.Random(seed)
    slots = rng.choice([1, 3, 8])
    one, other = Model(slots, 120), Model(slots, 120)
    for _ in range(rng.randrange(20)):
        one.remove(rng.randrange(100), rng.randrange(1, 20))
        other.remove(rng.randrange(100), rng.randrange(1, 20))
    masks = other.map.masks()
    one.map.remove_all(other.map)
    one.gone |= other.gone
    one.check()
    assert other.map.masks() == masks


def test_masks_are_put_back_as_they_were() -> None:
    live = LiveMap(8)
    for seq_id in (3, 9, 10, 17, 40):
        live.remove(seq_id, 1)
    twin = LiveMap(8)
    for segment, mask in live.masks().items():
        twin.set_mask(segment, mask)
    assert [twin.is_live(seq_id) for seq_id in range(50)] == [live.is_live(seq_id) for seq_id in range(50)]
    twin.check_invariants()


@pytest.mark.parametrize(("low", "segment", "mask"), [(20, 1, 0xFF), (20, 2, 0x0F), (20, -3, 0xFF), (0, 1, 0xFF00)])
def test_bits_below_the_low_mark_or_beyond_the_segment_are_left_out(low: int, segment: int, mask: int) -> None:
    live = LiveMap(8, low)
    live.set_mask(segment, mask)
    assert live.masks() == {}
    live.check_invariants()


def test_a_copy_does_not_follow_the_original() -> None:
    live = LiveMap(4)
    live.remove(5, 2)
    twin, heir = live.copy(), LiveMap(4)
    heir.take_over(live)
    live.remove(0, 20)
    for one in (twin, heir):
        assert (one.low, one.count(10)) == (0, 8)
    masks = twin.masks()
    masks.clear()
    assert not twin.is_live(5)
