"""How a session's words become messages of a broker's, on penstock and on RabbitMQ, through both faces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pika
import pytest

from penstock.client.errors import NotReserved, NotSupported
from penstock.testing import Broker
from tests.client.any_driver import FACES, PATIENCE_S, Place, drain, opened, payloads
from tests.interop.deadline import wait_until
from tests.oracle import RabbitMQ, available

BROKERS = ["penstock", pytest.param("rabbitmq", marks=pytest.mark.oracle)]


@pytest.fixture(scope="module", params=BROKERS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "penstock":
        with Broker() as broker:
            yield broker.url
        return
    reason = available()
    if reason is not None:
        pytest.skip(reason)
    with RabbitMQ() as rabbit:
        yield rabbit.url


@pytest.fixture(params=FACES)
def place(request: pytest.FixtureRequest, url: str) -> Iterator[Place]:
    with opened(url, request.param) as place:
        yield place


@pytest.fixture
def raw(url: str) -> Iterator[Any]:
    """A channel of another client."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    yield connection.channel()
    connection.close()


def test_a_put_is_a_persistent_message_with_its_id_for_everybody(place: Place, raw: Any) -> None:
    queue = place.queue()
    before = datetime.now(UTC) - timedelta(seconds=2)
    message_id = place.session().producer_for(queue).put("grüße", ttl=60).id
    _, properties, body = raw.basic_get(queue, auto_ack=True)
    assert body == "grüße".encode()
    assert properties.delivery_mode == 2
    assert properties.message_id == message_id
    assert properties.expiration == "60000"
    assert before <= datetime.fromtimestamp(properties.timestamp, UTC) <= datetime.now(UTC)


def test_a_message_of_another_client_is_a_message_with_its_properties(place: Place, raw: Any) -> None:
    queue = place.queue()
    consumer = place.session().consumer_for(queue)
    properties = pika.BasicProperties(content_type="text/plain", headers={"shelf": 7}, priority=3)
    raw.basic_publish("", queue, b"by hand", properties)
    message = consumer.reserve(wait=PATIENCE_S)
    assert (message.payload, message.exchange, message.routing_key) == (b"by hand", "", queue)
    assert message.properties == {"content_type": "text/plain", "headers": {"shelf": 7}, "priority": 3}
    consumer.finalize(message)
    assert consumer.reserve() is None


def test_messages_that_share_an_id_are_told_apart(place: Place, raw: Any) -> None:
    queue = place.queue()
    consumer = place.session().consumer_for(queue)
    for body in (b"one", b"two"):
        raw.basic_publish("", queue, body, pika.BasicProperties(message_id="twin"))
    one, two = drain(consumer, 2)
    assert one.id != two.id
    consumer.finalize(one)
    consumer.requeue(two)
    assert consumer.reserve(wait=PATIENCE_S).payload == b"two"


def test_a_queue_that_is_there_is_taken_as_it_is(place: Place, raw: Any) -> None:
    queue = place.queue()
    raw.queue_declare(queue, durable=True, arguments={"x-max-length": 2, "x-max-priority": 3})
    session = place.session()
    session.producer_for(queue).put_many(["a", "b", "c"])
    assert payloads(drain(session.consumer_for(queue), 2)) == [b"b", b"c"]


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 3_000_000])
def test_a_body_of_any_size_goes_through(place: Place, size: int) -> None:
    queue = place.queue()
    session = place.session()
    body = os.urandom(size)
    session.producer_for(queue).put(body)
    assert session.consumer_for(queue).reserve(wait=PATIENCE_S).payload == body


