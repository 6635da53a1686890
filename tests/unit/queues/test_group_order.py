"""Message groups: one consumer at a time, order kept; shared and standard; with filters."""

from __future__ import annotations

import pytest
from queue_house import Inbox
from shelf_house import MANY, ShelfHouse, asked, ids_of, picky, read_key

from penstock.limits import SHELF_STEP_MS
from penstock.queues.selection.group_order import BUCKETS_MAX, SharedGroupOrder, StandardGroupOrder


@pytest.fixture
def shared() -> ShelfHouse:
    return ShelfHouse(SharedGroupOrder(read_key))


@pytest.fixture
def standard() -> ShelfHouse:
    return ShelfHouse(StandardGroupOrder(read_key))


# --- shared ---------------------------------------------------------------------------------------


def test_a_group_is_one_consumers_while_it_has_a_message_of_it(shared: ShelfHouse) -> None:
    a1, b1, a2 = shared.publish("a", "b", "a")
    one, two = Inbox(), Inbox()
    assert shared.fetch(one) == [a1]
    assert shared.fetch(two) == [b1]
    assert shared.fetch(two) == []
    assert not shared.selection.has_for(two)
    assert shared.fetch(one) == [a2]


def test_free_groups_and_own_ones_are_served_in_the_order_of_arrival(shared: ShelfHouse) -> None:
    seq_ids = shared.publish("a", "b", "a", "c", "b", "a")
    assert shared.drain(Inbox()) == seq_ids


def test_what_a_consumer_may_have_passes_the_shelf_up_to_the_first_of_anothers_group(shared: ShelfHouse) -> None:
    a1, b1, c1, a2, b2 = shared.publish("a", "b", "c", "a", "b")
    one, two = Inbox(), Inbox()
    assert shared.fetch(one, 2) == [a1, b1]
    assert shared.selection.shelved_ids() == []
    assert shared.fetch(two, 9) == [c1]
    assert shared.selection.shelved_ids() == [a2, b2]
    shared.ack(a1)
    assert shared.drain(two) == [a2]
    assert shared.drain(one) == [b2]


def test_new_messages_stay_behind_those_of_their_group_that_came_back(shared: ShelfHouse) -> None:
    a1, b1, a2 = shared.publish("a", "b", "a")
    one, two = Inbox(), Inbox()
    assert shared.fetch(one, 3) == [a1, b1, a2]
    a3, b2 = shared.publish("a", "b")
    shared.requeue(a1)
    assert shared.fetch(two, 9) == []
    shared.requeue(a2)
    assert shared.drain(two) == [a1, a2, a3]
    assert shared.drain(one) == [b2]


def test_a_run_from_the_shelf_ends_at_a_message_of_anothers_group(shared: ShelfHouse) -> None:
    a1, b1, c1, d1, b2, d2, e1 = shared.publish("a", "b", "c", "d", "b", "d", "e")
    one, two = Inbox(), picky("z")
    assert shared.fetch(two, 9) == []
    assert shared.selection.shelved_ids() == [a1, b1, c1, d1, b2, d2, e1]
    three = Inbox()
    assert shared.fetch(one, 2) == [a1, b1]
    assert shared.fetch(three, 9) == [c1, d1]
    assert shared.fetch(three, 9) == [d2, e1]
    assert shared.fetch(one, 9) == [b2]


def test_a_group_is_free_when_all_is_settled_and_consumers_are_told(shared: ShelfHouse) -> None:
    a1, a2, a3, a4 = shared.publish("a", "a", "a", "a")
    one, two = Inbox(), Inbox()
    assert shared.fetch(one, 2) == [a1, a2]
    assert shared.fetch(two) == []
    shared.ack(a1)
    assert shared.fetch(two) == []
    assert shared.host.available == 0
    shared.ack(a2)
    assert shared.host.available == 2
    assert shared.selection.has_for(two)
    assert shared.drain(two) == [a3, a4]


def test_a_returned_message_is_the_first_of_its_group_again(shared: ShelfHouse) -> None:
    a1, a2, b1 = shared.publish("a", "a", "b")
    one, two = Inbox(), Inbox()
    assert shared.fetch(one) == [a1]
    assert shared.fetch(two) == [b1]
    assert not shared.selection.has_for(two)
    shared.requeue(a1)
    assert shared.host.available > 0
    assert shared.drain(two) == [a1, a2]


def test_what_one_returns_while_it_has_more_of_the_group_stays_its_own(shared: ShelfHouse) -> None:
    a1, a2 = shared.publish("a", "a")
    one, two = Inbox(), Inbox()
    assert shared.drain(one) == [a1, a2]
    shared.requeue(a1)
    assert shared.fetch(two) == []
    assert shared.fetch(one) == [a1]


