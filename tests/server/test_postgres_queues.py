"""Queues in PostgreSQL over AMQP: publish, confirm, consume, settle, on a real server and a real database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import psycopg
import pytest

from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import get_one, ready_count
from tests.server.brokers import queue_of
from tests.server.pika_clients import consume
from tests.server.postgres_nodes import PERSISTENT, POSTGRES, Nodes, nodes_on


@pytest.fixture
def nodes(penstock_url: str) -> Iterator[Nodes]:
    with nodes_on(penstock_url) as opened:
        yield opened


def declare(nodes: Nodes, channel: object, queue: str = "q", **arguments: object) -> None:
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments={**POSTGRES, **named})  # type: ignore[attr-defined]


# --- publish, consume, settle -------------------------------------------------------------------------


def test_confirmed_messages_are_rows_and_are_consumed_in_order(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    for number in range(20):
        channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
    assert nodes.payloads("q") == [b"%d" % number for number in range(20)]
    inbox = consume(channel, "q")
    inbox.wait_for(channel, 20)
    assert inbox.bodies == [b"%d" % number for number in range(20)]
    assert set(inbox.redelivered) == {False}
    channel.basic_ack(0, multiple=True)
    nodes.wait_until_settled("q")
    assert nodes.ready("q") == 0
    assert nodes.value("SELECT count(*) FROM penstock.messages_history") == 20


def test_a_consumer_that_waits_gets_what_is_published_later(nodes: Nodes) -> None:
    broker = nodes.start()
    channel, other = nodes.publisher(broker), nodes.channel(broker)
    declare(nodes, channel)
    inbox = consume(other, "q", auto_ack=True)
    for number in range(5):
        channel.basic_publish("", "q", b"%d" % number)
        inbox.wait_for(other, number + 1)
    assert inbox.bodies == [b"0", b"1", b"2", b"3", b"4"]
    nodes.wait_until_settled("q")


def test_properties_headers_and_routing_keys_come_back_as_they_were_sent(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    channel.exchange_declare("logs", "topic", durable=True)
    channel.queue_bind("q", "logs", "#")
    sent = pika.BasicProperties(
        content_type="application/json", headers={"a": 1, "b": "ü"}, delivery_mode=2, priority=3, message_id="m",
        correlation_id="c", timestamp=1_700_000_000, expiration="600000",
    )  # fmt: skip
    channel.basic_publish("logs", "key.ö", b"\x00\xce\xff", sent)
    method, properties, body = get_one(channel, "q", auto_ack=True)
    assert (method.exchange, method.routing_key, body) == ("logs", "key.ö", b"\x00\xce\xff")
    assert properties == sent


def test_a_rejected_message_comes_back_redelivered_at_its_place(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    for body in (b"a", b"b", b"c"):
        channel.basic_publish("", "q", body)
    channel.basic_qos(prefetch_count=1)
    inbox = consume(channel, "q")
    inbox.wait_for(channel, 1)
    channel.basic_nack(inbox.tags[0], requeue=True)
    inbox.wait_for(channel, 2)
    assert inbox.bodies == [b"a", b"a"]
    assert inbox.redelivered == [False, True]


def test_messages_of_a_lost_connection_go_to_another_consumer(nodes: Nodes) -> None:
    broker = nodes.start()
    channel, lost = nodes.publisher(broker), nodes.channel(broker)
    declare(nodes, channel)
    inbox = consume(lost, "q")
    for number in range(10):
        channel.basic_publish("", "q", b"%d" % number)
    inbox.wait_for(lost, 10)
    lost.connection.close()
    second = consume(channel, "q")
    second.wait_for(channel, 10)
    assert second.bodies == [b"%d" % number for number in range(10)]
    assert set(second.redelivered) == {True}


def test_what_nobody_takes_goes_back_and_was_not_delivered(nodes: Nodes) -> None:
    """A consumer with a prefetch of one: the rest of the window is everybody's again after a second."""
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    for number in range(10):
        channel.basic_publish("", "q", b"%d" % number)
    channel.basic_qos(prefetch_count=1)
    inbox = consume(channel, "q")
    inbox.wait_for(channel, 1)
    nodes.wait_for_ready("q", 9)
    assert nodes.value("SELECT max(deliveries) FROM penstock.browse('q', 0, 100, 1000000)") == 0
    channel.basic_ack(inbox.tags[0])
    inbox.wait_for(channel, 2)
    assert inbox.bodies == [b"0", b"1"]
    assert inbox.redelivered == [False, False]


