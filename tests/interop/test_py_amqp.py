"""py-amqp, the client under kombu and Celery: its own handshake, table types and event draining."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urlsplit

import amqp
import pytest
from amqp import exceptions

from tests.interop.deadline import wait_until
from tests.interop.fixture_types import Name

Open = Callable[..., amqp.Connection]


@pytest.fixture
def opened(broker_url: str) -> Iterator[Open]:
    """A factory of connections; they are closed after the test."""
    connections: list[amqp.Connection] = []
    parts = urlsplit(broker_url)

    def open_one(**overrides: Any) -> amqp.Connection:
        arguments = {
            "host": f"{parts.hostname}:{parts.port}",
            "userid": parts.username,
            "password": parts.password,
            "virtual_host": unquote(parts.path[1:]),
            "connect_timeout": 10,
            "read_timeout": 20,
            **overrides,
        }
        connection = amqp.Connection(**arguments)
        connections.append(connection)
        connection.connect()
        return connection

    yield open_one
    for connection in connections:
        if connection.connected:
            connection.close()
        else:
            connection.collect()


@pytest.fixture
def channel(opened: Open) -> amqp.Channel:
    return opened().channel()


class Inbox(list[amqp.Message]):
    """Consumed messages; drains the connection until there are enough."""

    def wait_for(self, connection: amqp.Connection, count: int) -> None:
        wait_until(lambda: len(self) >= count, f"{count} messages", lambda: connection.drain_events(timeout=60))

    @property
    def bodies(self) -> list[Any]:
        return [message.body for message in self]


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_both_login_mechanisms_work(opened: Open, mechanism: str) -> None:
    connection = opened(login_method=mechanism)
    assert connection.connected
    assert mechanism.encode() in connection.mechanisms
    assert connection.channel().queue_declare(exclusive=True).queue


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_a_wrong_password_is_access_refused(opened: Open, mechanism: str) -> None:
    with pytest.raises(exceptions.AccessRefused) as refused:
        opened(password="wrong", login_method=mechanism)
    assert refused.value.code == 403
    assert f"Login was refused using authentication mechanism {mechanism}" in str(refused.value)


def test_an_unknown_vhost_is_not_allowed(opened: Open) -> None:
    with pytest.raises(exceptions.NotAllowed) as refused:
        opened(virtual_host="no-such-vhost")
    assert refused.value.code == 530


def test_the_handshake_offers_all_capabilities_and_the_usual_limits(opened: Open) -> None:
    connection = opened(heartbeat=30)
    assert {name for name, on in connection.server_capabilities.items() if on} >= {
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    }
    assert (connection.channel_max, connection.frame_max, connection.heartbeat) == (2047, 131072, 30)
    assert {"product", "version", "platform", "copyright", "information"} <= set(connection.server_properties)


def test_every_property_and_header_type_comes_back_as_it_was_sent(channel: amqp.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    headers = {
        "text": "grün",
        "true": True,
        "int": -7,
        "long": 2**40,
        "float": 1.5,
        "decimal": Decimal("3.14"),
        "time": datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC).replace(tzinfo=None),
        "nothing": None,
        "table": {"inner": {"deeper": [1, {"x": "y"}]}},
        "array": ["a", 1, True, None, {"k": "v"}, []],
    }
    properties = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "application_headers": headers,
        "delivery_mode": 2,
        "priority": 4,
        "correlation_id": "corr",
        "reply_to": "reply",
        "expiration": "600000",
        "message_id": "m-1",
        "timestamp": 1_700_000_000,
        "type": "greeting",
        "user_id": "guest",
        "app_id": "interop",
        "cluster_id": "c",
    }
    channel.basic_publish(amqp.Message("{}", **properties), routing_key=queue)
    received = channel.basic_get(queue, no_ack=True)
    assert received.properties == properties
    assert received.body == "{}"


@pytest.mark.parametrize("size_bytes", [0, 131064, 1 << 20, 20 << 20])
def test_bodies_of_any_size_arrive_whole(channel: amqp.Channel, size_bytes: int) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    body = os.urandom(size_bytes)
    channel.basic_publish_confirm(amqp.Message(body), routing_key=queue)
    received = channel.basic_get(queue, no_ack=True)
    assert bytes(received.body or b"") == body


def test_consumed_messages_come_in_order_and_a_rejected_one_again(channel: amqp.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    channel.basic_qos(0, 2, False)
    inbox = Inbox()
    channel.basic_consume(queue, callback=inbox.append)
    for number in range(4):
        channel.basic_publish(amqp.Message(str(number)), routing_key=queue)
    inbox.wait_for(channel.connection, 2)
    channel.basic_reject(inbox[0].delivery_tag, requeue=True)
    inbox.wait_for(channel.connection, 3)
    assert inbox.bodies == ["0", "1", "0"]
    assert [m.delivery_info["redelivered"] for m in inbox] == [False, False, True]
    for message in inbox[1:]:
        channel.basic_ack(message.delivery_tag)
    inbox.wait_for(channel.connection, 5)
    assert inbox.bodies[3:] == ["2", "3"]


def test_a_global_prefetch_covers_the_whole_channel(channel: amqp.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    for number in range(6):
        channel.basic_publish_confirm(amqp.Message(str(number)), routing_key=queue)
    channel.basic_qos(0, 3, True)
    inbox = Inbox()
    channel.basic_consume(queue, callback=inbox.append)
    channel.basic_consume(queue, callback=inbox.append)
    inbox.wait_for(channel.connection, 3)
    assert channel.queue_declare(queue, passive=True).message_count == 3
    assert len(inbox) == 3


def test_basic_recover_redelivers_what_is_unacked(channel: amqp.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    inbox = Inbox()
    channel.basic_consume(queue, callback=inbox.append)
    channel.basic_publish(amqp.Message("x"), routing_key=queue)
    inbox.wait_for(channel.connection, 1)
    channel.basic_recover(requeue=True)
    inbox.wait_for(channel.connection, 2)
    assert [m.delivery_info["redelivered"] for m in inbox] == [False, True]


def test_an_unroutable_mandatory_message_is_returned_before_its_confirm(channel: amqp.Channel, name: Name) -> None:
    returned: list[Any] = []
    channel.events["basic_return"].add(lambda *args: returned.append(args))
    channel.basic_publish_confirm(amqp.Message("back"), routing_key=name("nowhere"), mandatory=True)
    ((error, exchange, routing_key, message),) = returned
    assert (error.reply_code, exchange, routing_key, message.body) == (312, "", name("nowhere"), "back")


def test_transactions_commit_and_roll_back(channel: amqp.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    channel.tx_select()
    channel.basic_publish(amqp.Message("no"), routing_key=queue)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("yes"), routing_key=queue)
    channel.tx_commit()
    assert channel.basic_get(queue, no_ack=True).body == "yes"
    assert channel.basic_get(queue) is None


def test_broker_errors_become_the_matching_exceptions_and_name_the_method(opened: Open, name: Name) -> None:
    connection, other = opened(), opened()
    connection.channel().queue_declare(name(), exclusive=True)
    cases = [
        (exceptions.NotFound, lambda ch: ch.queue_declare(name("missing"), passive=True), "Queue.declare"),
        (exceptions.NotFound, lambda ch: ch.basic_get(name("missing")), "Basic.get"),
        (exceptions.ResourceLocked, lambda ch: ch.queue_delete(name()), "Queue.delete"),
        (exceptions.AccessRefused, lambda ch: ch.queue_declare("amq.mine"), "Queue.declare"),
        (exceptions.PreconditionFailed, lambda ch: ch.tx_commit(), "Tx.commit"),
        (
            exceptions.PreconditionFailed,
            lambda ch: ch.exchange_declare("amq.direct", "fanout", durable=True, auto_delete=False),
            "Exchange.declare",
        ),
    ]
    for error, action, method in cases:
        with pytest.raises(error) as raised:
            action(other.channel())
        assert raised.value.method_name == method
    assert other.connected


def test_a_deleted_queue_cancels_its_consumer(opened: Open, name: Name) -> None:
    channel = opened().channel()
    channel.queue_declare(name(), auto_delete=False)
    cancelled: list[str] = []
    tag = channel.basic_consume(name(), callback=lambda m: None, on_cancel=cancelled.append)
    opened().channel().queue_delete(name())
    wait_until(lambda: cancelled, "a cancel", lambda: channel.connection.drain_events(timeout=60))
    assert cancelled == [tag]


def test_a_queue_deleted_on_its_consumer_s_channel_is_answered_before_the_cancel(
    channel: amqp.Channel, name: Name
) -> None:
    queue = channel.queue_declare(name(), exclusive=True).queue
    tag = channel.basic_consume(queue, callback=lambda m: None)
    # py-amqp raises ConsumerCancelled from whichever call reads the cancel: it must not be queue_delete.
    channel.queue_delete(queue)
    with pytest.raises(exceptions.ConsumerCancelled, match=tag):
        channel.connection.drain_events(timeout=60)


def test_an_immediate_publish_is_not_implemented(opened: Open) -> None:
    channel = opened().channel()
    queue = channel.queue_declare(exclusive=True).queue
    with pytest.raises(exceptions.AMQPNotImplementedError) as raised:
        channel.basic_publish_confirm(amqp.Message("x"), routing_key=queue, immediate=True)
    assert (raised.value.code, raised.value.reply_text) == (540, "NOT_IMPLEMENTED - immediate=true")


def test_bindings_between_exchanges_with_arguments(channel: amqp.Channel, name: Name) -> None:
    channel.exchange_declare(name("source"), "headers", auto_delete=True)
    channel.exchange_declare(name("target"), "fanout", auto_delete=True)
    queue = channel.queue_declare(exclusive=True).queue
    channel.queue_bind(queue, name("target"))
    arguments = {"x-match": "all", "n": 1, "s": "text"}
    channel.exchange_bind(name("target"), name("source"), arguments=arguments)
    match = amqp.Message("match", application_headers={"n": 1, "s": "text", "more": 2})
    channel.basic_publish_confirm(match, exchange=name("source"))
    channel.basic_publish_confirm(amqp.Message("no", application_headers={"n": 1}), exchange=name("source"))
    assert channel.basic_get(queue, no_ack=True).body == "match"
    assert channel.basic_get(queue) is None


def test_closing_a_channel_gives_its_number_back(opened: Open) -> None:
    connection = opened()
    for _ in range(5):
        channel = connection.channel(3)
        channel.queue_declare(exclusive=True)
        channel.close()
    assert connection.connected


def test_three_hundred_channels_at_once(opened: Open) -> None:
    connection = opened()
    channels = [connection.channel() for _ in range(300)]
    assert {channel.channel_id for channel in channels} == set(range(1, 301))
    queue = channels[-1].queue_declare(exclusive=True).queue
    channels[0].basic_publish_confirm(amqp.Message("over"), routing_key=queue)
    assert channels[150].basic_get(queue, no_ack=True).body == "over"