def test_messages_without_a_key_are_one_group(shared: ShelfHouse) -> None:
    first, second, named = shared.publish("", "", "qpid.no-group")
    one, two = Inbox(), Inbox()
    assert shared.fetch(one) == [first]
    assert shared.fetch(two) == []
    assert shared.drain(one) == [second, named]


def test_a_number_that_is_none_counts_as_no_key(shared: ShelfHouse) -> None:
    first, _ = shared.publish("nan", "nan")
    assert shared.fetch(Inbox()) == [first]
    assert shared.fetch(Inbox()) == []


def test_a_consumer_that_left_keeps_its_groups_until_its_messages_are_settled(shared: ShelfHouse) -> None:
    a1, a2 = shared.publish("a", "a")
    one, two = Inbox(), Inbox()
    assert shared.fetch(one) == [a1]
    shared.selection.consumer_gone(one)
    shared.selection.consumer_gone(one)
    assert shared.fetch(two) == [], "a1 may come back, and must not be overtaken"
    shared.requeue(a1)
    assert shared.drain(two) == [a1, a2]


def test_without_acks_a_group_is_never_bound(shared: ShelfHouse) -> None:
    a1, a2 = shared.publish("a", "a")
    assert shared.fetch(Inbox(), ack_required=False) == [a1]
    assert shared.host.available == 0
    assert shared.fetch(Inbox(), ack_required=False) == [a2]


def test_basic_get_binds_a_group_like_a_consumer(shared: ShelfHouse) -> None:
    a1, a2, b1 = shared.publish("a", "a", "b")
    one = Inbox()
    assert shared.fetch(None) == [a1]
    assert shared.drain(one) == [b1]
    assert shared.fetch(None) == [a2]
    shared.ack(a1, a2)
    (a3,) = shared.publish("a")
    assert shared.fetch(one) == [a3]


def test_a_message_taken_from_a_group_leaves_the_others_in_order(shared: ShelfHouse) -> None:
    a1, a2, a3 = shared.publish("a", "a", "a")
    assert shared.selection.take([a1, a3]) == [a1, a3]
    shared.selection.check_invariants()
    shared.backing.ack([a1, a3])
    assert shared.drain(Inbox()) == [a2]


def test_an_expired_message_does_not_hold_up_its_group(shared: ShelfHouse) -> None:
    (a1,) = shared.publish("a", expiry_ms=1_005)
    (a2,) = shared.publish("a")
    shared.host.now_ms = 1_005
    assert shared.drain(Inbox()) == [a2]
    assert shared.host.handed_over == [a1]


def test_a_purge_leaves_groups_to_those_who_have_messages_of_them(shared: ShelfHouse) -> None:
    a1, _, b1 = shared.publish("a", "a", "b")
    one, two = Inbox(), Inbox()
    assert shared.fetch(one) == [a1]
    shared.selection.purge()
    shared.selection.check_invariants()
    shared.backing.purge()
    (a3,) = shared.publish("a")
    assert shared.fetch(two) == []
    assert shared.fetch(one) == [a3]
    assert shared.backing.ack([b1]) == 0


def test_groups_of_which_nothing_is_left_are_forgotten(shared: ShelfHouse) -> None:
    for number in range(50):
        shared.publish(f"group {number}")
    consumer = Inbox()
    shared.ack(*shared.drain(consumer))
    assert shared.selection.is_needed(), "the order is the queue's own"
    assert shared.selection._order._groups == {}  # type: ignore[attr-defined]
    assert shared.selection._order._own == {}  # type: ignore[attr-defined]


def test_a_message_that_is_gone_does_not_bind_its_group(shared: ShelfHouse) -> None:
    a1, a2 = shared.publish("a", "a")
    assert shared.fetch(picky("none")) == []
    shared.backing.ack([a1])
    one, two = Inbox(), Inbox()
    assert shared.fetch(one) == [a2]
    shared.ack(a2)
    (a3,) = shared.publish("a")
    assert shared.fetch(two) == [a3]


# --- shared, with filters ---------------------------------------------------------------------------


def test_a_filter_takes_what_it_accepts_of_a_group_in_order(shared: ShelfHouse) -> None:
    _, a2, a3, _ = shared.publish("a:y", "a:x", "a:x", "a:y")
    consumer = picky("x")
    assert shared.drain(consumer) == [a2, a3]
    assert shared.fetch(Inbox()) == [], "the group is bound, also for those who want the rest"


def test_a_consumer_with_a_filter_sees_a_group_again_when_it_is_freed(shared: ShelfHouse) -> None:
    a1, a2, a3, b1 = shared.publish("a:x", "a:y", "a:x", "b:x")
    one, two = Inbox(), picky("x")
    assert shared.fetch(one) == [a1]
    assert shared.drain(two) == [b1]
    assert not shared.selection.has_for(two)
    shared.ack(a1)
    assert shared.selection.has_for(two)
    assert shared.drain(two) == [a3]
    assert not shared.selection.has_for(two)
    assert shared.fetch(one) == []
    shared.ack(a3)
    assert shared.fetch(one) == [a2]