def test_many_messages_pass_through_once_each(nodes: Nodes) -> None:
    broker = nodes.start()
    channel, other = nodes.channel(broker), nodes.channel(broker)
    declare(nodes, channel)
    other.basic_qos(prefetch_count=300)
    seen: list[bytes] = []

    def take(ch: object, method: object, properties: object, body: bytes) -> None:
        seen.append(body)
        other.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

    other.basic_consume("q", take)
    for number in range(3_000):
        channel.basic_publish("", "q", b"%d" % number)
    wait_until(lambda: len(seen) >= 3_000, "all come", lambda: other.connection.process_data_events(0.05))
    assert seen == [b"%d" % number for number in range(3_000)]
    other.connection.process_data_events(0)
    nodes.wait_until_settled("q")
    assert nodes.value("SELECT count(*) FROM penstock.messages") == 0


# --- plain SQL ----------------------------------------------------------------------------------------


def test_a_row_put_in_a_transaction_is_delivered_after_its_commit_and_not_before(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    inbox = consume(channel, "q", auto_ack=True)
    with psycopg.connect(nodes.url) as application:
        application.execute("CREATE TABLE orders (id int)")
        application.execute("INSERT INTO orders VALUES (7)")
        row_id = application.execute("SELECT id FROM penstock.put('q', 'order 7')").fetchone()[0]  # type: ignore[index]
        # Another message passes meanwhile: the consumer is awake and looks.
        channel.basic_publish("", "q", b"other")
        inbox.wait_for(channel, 1)
        assert inbox.bodies == [b"other"]
        application.commit()
    inbox.wait_for(channel, 2)
    method, properties, body = inbox.deliveries[1]
    assert (body, method.exchange, method.routing_key) == (b"order 7", "", "q")
    assert (properties.message_id, properties.delivery_mode) == (str(row_id), 2)
    assert properties.content_type == "application/octet-stream"
    assert properties.timestamp


def test_a_row_of_a_transaction_that_is_rolled_back_is_never_delivered(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    inbox = consume(channel, "q", auto_ack=True)
    with psycopg.connect(nodes.url) as application:
        application.execute("SELECT id FROM penstock.put('q', 'never')")
        application.rollback()
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'after')")
    inbox.wait_for(channel, 1)
    assert inbox.bodies == [b"after"]


def test_properties_that_are_none_do_not_reach_a_client(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'x')")
    nodes.sql.execute("UPDATE penstock.messages SET properties = '\\xffff01', routing_key = repeat('k', 400)")
    method, properties, body = get_one(channel, "q", auto_ack=True)
    assert (body, properties.delivery_mode, len(method.routing_key)) == (b"x", 2, 255)


# --- get, declare, purge, delete ------------------------------------------------------------------------


def test_get_looks_into_the_database(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    assert channel.basic_get("q")[0] is None
    channel.basic_publish("", "q", b"a")
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'b')")
    for body in (b"a", b"b"):
        method, _, got = channel.basic_get("q")
        assert got == body
        channel.basic_ack(method.delivery_tag)
    assert channel.basic_get("q")[0] is None
    nodes.wait_until_settled("q")


def test_a_declaration_counts_what_is_in_the_database_now(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    declare(nodes, channel)
    for _ in range(3):
        channel.basic_publish("", "q", b"a")
    assert ready_count(channel, "q") == 3
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'b')")
    assert ready_count(channel, "q") == 4


def test_a_purge_takes_what_was_published_before_it(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    declare(nodes, channel)
    for _ in range(50):
        channel.basic_publish("", "q", b"a")
    method, _, _ = get_one(channel, "q")
    assert channel.queue_purge("q").method.message_count == 49
    channel.basic_nack(method.delivery_tag, requeue=True)
    nodes.wait_for_ready("q", 1)
    assert channel.queue_purge("q").method.message_count == 1


def test_a_deleted_queue_is_gone_from_the_database(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    channel.basic_publish("", "q", b"a")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_delete("q", if_empty=True)
    assert refused.value.reply_code == 406
    channel = nodes.channel(broker)
    assert channel.queue_delete("q").method.message_count == 1
    assert nodes.value("SELECT count(*) FROM penstock.queues") == 0
    assert nodes.value("SELECT count(*) FROM penstock.messages") == 0
    declare(nodes, channel)
    assert ready_count(channel, "q") == 0


def test_a_queue_that_another_node_deleted_is_made_again_by_who_uses_it(nodes: Nodes) -> None:
    one, two = nodes.start(), nodes.start()
    first, second = nodes.publisher(one), nodes.publisher(two)
    declare(nodes, first)
    declare(nodes, second)
    inbox = consume(first, "q", auto_ack=True)
    first.basic_publish("", "q", b"before")
    inbox.wait_for(first, 1)
    second.queue_delete("q")
    first.basic_publish("", "q", b"after")
    inbox.wait_for(first, 2)
    assert inbox.bodies == [b"before", b"after"]


# --- expiry and dead letters ------------------------------------------------------------------------------


def test_rejected_messages_are_dead_lettered(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("dead", durable=True, arguments=POSTGRES)
    declare(nodes, channel, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    channel.basic_publish("", "q", b"a")
    method, _, _ = get_one(channel, "q")
    channel.basic_reject(method.delivery_tag, requeue=False)
    method, properties, body = get_one(channel, "dead", auto_ack=True)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"a", "rejected")
    nodes.wait_until_settled("q")
    assert nodes.ready("q") == 0


def test_messages_expire_without_consumers_and_are_dead_lettered(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("dead", durable=True)
    declare(nodes, channel, x_message_ttl=50, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    for number in range(3):
        channel.basic_publish("", "q", b"%d" % number)
    inbox = consume(channel, "dead", auto_ack=True)
    inbox.wait_for(channel, 3)
    assert inbox.bodies == [b"0", b"1", b"2"]
    assert {message[1].headers["x-death"][0]["reason"] for message in inbox.deliveries} == {"expired"}


def test_an_expired_message_is_not_delivered(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    channel.basic_publish("", "q", b"short", pika.BasicProperties(expiration="1"))
    channel.basic_publish("", "q", b"long", pika.BasicProperties(expiration="600000"))
    nodes.wait_for_ready("q", 1)
    inbox = consume(channel, "q", auto_ack=True)
    inbox.wait_for(channel, 1)
    assert inbox.bodies == [b"long"]


# --- transactions -----------------------------------------------------------------------------------------


def test_a_committed_transaction_is_in_the_database(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    declare(nodes, channel)
    channel.tx_select()
    channel.basic_publish("", "q", b"a")
    channel.basic_publish("", "q", b"b")
    assert nodes.payloads("q") == []
    channel.tx_commit()
    assert nodes.payloads("q") == [b"a", b"b"]


# --- restarts ---------------------------------------------------------------------------------------------


def test_a_node_that_stops_gives_everything_back_and_finds_it_again(nodes: Nodes, tmp_path: Path) -> None:
    broker = nodes.start(data_dir=str(tmp_path / "node"))
    channel = nodes.publisher(broker)
    declare(nodes, channel)
    for number in range(6):
        channel.basic_publish("", "q", b"%d" % number)
    inbox = consume(nodes.channel(broker), "q")
    wait_until(lambda: broker.call(lambda server: queue_of(server, "q").delivered_count) == 6, "all are delivered")
    assert len(inbox) <= 6
    broker.stop()
    assert nodes.ready("q") == 6
    assert nodes.value("SELECT count(*) FROM penstock.participants") == 0
    broker.start()
    channel = nodes.channel(broker)
    inbox = consume(channel, "q")
    inbox.wait_for(channel, 6)
    assert inbox.bodies == [b"%d" % number for number in range(6)]
    assert set(inbox.redelivered) == {True}