def test_a_batch_larger_than_what_is_sent_at_once_goes_through(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    bodies = [bytes([number]) * 400_000 for number in range(10)]
    assert len(set(session.producer_for(queue).put_many(bodies))) == 10
    assert payloads(session.consumer_for(queue).reserve_many(10, wait=PATIENCE_S)) == bodies


def test_more_than_is_asked_for_at_once_can_be_reserved(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put_many([str(number) for number in range(700)])
    found = session.consumer_for(queue).reserve_many(650)
    assert payloads(found) == [str(number).encode() for number in range(650)]
    assert session.stats(queue).ready_count == 50


def test_who_has_a_prefetch_of_1_leaves_the_rest_to_others(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    first, second = session.consumer_for(queue), place.session().consumer_for(queue)
    session.producer_for(queue).put_many(["a", "b", "c"])
    assert first.reserve().payload == b"a"
    assert session.stats(queue).ready_count == 2
    assert payloads(second.reserve_many(3)) == [b"b", b"c"]


def test_what_was_sent_ahead_is_handed_out_in_order_and_goes_back_at_the_end(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    consumer = session.consumer_for(queue, prefetch=4)
    assert consumer.reserve(wait=0.01) is None
    session.producer_for(queue).put_many([str(number) for number in range(6)])
    message = consumer.reserve(wait=PATIENCE_S)
    assert message.payload == b"0"
    consumer.finalize(message)
    assert payloads(drain(consumer, 2)) == [b"1", b"2"]
    consumer.close()
    found = drain(place.session().consumer_for(queue), 5)
    assert payloads(found) == [b"1", b"2", b"3", b"4", b"5"]


def test_who_keeps_all_that_may_be_sent_ahead_gets_more_all_the_same(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    consumer, producer = session.consumer_for(queue, prefetch=2), place.session().producer_for(queue)
    for number in range(5):
        assert consumer.reserve(wait=0.01) is None
        producer.put(str(number))
        assert consumer.reserve(wait=PATIENCE_S).payload == str(number).encode()


def test_delayed_messages_come_in_the_order_of_their_times(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    began_s = monotonic()
    for delay in (0.63, 0.05, 0.31, 0.47):
        producer.put(str(delay), delay=delay)
    producer.put_many(["first", "second"], delay=0.31)
    arrived = []
    for message in drain(consumer, 6):
        arrived.append(message.text)
        assert "headers" not in message.properties
    assert arrived == ["0.05", "0.31", "first", "second", "0.47", "0.63"]
    assert monotonic() - began_s >= 0.63


def test_a_delayed_message_is_never_early(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    ready_at = datetime.now(UTC) + timedelta(milliseconds=433)
    producer.put(b"later", ready_at=ready_at)
    message = consumer.reserve(wait=PATIENCE_S)
    assert datetime.now(UTC) >= ready_at
    assert abs(message.ready_at - ready_at) <= timedelta(milliseconds=1)


def test_a_long_delay_is_taken(place: Place, raw: Any) -> None:
    queue = place.queue()
    place.session().producer_for(queue).put(b"in ten years", delay=3650 * 86_400)
    # It waits on the highest level that fits into ten years.
    assert raw.queue_declare("penstock.delay.171798691840", passive=True).method.message_count >= 1
    assert raw.queue_declare(queue, passive=True).method.message_count == 0


def test_a_requeue_with_delay_keeps_the_message_and_counts(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    message_id = producer.put(b"again").id
    for round_number in (1, 2, 3):
        message = consumer.reserve(wait=PATIENCE_S)
        assert (message.id, message.payload, message.deliveries) == (message_id, b"again", round_number)
        consumer.requeue(message, delay=0.03 * round_number, note=f"try {round_number}")
    message = consumer.reserve(wait=PATIENCE_S)
    assert (message.note, message.deliveries) == ("try 3", 4)
    consumer.finalize(message)
    assert session.stats(queue).ready_count == 0


def test_a_copy_keeps_what_another_client_has_said(place: Place, raw: Any) -> None:
    queue = place.queue()
    consumer = place.session().consumer_for(queue)
    said = pika.BasicProperties(correlation_id="c", reply_to="r", headers={"a": ["b", 1]}, user_id="guest", type="t")
    raw.basic_publish("", queue, b"x", said)
    consumer.requeue(consumer.reserve(wait=PATIENCE_S), delay=0.02)
    message = consumer.reserve(wait=PATIENCE_S)
    wanted = {"correlation_id": "c", "reply_to": "r", "headers": {"a": ["b", 1]}, "type": "t", "delivery_mode": 2}
    assert message.properties == wanted


def test_a_message_whose_time_to_live_is_over_when_it_is_ready_is_not_handed_out(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    producer.put(b"short", delay=0.02, ttl=0.03)
    producer.put(b"long", delay=0.3, ttl=60)
    # The first one is in the queue by now, for nobody has looked, and has expired.
    other = session.consumer_for(place.queue())
    assert other.reserve(wait=0.35) is None
    assert consumer.reserve(wait=PATIENCE_S).payload == b"long"
    assert session.stats(queue).ready_count == 0


def test_buried_messages_wait_in_a_queue_of_their_own(place: Place, raw: Any) -> None:
    queue = place.queue()
    session = place.session()
    producer, consumer = session.producer_for(queue), session.consumer_for(queue)
    producer.put_many(["a", "b", "c"], ttl=60)
    for message in drain(consumer, 3):
        consumer.bury(message, f"no {message.text}")
    method, properties, body = raw.basic_get(f"{queue}.buried")
    assert (body, properties.headers["x-penstock-note"], properties.expiration) == (b"a", "no a", None)
    raw.basic_nack(method.delivery_tag)
    wait_until(lambda: session.stats(queue).buried_count == 3, "it is back")
    assert consumer.kick(2) == 2
    found = drain(consumer, 2)
    assert [(message.text, message.note, message.deliveries) for message in found] == [
        ("a", "no a", 2),
        ("b", "no b", 2),
    ]
    assert (consumer.kick(100), consumer.kick(1)) == (1, 0)


def test_more_than_are_moved_at_once_can_be_kicked(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    consumer = session.consumer_for(queue)
    session.producer_for(queue).put_many([str(number) for number in range(130)])
    for message in consumer.reserve_many(130):
        consumer.bury(message)
    assert consumer.kick(129) == 129
    assert payloads(consumer.reserve_many(200)) == [str(number).encode() for number in range(129)]
    assert session.stats(queue).buried_count == 1


def test_a_long_note_is_cut(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    consumer = session.consumer_for(queue)
    session.producer_for(queue).put(b"x")
    consumer.requeue(consumer.reserve(wait=PATIENCE_S), note="ö" * 100_000)
    assert consumer.reserve(wait=PATIENCE_S).note == "ö" * 8192


def test_names_up_to_the_length_that_amqp_has(place: Place) -> None:
    session = place.session()
    longest = place.queue("ü" * 120).ljust(255 - 120, "x")
    assert len(longest.encode()) == 255
    session.producer_for(longest).put(b"x")
    consumer = session.consumer_for(longest)
    consumer.bury(consumer.reserve(wait=PATIENCE_S))
    assert session.stats(longest).buried_count == 1
    assert consumer.kick() == 1
    consumer.requeue(consumer.reserve(wait=PATIENCE_S), delay=0.01)
    assert consumer.reserve(wait=PATIENCE_S).payload == b"x"
    with pytest.raises(NotSupported, match="255 bytes"):
        session.producer_for(longest + "x")


def test_names_that_differ_in_line_ends_are_different_queues(place: Place) -> None:
    session = place.session()
    queue = place.queue("a\nb")
    plain = queue.replace("\n", "")
    session.producer_for(queue).put(b"two lines")
    session.producer_for(plain).put(b"one line")
    message = session.consumer_for(queue).reserve(wait=PATIENCE_S)
    assert (message.payload, message.queue) == (b"two lines", queue)
    assert session.queues() == sorted([plain, queue])
    assert session.drop_queue(queue) is True
    assert session.stats(plain).ready_count == 1


def test_a_closed_consumer_returns_what_it_had(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put_many(["a", "b"])
    consumer = session.consumer_for(queue)
    drain(consumer, 2)
    consumer.close()
    found = drain(session.consumer_for(queue), 2)
    assert [(message.text, message.deliveries) for message in found] == [("a", 2), ("b", 2)]


def test_waiting_for_several_consumers_ends_with_the_first_message(place: Place) -> None:
    session = place.session()
    queues = [place.queue("several") for _ in range(3)]
    consumers = [session.consumer_for(queue) for queue in queues]
    session.wait_any(consumers, 0.01)
    place.session().producer_for(queues[1]).put(b"here")
    session.wait_any(consumers, PATIENCE_S)
    assert [consumer.reserve() is not None for consumer in consumers] == [False, True, False]
    # Nothing is sent to who does not wait.
    session.producer_for(queues[2]).put(b"for anybody")
    assert place.session().consumer_for(queues[2]).reserve().payload == b"for anybody"


def test_a_queue_that_is_deleted_under_a_consumer_is_made_again(place: Place, raw: Any) -> None:
    queue = place.queue()
    session = place.session()
    consumer, producer = session.consumer_for(queue), session.producer_for(queue)
    producer.put(b"old")
    message = consumer.reserve(wait=PATIENCE_S)
    raw.queue_delete(queue)
    assert consumer.reserve(wait=0.01) is None
    with pytest.raises(NotReserved):
        consumer.finalize(message)
    producer.put(b"new")
    assert consumer.reserve(wait=PATIENCE_S).payload == b"new"
