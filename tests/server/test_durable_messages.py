"""Persistent messages in durable queues survive; confirms and commits say so; expiry, priorities, alarms still hold."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosed, NackError

from penstock.config import Config
from penstock.disk.files import File
from penstock.journal.syncer import SyncDone, Syncer
from penstock.server.server import Server
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client
from tests.server.brokers import check_health

PERSISTENT = pika.BasicProperties(delivery_mode=2)
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


class Clients:
    """Channels of pika, closed at the end."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: list[pika.BlockingConnection] = []

    def channel(self, confirms: bool = False) -> BlockingChannel:
        connection = pika.BlockingConnection(pika.URLParameters(self._broker.url))
        self._connections.append(connection)
        channel = connection.channel()
        if confirms:
            channel.confirm_delivery()
        return channel

    def close(self) -> None:
        for connection in self._connections:
            with suppress(AMQPError):
                connection.close()


@pytest.fixture
def clients(broker: Broker) -> Iterator[Clients]:
    clients = Clients(broker)
    yield clients
    clients.close()


def take_all(channel: BlockingChannel, queue: str = "q") -> list[tuple[bytes, bool]]:
    """Bodies and whether they are redelivered, until the queue is empty."""
    found: list[tuple[bytes, bool]] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((body, method.redelivered))


def declare(channel: BlockingChannel, *names: str, **arguments: Any) -> None:
    for name in names or ("q",):
        channel.queue_declare(name, durable=True, arguments=arguments)


def write_all(channel: BlockingChannel) -> None:
    """Wait until the disk has what was done before: a change behind it is answered when it is there."""
    declare(channel, "barrier")
    channel.queue_delete("barrier")


def test_confirmed_persistent_messages_survive_and_transient_ones_do_not(
    broker: Broker, clients: Clients, restart: Restart
) -> None:
    channel = clients.channel(confirms=True)
    declare(channel)
    large = b"x" * 100_000
    for body in (b"one", b"", large, b"four"):
        channel.basic_publish("", "q", body, PERSISTENT)
        channel.basic_publish("", "q", b"transient")
    restart(broker)
    is_dirty = restart is restart_after_a_crash
    channel = clients.channel()
    assert take_all(channel) == [(body, is_dirty) for body in (b"one", b"", large, b"four")]
    write_all(channel)
    restart(broker)
    assert take_all(clients.channel()) == []


def test_a_message_comes_back_with_all_its_properties(broker: Broker, clients: Clients, restart: Restart) -> None:
    channel = clients.channel(confirms=True)
    declare(channel)
    channel.queue_bind("q", "amq.topic", "a.b")
    properties = pika.BasicProperties(
        "text/plain", "gzip", {"n": 1, "t": {"x": [True, None]}}, 2, 5, "corr", "reply", "60000", "id", 1, "type"
    )
    channel.basic_publish("amq.topic", "a.b", b"body", properties)
    restart(broker)
    method, back, body = clients.channel().basic_get("q", auto_ack=True)
    assert (method.exchange, method.routing_key, body) == ("amq.topic", "a.b", b"body")
    assert back == properties


def test_unacknowledged_messages_come_back_as_redelivered(broker: Broker, clients: Clients, restart: Restart) -> None:
    channel = clients.channel(confirms=True)
    declare(channel)
    for number in range(4):
        channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
    first, _, _ = channel.basic_get("q")
    second, _, _ = channel.basic_get("q")
    channel.basic_ack(second.delivery_tag)
    write_all(channel)
    restart(broker)
    found = take_all(clients.channel())
    assert [body for body, _ in found] == [b"0", b"2", b"3"]
    assert found[0] == (b"0", True)
    assert first.delivery_tag == 1


def test_a_large_backlog_survives_in_order(broker: Broker, clients: Clients, restart: Restart) -> None:
    channel = clients.channel()
    declare(channel)
    channel.tx_select()
    for number in range(20_000):
        channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
        if number % 5000 == 4999:
            channel.tx_commit()
    restart(broker)
    channel = clients.channel()
    seen: list[int] = []
    for method, _, body in channel.consume("q", auto_ack=True):
        assert method is not None
        seen.append(int(body))
        if len(seen) == 20_000:
            break
    assert seen == list(range(20_000))


