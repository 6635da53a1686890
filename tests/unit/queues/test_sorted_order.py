"""A sorted queue: by the value of a header, ties in the order of arrival, messages without a value first."""

from __future__ import annotations

import pytest
from queue_house import Inbox
from shelf_house import ShelfHouse, picky, read_key

from penstock.message import Incoming
from penstock.queues.selection.sorted_order import SortedOrder


@pytest.fixture
def house() -> ShelfHouse:
    return ShelfHouse(SortedOrder(read_key))


def test_messages_are_handed_out_by_their_value(house: ShelfHouse) -> None:
    m, b, x = house.publish("m", "b", "x")
    assert house.selection.shelved_ids() == [b, m, x]
    assert house.drain(Inbox()) == [b, m, x]


def test_numbers_are_sorted_as_numbers_and_come_before_strings(house: ShelfHouse) -> None:
    text, ten, nine = house.publish("a", "10", "9")
    assert house.drain(None) == [nine, ten, text]


def test_messages_without_a_value_come_first(house: ShelfHouse) -> None:
    a, none, one, nan = house.publish("a", "", "1", "nan")
    assert house.drain(None) == [none, nan, one, a]


def test_equal_values_keep_the_order_of_arrival(house: ShelfHouse) -> None:
    first, lower, second = house.publish("b", "a", "b")
    assert house.drain(None) == [lower, first, second]


def test_neighbours_of_one_value_are_one_run(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("b", 5)
    assert house.fetch(None, 9) == seq_ids


def test_a_returned_message_is_at_its_old_place(house: ShelfHouse) -> None:
    b1, b2, a = house.publish("b", "b", "a")
    assert house.drain(None) == [a, b1, b2]
    house.requeue(b1, b2, a)
    assert house.drain(None) == [a, b1, b2]


def test_a_lower_value_that_comes_later_is_seen_by_those_who_have_looked_beyond_it(house: ShelfHouse) -> None:
    house.publish("m:y", "n:y")
    consumer = picky("x")
    assert house.fetch(consumer) == []
    assert not house.selection.has_for(consumer)
    (low,) = house.publish("a:x")
    assert house.selection.has_for(consumer)
    assert house.fetch(consumer) == [low]


def test_a_filter_sees_values_in_order(house: ShelfHouse) -> None:
    c, _, a = house.publish("c:x", "b:y", "a:x")
    assert house.drain(picky("x")) == [a, c]


def test_everything_is_known_as_soon_as_it_is_published(house: ShelfHouse) -> None:
    house.publish("b", "a")
    assert house.selection.ready_count() == 2
    assert house.backing.is_empty()


def test_what_was_there_before_is_sorted_in_when_the_queue_is_recovered(house: ShelfHouse) -> None:
    for body in (b"b\xce", b"a\xce"):
        house.backing.publish(Incoming(house.backing_envelope(), [body]), None)
    house.selection.published(-1, 2)
    assert house.selection.ready_count() == 2


def test_beyond_the_shelf_messages_wait_in_the_backing() -> None:
    house = ShelfHouse(SortedOrder(read_key), messages_max=2)
    c, b, a = house.publish("c", "b", "a")
    assert len(house.backing) == 1
    assert house.drain(None) == [b, a, c]


def test_messages_expire_at_the_head_by_age_and_not_by_value(house: ShelfHouse) -> None:
    (oldest,) = house.publish("z", expiry_ms=1_005)
    (lowest,) = house.publish("a", expiry_ms=1_010)
    house.selection.expire(1_005)
    assert house.host.handed_over == [oldest]
    house.selection.expire(1_010)
    assert house.host.handed_over == [oldest, lowest]


def test_a_purge_forgets_all_values(house: ShelfHouse) -> None:
    house.publish("b", "a")
    consumer = picky("z")
    house.fetch(consumer)
    assert house.selection.purge() == 2
    house.selection.check_invariants()
    (c,) = house.publish("c:z")
    assert house.drain(consumer) == [c]
