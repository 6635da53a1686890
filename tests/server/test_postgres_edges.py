"""Queues in PostgreSQL at their bounds: large and odd messages, fan-out, limits, other loops, several hosts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pika
import pika.exceptions
import pytest

from penstock import limits
from penstock.config import Config
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import get_one, ready_count
from tests.pg_proxy import PgProxy
from tests.server.brokers import UvloopBroker, check_health, queue_of, unread_connection_count
from tests.server.pika_clients import consume
from tests.server.postgres_nodes import POSTGRES, Nodes, nodes_on


@pytest.fixture
def nodes(penstock_url: str) -> Iterator[Nodes]:
    with nodes_on(penstock_url) as opened:
        yield opened


# --- messages -------------------------------------------------------------------------------------------


def test_messages_of_any_size_come_back_whole(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    bodies = [bytes(index % 251 for index in range(size)) for size in (0, 1, 131_072, 5_000_000)]
    for body in bodies:
        channel.basic_publish("", "q", body)
    inbox = consume(channel, "q", auto_ack=True)
    inbox.wait_for(channel, len(bodies))
    assert inbox.bodies == bodies


def test_batches_and_refills_are_cut_by_bytes(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PG_BATCH_BYTES_MAX", 2_000)
    monkeypatch.setattr(limits, "PG_BATCH_ROWS_MAX", 7)
    monkeypatch.setattr(limits, "PG_REFILL_BYTES_MAX", 3_000)
    broker = nodes.start()
    channel = nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    bodies = [b"%03d" % number + b"x" * (number * 37 % 900) for number in range(150)]
    inbox = consume(channel, "q", auto_ack=True)
    for body in bodies:
        channel.basic_publish("", "q", body)
    inbox.wait_for(channel, 150)
    assert inbox.bodies == bodies


def test_one_publish_reaches_queues_of_both_kinds_and_is_confirmed_once(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    for name, arguments in (("one", POSTGRES), ("two", POSTGRES), ("local", None)):
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind(name, "amq.fanout")
    for number in range(5):
        channel.basic_publish("amq.fanout", "", b"%d" % number)
    assert nodes.payloads("one") == nodes.payloads("two") == [b"0", b"1", b"2", b"3", b"4"]
    assert ready_count(channel, "local") == 5


def test_a_queue_that_was_dropped_costs_the_others_of_its_batch_nothing(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    for name in ("one", "two"):
        channel.queue_declare(name, durable=True, arguments=POSTGRES)
        channel.queue_bind(name, "amq.fanout")
    nodes.sql.execute("SELECT penstock.drop_queue('one')")
    channel.basic_publish("amq.fanout", "", b"a")
    assert nodes.payloads("one") == nodes.payloads("two") == [b"a"]


def test_a_message_that_the_database_refuses_costs_other_queues_nothing(nodes: Nodes) -> None:
    broker = nodes.start()
    channel, publisher = nodes.channel(broker), nodes.publisher(broker)
    for name in ("one", "two"):
        channel.queue_declare(name, durable=True, arguments=POSTGRES)
    nodes.sql.execute("ALTER TABLE penstock.messages ADD CHECK (payload <> 'bad')")
    with pytest.raises(pika.exceptions.NackError):
        publisher.basic_publish("", "one", b"bad")
    for _ in range(20):
        channel.basic_publish("", "one", b"bad")
        channel.basic_publish("", "two", b"good")
    nodes.wait_for_ready("two", 20)
    publisher.basic_publish("", "one", b"good")
    assert nodes.payloads("one") == [b"good"]


def test_queues_that_come_and_go_leave_no_locks(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)

    def locks() -> int:
        return int(nodes.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"))

    for number in range(5):
        channel.queue_declare(f"q{number}", durable=True, arguments=POSTGRES)
        assert channel.basic_get(f"q{number}")[0] is None
    assert locks() == 5
    for number in range(5):
        channel.queue_delete(f"q{number}")
    wait_until(lambda: locks() == 0, "the locks are gone")


# --- bounds ---------------------------------------------------------------------------------------------


def test_consumers_are_not_given_more_than_the_bound_until_they_settle(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PG_PENDING_MESSAGES_MAX", 6)
    monkeypatch.setattr(limits, "PG_REFILL_FIRST", 2)
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    for number in range(40):
        channel.basic_publish("", "q", b"%d" % number)
    inbox = consume(channel, "q")
    taken = 0
    while len(inbox) < 40:
        inbox.wait_for(channel, taken + 1)
        assert len(inbox) - taken <= 6
        taken = len(inbox)
        channel.basic_ack(inbox.tags[-1], multiple=True)
    assert inbox.bodies == [b"%d" % number for number in range(40)]


def test_publishers_wait_while_the_database_does(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PG_OUTBOX_BYTES_HIGH", 10_000)
    broker = nodes.start()
    channel = nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    with nodes.sql.transaction():
        nodes.sql.execute("LOCK TABLE penstock.messages IN ACCESS EXCLUSIVE MODE")
        for _ in range(50):
            channel.basic_publish("", "q", b"x" * 1_000)
        wait_until(lambda: unread_connection_count(broker) == 1, "the publisher is held")
    nodes.wait_for_ready("q", 50)
    wait_until(lambda: unread_connection_count(broker) == 0, "the publisher is let go")


# --- waking -----------------------------------------------------------------------------------------------


def test_a_notification_that_was_lost_costs_a_moment_and_no_message(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    inbox = consume(channel, "q", auto_ack=True)
    wait_until(lambda: nodes.value("SELECT count(*) FROM penstock.participants WHERE waiting") == 1, "it waits")
    nodes.sql.execute("UPDATE penstock.participants SET waiting = false")
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'unheard')")
    inbox.wait_for(channel, 1)
    assert inbox.bodies == [b"unheard"]


def test_a_scheduled_row_is_delivered_when_it_is_due(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    inbox = consume(channel, "q", auto_ack=True)
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'later', now() + interval '200 milliseconds')")
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'now')")
    inbox.wait_for(channel, 2)
    assert inbox.bodies == [b"now", b"later"]


def test_a_call_that_fails_is_tried_again(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    nodes.sql.execute("ALTER FUNCTION penstock.reserve RENAME TO hidden")
    with caplog.at_level(logging.ERROR):
        inbox = consume(channel, "q", auto_ack=True)
        channel.basic_publish("", "q", b"a")
        wait_until(lambda: "PostgreSQL has refused work for queue 'q'" in caplog.text, "the error is logged")
    nodes.sql.execute("ALTER FUNCTION penstock.hidden RENAME TO reserve")
    inbox.wait_for(channel, 1)
    assert inbox.bodies == [b"a"]


# --- loops and hosts --------------------------------------------------------------------------------------


def test_the_other_loop_does_the_same(nodes: Nodes) -> None:
    with UvloopBroker(Config(postgres_url=nodes.url)) as broker:
        channel = nodes.publisher(broker)
        channel.queue_declare("q", durable=True, arguments=POSTGRES)
        inbox = consume(channel, "q")
        for number in range(20):
            channel.basic_publish("", "q", b"%d" % number)
        inbox.wait_for(channel, 20)
        channel.basic_ack(0, multiple=True)
        nodes.value("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'penstock c%%'")
        channel.basic_publish("", "q", b"last")
        inbox.wait_for(channel, 21)
        assert inbox.bodies == [*[b"%d" % number for number in range(20)], b"last"]
        check_health(broker)
        channel.connection.close()


def test_with_several_hosts_the_next_one_is_used_when_one_is_gone(nodes: Nodes, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    proxies = [PgProxy(nodes.url, folder) for folder in folders]
    hosts = ",".join(map(str, folders))
    broker = nodes.start(postgres_url=nodes.url.split("?")[0] + f"?host={quote(hosts, safe='')}")
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    proxies[0].shut()
    wait_until(
        lambda: broker.call(lambda server: all(each.connection for each in server.broker.postgres.link.connections)),  # type: ignore[union-attr]
        "all connections are there again",
    )
    channel.basic_publish("", "q", b"a")
    assert get_one(channel, "q", auto_ack=True)[2] == b"a"
    broker.stop()
    for proxy in proxies:
        proxy.close()


def test_the_window_adapts_to_how_fast_it_is_taken(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    for _ in range(1_000):
        channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
    nodes.wait_for_ready("q", 1_000)
    inbox = consume(channel, "q", auto_ack=True)
    inbox.wait_for(channel, 1_000)
    assert int(broker.call(lambda server: queue_of(server, "q").backing.status()["refill"])) > 100