def test_a_fanout_survives_in_every_queue(broker: Broker, clients: Clients, restart: Restart) -> None:
    channel = clients.channel(confirms=True)
    declare(channel, "a", "b", "c")
    for name in ("a", "b", "c"):
        channel.queue_bind(name, "amq.fanout")
    for body in (b"small", b"L" * 50_000):
        channel.basic_publish("amq.fanout", "", body, PERSISTENT)
    restart(broker)
    channel = clients.channel()
    for name in ("a", "b", "c"):
        assert [body for body, _ in take_all(channel, name)] == [b"small", b"L" * 50_000]


def test_what_was_committed_survives_and_what_was_not_does_not(
    broker: Broker, clients: Clients, restart: Restart
) -> None:
    channel = clients.channel()
    declare(channel, "q", "r")
    channel.tx_select()
    channel.basic_publish("", "q", b"committed", PERSISTENT)
    channel.basic_publish("", "r", b"with it", PERSISTENT)
    channel.tx_commit()
    channel.basic_publish("", "q", b"rolled back", PERSISTENT)
    channel.tx_rollback()
    channel.basic_publish("", "q", b"never committed", PERSISTENT)
    restart(broker)
    channel = clients.channel()
    assert [body for body, _ in take_all(channel, "q")] == [b"committed"]
    method, _, body = channel.basic_get("r")
    assert body == b"with it"
    channel.tx_select()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    restart(broker)
    assert take_all(clients.channel(), "r") == []


def test_priorities_survive(broker: Broker, clients: Clients, restart: Restart) -> None:
    channel = clients.channel(confirms=True)
    declare(channel, **{"x-max-priority": 9})
    for priority in (1, 9, 5, 9, 0):
        properties = pika.BasicProperties(delivery_mode=2, priority=priority)
        channel.basic_publish("", "q", b"%d" % priority, properties)
    restart(broker)
    channel = clients.channel()
    assert [body for body, _ in take_all(channel)] == [b"9", b"9", b"5", b"1", b"0"]
    write_all(channel)
    restart(broker)
    assert take_all(clients.channel()) == []


def test_messages_go_on_expiring_after_a_restart(broker: Broker, clients: Clients, restart: Restart) -> None:
    channel = clients.channel(confirms=True)
    declare(channel)
    for number in range(20):
        # Every second one expires, behind one that does not.
        expiration = "1" if number % 2 else None
        channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(delivery_mode=2, expiration=expiration))
    restart(broker)
    channel = clients.channel()
    seen: list[bytes] = []
    for method, _, body in channel.consume("q", auto_ack=True, inactivity_timeout=60):
        assert method is not None
        seen.append(body)
        if len(seen) == 10:
            break
    assert seen == [b"%d" % number for number in range(0, 20, 2)]
    wait_until(lambda: broker.queue_depth("q") == 0, "the last one has expired")


def test_a_message_that_expires_while_nobody_looks_is_gone_by_itself(
    broker: Broker, clients: Clients, restart: Restart
) -> None:
    channel = clients.channel(confirms=True)
    declare(channel)
    channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2, expiration="400"))
    restart(broker)
    wait_until(
        lambda: broker.call(lambda server: server.broker.vhosts["/"].queues["q"].backing.depth()) == 0, "it has expired"
    )


def test_a_purged_queue_stays_empty(broker: Broker, clients: Clients, restart: Restart) -> None:
    channel = clients.channel(confirms=True)
    declare(channel)
    channel.basic_publish("", "q", b"x", PERSISTENT)
    assert channel.queue_purge("q").method.message_count == 1
    write_all(channel)
    restart(broker)
    assert broker.queue_depth("q") == 0


def test_work_that_another_thread_posts_runs_on_the_brokers(broker: Broker) -> None:
    post = broker.call(lambda server: server._post)
    seen: list[tuple[int, int]] = []
    for number in range(20):
        post(lambda number=number: seen.append((number, threading.get_ident())))  # type: ignore[misc]
    here = broker.call(lambda server: threading.get_ident())
    assert seen == [(number, here) for number in range(20)]
    assert here != threading.get_ident()


def test_a_quiet_broker_writes_its_rows_and_makes_its_checkpoint_by_itself(broker: Broker, clients: Clients) -> None:
    channel = clients.channel(confirms=True)
    declare(channel)
    channel.basic_publish("", "q", b"x", PERSISTENT)
    method, _, _ = channel.basic_get("q")
    # Nobody waits for the disk to have this.
    channel.basic_ack(method.delivery_tag)

    def is_written(server: Server) -> bool:
        node = server.broker.node
        assert node is not None
        return node.journal.durable_lsn == node.journal.next_lsn

    wait_until(lambda: broker.call(is_written), "everything is durable")

    def hurry(server: Server) -> int:
        node = server.broker.node
        assert node is not None
        node.options.checkpoint_s = 0.0
        return node.checkpointer.next_number

    before = broker.call(hurry)
    wait_until(
        lambda: broker.call(lambda server: server.broker.node and server.broker.node.checkpointer.next_number) > before,
        "a checkpoint",
    )


