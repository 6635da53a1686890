"""Queues in PostgreSQL from several nodes; which queues are there, under which names, and which are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pika.exceptions
import pytest

from penstock.broker.definitions.postgres_arguments import postgres_name
from penstock.config import Config
from penstock.errors import StartupError
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import get_one, ready_count
from tests.server.brokers import queue_of
from tests.server.pika_clients import consume
from tests.server.postgres_nodes import POSTGRES, Nodes, nodes_on


@pytest.fixture
def nodes(penstock_url: str) -> Iterator[Nodes]:
    with nodes_on(penstock_url) as opened:
        yield opened


# --- several nodes ----------------------------------------------------------------------------------------


def test_two_nodes_share_a_queue_and_each_message_is_delivered_once(nodes: Nodes) -> None:
    brokers = [nodes.start(), nodes.start()]
    channels = [nodes.channel(broker) for broker in brokers]
    for channel in channels:
        channel.queue_declare("q", durable=True, arguments=POSTGRES)
        channel.basic_qos(prefetch_count=20)
    got: list[list[bytes]] = [[], []]
    for channel, seen in zip(channels, got, strict=True):

        def take(ch: object, method: object, properties: object, body: bytes, seen: list[bytes] = seen) -> None:
            seen.append(body)
            ch.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

        channel.basic_consume("q", take)
    publishers = [nodes.channel(broker) for broker in brokers]
    for number in range(600):
        publishers[number % 2].basic_publish("", "q", b"%d" % number)

    def serve() -> None:
        for channel in channels:
            channel.connection.process_data_events(0.01)

    wait_until(lambda: len(got[0]) + len(got[1]) >= 600, "all come", serve)
    serve()
    nodes.wait_until_settled("q")
    assert sorted(map(int, got[0] + got[1])) == list(range(600))
    assert min(map(len, got)) > 0


def test_a_message_published_on_one_node_wakes_a_consumer_on_another(nodes: Nodes) -> None:
    one, two = nodes.start(), nodes.start()
    publisher, channel = nodes.publisher(one), nodes.channel(two)
    for each in (publisher, channel):
        each.queue_declare("q", durable=True, arguments=POSTGRES)
    inbox = consume(channel, "q", auto_ack=True)
    wait_until(
        lambda: nodes.value("SELECT count(*) FROM penstock.participants WHERE waiting") == 1, "the consumer waits"
    )
    publisher.basic_publish("", "q", b"a")
    inbox.wait_for(channel, 1)
    assert inbox.bodies == [b"a"]


@pytest.mark.slow
def test_a_killed_node_returns_what_it_had_to_the_others(nodes: Nodes) -> None:
    survivor = nodes.start()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "serve", "--port", "0", "--in-memory", "--json", "--postgres", nodes.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        doomed = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{port}/")).channel()
        doomed.confirm_delivery()
        doomed.queue_declare("q", durable=True, arguments=POSTGRES)
        for number in range(10):
            doomed.basic_publish("", "q", b"%d" % number)
        held = consume(doomed, "q")
        held.wait_for(doomed, 10)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with suppress(pika.exceptions.AMQPError):
            doomed.connection.process_data_events(0)
        channel = nodes.channel(survivor)
        channel.queue_declare("q", durable=True, arguments=POSTGRES)
        inbox = consume(channel, "q")
        inbox.wait_for(channel, 10)
        assert inbox.bodies == [b"%d" % number for number in range(10)]
        assert set(inbox.redelivered) == {True}
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vhost", "queue", "name"),
    [
        ("/", "orders", "orders"),
        ("/", "a/b", "a/b"),
        ("/", "//x/y", "//%2F///x/y"),
        ("shop", "orders", "//shop/orders"),
        ("a/b c", "q", "//a%2Fb%20c/q"),
    ],
)
def test_a_queue_has_a_name_in_the_database_that_no_other_queue_has(vhost: str, queue: str, name: str) -> None:
    assert postgres_name(vhost, queue) == name


def test_queues_of_different_vhosts_have_different_messages(nodes: Nodes) -> None:
    broker = nodes.start(vhosts=["/", "shop"])
    url = broker.url.removesuffix("%2F")
    channel = nodes.channel(broker)
    other = pika.BlockingConnection(pika.URLParameters(url + "shop")).channel()
    for each in (channel, other):
        each.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.basic_publish("", "q", b"root")
    other.basic_publish("", "q", b"shop")
    assert get_one(other, "q", auto_ack=True)[2] == b"shop"
    assert get_one(channel, "q", auto_ack=True)[2] == b"root"
    names = nodes.sql.execute("SELECT name FROM penstock.queues ORDER BY name").fetchall()
    assert names == [("//shop/q",), ("q",)]
    other.connection.close()


def test_any_name_will_do(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    for name in ('it\'s "quoted"', "ü" * 100, "a" * 255, "with space; DROP TABLE x", "//a/b"):
        channel.queue_declare(name, durable=True, arguments=POSTGRES)
        inbox = consume(channel, name, auto_ack=True)
        channel.basic_publish("", name, name.encode())
        inbox.wait_for(channel, 1)
        assert inbox.bodies == [name.encode()]


# --- which queues -----------------------------------------------------------------------------------------


REFUSED: list[tuple[dict[str, object], dict[str, bool], str]] = [
    ({"x-backing": "oracle"}, {}, "expected 'postgres' or 'local'"),
    ({"x-backing": 1}, {}, "expected 'postgres' or 'local'"),
    ({}, {"durable": False}, "declare it durable"),
    ({}, {"exclusive": True}, "cannot be exclusive"),
    ({}, {"auto_delete": True}, "cannot be auto-delete"),
    ({"x-max-priority": 3}, {}, "combined with 'x-max-priority'"),
    ({"x-max-length": 3}, {}, "combined with 'x-max-length'"),
    ({"x-max-length-bytes": 3}, {}, "combined with 'x-max-length-bytes'"),
    ({"x-single-active-consumer": True}, {}, "combined with 'x-single-active-consumer'"),
    ({"x-group-header": "g"}, {}, "combined with 'x-group-header'"),
    ({"x-last-value-header": "g"}, {}, "combined with 'x-last-value-header'"),
    ({"x-sort-header": "g"}, {}, "combined with 'x-sort-header'"),
    ({"x-expires": 1000}, {}, "combined with 'x-expires'"),
    ({"x-delivery-limit": 3}, {}, "combined with 'x-delivery-limit'"),
    ({"x-queue-type": "quorum"}, {}, "quorum"),
]


def test_what_such_a_queue_cannot_have_is_refused_with_the_reason(nodes: Nodes) -> None:
    broker = nodes.start()
    for arguments, flags, words in REFUSED:
        channel = nodes.channel(broker)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_declare("q", **{"durable": True, **flags}, arguments={**POSTGRES, **arguments})
        assert refused.value.reply_code == 406
        assert "invalid arg 'x-backing' for queue 'q' in vhost '/'" in refused.value.reply_text
        assert words in refused.value.reply_text
    assert nodes.value("SELECT count(*) FROM penstock.queues") == 0


def test_a_consumer_that_chooses_is_refused(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        consume(channel, "q", x_selector="a = 1")
    assert refused.value.reply_code == 406
    assert "leave out the selector" in refused.value.reply_text


def test_a_broker_without_a_database_says_how_to_get_one() -> None:
    with Broker() as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_declare("q", durable=True, arguments=POSTGRES)
        assert "start it with --postgres URL" in refused.value.reply_text
        channel.connection.close()


def test_a_second_declaration_may_not_say_otherwise_but_may_say_nothing(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.queue_declare("q", durable=True)
    channel.queue_declare("local", durable=True)
    for name, backing in (("q", "local"), ("local", "postgres")):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            nodes.channel(broker).queue_declare(name, durable=True, arguments={"x-backing": backing})
        assert refused.value.reply_code == 406
        assert "inequivalent arg 'x-backing'" in refused.value.reply_text


def test_a_pattern_chooses_queues_and_stays_true_after_a_restart(nodes: Nodes, tmp_path: Path) -> None:
    broker = nodes.start(postgres_queues=["order*"], data_dir=str(tmp_path / "node"))
    channel = nodes.channel(broker)
    channel.queue_declare("orders", durable=True)
    channel.queue_declare("order.local", durable=True, arguments={"x-backing": "local"})
    channel.queue_declare("order.mine", exclusive=True)
    channel.queue_declare("other", durable=True)
    # A local queue opens its backing for its first message.
    for name in ("order.local", "other"):
        channel.basic_publish("", name, b"a", pika.BasicProperties(delivery_mode=2))
        channel.queue_declare(name, passive=True)

    def kinds() -> dict[str, str]:
        return broker.call(
            lambda server: {name: queue_of(server, name).backing.KIND for name in ("orders", "order.local", "other")}
        )

    assert kinds() == {"orders": "postgres", "order.local": "variable", "other": "variable"}
    channel.basic_publish("", "orders", b"a")
    nodes.wait_for_ready("orders", 1)
    broker.stop()
    broker._config.postgres_queues = []
    broker.start()
    assert kinds() == {"orders": "postgres", "order.local": "variable", "other": "variable"}
    assert ready_count(nodes.channel(broker), "orders") == 1


# --- starting ---------------------------------------------------------------------------------------------


def test_a_database_that_is_not_there_is_an_error_at_the_start() -> None:
    with pytest.raises(StartupError, match=r"cannot use PostgreSQL: .*Is it running"):
        Broker(postgres_url="postgresql://nobody@127.0.0.1:1/none").start()


def test_what_is_not_a_url_is_an_error_at_the_start() -> None:
    with pytest.raises(StartupError, match="does not understand this URL"):
        Broker(postgres_url="host=a nonsense").start()


def test_an_error_in_the_url_does_not_tell_its_password() -> None:
    with pytest.raises(StartupError) as refused:
        Broker(postgres_url="postgresql://user:secret@127.0.0.1/db?sslmod=x").start()
    assert "secret" not in str(refused.value)


def test_patterns_without_a_database_are_an_error() -> None:
    with pytest.raises(StartupError, match="give --postgres URL"):
        Config(postgres_queues=["*"])


def test_queues_in_postgres_cannot_be_restored_without_it(nodes: Nodes, tmp_path: Path) -> None:
    broker = nodes.start(data_dir=str(tmp_path / "node"))
    nodes.channel(broker).queue_declare("q", durable=True, arguments=POSTGRES)
    broker.stop()
    with pytest.raises(StartupError, match="start this broker with --postgres URL"):
        Broker(data_dir=tmp_path / "node").start()
