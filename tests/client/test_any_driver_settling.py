"""What becomes of a reserved message: finalized, requeued, buried and kicked; once, and by whoever has it."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from penstock.client.errors import NotReserved
from penstock.client.message import Message
from tests.client import any_driver
from tests.client.any_driver import PATIENCE_S, Place, drain, payloads

place = any_driver.place


def test_a_finalized_message_is_gone(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    consumer.finalize(consumer.reserve(wait=PATIENCE_S))
    consumer.close()
    session.close()
    assert place.session().consumer_for(queue).reserve() is None


def test_a_message_is_finalized_once(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    message = consumer.reserve(wait=PATIENCE_S)
    consumer.finalize(message)
    for settle in (consumer.finalize, consumer.requeue, consumer.bury, consumer.finalize_and_reserve):
        with pytest.raises(NotReserved):
            settle(message)
    assert consumer.reserve() is None


def test_somebody_elses_message_cannot_be_settled(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put_many([b"x", b"y"])
    owner = session.consumer_for(queue)
    message = owner.reserve(wait=PATIENCE_S)
    for thief in (session.consumer_for(queue), place.session().consumer_for(queue)):
        for settle in (thief.finalize, thief.requeue, thief.bury, thief.finalize_and_reserve):
            with pytest.raises(NotReserved):
                settle(message)
        assert thief.finalize_many([message]) == []
    owner.finalize(message)


def test_a_message_of_another_queue_cannot_be_settled(place: Place) -> None:
    session = place.session()
    here, there = place.queue(), place.queue()
    session.producer_for(here).put(b"x")
    consumer = session.consumer_for(here)
    message = consumer.reserve(wait=PATIENCE_S)
    with pytest.raises(NotReserved):
        session.consumer_for(there).finalize(message)
    consumer.finalize(message)


@pytest.mark.parametrize("message_id", ["", "0", "-1", "999999999999999999999999", "no number", "é", "'; --"], ids=str)
def test_a_message_that_never_was_cannot_be_settled(place: Place, message_id: str) -> None:
    queue = place.queue()
    consumer = place.session().consumer_for(queue)
    invented = Message(message_id, queue, b"", "reserved")
    with pytest.raises(NotReserved):
        consumer.finalize(invented)
    assert consumer.finalize_many([invented]) == []


@pytest.mark.parametrize("wrong", [None, "id", 5, b"x"], ids=str)
def test_only_messages_can_be_settled(place: Place, wrong: Any) -> None:
    consumer = place.session().consumer_for(place.queue())
    for settle in (consumer.finalize, consumer.requeue, consumer.bury, consumer.touch):
        with pytest.raises(TypeError):
            settle(wrong)


def test_many_messages_are_finalized_at_once(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put_many([str(number) for number in range(10)])
    consumer = session.consumer_for(queue, prefetch=10)
    messages = drain(consumer, 10)
    consumer.finalize(messages[3])
    done = consumer.finalize_many([*messages, messages[0]])
    assert {message.id for message in done} == {message.id for message in messages} - {messages[3].id}
    assert consumer.finalize_many([]) == []
    consumer.close()
    assert session.consumer_for(queue).reserve() is None


def test_the_next_message_comes_with_the_end_of_the_last(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.use_queue(queue, "strict")
    session.producer_for(queue).put_many([b"a", b"b"])
    consumer = session.consumer_for(queue)
    first = consumer.reserve(wait=PATIENCE_S)
    second = consumer.finalize_and_reserve(first) or consumer.reserve(wait=PATIENCE_S)
    assert (first.payload, second.payload) == (b"a", b"b")
    assert consumer.finalize_and_reserve(second) is None
    consumer.close()
    assert session.consumer_for(queue).reserve() is None


def test_a_requeued_message_comes_again(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    first = consumer.reserve(wait=PATIENCE_S)
    consumer.requeue(first, note="not now")
    second = consumer.reserve(wait=PATIENCE_S)
    assert second.id == first.id
    assert second.payload == b"x"
    assert second.deliveries == 2
    assert second.note in (None, "not now")
    with pytest.raises(NotReserved):
        session.consumer_for(queue).finalize(second)
    consumer.finalize(second)


def test_a_requeued_message_goes_back_to_its_place(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.use_queue(queue, "strict")
    session.producer_for(queue).put_many([b"a", b"b", b"c"])
    consumer = session.consumer_for(queue)
    first, second = drain(consumer, 2)
    consumer.requeue(second)
    consumer.requeue(first)
    other = session.consumer_for(queue)
    consumer.close()
    assert payloads(drain(other, 3)) == [b"a", b"b", b"c"]


def test_a_message_that_is_requeued_with_a_delay_comes_later(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    message = consumer.reserve(wait=PATIENCE_S)
    began_s = monotonic()
    consumer.requeue(message, delay=0.3, note="in a moment")
    with pytest.raises(NotReserved):
        consumer.finalize(message)
    again = consumer.reserve(wait=PATIENCE_S)
    assert monotonic() - began_s >= 0.25
    assert again.payload == b"x"
    assert again.deliveries >= 2
    assert again.note in (None, "in a moment")
    consumer.finalize(again)
    assert consumer.reserve() is None


def test_a_long_delay_is_not_over_when_the_consumer_leaves(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    consumer.requeue(consumer.reserve(wait=PATIENCE_S), delay=3600)
    consumer.close()
    assert session.consumer_for(queue).reserve() is None


def test_a_buried_message_waits_until_it_is_kicked(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put_many([b"a", b"b"])
    consumer = session.consumer_for(queue)
    for message in drain(consumer, 2):
        consumer.bury(message, note="broken")
        with pytest.raises(NotReserved):
            consumer.finalize(message)
    assert consumer.reserve() is None
    assert session.stats(queue).buried_count in (None, 2)
    other = place.session().consumer_for(queue)
    assert other.kick() == 1
    again = other.reserve(wait=PATIENCE_S)
    assert again.payload in (b"a", b"b")
    assert again.deliveries >= 2
    assert again.note in (None, "broken")
    other.finalize(again)
    assert other.kick(10) == 1
    assert other.kick(10) == 0
    last = other.reserve(wait=PATIENCE_S)
    assert {again.payload, last.payload} == {b"a", b"b"}


def test_the_first_that_was_buried_is_kicked_first(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.use_queue(queue, "strict")
    session.producer_for(queue).put_many([b"a", b"b", b"c"])
    consumer = session.consumer_for(queue)
    for message in drain(consumer, 3):
        consumer.bury(message)
    kicked = []
    for _ in range(3):
        assert consumer.kick() == 1
        kicked += drain(consumer, 1)
    assert payloads(kicked) == [b"a", b"b", b"c"]


def test_a_buried_message_outlives_its_consumer_and_its_session(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    consumer.bury(consumer.reserve(wait=PATIENCE_S))
    session.close()
    other = place.session().consumer_for(queue)
    assert other.reserve() is None
    assert other.kick(5) == 1
    assert other.reserve(wait=PATIENCE_S).payload == b"x"


def test_kicking_where_nothing_is_buried_does_nothing(place: Place) -> None:
    assert place.session().consumer_for(place.queue()).kick(5) == 0


@pytest.mark.parametrize("note", ["plain", "", "ünicode ☃", "quote ' \" \\", "a\0b", "\ud800", "n" * 20_000], ids=ascii)
def test_any_note_can_be_given(place: Place, note: str) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    consumer.requeue(consumer.reserve(wait=PATIENCE_S), note=note)
    consumer.requeue(consumer.reserve(wait=PATIENCE_S), delay=0.001, note=note)
    consumer.bury(consumer.reserve(wait=PATIENCE_S), note=note)
    assert consumer.kick() == 1
    consumer.finalize(consumer.reserve(wait=PATIENCE_S), note=note)
    assert consumer.reserve() is None


def test_a_note_that_is_no_text_is_refused_and_the_message_stays_reserved(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    message = consumer.reserve(wait=PATIENCE_S)
    for settle in (consumer.finalize, consumer.bury):
        with pytest.raises(TypeError):
            settle(message, note=b"octets")
    consumer.finalize(message)


def test_each_message_is_handled_and_finalized(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.use_queue(queue, "strict")
    session.producer_for(queue).put_many([b"a", b"b", b"c"])
    seen: list[bytes] = []

    def handle(message: Message) -> str:
        seen.append(message.payload)
        return f"seen {message.text}"

    consumer = session.consumer_for(queue)
    assert consumer.each_message(handle, wait=PATIENCE_S, limit=2) == 2
    assert consumer.each_message(handle, wait=0.2) == 1
    assert seen == [b"a", b"b", b"c"]
    consumer.close()
    assert session.consumer_for(queue).reserve() is None


def test_a_handler_that_fails_leaves_its_message_reserved(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)

    def handle(message: Message) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consumer.each_message(handle, wait=PATIENCE_S)
    assert session.consumer_for(queue).reserve() is None
    consumer.close()
    assert session.consumer_for(queue).reserve(wait=PATIENCE_S).payload == b"x"


def test_a_batch_is_finalized_and_the_next_one_reserved_in_one_step(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put_many([b"a", b"b", b"c", b"d"])
    consumer = session.consumer_for(queue)
    first: list[Message] = []
    while len(first) < 2:
        first += consumer.reserve_many(2 - len(first), wait=PATIENCE_S)
    rest = consumer.finalize_many_and_reserve(first, 10)
    while len(rest) < 2:
        rest += consumer.reserve_many(10, wait=PATIENCE_S)
    assert sorted(one.payload for one in [*first, *rest]) == [b"a", b"b", b"c", b"d"]
    with pytest.raises(NotReserved):
        consumer.finalize_many_and_reserve([first[0], rest[0]], 10)
    assert consumer.finalize_many_and_reserve(rest[1:], 10) == []
    assert consumer.finalize_many_and_reserve([], 10) == []