# --- when the disk fails, or is nearly full -----------------------------------------------------------


class BrokenSyncer(Syncer):
    """A disk that fails."""

    def __init__(self, server: Server, before: Syncer) -> None:
        self._server = server
        self._before = before

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        self._server.loop.call_soon(self._fail, done)

    def _fail(self, done: SyncDone) -> None:
        done(OSError(errno.EIO, "Input/output error"))
        self._server.scheduler.turn_soon()

    def close(self) -> None:
        self._before.close()


def break_disk(server: Server) -> None:
    node = server.broker.node
    assert node is not None
    node.syncer._inner = BrokenSyncer(server, node.syncer._inner)


def test_a_disk_that_fails_gives_nacks_and_ends_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(data_dir=tmp_path).start()
    clients = Clients(broker)
    try:
        channel = clients.channel(confirms=True)
        declare(channel)
        channel.basic_publish("", "q", b"safe", PERSISTENT)
        broker.call(break_disk)
        with pytest.raises((NackError, ChannelClosed, AMQPError)):
            channel.basic_publish("", "q", b"lost", PERSISTENT)
        wait_until(lambda: "the disk has failed" in caplog.text, "it says so")
        thread = broker._thread
        assert thread is not None
        thread.join(60)
        assert not thread.is_alive(), "it stops by itself"
        broker.stop()
        broker.start()
        assert [body for body, _ in take_all(clients.channel())][:1] == [b"safe"]
    finally:
        clients.close()
        broker.stop()


def test_a_disk_that_is_nearly_full_blocks_publishers_and_nobody_else(tmp_path: Path) -> None:
    with Broker(Config(disk_bytes_min=1), data_dir=tmp_path) as broker:

        def set_mark(server: Server, bytes_min: int) -> None:
            assert server.broker.disk_alarm is not None
            server.broker.disk_alarm.bytes_min = bytes_min

        with Client(broker.host, broker.port) as publisher, Client(broker.host, broker.port) as consumer:
            for client in (publisher, consumer):
                client.handshake()
                client.open_channel(1)
            publisher.declare(1, "q", durable=True)
            publisher.publish(1, "q", b"one", delivery_mode=2)
            publisher.barrier(1)
            broker.call(lambda server: set_mark(server, 1 << 60))
            assert publisher.expect(commands.Connection.Blocked).reason == "low on disk"
            publisher.publish(1, "q", b"two", delivery_mode=2)
            consumer.consume(1, "q", no_ack=True)
            assert consumer.message().body == b"one"
            consumer.declare(1, "other", durable=True)
            # Both at once: one message to the client, and the end when both are over.
            broker.call(lambda server: setattr(server.broker.memory_alarm, "bytes_max", -1))
            wait_until(lambda: broker.call(lambda server: server.broker.memory_alarm.active), "the second alarm")
            broker.call(lambda server: set_mark(server, 1))
            wait_until(lambda: not broker.call(lambda server: server.broker.alarms[1].active), "the disk is fine")
            consumer.barrier(1)
            assert not consumer.waiting_messages()
            broker.call(lambda server: setattr(server.broker.memory_alarm, "bytes_max", 1 << 40))
            publisher.expect(commands.Connection.Unblocked)
            assert consumer.message().body == b"two"
            assert not publisher.seen(commands.Connection.Blocked)


def test_whoever_publishes_first_while_two_alarms_are_on_hears_of_both(tmp_path: Path) -> None:
    with Broker(Config(disk_bytes_min=1 << 60), data_dir=tmp_path) as broker:
        broker.call(lambda server: setattr(server.broker.memory_alarm, "bytes_max", -1))
        wait_until(lambda: broker.call(lambda server: server.broker.memory_alarm.active), "the alarms")
        with Client(broker.host, broker.port) as publisher:
            publisher.handshake()
            publisher.open_channel(1)
            publisher.publish(1, "nowhere", b"x")
            assert publisher.expect(commands.Connection.Blocked).reason == "low on memory & disk"
