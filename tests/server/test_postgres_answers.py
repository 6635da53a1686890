"""Methods on queues in PostgreSQL are answered when the database has answered, and nobody else waits for that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika.exceptions
import psycopg
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from penstock import limits
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import get_one, ready_count
from tests.pg_proxy import PgProxy
from tests.server.amqp_client import Client
from tests.server.pika_clients import consume
from tests.server.postgres_nodes import PERSISTENT, POSTGRES, Nodes, nodes_on

Method = Callable[[BlockingChannel], object]


@pytest.fixture
def nodes(penstock_url: str) -> Iterator[Nodes]:
    with nodes_on(penstock_url) as opened:
        yield opened


@pytest.fixture
def proxy(nodes: Nodes, tmp_path: Path) -> Iterator[PgProxy]:
    made = PgProxy(nodes.url, tmp_path)
    yield made
    made.close()


class Asked:
    """A method that is under way on a connection of its own."""

    def __init__(self, channel: BlockingChannel, method: Method) -> None:
        self.error: pika.exceptions.ChannelClosedByBroker | None = None
        self.answer: object = None
        self.thread = threading.Thread(target=self._ask, args=(channel, method))
        self.thread.start()

    def _ask(self, channel: BlockingChannel, method: Method) -> None:
        try:
            self.answer = method(channel)
        except pika.exceptions.ChannelClosedByBroker as error:
            self.error = error

    def wait(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive(), "the method was never answered"


@contextmanager
def transaction(nodes: Nodes, statement: str) -> Iterator[None]:
    """A session of somebody else's that has done this, and not committed."""
    with psycopg.connect(nodes.url) as other:
        other.execute(statement.encode())
        yield
        other.rollback()


