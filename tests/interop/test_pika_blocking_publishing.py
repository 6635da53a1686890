"""pika's BlockingConnection: confirms, returns, transactions, bodies and properties."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from decimal import Decimal

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ChannelWrongStateError, UnroutableError

from tests.interop.deadline import wait_until
from tests.interop.fixture_types import Connect, Name
from tests.interop.pika_inbox import Inbox, get_one, publish_all, ready_count

EVERY_FIELD_TYPE = {
    "text": "grün",
    "empty": "",
    "bytes": b"\x00\xff\x01",
    "true": True,
    "false": False,
    "int": -7,
    "long": 2**40,
    "most negative": -(2**63),
    "decimal": Decimal("3.14"),
    "time": datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
    "nothing": None,
    "table": {"inner": {"deeper": [1, {"x": "y"}]}},
    "array": ["a", 1, True, None, {"k": b"v"}, []],
}


def test_a_confirmed_publish_is_already_in_the_queue(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.confirm_delivery()
    for count in range(1, 21):
        channel.basic_publish("", queue, b"x", mandatory=True)
        assert ready_count(channel, queue) == count


def test_an_unroutable_mandatory_message_raises_unroutable_error_with_its_content(
    channel: BlockingChannel, name: Name
) -> None:
    channel.confirm_delivery()
    nowhere = name("nowhere")
    properties = pika.BasicProperties(content_type="text/plain", headers={"k": "v"}, message_id="m-1")
    with pytest.raises(UnroutableError) as unroutable:
        channel.basic_publish("", nowhere, b"lost", properties, mandatory=True)
    (returned,) = unroutable.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("", nowhere)
    assert (returned.properties.content_type, returned.properties.message_id) == ("text/plain", "m-1")
    assert returned.properties.headers == {"k": "v"}
    assert returned.body == b"lost"
    assert channel.is_open


def test_an_unroutable_message_that_is_not_mandatory_is_confirmed_and_dropped(
    channel: BlockingChannel, name: Name
) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", name("nowhere"), b"lost", mandatory=False)
    assert channel.is_open


def test_without_confirms_an_unroutable_mandatory_message_comes_to_the_return_callback(
    channel: BlockingChannel, name: Name
) -> None:
    returned: list[tuple[int, bytes]] = []
    channel.add_on_return_callback(lambda _ch, method, _p, body: returned.append((method.reply_code, body)))
    channel.basic_publish("amq.direct", name("nowhere"), b"back", mandatory=True)
    wait_until(lambda: returned, "basic.return", lambda: channel.connection.process_data_events(0.05))
    assert returned == [(312, b"back")]


def test_publishing_on_a_closed_channel_is_refused_by_the_client_and_leaves_the_connection_alone(
    connection: pika.BlockingConnection,
) -> None:
    channel = connection.channel()
    channel.close()
    with pytest.raises(ChannelWrongStateError):
        channel.basic_publish("", "anywhere", b"late")
    assert connection.channel().is_open


def test_publishes_behind_a_channel_error_are_ignored_until_the_channel_is_closed(
    connection: pika.BlockingConnection, name: Name
) -> None:
    channel = connection.channel()
    queue = connection.channel().queue_declare("", exclusive=True).method.queue

    def publish_behind_an_error() -> None:
        channel.basic_publish(name("no-exchange"), "k", b"error")
        publish_all(channel, queue, b"ignored", b"ignored")
        channel.queue_declare("", exclusive=True)

    with pytest.raises(ChannelClosedByBroker) as closed:
        publish_behind_an_error()
    assert closed.value.reply_code == 404
    again = connection.channel()
    publish_all(again, queue, b"kept")
    assert get_one(again, queue, auto_ack=True)[2] == b"kept"


def test_a_rolled_back_transaction_publishes_nothing(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.tx_select()
    publish_all(channel, queue, b"never")
    channel.tx_rollback()
    publish_all(channel, queue, b"1", b"2")
    assert ready_count(channel, queue) == 0
    channel.tx_commit()
    assert ready_count(channel, queue) == 2
    assert [channel.basic_get(queue)[2] for _ in range(2)] == [b"1", b"2"]


def test_acks_in_a_rolled_back_transaction_are_undone(connect: Connect, name: Name) -> None:
    queue = name()
    owner = connect()
    other = owner.channel()
    other.queue_declare(queue, exclusive=True)
    publish_all(other, queue, b"1", b"2")
    channel = owner.channel()
    channel.tx_select()
    first, second = get_one(channel, queue)[0], get_one(channel, queue)[0]
    channel.basic_ack(first.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(second.delivery_tag)
    channel.tx_commit()
    channel.close()
    method, _, body = get_one(other, queue, auto_ack=True)
    assert (method.redelivered, body) == (True, b"1")
    assert ready_count(other, queue) == 0


def test_tx_commit_without_tx_select_is_a_precondition_failure(channel: BlockingChannel) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.tx_commit()
    assert closed.value.reply_code == 406
    assert closed.value.reply_text == "PRECONDITION_FAILED - channel is not transactional"


def test_confirms_on_a_transactional_channel_are_refused(channel: BlockingChannel) -> None:
    channel.tx_select()
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.confirm_delivery()
    assert closed.value.reply_code == 406


def test_an_empty_body_arrives_empty(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, b"", b"", b"end")
    inbox = Inbox()
    channel.basic_consume(queue, inbox, auto_ack=True)
    inbox.wait_for(channel, 3)
    assert inbox.bodies == [b"", b"", b"end"]


@pytest.mark.parametrize("around", [-1, 0, 1])
def test_bodies_around_the_frame_size_arrive_whole(channel: BlockingChannel, around: int) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    body = os.urandom(131072 - 8 + around)
    publish_all(channel, queue, body)
    assert get_one(channel, queue, auto_ack=True)[2] == body


@pytest.mark.parametrize("size_bytes", [1 << 20, 20 << 20], ids=["1 MiB", "20 MiB"])
def test_large_bodies_arrive_whole(connection: pika.BlockingConnection, size_bytes: int) -> None:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    body = os.urandom(1 << 20) * (size_bytes >> 20)
    channel.confirm_delivery()
    channel.basic_publish("", queue, body, mandatory=True)
    received = get_one(channel, queue, auto_ack=True)[2]
    assert hashlib.sha256(received).digest() == hashlib.sha256(body).digest()


def test_bodies_are_split_to_the_frame_size_the_client_asked_for(connect: Connect) -> None:
    channel = connect(frame_max=4096).channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    body = os.urandom(100_000)
    publish_all(channel, queue, body)
    assert get_one(channel, queue, auto_ack=True)[2] == body


def test_every_property_comes_back_as_it_was_sent(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers=dict(EVERY_FIELD_TYPE),
        delivery_mode=2,
        priority=9,
        correlation_id="corr-ü",
        reply_to="some.queue",
        expiration="600000",
        message_id="id-1",
        timestamp=1_700_000_000,
        type="greeting",
        user_id="guest",
        app_id="interop",
        cluster_id="c",
    )
    channel.basic_publish("", queue, b"{}", sent)
    received = get_one(channel, queue, auto_ack=True)[1]
    assert vars(received) == vars(sent)


def test_a_message_without_properties_comes_back_without_properties(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    publish_all(channel, queue, b"bare")
    received = get_one(channel, queue, auto_ack=True)[1]
    assert received == pika.BasicProperties()


def test_a_user_id_that_is_not_the_connection_user_is_refused(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"", pika.BasicProperties(user_id="somebody"))
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, passive=True)
    assert closed.value.reply_code == 406


def test_cc_and_bcc_headers_route_to_further_queues_and_bcc_is_removed(channel: BlockingChannel) -> None:
    to, cc, bcc = (channel.queue_declare("", exclusive=True).method.queue for _ in range(3))
    headers = {"CC": [cc], "BCC": [bcc], "other": 1}
    channel.basic_publish("", to, b"all", pika.BasicProperties(headers=headers))
    for queue in (to, cc, bcc):
        _, properties, body = get_one(channel, queue, auto_ack=True)
        assert body == b"all"
        assert properties.headers == {"CC": [cc], "other": 1}
