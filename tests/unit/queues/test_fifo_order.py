"""First in, first out over a shelf: runs, and filters with their cursors."""

from __future__ import annotations

import pytest
from queue_house import Inbox
from shelf_house import MANY, ShelfHouse, asked, bodies_of, ids_of, picky

from penstock.message import Incoming
from penstock.queues.selection.fifo_order import FifoOrder, fifo_selection


@pytest.fixture
def house() -> ShelfHouse:
    return ShelfHouse(FifoOrder())


# --- without filters ------------------------------------------------------------------------------


def test_a_consumer_without_a_filter_gets_whole_runs(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 10)
    assert house.fetch(Inbox(), 7) == seq_ids[:7]
    assert house.fetch(Inbox(), 7) == seq_ids[7:]
    assert house.fetch(Inbox(), 7) == []


def test_a_run_ends_where_bodies_no_longer_fit(house: ShelfHouse) -> None:
    house.publish("a:x", "b:x", "c:x", size=10)
    run = house.selection.fetch(None, 5, 20, True)
    assert bodies_of(run) == [b"a:x.......", b"b:x......."]


def test_the_first_body_is_handed_out_however_large_it_is(house: ShelfHouse) -> None:
    (seq_id,) = house.publish("a:x", size=100)
    assert ids_of(house.selection.fetch(None, 5, 0, True)) == [seq_id]


def test_a_run_ends_where_the_redelivered_flag_changes(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 4)
    house.fetch(None, 2)
    house.requeue(*seq_ids[:2])
    first = house.selection.fetch(None, 9, MANY, True)
    second = house.selection.fetch(None, 9, MANY, True)
    assert (ids_of(first), ids_of(second)) == (seq_ids[:2], seq_ids[2:])
    assert first is not None
    assert first.redelivered
    assert second is not None
    assert not second.redelivered


def test_a_message_keeps_its_flag_while_it_is_shelved(house: ShelfHouse) -> None:
    house.backing.publish(Incoming(house.backing_envelope(), [b"m\xce"]), None, True)
    house.selection.take([999])
    nobody = picky("z")
    assert house.fetch(nobody) == []
    run = house.selection.fetch(None, 1, MANY, True)
    assert run is not None
    assert run.redelivered


def test_what_is_fetched_without_ack_is_gone_at_once(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 3)
    assert house.fetch(Inbox(), 2, ack_required=False) == seq_ids[:2]
    assert house.backing.depth() == 1
    assert house.requeue(*seq_ids[:2]) == []
    assert house.drain(None) == seq_ids[2:]


def test_it_is_not_needed_once_nothing_is_shelved(house: ShelfHouse) -> None:
    assert not house.selection.is_needed()
    house.publish_run("k:x", 3)
    assert house.drain(picky("y")) == []
    assert house.selection.is_needed()
    house.drain(None)
    assert not house.selection.is_needed()


# --- filters --------------------------------------------------------------------------------------


def test_a_consumer_gets_what_its_filter_accepts_in_order(house: ShelfHouse) -> None:
    first, other, second = house.publish("k:x", "k:y", "k:x")
    assert house.drain(picky("x")) == [first, second]
    assert house.drain(None) == [other]


def test_neighbours_that_a_filter_accepts_are_one_run(house: ShelfHouse) -> None:
    seq_ids = house.publish("k:y", "k:x", "k:x", "k:y")
    assert house.fetch(picky("x"), 9) == seq_ids[1:3]


def test_a_filter_is_asked_once_about_what_it_refuses(house: ShelfHouse) -> None:
    seq_ids = house.publish("k:y", "k:y")
    consumer = picky("x")
    assert house.fetch(consumer) == []
    assert asked(consumer) == seq_ids
    house.publish("k:x")
    assert house.selection.has_for(consumer)
    assert len(house.fetch(consumer)) == 1
    assert not set(asked(consumer)) & set(seq_ids)


def test_a_returned_message_is_offered_to_those_who_have_looked_beyond_it(house: ShelfHouse) -> None:
    first, second, third = house.publish("k:x", "k:y", "k:x")
    consumer = picky("x")
    assert house.fetch(None) == [first]
    assert house.fetch(consumer) == [third]
    assert not house.selection.has_for(consumer)
    asked(consumer)
    house.requeue(first)
    assert house.selection.has_for(consumer)
    assert house.fetch(consumer) == [first]
    assert second not in asked(consumer), "only what came back is looked at again"


def test_a_returned_message_that_is_not_wanted_is_passed_again(house: ShelfHouse) -> None:
    (seq_id,) = house.publish("k:y")
    consumer = picky("x")
    assert house.fetch(consumer) == []
    house.fetch(None)
    house.requeue(seq_id)
    assert house.fetch(consumer) == []
    assert asked(consumer) == [seq_id, seq_id]
    assert not house.selection.has_for(consumer)


def test_a_returned_message_that_another_one_got_is_not_offered_again(house: ShelfHouse) -> None:
    first, second = house.publish("k:x", "k:y")
    consumer = picky("x")
    assert house.fetch(None) == [first]
    assert house.fetch(consumer) == []
    house.requeue(first)
    assert house.fetch(None) == [first]
    assert house.fetch(consumer) == []
    assert not house.selection.has_for(consumer)
    assert house.drain(None) == [second]


def test_what_came_back_many_times_is_remembered_once_or_so(house: ShelfHouse) -> None:
    house.publish_run("k:x", 3)
    consumer = picky("z")
    assert house.fetch(consumer) == []
    for _ in range(2_000):
        house.selection.returned(ids_of(house.selection.fetch(None, 1, MANY, True)))
    asked(consumer)
    assert house.fetch(consumer) == []
    assert len(asked(consumer)) < 200


def test_a_consumer_that_has_looked_at_everything_has_nothing(house: ShelfHouse) -> None:
    house.publish("k:y")
    consumer = picky("x")
    assert house.selection.has_for(consumer), "it has not looked yet"
    house.fetch(consumer)
    assert not house.selection.has_for(consumer)
    assert house.selection.has_for(Inbox())


def test_a_fetch_gives_up_after_some_looks_and_goes_on_next_time() -> None:
    house = ShelfHouse(FifoOrder(), looks_max=4)
    house.publish(*["k:y"] * 10)
    (wanted,) = house.publish("k:x")
    consumer = picky("x")
    fetches = 0
    while house.selection.has_for(consumer):
        fetches += 1
        fetched = house.fetch(consumer)
        assert len(asked(consumer)) <= 4
        if fetched:
            break
    assert fetched == [wanted]
    assert fetches > 2


def test_a_consumer_that_left_twice_is_forgotten_once(house: ShelfHouse) -> None:
    seq_ids = house.publish("k:y", "k:x")
    consumer = picky("x")
    house.fetch(consumer)
    house.selection.consumer_gone(consumer)
    house.selection.consumer_gone(consumer)
    house.requeue(seq_ids[1])
    assert house.drain(None) == seq_ids


def test_the_queue_gets_its_selection_by_this_name() -> None:
    house = ShelfHouse(FifoOrder())
    selection = fifo_selection(house.host, house.backing)
    assert not selection.is_needed()