def waits_in_the_database(nodes: Nodes) -> bool:
    """Whether a statement of a broker waits there for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return bool(nodes.value(waiting))


PUT = "SELECT penstock.put('q', 'not committed')"
METHODS: dict[str, tuple[str, Method]] = {
    "delete": (PUT, lambda channel: channel.queue_delete("q")),
    "declare a new one": (
        "SELECT penstock.use_queue('new')",
        lambda channel: channel.queue_declare("new", durable=True, arguments=POSTGRES),
    ),
    "count": (
        "LOCK TABLE penstock.stats_deltas IN ACCESS EXCLUSIVE MODE",
        lambda channel: channel.queue_declare("q", passive=True),
    ),
    "purge": ("LOCK TABLE penstock.messages IN ACCESS EXCLUSIVE MODE", lambda channel: channel.queue_purge("q")),
    "get": ("LOCK TABLE penstock.messages IN ACCESS EXCLUSIVE MODE", lambda channel: channel.basic_get("q")),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_waits_for_the_database_costs_other_connections_nothing(nodes: Nodes, name: str) -> None:
    broker = nodes.start()
    channel, other = nodes.publisher(broker), nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.basic_publish("", "q", b"a", PERSISTENT)
    other.queue_declare("local", durable=True)
    statement, method = METHODS[name]
    with transaction(nodes, statement):
        asked = Asked(nodes.channel(broker), method)
        wait_until(lambda: waits_in_the_database(nodes), f"{name} waits for the transaction")
        for _ in range(20):
            other.basic_publish("", "local", b"goes on", PERSISTENT)
        assert ready_count(other, "local") == 20
        assert asked.thread.is_alive(), "the others have waited for its answer"
    asked.wait()
    assert asked.error is None


def test_a_queue_that_cannot_be_dropped_stays_with_its_messages(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PG_QUESTION_S", 0.5)
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.basic_publish("", "q", b"a", PERSISTENT)
    with transaction(nodes, PUT):
        refused = Asked(nodes.channel(broker), lambda channel: channel.queue_delete("q"))
        refused.wait()
        assert refused.error is not None
        assert refused.error.reply_code == 405
        assert "cannot obtain access to locked queue 'q'" in refused.error.reply_text
        channel.basic_publish("", "q", b"b", PERSISTENT)
    assert ready_count(channel, "q") == 2
    assert [get_one(channel, "q")[2] for _ in range(2)] == [b"a", b"b"]
    channel.queue_delete("q")
    assert nodes.value("SELECT count(*) FROM penstock.queues") == 0


def test_a_queue_whose_drop_nobody_heard_of_is_dropped_again(nodes: Nodes, proxy: PgProxy) -> None:
    broker = nodes.start(postgres_url=proxy.url)
    channel = nodes.publisher(broker)
    channel.queue_declare("other", durable=True, arguments=POSTGRES)
    channel.queue_delete("other")
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.basic_publish("", "q", b"a", PERSISTENT)
    proxy.cut_at(b"drop_queue", is_carried_out=True)
    channel.queue_delete("q")
    assert proxy.cut_count == 1
    assert nodes.value("SELECT count(*) FROM penstock.queues") == 0
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'q'"):
        channel.queue_declare("q", passive=True)


def test_a_queue_that_the_database_refuses_is_not_declared(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PG_QUESTION_S", 0.3)
    broker = nodes.start()
    with transaction(nodes, "SELECT penstock.use_queue('q')"):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            nodes.channel(broker).queue_declare("q", durable=True, arguments=POSTGRES)
        assert refused.value.reply_code == 405
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'q'"):
            nodes.channel(broker).queue_declare("q", passive=True)
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.basic_publish("", "q", b"a", PERSISTENT)
    assert ready_count(channel, "q") == 1


def test_nobody_is_told_that_a_queue_is_empty_that_could_not_be_looked_into(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PG_GET_S", 0.3)
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    channel.basic_publish("", "q", b"a", PERSISTENT)
    with transaction(nodes, "LOCK TABLE penstock.messages IN ACCESS EXCLUSIVE MODE"):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            nodes.channel(broker).basic_get("q")
        assert refused.value.reply_code == 404
        assert "cannot be asked now" in refused.value.reply_text
    nodes.wait_until_settled("q")
    assert get_one(channel, "q")[2] == b"a"


def test_what_is_sent_behind_a_delete_that_waits_comes_behind_it(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)

    def delete_and_declare(behind: BlockingChannel) -> int:
        behind.queue_delete("q")
        behind.queue_declare("q", durable=True, arguments=POSTGRES)
        behind.basic_publish("", "q", b"behind")
        return ready_count(behind, "q")

    with transaction(nodes, PUT):
        asked = Asked(nodes.channel(broker), delete_and_declare)
        wait_until(lambda: waits_in_the_database(nodes), "the deletion waits for the transaction")
        # This one comes before the queue is gone, and goes with it; its publisher is told that nothing is lost by that.
        sent = Asked(channel, lambda channel: channel.basic_publish("", "q", b"before", PERSISTENT))
    asked.wait()
    sent.wait()
    assert (asked.error, sent.error) == (None, None)
    assert asked.answer == 1
    assert nodes.payloads("q") == [b"behind"]


def test_two_who_delete_a_queue_at_once_are_both_answered(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    with transaction(nodes, PUT):
        asked = [Asked(nodes.channel(broker), lambda channel: channel.queue_delete("q")) for _ in range(2)]
        wait_until(lambda: waits_in_the_database(nodes), "the deletion waits for the transaction")
    for each in asked:
        each.wait()
        assert each.error is None
    assert nodes.value("SELECT count(*) FROM penstock.queues") == 0


def test_a_queue_is_deleted_also_when_its_client_has_gone_meanwhile(nodes: Nodes) -> None:
    broker = nodes.start()
    channel = nodes.publisher(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    leaving = Client("127.0.0.1", broker.port)
    leaving.handshake()
    leaving.open_channel()
    with transaction(nodes, PUT):
        leaving.send(1, commands.Queue.Delete(queue="q"))
        wait_until(lambda: waits_in_the_database(nodes), "the deletion waits for the transaction")
        leaving.drop()
    wait_until(lambda: nodes.value("SELECT count(*) FROM penstock.queues") == 0, "the queue is dropped")
    wait_until(
        lambda: broker.call(lambda server: "q" not in server.broker.vhosts["/"].queues), "the queue is deleted here"
    )


def test_a_browser_reads_what_is_in_the_database_and_what_comes_later(nodes: Nodes) -> None:
    broker = nodes.start()
    channel, browsing = nodes.publisher(broker), nodes.channel(broker)
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    bodies = [b"%d" % number for number in range(1200)]
    nodes.sql.execute("SELECT penstock.put_many('q', %s)", (bodies,))
    inbox = consume(browsing, "q", auto_ack=True, x_browse=True)
    inbox.wait_for(browsing, 1200)
    channel.basic_publish("", "q", b"published", PERSISTENT)
    inbox.wait_for(browsing, 1201)
    nodes.sql.execute("SELECT id FROM penstock.put('q', 'put by somebody else')")
    inbox.wait_for(browsing, 1202)
    assert inbox.bodies == [*bodies, b"published", b"put by somebody else"]
    assert nodes.ready("q") == 1202
