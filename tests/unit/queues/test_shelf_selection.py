"""What all orders have in common, shown with FIFO: a full shelf, messages by number, expiry, surprises, priorities."""

from __future__ import annotations

import pytest
from queue_house import Inbox
from shelf_house import MANY, ShelfHouse, ids_of, picky

from penstock.backing.priority.priority import PriorityBackingQueues
from penstock.backing.volatile import VolatileBackingQueue, VolatileBackingQueues
from penstock.message import Incoming, Run
from penstock.queues.selection.fifo_order import FifoOrder


@pytest.fixture
def house() -> ShelfHouse:
    return ShelfHouse(FifoOrder())


# --- a full shelf ---------------------------------------------------------------------------------


def test_nobody_looks_beyond_a_full_shelf() -> None:
    house = ShelfHouse(FifoOrder(), messages_max=3)
    house.publish(*["k:y"] * 5)
    (wanted,) = house.publish("k:x")
    consumer = picky("x")
    assert house.fetch(consumer) == []
    assert not house.selection.has_for(consumer)
    assert house.selection.ready_count() == 3
    assert house.ready_count() == 6
    assert house.host.available == 0
    house.drain(None)
    house.requeue(wanted)
    assert house.fetch(consumer) == [wanted]


def test_who_found_the_shelf_full_is_told_when_there_is_room() -> None:
    house = ShelfHouse(FifoOrder(), messages_max=2)
    house.publish("k:y", "k:y", "k:x")
    consumer = picky("x")
    assert house.fetch(consumer) == []
    house.fetch(None)
    assert house.host.available > 0
    assert house.selection.has_for(consumer)
    assert len(house.fetch(consumer)) == 1


def test_who_found_the_shelf_full_is_told_of_what_others_have_shelved_since() -> None:
    house = ShelfHouse(FifoOrder(), messages_max=2)
    house.publish(":x", ":x", expiry_ms=house.host.now_ms + 5)
    house.publish(":y", ":y")
    waits = picky("y")
    assert house.fetch(waits) == []
    assert not house.selection.has_for(waits)
    house.host.now_ms += 5
    # It finds what has expired, shelves all the rest, and takes one.
    assert house.fetch(Inbox()) == [2]
    assert house.host.available > 0
    assert house.fetch(waits) == [3]


def test_what_comes_back_finds_room_on_a_full_shelf() -> None:
    house = ShelfHouse(FifoOrder(), messages_max=2)
    seq_ids = house.publish(*["k:x"] * 4)
    house.fetch(None, 2)
    assert house.fetch(picky("z")) == []
    house.requeue(*seq_ids[:2])
    assert house.selection.ready_count() == 4
    assert house.drain(None) == seq_ids


# --- by number ------------------------------------------------------------------------------------


def test_a_message_is_taken_from_the_middle_and_the_rest_stays_in_order(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 6)
    assert house.selection.take([seq_ids[3], 77]) == [seq_ids[3]], "of what is not there nothing is found"
    assert house.selection.take([seq_ids[3]]) == [], "it is the caller's"
    assert house.backing.ack([seq_ids[3]]) == 1
    assert house.selection.shelved_ids() == []
    assert len(house.backing) == 5, "the others were not touched"
    assert house.drain(None) == [*seq_ids[:3], *seq_ids[4:]]


def test_a_delivered_message_is_not_taken(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 4)
    house.fetch(None)
    assert house.selection.take(seq_ids[:1]) == []
    assert len(house.backing) + house.selection.ready_count() == 3


def test_what_was_delivered_before_there_was_a_selection_comes_back_in_order() -> None:
    backing = VolatileBackingQueue()
    house = ShelfHouse(FifoOrder(), backing)
    backing.publish(Incoming(house.backing_envelope(), [b"a\xce", b"bb\xce", b"c\xce"]), None)
    backing.fetch(2, MANY, True)
    assert house.selection.returned([1, 0, 42]) == []
    assert house.selection.ready_bytes() == 3
    run = house.selection.fetch(None, 9, MANY, True)
    assert run is not None
    assert (ids_of(run), run.redelivered) == ([0, 1], True)
    assert house.drain(None) == [2]


def test_a_purge_drops_what_is_shelved_and_not_what_is_delivered(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 5)
    house.fetch(None)
    house.fetch(picky("z"))
    assert house.selection.purge() == 4
    assert (house.selection.ready_count(), house.selection.ready_bytes()) == (0, 0)
    assert house.backing.depth() == 1
    house.requeue(seq_ids[0])
    assert house.drain(None) == seq_ids[:1]


# --- expiry ---------------------------------------------------------------------------------------


def test_shelved_messages_expire_at_the_head_only(house: ShelfHouse) -> None:
    early = house.publish("k:x", "k:x", expiry_ms=1_010)
    (lasting,) = house.publish("k:x")
    (late,) = house.publish("k:x", expiry_ms=1_005)
    assert house.fetch(picky("z")) == []
    assert house.selection.next_expiry_ms() == 1_010
    house.selection.expire(1_009)
    assert house.host.handed_over == []
    house.selection.expire(1_010)
    assert house.host.handed_over == early
    assert house.selection.next_expiry_ms() == -1
    assert house.selection.shelved_ids() == [lasting, late]


def test_an_expired_message_is_dead_lettered_and_not_handed_out(house: ShelfHouse) -> None:
    (lasting,) = house.publish("k:x")
    (expired,) = house.publish("k:x", expiry_ms=1_005)
    (last,) = house.publish("k:x")
    house.host.now_ms = 1_005
    assert house.drain(None) == [lasting, last]
    assert house.host.handed_over == [expired]


