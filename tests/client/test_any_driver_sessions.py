"""What a session promises about queues, counts, history and schedules, and about being closed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from penstock.client.errors import ClientError, Closed
from tests.client import any_driver
from tests.client.any_driver import PATIENCE_S, Place, drain, payloads

NOON = datetime(2031, 5, 17, 12, 0, tzinfo=UTC)

place = any_driver.place


# --- queues -----------------------------------------------------------------------------------------------


def test_a_queue_is_made_when_it_is_needed(place: Place) -> None:
    session = place.session()
    names = [place.queue() for _ in range(3)]
    session.use_queue(names[0])
    session.use_queue(names[0])
    session.producer_for(names[1])
    session.consumer_for(names[2])
    assert set(names) <= set(session.queues())
    assert session.queues() == sorted(session.queues())


def test_queues_do_not_mix(place: Place) -> None:
    session = place.session()
    here, there = place.queue(), place.queue()
    session.producer_for(here).put(b"here")
    session.producer_for(there).put(b"there")
    assert session.consumer_for(there).reserve(wait=PATIENCE_S).payload == b"there"
    assert session.consumer_for(there).reserve() is None
    assert session.consumer_for(here).reserve(wait=PATIENCE_S).payload == b"here"


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        " ",
        "quote'quote",
        'double"double',
        "back\\slash",
        "a/b//c/",
        "per%cent%2F",
        "semi;colon -- comment",
        "ünicode ☃ 𝄞",
        "new\nline",
        "tab\t",
        "$1 {schema} %s",
        "UPPER",
        ".",
        "x" * 63,
        "x" * 64,
        "é" * 60,
        "penstock",
    ],
    ids=ascii,
)
def test_any_name_will_do(place: Place, name: str) -> None:
    session = place.session()
    queue = place.queue(name)
    session.producer_for(queue).put_many([b"a", b"b"])
    consumer = session.consumer_for(queue)
    first, second = drain(consumer, 2)
    assert first.queue == queue
    consumer.finalize(first, note="done")
    consumer.bury(second)
    assert consumer.kick() == 1
    consumer.finalize(consumer.reserve(wait=PATIENCE_S))
    assert session.stats(queue).ready_count == 0
    assert queue in session.queues()
    assert session.drop_queue(queue) is True


def test_a_name_of_1024_bytes_works_or_is_refused_with_words(place: Place) -> None:
    session = place.session()
    twins = [place.queue("n" * 1_000 + tail).ljust(1_024, ".")[:1_024] for tail in ("a", "b")]
    refusal = ""
    try:
        session.producer_for(twins[0]).put(b"a")
    except ClientError as refused:
        refusal = str(refused)
    if refusal:
        assert "bytes" in refusal
        # The session is none the worse.
        queue = place.queue()
        session.producer_for(queue).put(b"x")
        assert session.consumer_for(queue).reserve(wait=PATIENCE_S).payload == b"x"
        return
    consumer = session.consumer_for(twins[0])
    assert session.consumer_for(twins[1]).reserve() is None
    message = consumer.reserve(wait=PATIENCE_S)
    assert message.queue == twins[0]
    consumer.bury(message)
    assert consumer.kick() == 1
    consumer.finalize(consumer.reserve(wait=PATIENCE_S), note="long")
    assert twins[0] in session.queues()
    assert session.drop_queue(twins[0]) is True


def test_long_names_that_begin_alike_are_different_queues(place: Place) -> None:
    session = place.session()
    stem = place.queue("stem") + "-" + "é" * 80
    for tail in ("a", "b"):
        session.producer_for(stem + tail).put(tail)
    for tail in ("b", "a"):
        consumer = session.consumer_for(stem + tail)
        assert consumer.reserve(wait=PATIENCE_S).text == tail
        assert consumer.reserve() is None


@pytest.mark.parametrize("name", ["", "x" * 1_025, "a\0b", "\ud800", None, 5, b"x"], ids=ascii)
def test_what_is_no_name_is_refused(place: Place, name: Any) -> None:
    session = place.session()
    for call in (session.use_queue, session.producer_for, session.consumer_for, session.stats, session.drop_queue):
        with pytest.raises((TypeError, ValueError)):
            call(name)


def test_an_ordering_that_does_not_exist_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="strict"):
        place.session().use_queue(place.queue(), "random")


def test_a_dropped_queue_is_gone_with_its_messages(place: Place) -> None:
    session, queue = place.session(), place.queue()
    assert session.drop_queue(queue) is False
    producer = session.producer_for(queue)
    producer.put_many([b"a", b"b"])
    producer.put(b"later", delay=0.2)
    producer.close()
    consumer = session.consumer_for(queue)
    consumer.bury(consumer.reserve(wait=PATIENCE_S))
    consumer.close()
    assert session.drop_queue(queue) is True
    assert queue not in session.queues()
    assert session.drop_queue(queue) is False
    fresh = session.consumer_for(queue)
    assert fresh.reserve(wait=0.4) is None
    assert fresh.kick(10) == 0


# --- counts -----------------------------------------------------------------------------------------------


def test_the_counts_of_a_queue_are_right(place: Place) -> None:
    session, queue = place.session(), place.queue()
    producer = session.producer_for(queue)
    consumer = session.consumer_for(queue)
    producer.put_many([str(number) for number in range(6)])
    producer.put(b"later", delay=3600)
    first, second, third = drain(consumer, 3)
    consumer.finalize(first)
    consumer.bury(second)
    stats = session.stats(queue)
    assert stats.queue == queue
    assert stats.ready_count == 3
    assert stats.reserved_count in (None, 1)
    assert stats.scheduled_count in (None, 1)
    assert stats.buried_count in (None, 1)
    assert stats.finalized_count in (None, 1)
    assert stats.producer_count in (None, 1)
    assert stats.consumer_count in (None, 1)
    consumer.requeue(third)
    consumer.close()
    producer.close()
    after = session.stats(queue)
    assert after.ready_count == 4
    assert after.reserved_count in (None, 0)
    assert after.producer_count in (None, 0)
    assert after.consumer_count in (None, 0)


def test_a_queue_that_is_not_there_counts_nothing(place: Place) -> None:
    stats = place.session().stats(place.queue())
    assert stats.ready_count == 0
    assert not any([stats.reserved_count, stats.scheduled_count, stats.buried_count, stats.finalized_count])


# --- history ----------------------------------------------------------------------------------------------


def test_the_history_has_what_was_finalized_newest_first(place: Place) -> None:
    session, queue = place.session(), place.queue()
    session.use_queue(queue, "strict")
    session.producer_for(queue).put_many([b"a", b"b", b"c", b"stays"])
    consumer = session.consumer_for(queue)
    for message in drain(consumer, 3):
        consumer.finalize(message, note=f"note {message.text}")
    found = session.history(queue)
    if not session.has_history:
        assert found == []
        return
    assert [(one.payload, one.finalized_note) for one in found] == [
        (b"c", "note c"),
        (b"b", "note b"),
        (b"a", "note a"),
    ]
    assert all(one.state == "finalized" and one.queue == queue for one in found)
    assert all(one.finalized_at is not None and one.deliveries == 1 for one in found)
    assert payloads(session.history(queue, 2)) == [b"c", b"b"]
    assert session.history(place.queue()) == []


def test_a_message_that_was_tried_twice_is_once_in_the_history(place: Place) -> None:
    session, queue = place.session(), place.queue()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    consumer.requeue(consumer.reserve(wait=PATIENCE_S), note="once more")
    consumer.finalize(consumer.reserve(wait=PATIENCE_S))
    if not session.has_history:
        assert session.history(queue) == []
        return
    (found,) = session.history(queue)
    assert found.deliveries == 2
    assert found.finalized_note is None


@pytest.mark.parametrize("limit", [0, -1, 10**6, "5", None], ids=str)
def test_a_history_of_no_size_is_refused(place: Place, limit: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        place.session().history(place.queue(), limit)


# --- schedules --------------------------------------------------------------------------------------------


def test_a_slot_is_put_once_however_many_sessions_ask(place: Place) -> None:
    first, second = place.session(), place.session()
    queue, schedule = place.queue(), place.queue("schedule")
    put_id = first.put_at_slot(schedule, NOON, queue, b"noon")
    assert put_id is not None
    if not first.has_slots:
        # Slots are not told apart there: whoever asks puts.
        assert second.put_at_slot(schedule, NOON, queue, b"noon") is not None
        assert payloads(drain(first.consumer_for(queue), 2)) == [b"noon", b"noon"]
        return
    assert second.put_at_slot(schedule, NOON, queue, b"noon again") is None
    assert second.put_at_slot(schedule, NOON - timedelta(hours=1), queue, b"too late") is None
    assert second.put_at_slot(schedule, NOON + timedelta(microseconds=1), queue, b"next") is not None
    assert second.put_at_slot(place.queue("other schedule"), NOON, queue, b"other") is not None
    messages = drain(first.consumer_for(queue), 3)
    assert sorted(payloads(messages)) == [b"next", b"noon", b"other"]
    assert put_id in [message.id for message in messages]
    assert first.consumer_for(queue).reserve() is None


def test_a_slot_is_the_same_in_every_time_zone(place: Place) -> None:
    session = place.session()
    queue, schedule = place.queue(), place.queue("schedule")
    tokyo = timezone(timedelta(hours=9))
    assert session.put_at_slot(schedule, NOON, queue, b"x") is not None
    again = session.put_at_slot(schedule, NOON.astimezone(tokyo), queue, b"x")
    assert (again is None) == session.has_slots


def test_a_slot_without_a_time_zone_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="time zone"):
        place.session().put_at_slot("s", datetime(2031, 1, 1), place.queue(), b"x")  # noqa: DTZ001


# --- closing ----------------------------------------------------------------------------------------------


def test_a_closed_session_does_nothing_any_more(place: Place) -> None:
    session, queue = place.session(), place.queue()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    session.close()
    session.close()
    for call in (
        lambda: session.use_queue(queue),
        lambda: session.drop_queue(queue),
        session.queues,
        lambda: session.stats(queue),
        lambda: session.history(queue),
        lambda: session.producer_for(queue),
        lambda: session.consumer_for(queue),
        lambda: session.put_at_slot("s", NOON, queue, b"x"),
        lambda: producer.put(b"x"),
        consumer.reserve,
    ):
        with pytest.raises(Closed):
            call()


def test_a_session_that_was_never_used_can_be_closed(place: Place) -> None:
    session = place.session()
    session.close()
    with pytest.raises(Closed):
        session.queues()


def test_a_session_ends_with_its_block(place: Place) -> None:
    queue = place.queue()
    with place.session() as session:
        session.producer_for(queue).put(b"x")
    with pytest.raises(Closed):
        session.queues()
    assert place.session().consumer_for(queue).reserve(wait=PATIENCE_S).payload == b"x"


def test_two_sessions_see_the_same_queues(place: Place) -> None:
    first, second, queue = place.session(), place.session(), place.queue()
    first.producer_for(queue).put(b"x")
    consumer = second.consumer_for(queue)
    message = consumer.reserve(wait=PATIENCE_S)
    first.close()
    consumer.finalize(message)
    assert second.stats(queue).ready_count == 0