def test_a_returned_message_is_seen_by_a_filter_that_has_looked_beyond_it(shared: ShelfHouse) -> None:
    a1, _ = shared.publish("a:x", "b:y")
    consumer = picky("x")
    assert shared.fetch(None) == [a1]
    assert shared.fetch(consumer) == []
    assert not shared.selection.has_for(consumer)
    shared.requeue(a1)
    assert shared.selection.has_for(consumer)
    assert shared.fetch(consumer) == [a1]


def test_messages_that_come_back_one_by_one_are_seen_in_order(shared: ShelfHouse) -> None:
    a1, a2, _ = shared.publish("a:x", "a:x", "b:y")
    one, two = Inbox(), picky("x")
    assert shared.fetch(one, 2) == [a1, a2]
    assert shared.fetch(two) == []
    shared.requeue(a2)
    shared.requeue(a1)
    assert shared.drain(two) == [a1, a2]


def test_looking_again_in_a_group_does_not_look_at_the_others(shared: ShelfHouse) -> None:
    others = shared.publish(*[f"g{number}:y" for number in range(20)])
    a1, a2 = shared.publish("a:x", "a:x")
    one, two = picky("x"), picky("x")
    assert shared.fetch(one) == [a1]
    assert shared.fetch(two) == []
    shared.ack(a1)
    asked(two)
    assert shared.fetch(two) == [a2]
    assert not set(asked(two)) & set(others)


# --- standard -------------------------------------------------------------------------------------


def test_a_bucket_is_bound_as_long_as_its_consumer_lives(standard: ShelfHouse) -> None:
    (a1,) = standard.publish("a")
    one, two = Inbox(), Inbox()
    assert standard.fetch(one) == [a1]
    standard.ack(a1)
    (a2,) = standard.publish("a")
    assert standard.fetch(two) == []
    assert not standard.selection.has_for(two)
    assert standard.host.available == 0
    standard.selection.consumer_gone(one)
    assert standard.host.available == 1
    assert standard.fetch(two) == [a2]


def test_a_bucket_goes_to_the_next_consumer_when_the_last_message_is_back(standard: ShelfHouse) -> None:
    a1, a2 = standard.publish("a", "a")
    one, two = Inbox(), Inbox()
    assert standard.fetch(one) == [a1]
    standard.selection.consumer_gone(one)
    assert standard.fetch(two) == []
    standard.requeue(a1)
    standard.selection.consumer_gone(one)
    assert standard.drain(two) == [a1, a2]


def test_messages_without_a_key_are_everybodys(standard: ShelfHouse) -> None:
    first, second, third = standard.publish("", "", "")
    one, two = Inbox(), Inbox()
    assert standard.fetch(one) == [first]
    assert standard.fetch(two) == [second]
    standard.requeue(first)
    assert standard.drain(two) == [first, third]


def test_keys_share_a_limited_number_of_buckets(standard: ShelfHouse) -> None:
    seq_ids = standard.publish(*[f"key {number}" for number in range(2_000)])
    consumers = [Inbox() for _ in range(BUCKETS_MAX)]
    for consumer in consumers:
        standard.selection.fetch(consumer, 1, MANY, True)
    assert ids_of(standard.selection.fetch(Inbox(), 1, MANY, True)) == [], "all buckets are bound"
    drained = sorted([seq_id for consumer in consumers for seq_id in drain_quickly(standard, consumer)])
    assert len(drained) + BUCKETS_MAX == len(seq_ids)


def drain_quickly(house: ShelfHouse, consumer: Inbox) -> list[int]:
    drained: list[int] = []
    while True:
        run = house.selection.fetch(consumer, 100, MANY, True)
        if run is None:
            return drained
        drained.extend(ids_of(run))


def test_without_acks_a_bucket_is_bound_all_the_same(standard: ShelfHouse) -> None:
    a1, a2 = standard.publish("a", "a")
    one, two = Inbox(), Inbox()
    assert standard.fetch(one, ack_required=False) == [a1]
    assert standard.fetch(two) == []
    assert standard.fetch(one, ack_required=False) == [a2]


def test_basic_get_does_not_keep_a_bucket(standard: ShelfHouse) -> None:
    a1, a2 = standard.publish("a", "a")
    one = Inbox()
    assert standard.fetch(None) == [a1]
    assert standard.fetch(one) == []
    standard.ack(a1)
    assert standard.fetch(one) == [a2]
    assert standard.fetch(None) == []


# --- looking ahead ----------------------------------------------------------------------------------


