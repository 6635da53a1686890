"""What is declared durable is there after a restart, clean or not; the rest is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from penstock.config import Config
from penstock.server.server import Server
from penstock.testing import Broker
from tests.server.amqp_client import Client
from tests.server.brokers import check_health

Restart = Callable[[Broker], None]


def restart_cleanly(broker: Broker) -> None:
    broker.stop()
    broker.start()


def restart_after_a_crash(broker: Broker) -> None:
    broker.kill()
    broker.start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data") as broker:
        yield broker
        check_health(broker)


@pytest.fixture(params=[restart_cleanly, restart_after_a_crash])
def restart(request: pytest.FixtureRequest) -> Restart:
    chosen: Restart = request.param
    return chosen


@contextmanager
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    try:
        yield connection.channel()
    finally:
        # A broker that was restarted within the block has closed it.
        with suppress(AMQPError):
            connection.close()


def topology(broker: Broker) -> dict[str, Any]:
    """Queues, exchanges and bindings, by what can be seen of them."""

    def look(server: Server) -> dict[str, Any]:
        vhost = server.broker.vhosts["/"]
        return {
            "queues": {
                name: (queue.durable, queue.auto_delete, queue.arguments) for name, queue in vhost.queues.items()
            },
            "exchanges": {
                name: (each.type_name, each.durable, each.auto_delete, each.internal, each.arguments)
                for name, each in vhost.exchanges.items()
                if not name.startswith("amq.") and name
            },
            "bindings": {key for each in vhost.exchanges.values() for key in [b.key for b in each.bindings()]},
        }

    return broker.call(look)


def test_durable_things_come_back_as_they_were(broker: Broker, restart: Restart) -> None:
    with channel(broker) as open_channel:
        open_channel.exchange_declare("x", "topic", durable=True, arguments={"alternate-exchange": "y"})
        open_channel.exchange_declare("y", "headers", durable=True, internal=True)
        open_channel.queue_declare("q", durable=True, arguments={"x-max-length": 5, "x-any": {"a": [1, True, "x"]}})
        open_channel.queue_declare("ü€", durable=True, auto_delete=True)
        server_named = open_channel.queue_declare("", durable=True).method.queue
        open_channel.queue_bind("q", "x", "a.#", {"n": 1})
        open_channel.queue_bind("q", "amq.direct", "key")
        open_channel.queue_bind("ü€", "x", "")
        open_channel.exchange_bind("y", "x", "b.*")
    before = topology(broker)
    assert set(before["queues"]) == {"q", "ü€", server_named}
    assert len(before["bindings"]) == 4
    for _ in range(2):
        restart(broker)
        assert topology(broker) == before
    with channel(broker) as open_channel:
        # Equal declarations are equal.
        open_channel.queue_declare("q", durable=True, arguments={"x-max-length": 5})
        open_channel.basic_publish("x", "a.b", b"m")
        assert open_channel.basic_get("q", auto_ack=True)[2] == b"m"


def test_transient_things_do_not_come_back(broker: Broker, restart: Restart) -> None:
    with channel(broker) as open_channel:
        open_channel.exchange_declare("x", durable=True)
        open_channel.queue_declare("q", durable=True)
        open_channel.exchange_declare("t")
        open_channel.queue_declare("t")
        open_channel.queue_declare("mine", durable=True, exclusive=True)
        open_channel.queue_bind("t", "x", "to what does not last")
        open_channel.queue_bind("q", "t", "from what does not last")
        open_channel.exchange_bind("x", "t", "from what does not last")
        restart(broker)
    seen = topology(broker)
    assert (set(seen["queues"]), set(seen["exchanges"]), seen["bindings"]) == ({"q"}, {"x"}, set())


def test_what_was_deleted_stays_deleted(broker: Broker, restart: Restart) -> None:
    with channel(broker) as open_channel:
        for name in ("a", "b", "c"):
            open_channel.exchange_declare(name, durable=True)
            open_channel.queue_declare(name, durable=True)
            open_channel.queue_bind(name, name, "key")
        restart(broker)
    with channel(broker) as open_channel:
        open_channel.queue_delete("a")
        open_channel.exchange_delete("b")
        open_channel.queue_unbind("c", "c", "key")
        restart(broker)
    seen = topology(broker)
    assert (set(seen["queues"]), set(seen["exchanges"]), seen["bindings"]) == ({"b", "c"}, {"a", "c"}, set())


def test_what_deletes_itself_stays_deleted(broker: Broker, restart: Restart) -> None:
    with channel(broker) as open_channel:
        open_channel.exchange_declare("first", durable=True, auto_delete=True)
        open_channel.exchange_declare("second", durable=True, auto_delete=True)
        open_channel.queue_declare("q", durable=True, auto_delete=True)
        open_channel.exchange_bind("second", "first", "key")
        open_channel.queue_bind("q", "second", "key")
        restart(broker)
    assert set(topology(broker)["exchanges"]) == {"first", "second"}
    with channel(broker) as open_channel:
        tag = open_channel.basic_consume("q", lambda *_: None)
        # The queue goes with its consumer, and the exchanges with their bindings, one after the other.
        open_channel.basic_cancel(tag)
        # Nobody waits for that to be on disk; this does.
        open_channel.queue_declare("barrier", durable=True)
        restart(broker)
    seen = topology(broker)
    assert (set(seen["queues"]), set(seen["exchanges"])) == ({"barrier"}, set())


def test_a_queue_that_was_deleted_and_declared_again_is_empty(broker: Broker, restart: Restart) -> None:
    with channel(broker) as open_channel:
        open_channel.confirm_delivery()
        open_channel.queue_declare("q", durable=True)
        open_channel.basic_publish("", "q", b"old", pika.BasicProperties(delivery_mode=2))
        open_channel.queue_delete("q")
        open_channel.queue_declare("q", durable=True, arguments={"x-max-length": 7})
        restart(broker)
    with channel(broker) as open_channel:
        assert open_channel.queue_declare("q", passive=True).method.message_count == 0
        open_channel.queue_declare("q", durable=True, arguments={"x-max-length": 7})


def test_many_definitions_survive_checkpoints(broker: Broker, restart: Restart) -> None:
    with channel(broker) as open_channel:
        for number in range(60):
            open_channel.queue_declare(f"q{number}", durable=True)
            open_channel.queue_bind(f"q{number}", "amq.topic", f"key.{number}")
            if number % 20 == 10:
                broker.call(lambda server: server.broker.node and server.broker.node.checkpoint_now())
            if number % 3 == 0:
                open_channel.queue_delete(f"q{number}")
        before = topology(broker)
        restart(broker)
    assert len(before["queues"]) == len(before["bindings"]) == 40
    assert topology(broker) == before


def test_vhosts_of_the_configuration_are_added_to_those_on_disk(tmp_path: Path) -> None:
    def start(*vhosts: str) -> Broker:
        return Broker(Config(vhosts=list(vhosts)), data_dir=tmp_path).start()

    def use(broker: Broker, vhost: str) -> pika.BlockingConnection:
        parameters = pika.URLParameters(broker.url)
        parameters.virtual_host = vhost
        return pika.BlockingConnection(parameters)

    broker = start("one")
    with use(broker, "one") as connection:
        connection.channel().queue_declare("q", durable=True)
    broker.stop()
    broker = start("two")
    try:
        with use(broker, "one") as connection:
            connection.channel().queue_declare("q", passive=True)
        with use(broker, "two") as connection, pytest.raises(ChannelClosedByBroker, match="NOT_FOUND"):
            connection.channel().queue_declare("q", passive=True)
    finally:
        broker.stop()


def test_a_broker_in_memory_keeps_nothing(tmp_path: Path) -> None:
    with Broker() as broker:
        with channel(broker) as open_channel:
            open_channel.queue_declare("q", durable=True)
        restart_cleanly(broker)
        assert topology(broker)["queues"] == {}
        assert broker.call(lambda server: server.broker.node) is None


def test_a_change_that_is_not_understood_is_reported_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(data_dir=tmp_path) as broker:
        with channel(broker) as open_channel:
            broker.call(lambda server: server.broker.node and server.broker.node.journal.define(b'{"kind": "shiny"}'))
            open_channel.queue_declare("q", durable=True)
        broker.kill()
        with caplog.at_level(logging.WARNING):
            broker.start()
        assert set(topology(broker)["queues"]) == {"q"}
        (line,) = broker.call(lambda server: server.broker.recovery_report)
        assert "shiny" in line
        assert "recovery: " in caplog.text


@pytest.mark.parametrize("durable", [True, False])
def test_a_consumer_hears_of_its_queue_s_end_behind_delete_ok(broker: Broker, durable: bool) -> None:
    with Client(broker.host, broker.port).handshake() as client:
        client.open_channel(1)
        client.declare(1, "q", durable=durable)
        client.consume(1, "q", "t")
        # The journal is busy with something else, too.
        client.send(1, commands.Queue.Declare(0, "other", durable=True), commands.Queue.Delete(0, "q"))
        assert client.expect(commands.Basic.Cancel).consumer_tag == "t"
        assert len(client.seen(commands.Queue.DeleteOk)) == 1
