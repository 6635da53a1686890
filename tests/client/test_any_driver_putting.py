"""What a producer promises, whatever is behind the session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest

from penstock.client.errors import Closed
from tests.client import any_driver
from tests.client.any_driver import PATIENCE_S, Place, drain, payloads

HOUR = 3600.0

place = any_driver.place


def test_what_was_put_can_be_reserved(place: Place) -> None:
    session, queue = place.session(), place.queue()
    put_id = session.producer_for(queue).put(b"a payload").id
    message = session.consumer_for(queue).reserve(wait=PATIENCE_S)
    assert message.payload == b"a payload"
    assert message.queue == queue
    assert message.state == "reserved"
    assert message.deliveries == 1
    assert message.id == put_id


def test_a_message_that_was_put_or_finalized_is_shown_as_one_that_was_reserved(place: Place) -> None:
    session, queue = place.session(), place.queue()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    put, later = producer.put(b"a payload"), producer.put_json({"a": 1}, delay=HOUR)
    assert (put.queue, put.payload, put.state, put.deliveries) == (queue, b"a payload", "ready", 0)
    assert (later.state, later.json()) == ("scheduled", {"a": 1})
    assert put.ready_at is not None
    assert later.ready_at is not None
    assert later.ready_at - put.ready_at > timedelta(minutes=59)
    reserved = consumer.reserve(wait=PATIENCE_S)
    done = consumer.finalize(reserved, "well done")
    assert (done.id, done.payload, done.state) == (reserved.id, b"a payload", "finalized")
    assert done.finalized_note == "well done"
    assert done.finalized_at is not None
    if session.has_history:
        (kept,) = session.history(queue)
        assert (kept.id, kept.finalized_note) == (done.id, "well done")


def test_text_is_utf_8(place: Place) -> None:
    session, queue = place.session(), place.queue()
    session.producer_for(queue).put("grüße ☃")
    message = session.consumer_for(queue).reserve(wait=PATIENCE_S)
    assert message.payload == "grüße ☃".encode()
    assert message.text == "grüße ☃"


def test_a_value_is_put_as_json(place: Place) -> None:
    session, queue = place.session(), place.queue()
    session.producer_for(queue).put_json({"a": [1, None, "ü"]})
    assert session.consumer_for(queue).reserve(wait=PATIENCE_S).json() == {"a": [1, None, "ü"]}


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0", b"\xce", bytes(range(256)), b"\\x00", bytearray(b"array"), memoryview(b"view"), b"x" * 5_000_000],
    ids=["empty", "nul", "frame-end", "all-octets", "escape", "bytearray", "memoryview", "5-megabytes"],
)
def test_a_payload_comes_back_octet_by_octet(place: Place, payload: Any) -> None:
    session, queue = place.session(), place.queue()
    session.producer_for(queue).put(payload)
    message = session.consumer_for(queue).reserve(wait=PATIENCE_S)
    assert message.payload == bytes(payload)
    assert type(message.payload) is bytes


def test_messages_that_are_put_together_come_in_their_order(place: Place) -> None:
    session, queue = place.session(), place.queue()
    session.use_queue(queue, "strict")
    ids = session.producer_for(queue).put_many([str(number) for number in range(50)])
    assert len(set(ids)) == 50
    messages = drain(session.consumer_for(queue), 50)
    assert [message.text for message in messages] == [str(number) for number in range(50)]
    assert [message.id for message in messages] == ids


def test_messages_of_different_sizes_can_be_put_together(place: Place) -> None:
    session, queue = place.session(), place.queue()
    session.use_queue(queue, "strict")
    wanted = [b"", b"x" * 300_000, b"a", b"y" * 5_000, b"\xce\xce"]
    session.producer_for(queue).put_many(wanted)
    assert payloads(drain(session.consumer_for(queue), 5)) == wanted


def test_no_messages_at_all_can_be_put(place: Place) -> None:
    session, queue = place.session(), place.queue()
    assert session.producer_for(queue).put_many([]) == []
    assert session.consumer_for(queue).reserve() is None


def test_a_delayed_message_is_not_there_yet(place: Place) -> None:
    session, queue = place.session(), place.queue()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    producer.put(b"later", delay=HOUR)
    producer.put(b"later too", ready_at=datetime.now(UTC) + timedelta(hours=1))
    producer.put(b"now")
    assert consumer.reserve(wait=PATIENCE_S).payload == b"now"
    assert consumer.reserve() is None
    stats = session.stats(queue)
    assert stats.scheduled_count in (None, 2)
    assert stats.ready_count == 0


def test_a_delayed_message_comes_in_its_time(place: Place) -> None:
    session, queue = place.session(), place.queue()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    began_s = monotonic()
    producer.put(b"second", delay=0.6)
    producer.put(b"first", delay=0.3)
    assert payloads(drain(consumer, 2)) == [b"first", b"second"]
    assert monotonic() - began_s >= 0.5


def test_a_message_whose_time_lies_in_the_past_is_ready(place: Place) -> None:
    session, queue = place.session(), place.queue()
    session.producer_for(queue).put(b"late", ready_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert session.consumer_for(queue).reserve(wait=PATIENCE_S).payload == b"late"


def test_a_message_that_has_outlived_its_ttl_is_not_handed_out(place: Place) -> None:
    session, queue = place.session(), place.queue()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    producer.put(b"mayfly", ttl=0.05)
    producer.put(b"witness", delay=0.5)
    session.wait_any([session.consumer_for(place.queue())], 0.3)
    # The witness comes when the other one is long gone.
    assert consumer.reserve(wait=PATIENCE_S).payload == b"witness"


def test_a_ttl_that_has_not_come_does_no_harm(place: Place) -> None:
    session, queue = place.session(), place.queue()
    session.producer_for(queue).put(b"turtle", ttl=HOUR)
    assert session.consumer_for(queue).reserve(wait=PATIENCE_S).payload == b"turtle"


@pytest.mark.parametrize("payload", [None, 5, 1.5, ["a"], {"a": 1}], ids=str)
def test_what_is_no_payload_is_refused(place: Place, payload: Any) -> None:
    session, queue = place.session(), place.queue()
    producer = session.producer_for(queue)
    with pytest.raises(TypeError):
        producer.put(payload)
    assert session.consumer_for(queue).reserve() is None


def test_a_batch_with_one_wrong_payload_puts_nothing(place: Place) -> None:
    session, queue = place.session(), place.queue()
    producer = session.producer_for(queue)
    with pytest.raises(TypeError):
        producer.put_many([b"right", 5])
    with pytest.raises(TypeError):
        producer.put_many("a text is not a list of payloads")
    assert session.consumer_for(queue).reserve() is None


@pytest.mark.parametrize(
    "named",
    [
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"ttl": 0},
        {"ttl": -5},
        {"ready_at": datetime(2030, 1, 1)},  # noqa: DTZ001 (without a time zone, that is the point)
        {"delay": 1, "ready_at": datetime(2030, 1, 1, tzinfo=UTC)},
    ],
    ids=str,
)
def test_times_that_mean_nothing_are_refused(place: Place, named: dict[str, Any]) -> None:
    session, queue = place.session(), place.queue()
    producer = session.producer_for(queue)
    with pytest.raises(ValueError, match=r"."):
        producer.put(b"x", **named)
    assert session.consumer_for(queue).reserve() is None


def test_a_closed_producer_puts_nothing(place: Place) -> None:
    session, queue = place.session(), place.queue()
    producer = session.producer_for(queue)
    producer.close()
    producer.close()
    with pytest.raises(Closed):
        producer.put(b"x")
    assert session.consumer_for(queue).reserve() is None


def test_two_producers_of_one_queue_do_not_disturb_each_other(place: Place) -> None:
    session, queue = place.session(), place.queue()
    first, second = session.producer_for(queue), session.producer_for(queue)
    first.put(b"1")
    first.close()
    second.put(b"2")
    assert sorted(payloads(drain(session.consumer_for(queue), 2))) == [b"1", b"2"]
