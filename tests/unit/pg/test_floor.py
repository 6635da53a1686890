"""What a consumer believes about the head of its queue."""

from __future__ import annotations

from penstock.pg.floor import (
    CHEAP_WALK_S,
    LOOKS_REMEMBERED,
    NEVER_S,
    SECONDS_BETWEEN_WALKS,
    AgedReach,
    Floor,
    RecentLooks,
)


def risen(ids: range) -> Floor:
    """A floor that has just walked, and then taken these."""
    floor = Floor(RecentLooks())
    floor.walked(9.9, 10.0)
    for lowest in ids:
        floor.taken(lowest, lowest)
    return floor


def test_who_knows_nothing_looks_at_everything() -> None:
    assert Floor(RecentLooks()).value(10.0) == 0
    assert risen(range(1, LOOKS_REMEMBERED)).value(10.0) == 0


def test_the_floor_is_the_lowest_of_the_last_looks() -> None:
    floor = risen(range(1000, 1000 + LOOKS_REMEMBERED))
    assert floor.value(10.0) == 1000
    floor.taken(2000, 2000)
    assert floor.value(10.0) == 1001
    # Somebody's requeued message: what is around it may be ready as well.
    floor.taken(7, 7)
    assert floor.value(10.0) == 7


def test_once_a_second_one_looks_without_it() -> None:
    floor = risen(range(1000, 2000))
    assert floor.value(10.99) > 0
    assert floor.value(11.0) == 0
    floor.walked(11.0, 11.01)
    assert floor.value(11.5) > 0


def test_after_a_requeue_one_looks_without_it() -> None:
    floor = risen(range(1000, 2000))
    floor.look_at_all()
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


def test_an_ordered_floor_is_as_high_as_the_looks_had_come_a_second_ago() -> None:
    floor = Floor(AgedReach(0.0))
    floor.taken(1, 9)
    floor.walked(0.9, 0.9)
    # Noted here for the first time.
    assert floor.value(1.0) == 0
    floor.taken(10, 19)
    assert floor.value(1.5) == 0
    floor.walked(2.0, 2.0)
    assert floor.value(2.0) == 10
    floor.taken(20, 29)
    assert floor.value(2.9) == 10


def test_an_ordered_floor_is_forgotten_with_what_was_taken() -> None:
    floor = Floor(AgedReach(0.0))
    floor.taken(1, 9)
    floor.value(1.0)
    floor.walked(2.0, 2.0)
    assert floor.value(2.0) == 10
    floor.forget()
    floor.walked(2.1, 2.1)
    assert floor.value(2.2) == 0
