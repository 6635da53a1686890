"""A last-value queue: of each key the newest message, FIFO among those that are left."""

from __future__ import annotations

import pytest
from queue_house import Inbox
from shelf_house import ShelfHouse, picky, read_key

from penstock.message import Incoming
from penstock.queues.selection.last_value_order import LastValueOrder


@pytest.fixture
def house() -> ShelfHouse:
    return ShelfHouse(LastValueOrder(read_key))


def test_a_newer_message_replaces_the_older_one_of_its_key(house: ShelfHouse) -> None:
    _, b, a2 = house.publish("a", "b", "a")
    assert house.selection.shelved_ids() == [b, a2]
    assert house.backing.depth() == 2, "the older one is gone for good"
    assert house.host.handed_over == [], "and without a trace"
    assert house.drain(Inbox()) == [b, a2]


def test_a_run_of_one_key_leaves_its_last_message(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("a", 600)
    assert house.drain(None) == seq_ids[-1:]
    assert house.backing.depth() == 1


def test_messages_without_a_key_are_not_replaced(house: ShelfHouse) -> None:
    seq_ids = house.publish("", "", "a")
    assert house.drain(None) == seq_ids


def test_a_delivered_message_is_not_taken_away(house: ShelfHouse) -> None:
    (a1,) = house.publish("a")
    assert house.fetch(None) == [a1]
    (a2,) = house.publish("a")
    assert house.backing.depth() == 2
    assert house.fetch(None) == [a2]
    house.ack(a1, a2)
    assert house.backing.depth() == 0


def test_a_delivered_message_is_not_wanted_back_when_there_is_a_newer_one(house: ShelfHouse) -> None:
    (a1,) = house.publish("a")
    house.fetch(None)
    (a2,) = house.publish("a")
    assert house.requeue(a1) == [a1]
    assert house.drain(None) == [a2]


def test_it_is_not_wanted_back_either_when_the_newer_one_is_gone_by_then(house: ShelfHouse) -> None:
    (a1,) = house.publish("a")
    house.fetch(None)
    house.publish("a")
    house.ack(*house.fetch(None))
    assert house.requeue(a1) == [a1]
    assert house.ready_count() == 0


def test_the_last_message_of_its_key_comes_back(house: ShelfHouse) -> None:
    (a1,) = house.publish("a")
    house.fetch(None)
    assert house.requeue(a1) == []
    (a2,) = house.publish("a")
    assert house.drain(None) == [a2]


def test_after_an_ack_the_key_begins_anew(house: ShelfHouse) -> None:
    house.publish("a")
    house.ack(*house.fetch(None))
    (a2,) = house.publish("a")
    assert house.drain(None) == [a2]


def test_of_messages_that_come_back_unknown_the_highest_number_wins(house: ShelfHouse) -> None:
    house.backing.publish(Incoming(house.backing_envelope(), [b"a\xce", b"b\xce"]), None)
    house.backing.fetch(2, 99, True)
    assert house.selection.returned([1, 0]) == [0]
    assert house.selection.shelved_ids() == [1]


def test_a_purge_keeps_in_mind_what_is_delivered(house: ShelfHouse) -> None:
    a1, _ = house.publish("a", "b")
    assert house.fetch(None) == [a1]
    house.selection.purge()
    house.selection.check_invariants()
    (a2,) = house.publish("a")
    assert house.requeue(a1) == [a1]
    (b2,) = house.publish("b")
    assert house.drain(None) == [a2, b2]


def test_a_value_that_was_taken_or_expired_is_no_longer_the_last(house: ShelfHouse) -> None:
    (a1,) = house.publish("a", expiry_ms=1_005)
    (b1,) = house.publish("b")
    house.selection.expire(1_005)
    assert house.selection.take([b1]) == [b1]
    house.backing.ack([b1])
    assert house.host.handed_over == [a1]
    seq_ids = house.publish("a", "b")
    assert house.drain(None) == seq_ids


def test_filters_see_the_newest_of_each_key(house: ShelfHouse) -> None:
    house.publish("a:x", "b:x", "a:y")
    consumer = picky("x")
    assert len(house.drain(consumer)) == 1
    (a3,) = house.publish("a:x")
    assert house.drain(consumer) == [a3]


def test_all_is_known_after_a_recovery(house: ShelfHouse) -> None:
    house.backing.publish(Incoming(house.backing_envelope(), [b"1\xce", b"2\xce", b"3\xce"]), None)
    house.selection.published(-1, 3)
    assert house.drain(None) == [2]
