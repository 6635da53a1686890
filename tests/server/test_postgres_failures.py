"""Queues in PostgreSQL when something breaks: connections, the database, nodes. What was confirmed is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pika
import pika.exceptions
import psycopg
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock import limits
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import get_one, ready_count
from tests.pg_proxy import PgProxy
from tests.postgres_server import new_server
from tests.server.pika_clients import consume
from tests.server.postgres_nodes import PERSISTENT, POSTGRES, Nodes, nodes_on

# Of the statement that puts; the first time psycopg sends its text.
PUT = b"put_rows"


@pytest.fixture
def nodes(penstock_url: str) -> Iterator[Nodes]:
    with nodes_on(penstock_url) as opened:
        yield opened


@pytest.fixture
def proxy(nodes: Nodes, tmp_path: Path) -> Iterator[PgProxy]:
    made = PgProxy(nodes.url, tmp_path)
    yield made
    made.close()


def end_session(nodes: Nodes, name: str) -> None:
    """Terminate the session of a node that is called so, and wait until the node has noticed."""
    pid = nodes.value(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s AND datname = current_database()", name
    )
    assert nodes.value("SELECT pg_terminate_backend(%s)", pid), f"no session is called {name}"
    wait_until(
        lambda: nodes.value("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid) == 0, "the session has ended"
    )


def link_is_up(broker: Broker) -> bool:
    return broker.call(lambda server: server.broker.postgres.link.is_up())  # type: ignore[union-attr]


# --- connections ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["penstock broker put", "penstock consumer %", "penstock broker listen"])
def test_a_session_that_is_terminated_costs_no_message_and_no_consumer(nodes: Nodes, name: str) -> None:
    broker = nodes.start()
    publisher, channel = nodes.publisher(broker), nodes.channel(broker)
    publisher.queue_declare("q", durable=True, arguments=POSTGRES)
    inbox = consume(channel, "q")
    publisher.basic_publish("", "q", b"before", PERSISTENT)
    inbox.wait_for(channel, 1)
    end_session(nodes, name)
    for number in range(10):
        publisher.basic_publish("", "q", b"%d" % number, PERSISTENT)
    inbox.wait_for(channel, 11)
    assert sorted(inbox.bodies) == sorted([b"before", *[b"%d" % number for number in range(10)]])
    channel.basic_ack(0, multiple=True)
    channel.connection.process_data_events(0)
    nodes.wait_until_settled("q")
    assert nodes.ready("q") == 0


def test_what_consumers_have_stays_theirs_over_a_lost_session(nodes: Nodes) -> None:
    broker = nodes.start()
    publisher, channel = nodes.publisher(broker), nodes.channel(broker)
    publisher.queue_declare("q", durable=True, arguments=POSTGRES)
    inbox = consume(channel, "q")
    for number in range(5):
        publisher.basic_publish("", "q", b"%d" % number)
    inbox.wait_for(channel, 5)
    end_session(nodes, "penstock consumer %")
    publisher.basic_publish("", "q", b"5")
    inbox.wait_for(channel, 6)
    nodes.sql.execute("SELECT penstock.return_orphans()")
    assert nodes.ready("q") == 0
    channel.basic_ack(0, multiple=True)
    channel.connection.process_data_events(0)
    nodes.wait_until_settled("q")
    assert nodes.value("SELECT count(*) FROM penstock.messages") == 0
    assert nodes.value("SELECT count(*) FROM penstock.messages_history WHERE deliveries = 1") == 6


def test_questions_make_their_connection_again(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.basic_publish("", "q", b"a")
    end_session(nodes, "penstock broker question")
    assert ready_count(channel, "q") == 1
    assert channel.queue_purge("q").method.message_count == 1


def test_a_node_that_was_taken_for_gone_begins_anew(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    broker = nodes.start()
    publisher, channel = nodes.publisher(broker), nodes.channel(broker)
    publisher.queue_declare("q", durable=True, arguments=POSTGRES)
    inbox = consume(channel, "q")
    for number in range(3):
        publisher.basic_publish("", "q", b"%d" % number)
    inbox.wait_for(channel, 3)
    number = nodes.value("SELECT id FROM penstock.participants")
    nodes.sql.execute("SELECT penstock.detach(%s)", (number,))
    wait_until(lambda: nodes.value("SELECT max(id) FROM penstock.participants WHERE id > %s", number), "a new number")
    publisher.basic_publish("", "q", b"3")

    def settle() -> None:
        """Some may come a second time: acks in the name of the old number count for nothing."""
        channel.connection.process_data_events(0.05)
        if inbox.deliveries:
            channel.basic_ack(0, multiple=True)

    wait_until(lambda: nodes.value("SELECT count(*) FROM penstock.messages") == 0, "all are settled", settle)
    assert set(inbox.bodies) == {b"0", b"1", b"2", b"3"}
    assert "went to others" in caplog.text


def test_a_queue_that_was_dropped_with_sql_is_made_again_by_its_consumers(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    inbox = consume(channel, "q", auto_ack=True)
    wait_until(lambda: nodes.value("SELECT count(*) FROM penstock.participants") == 1, "the node is attached")
    nodes.sql.execute("SELECT penstock.drop_queue('q')")
    wait_until(lambda: nodes.value("SELECT count(*) FROM penstock.participants") == 1, "the node is attached again")
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'a')")
    inbox.wait_for(channel, 1)
    assert inbox.bodies == [b"a"]


# --- confirms -------------------------------------------------------------------------------------------


def test_a_commit_that_nobody_heard_of_is_a_nack(nodes: Nodes, proxy: PgProxy) -> None:
    broker = nodes.start(postgres_url=proxy.url)
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    proxy.cut_at(PUT, is_carried_out=True)
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "q", b"unknown")
    assert proxy.cut_count == 1
    # It is there: a nack says that nobody knows.
    assert nodes.payloads("q") == [b"unknown"]
    channel.basic_publish("", "q", b"known")
    assert nodes.payloads("q") == [b"unknown", b"known"]


def test_a_commit_that_nobody_heard_of_ends_a_transactional_connection(nodes: Nodes, proxy: PgProxy) -> None:
    broker = nodes.start(postgres_url=proxy.url)
    channel = nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.tx_select()
    channel.basic_publish("", "q", b"a")
    proxy.cut_at(PUT, is_carried_out=True)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        channel.tx_commit()
    assert closed.value.reply_code == 541
    assert "PostgreSQL" in closed.value.reply_text


def test_a_publish_waits_for_a_database_that_comes_back(nodes: Nodes, proxy: PgProxy) -> None:
    broker = nodes.start(postgres_url=proxy.url)
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    proxy.shut()
    wait_until(lambda: not link_is_up(broker), "the broker notices")
    opening = threading.Timer(0.3, proxy.open)
    opening.start()
    channel.basic_publish("", "q", b"a")
    opening.join()
    assert nodes.payloads("q") == [b"a"]


def test_a_publish_does_not_wait_for_ever(nodes: Nodes, proxy: PgProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PG_OUTBOX_WAIT_S", 0.2)
    broker = nodes.start(postgres_url=proxy.url)
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    proxy.shut()
    wait_until(lambda: not link_is_up(broker), "the broker notices")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "q", b"a")
    proxy.open()
    wait_until(lambda: link_is_up(broker), "the broker notices")
    assert nodes.payloads("q") == []


def test_what_waits_for_the_database_is_bounded(nodes: Nodes, proxy: PgProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PG_OUTBOX_BYTES_MAX", 5_000)
    broker = nodes.start(postgres_url=proxy.url)
    channel, other = nodes.channel(broker), nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    proxy.shut()
    wait_until(lambda: not link_is_up(broker), "the broker notices")
    for _ in range(4):
        channel.basic_publish("", "q", b"x" * 1_000)
    channel.exchange_declare("amq.direct", passive=True)
    with pytest.raises(pika.exceptions.NackError):
        other.basic_publish("", "q", b"x" * 1_000)
    proxy.open()
    nodes.wait_for_ready("q", 4)


# --- the database is down ---------------------------------------------------------------------------------


def test_while_the_database_is_down_methods_say_so_at_once(nodes: Nodes, proxy: PgProxy) -> None:
    broker = nodes.start(postgres_url=proxy.url)
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.queue_declare("local", durable=True)
    channel.basic_publish("", "q", b"a")
    proxy.shut()
    wait_until(lambda: not link_is_up(broker), "the broker notices")
    methods: list[Callable[[BlockingChannel], object]] = [
        lambda channel: channel.queue_declare("new", durable=True, arguments=POSTGRES),
        lambda channel: channel.queue_declare("q", passive=True),
        lambda channel: channel.queue_purge("q"),
        lambda channel: channel.queue_delete("q"),
        lambda channel: channel.basic_get("q"),
    ]
    for method in methods:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            method(nodes.channel(broker))
        assert refused.value.reply_code == 404
        assert "in PostgreSQL, which cannot be asked now; try again later" in refused.value.reply_text
    channel = nodes.publisher(broker)
    channel.basic_publish("", "local", b"others go on")
    proxy.open()
    wait_until(lambda: link_is_up(broker), "the broker notices")
    assert ready_count(channel, "q") == 1


def test_consumers_go_on_when_the_database_is_back(nodes: Nodes, proxy: PgProxy) -> None:
    broker = nodes.start(postgres_url=proxy.url)
    publisher, channel = nodes.publisher(broker), nodes.channel(broker)
    publisher.queue_declare("q", durable=True, arguments=POSTGRES)
    inbox = consume(channel, "q")
    publisher.basic_publish("", "q", b"a")
    inbox.wait_for(channel, 1)
    proxy.shut()
    wait_until(lambda: not link_is_up(broker), "the broker notices")
    # Settled while nobody could be told.
    channel.basic_ack(inbox.tags[0])
    channel.connection.process_data_events(0)
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'b')")
    proxy.open()
    inbox.wait_for(channel, 2)
    channel.basic_ack(inbox.tags[1])
    channel.connection.process_data_events(0)
    nodes.wait_until_settled("q")
    assert inbox.bodies == [b"a", b"b"]
    assert nodes.value("SELECT count(*) FROM penstock.messages_history") == 2


def test_a_reservation_whose_answer_was_lost_is_found_and_given_back(nodes: Nodes, proxy: PgProxy) -> None:
    broker = nodes.start(postgres_url=proxy.url)
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    # Attached, so that its number is taken up again.
    assert channel.basic_get("q")[0] is None
    channel.basic_publish("", "q", b"a")
    proxy.cut_at(b".reserve(", is_carried_out=True)
    inbox = consume(channel, "q")
    inbox.wait_for(channel, 1)
    assert proxy.cut_count == 1
    assert inbox.redelivered == [False]


@pytest.mark.slow
def test_every_confirmed_message_survives_a_crash_of_the_database() -> None:
    with ExitStack() as running:
        server = new_server({"synchronous_commit": "on"})
        running.callback(server.remove)
        broker = running.enter_context(Broker(postgres_url=server.url))
        setup = pika.BlockingConnection(pika.URLParameters(broker.url))
        setup.channel().queue_declare("q", durable=True, arguments=POSTGRES)
        setup.close()
        confirmed: list[bytes] = []
        stopping = threading.Event()

        def publish() -> None:
            connection = pika.BlockingConnection(pika.URLParameters(broker.url))
            channel = connection.channel()
            channel.confirm_delivery()
            number = 0
            while not stopping.is_set():
                number += 1
                try:
                    channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
                except pika.exceptions.NackError:
                    continue
                confirmed.append(b"%d" % number)
            connection.close()

        publisher = threading.Thread(target=publish)
        publisher.start()
        for crash in range(2):
            before = len(confirmed)
            wait_until(lambda before=before: len(confirmed) >= before + 200, f"messages are confirmed ({crash})")
            server.stop("immediate")
            server.start()
        before = len(confirmed)
        wait_until(lambda: len(confirmed) >= before + 200, "messages are confirmed again")
        stopping.set()
        publisher.join()
        with psycopg.connect(server.url, autocommit=True) as sql:
            there = {row[0] for row in sql.execute("SELECT payload FROM penstock.messages").fetchall()}
        assert set(confirmed) <= there
        consumer = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        get_one(consumer, "q", auto_ack=True)
        consumer.connection.close()