def test_a_consumer_looks_past_groups_that_are_others_in_slices() -> None:
    house = ShelfHouse(SharedGroupOrder(read_key), looks_max=10)
    a1, *_ = house.publish_run("a", 400)
    (b1,) = house.publish("b")
    one, two = Inbox(), Inbox()
    assert house.fetch(one) == [a1]
    fetches = 0
    fetched: list[int] = []
    while not fetched:
        assert house.selection.has_for(two)
        fetches += 1
        fetched = house.fetch(two)
    assert fetched == [b1]
    assert fetches > 1


def test_consumers_are_told_when_a_full_shelf_of_others_groups_has_room() -> None:
    house = ShelfHouse(SharedGroupOrder(read_key), messages_max=3)
    a1, *_ = house.publish_run("a", 4)
    (b1,) = house.publish("b")
    one, two = Inbox(), Inbox()
    assert house.fetch(one) == [a1]
    assert house.fetch(two) == []
    assert not house.selection.has_for(two)
    house.fetch(one, 2)
    assert house.host.available > 0
    assert house.fetch(two) == [b1]


def test_one_who_asks_first_when_the_shelf_is_full_is_told_too() -> None:
    house = ShelfHouse(SharedGroupOrder(read_key), messages_max=2)
    a1, a2, a3 = house.publish_run("a", 3)
    (b1,) = house.publish("b")
    one, two = Inbox(), Inbox()
    assert house.drain(one) == [a1, a2, a3, b1]
    house.requeue(a2, a3)
    (c1,) = house.publish("c")
    house.host.available = 0
    assert not house.selection.has_for(two)
    assert house.fetch(one) == [a2]
    assert house.host.available > 0
    assert house.fetch(two) == [c1]


def test_handing_a_group_back_and_forth_leaves_no_remains(shared: ShelfHouse) -> None:
    shared.publish("f:y")
    shared.publish_run("g:x", 3)
    consumer = picky("x")
    for _ in range(1_000):
        seq_ids = ids_of(shared.selection.fetch(consumer, 1, MANY, True))
        assert len(seq_ids) == 1
        shared.selection.returned(seq_ids)
    assert len(shared.selection._order._free._entries) < 200  # type: ignore[attr-defined]


def starving_house() -> tuple[ShelfHouse, Inbox, Inbox]:
    """A hundred messages of one consumer's group, and behind them one of another group."""
    house = ShelfHouse(SharedGroupOrder(read_key), messages_max=200, messages_ahead=10)
    one, two = Inbox(), Inbox()
    house.publish(*["a"] * 100, "b")
    assert house.fetch(one) == [0]
    return house, one, two


def test_one_who_finds_nothing_does_not_shelve_the_whole_queue() -> None:
    house, one, two = starving_house()
    assert house.fetch(two) == []
    assert not house.selection.has_for(two)
    assert house.selection.ready_count() == 10
    house.ack(0)
    assert house.host.available == 10
    assert house.fetch(two, 5) == [1, 2, 3, 4, 5]
    assert house.selection.next_expiry_ms() == -1, "nobody starves any more"
    assert house.fetch(one) == []


def test_one_who_still_finds_nothing_after_a_while_is_shown_more() -> None:
    house, _, two = starving_house()
    began_ms = house.host.now_ms
    assert house.fetch(two) == []
    assert house.host.wakes_ms == [began_ms + SHELF_STEP_MS]
    assert house.selection.next_expiry_ms() == began_ms + SHELF_STEP_MS
    house.selection.expire(began_ms + SHELF_STEP_MS - 1)
    assert house.host.available == 0
    house.selection.expire(began_ms + SHELF_STEP_MS)
    assert house.host.available > 0, "it is told"
    assert house.fetch(two) == [100]
    house.ack(100)


def test_a_shelf_that_had_to_grow_is_small_again_when_most_of_it_is_gone() -> None:
    house, one, two = starving_house()
    assert house.fetch(two) == []
    house.selection.expire(house.host.now_ms + SHELF_STEP_MS)
    assert house.fetch(two) == [100]
    house.ack(*house.drain(one), 0, 100)
    house.publish(*["a"] * 100, "b")
    assert house.fetch(one) == [101]
    assert house.fetch(two) == []
    assert house.selection.ready_count() == 10


def test_a_consumer_that_left_makes_no_shelf_grow() -> None:
    house, _, two = starving_house()
    assert house.fetch(two) == []
    house.selection.consumer_gone(two)
    assert house.selection.next_expiry_ms() == -1
    house.selection.expire(house.host.now_ms + SHELF_STEP_MS)
    assert house.selection.ready_count() == 10


def test_a_clock_that_is_set_back_starves_nobody() -> None:
    house, _, two = starving_house()
    assert house.fetch(two) == []
    house.selection.expire(house.host.now_ms - 500)
    assert house.fetch(two) == [100]
