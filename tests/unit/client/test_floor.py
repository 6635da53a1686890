"""What a consumer believes about the head of its queue."""

from __future__ import annotations

from penstock.client.floor import CHEAP_WALK_S, LOOKS_REMEMBERED, NEVER_S, SECONDS_BETWEEN_WALKS, Floor


def risen(ids: range) -> Floor:
    """A floor that has just walked, and then taken these."""
    floor = Floor()
    floor.walked(9.9, 10.0)
    for lowest in ids:
        floor.taken(lowest)
    return floor


def test_who_knows_nothing_looks_at_everything() -> None:
    assert Floor().value(10.0) == 0
    assert risen(range(1, LOOKS_REMEMBERED)).value(10.0) == 0


def test_the_floor_is_the_lowest_of_the_last_looks() -> None:
    floor = risen(range(1000, 1000 + LOOKS_REMEMBERED))
    assert floor.value(10.0) == 1000
    floor.taken(2000)
    assert floor.value(10.0) == 1001
    # Somebody's requeued message: what is around it may be ready as well.
    floor.taken(7)
    assert floor.value(10.0) == 7


def test_once_a_second_one_looks_without_it() -> None:
    floor = risen(range(1000, 2000))
    assert floor.value(10.99) > 0
    assert floor.value(11.0) == 0
    floor.walked(11.0, 11.01)
    assert floor.value(11.5) > 0


def test_after_a_requeue_one_looks_without_it() -> None:
    floor = risen(range(1000, 2000))
    floor.forget()
    assert floor.value(10.0) == 0
    floor.walked(10.0, 10.01)
    assert floor.value(10.02) > 0


def test_a_walk_that_was_cheap_may_follow_at_once_and_a_dear_one_after_a_second() -> None:
    floor = risen(range(1000, 2000))
    floor.walked(10.0, 10.0 + CHEAP_WALK_S / 2)
    assert floor.may_walk(10.02)
    floor.walked(11.0, 11.0 + CHEAP_WALK_S * 2)
    assert not floor.may_walk(11.5)
    assert floor.may_walk(12.1)


def test_who_waits_does_not_walk_after_every_look_that_found_nothing() -> None:
    floor = risen(range(LOOKS_REMEMBERED))
    floor.walked(10.0, 10.001)
    assert floor.walk_at_s == NEVER_S
    assert floor.may_walk(10.02)
    assert not floor.may_walk(10.02, is_waiting=True)
    assert floor.walk_at_s == 10.001 + SECONDS_BETWEEN_WALKS
    assert floor.may_walk(floor.walk_at_s, is_waiting=True)
    floor.walked(10.06, 10.061)
    assert floor.walk_at_s == NEVER_S