def test_messages_expire_anywhere_if_the_queue_wants_it() -> None:
    house = ShelfHouse(FifoOrder(), expire_anywhere=True)
    (lasting,) = house.publish("k:x")
    (late,) = house.publish("k:x", expiry_ms=1_020)
    (early,) = house.publish("k:x", expiry_ms=1_010)
    assert house.selection.is_needed()
    assert house.selection.next_expiry_ms() == 1_010
    house.selection.expire(1_010)
    assert house.host.handed_over == [early]
    assert house.selection.next_expiry_ms() == 1_020
    house.selection.expire(1_030)
    assert house.host.handed_over == [early, late]
    assert house.drain(None) == [lasting]


@pytest.mark.parametrize("expire_anywhere", [False, True])
def test_many_expire_in_slices_and_not_all_in_one_millisecond(expire_anywhere: bool) -> None:
    house = ShelfHouse(FifoOrder(), expire_anywhere=expire_anywhere, looks_max=3)
    seq_ids = house.publish(*["k:x"] * 5, expiry_ms=1_005)
    nobody = picky("z")
    while house.selection.has_for(nobody):
        assert house.fetch(nobody) == []
    house.selection.expire(1_010)
    assert house.host.handed_over == seq_ids[:3]
    assert house.selection.next_expiry_ms() == 1_011
    house.selection.expire(1_011)
    assert house.host.handed_over == seq_ids
    assert house.selection.next_expiry_ms() == -1


def test_a_delivered_message_does_not_expire_until_it_comes_back() -> None:
    house = ShelfHouse(FifoOrder(), expire_anywhere=True)
    (seq_id,) = house.publish("k:x", expiry_ms=1_010)
    assert house.fetch(None) == [seq_id]
    assert house.selection.next_expiry_ms() == -1
    house.selection.expire(1_020)
    assert house.host.handed_over == []
    house.requeue(seq_id)
    house.selection.expire(1_020)
    assert house.host.handed_over == [seq_id]


# --- surprises ------------------------------------------------------------------------------------


def test_what_is_gone_from_the_backing_is_not_handed_out(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 6)
    house.fetch(picky("z"))
    house.backing.ack([seq_ids[0], seq_ids[3]])
    assert house.fetch(None, 9) == seq_ids[1:3]
    assert house.fetch(None, 9) == seq_ids[4:]
    assert house.selection.ready_count() == 0


def test_a_backing_that_was_emptied_behind_its_back_leaves_nothing_to_fetch(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 6)
    consumer = picky("z")
    house.fetch(consumer)
    house.backing.ack(seq_ids)
    assert house.fetch(None, 9) == []
    assert house.selection.ready_count() == 0
    assert not house.selection.has_for(Inbox())


def test_what_somebody_requeued_behind_its_back_is_there_once(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 4)
    house.fetch(None)
    house.fetch(picky("z"))
    house.backing.requeue(seq_ids[:2])
    assert house.selection.fetch(picky("z"), 1, MANY, True) is None
    house.selection.check_invariants()
    assert house.drain(None) == seq_ids


def test_settling_what_was_never_handed_out_changes_nothing(house: ShelfHouse) -> None:
    seq_ids = house.publish_run("k:x", 2)
    house.fetch(picky("z"))
    house.selection.settled([*seq_ids, 55])
    assert house.requeue(*seq_ids, 55) == []
    assert house.drain(None) == seq_ids


class Unreadable(VolatileBackingQueue):
    """Its disk fails."""

    broken = False

    def ackfold(self, visit, seq_ids) -> None:  # type: ignore[no-untyped-def]
        if self.broken:
            raise OSError("the disk is gone")
        super().ackfold(visit, seq_ids)


def test_messages_that_cannot_be_read_stay_shelved() -> None:
    backing = Unreadable()
    house = ShelfHouse(FifoOrder(), backing)
    seq_ids = house.publish_run("k:x", 3)
    backing.broken = True
    with pytest.raises(OSError, match="the disk is gone"):
        house.selection.fetch(None, 2, MANY, True)
    house.selection.check_invariants()
    backing.broken = False
    run: Run | None = house.selection.fetch(None, 9, MANY, True)
    assert ids_of(run) == seq_ids
    assert run is not None
    assert not run.redelivered


# --- priorities -----------------------------------------------------------------------------------


def test_what_is_published_in_front_of_shelved_messages_comes_first() -> None:
    backing = PriorityBackingQueues(VolatileBackingQueues(), 3).open("q", False, None, lambda kind, work: None)
    house = ShelfHouse(FifoOrder(), backing)
    low = [house.publish_one("k:x", b"low", -1, 0) for _ in range(2)]
    assert house.fetch(picky("z")) == []
    high = [house.publish_one("k:x", b"high", -1, 3) for _ in range(2)]
    assert house.drain(Inbox()) == [*high, *low]


def test_what_comes_back_does_not_overtake_what_is_in_the_backing_in_front_of_it() -> None:
    backing = VolatileBackingQueue()
    house = ShelfHouse(FifoOrder(), backing)
    backing.publish(Incoming(house.backing_envelope(), [b"a\xce", b"b\xce", b"c\xce"]), None)
    backing.fetch(2, MANY, True)
    backing.requeue([0])
    house.requeue(1)
    assert house.drain(None) == [0, 1, 2]
