"""The decisions of paging: quotas, what leaves first, when it begins and ends."""

from __future__ import annotations

import math

import pytest
from backing_house import Parts

from penstock.backing.variable.paging import Paging, PagingOptions
from penstock.backing.variable.rates import Rates
from penstock.backing.zones.zone_views import check_zones


def paging_of(parts: Parts, options: PagingOptions) -> Paging:
    return Paging(options, Rates(parts.clock), parts.zones, parts.pending)


def filled(count: int, size: int = 10) -> Parts:
    """Transient messages: they can leave at any time."""
    parts = Parts()
    for _ in range(count):
        parts.publish(b"x" * size, persistent=False)
    return parts


@pytest.mark.parametrize(("in_q1", "in_q4"), [(0, 0), (0, 5), (5, 0), (3, 5), (5, 9)])
def test_all_of_q1_leaves_before_any_of_q4_and_no_more_than_there_is(in_q1: int, in_q4: int) -> None:
    for quota in range(16):
        parts = filled(in_q4)
        if in_q1:
            # With a beta in between, what comes next goes to q1.
            parts.publish(b"x", persistent=False)
            parts.zones.push_alphas_to_betas(0, 1)
            for _ in range(in_q1):
                parts.publish(b"x", persistent=False)
        moved = paging_of(parts, PagingOptions()).push_alphas(quota)
        left = [sum(status.count for status in zone) for zone in (parts.zones.q1, parts.zones.q4)]
        from_q1 = min(quota, in_q1)
        assert left == [in_q1 - from_q1, in_q4 - min(quota - from_q1, in_q4)]
        assert moved == min(quota, in_q1 + in_q4)


@pytest.mark.parametrize(("count", "expected"), [(11, False), (12, True)])
def test_eviction_begins_one_above_limit_and_slack(count: int, expected: bool) -> None:
    paging = paging_of(filled(count), PagingOptions(cap=100, slack=10))
    assert paging.is_over() == expected


def test_pending_messages_count_as_well() -> None:
    parts = filled(12)
    parts.hand_out(12)
    assert parts.zones.ram_count == 0
    assert paging_of(parts, PagingOptions(slack=10)).is_over()


@pytest.mark.parametrize(("bytes_max", "expected"), [(120, False), (119, True)])
def test_bytes_are_a_limit_of_their_own(bytes_max: int, expected: bool) -> None:
    assert paging_of(filled(12), PagingOptions(bytes_max=bytes_max)).is_over() == expected


@pytest.mark.parametrize("target", [-1, 0, 50, 1 << 40])
def test_a_target_in_bytes_never_raises_the_limit(target: int) -> None:
    paging = paging_of(filled(1), PagingOptions(bytes_max=100))
    paging.bytes_target = target
    assert paging.bytes_limit() == (100 if target < 0 else min(target, 100))


def test_with_too_many_bytes_half_of_them_go() -> None:
    parts = filled(20)
    paging = paging_of(parts, PagingOptions(bytes_max=150))
    paging.reduce(1000)
    assert parts.zones.ram_bytes <= 75
    assert not paging.is_over()
    check_zones(parts.zones)


def test_a_finite_duration_has_no_slack() -> None:
    parts = filled(5)
    paging = paging_of(parts, PagingOptions(slack=1000))
    assert not paging.is_over()
    paging.duration_s = 0.0
    assert paging.is_over()
    paging.duration_s = math.inf
    assert not paging.is_over()
    paging.lazy = True
    assert paging.is_over()


@pytest.mark.parametrize("count_max", [1, 4, 1000])
@pytest.mark.parametrize("slice_count", [2, 3])
def test_a_slice_is_bounded_by_what_was_asked_and_by_the_option(count_max: int, slice_count: int) -> None:
    parts = filled(30)
    paging = paging_of(parts, PagingOptions(cap=1, slack=0, slice_count=slice_count))
    paging.reduce(count_max)
    assert parts.zones.ram_count == 30 - min(count_max, slice_count)
    assert paging.unfinished


def test_work_that_cannot_go_on_is_not_called_unfinished() -> None:
    """Nothing is written yet: asking again and again would only cost."""
    parts = Parts()
    parts.publish(*[b"x"] * 30)
    paging = paging_of(parts, PagingOptions(cap=1, slack=0, slice_count=3))
    paging.reduce(1000)
    assert (parts.zones.ram_count, paging.unfinished) == (30, False)


def test_without_a_surplus_nothing_moves() -> None:
    parts = filled(5)
    paging = paging_of(parts, PagingOptions(cap=100))
    paging._rates.out_rate = 1000.0
    paging.reduce(1000)
    assert (parts.zones.ram_count, paging.unfinished, parts.homes.writes) == (5, False, 0)


def test_after_a_start_as_many_positions_stay_as_are_permitted() -> None:
    parts = Parts()
    for number in range(40):
        parts.publish(b"%d" % number)
        parts.commit()
    parts.zones.push_alphas_to_betas(0, 100)
    paging = paging_of(parts, PagingOptions(io_batch=3, slice_count=2))
    paging.settle_positions()
    assert parts.zones.positions() - paging.permitted_positions() < 3
    assert parts.zones.delta_count > 30
    check_zones(parts.zones)
