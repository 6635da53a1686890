"""Queues, channels, connections and consumers that are gone are freed by reference counting.

`penstock serve` lets the garbage collector look at old objects hardly ever (docs/decisions/0003). So whatever dies must
not be part of a cycle, and nothing that lives on may lead to it.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from penstock.queues.queue import Queue
from penstock.server.channel.channel import Channel
from penstock.server.channel.queue_consumer import QueueConsumer
from penstock.server.channel.subscription import Subscription
from penstock.server.connection.connection import Connection
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client
from tests.server.brokers import connection_count
from tests.server.conftest import Connect, StartBroker

CYCLES = 20
PASSING = (Queue, Channel, Connection, Subscription, QueueConsumer)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Without the collector, as good as; what it would have found is kept in `gc.garbage`."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()


@pytest.fixture(params=["in memory", "on disk"])
def broker(request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path) -> Broker:
    return start_broker(data_dir=None if request.param == "in memory" else str(tmp_path / "data"))


def ours_alive(server: object) -> Counter[str]:
    return Counter(type(found).__name__ for found in gc.get_objects() if isinstance(found, PASSING))


def unreachable() -> Counter[str]:
    """What the collector finds of ours."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = Counter(type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("penstock"))
    gc.garbage.clear()
    return found


def delete(client: Client, name: str) -> None:
    client.call(1, commands.Queue.Delete(0, name), commands.Queue.DeleteOk)


def plain(client: Client, other: Client, broker: Broker) -> None:
    client.declare(1, "q")
    other.publish(1, "q", b"one", b"two")
    other.barrier(1)
    delete(client, "q")


def durable(client: Client, other: Client, broker: Broker) -> None:
    client.declare(1, "q", durable=True)
    other.publish(1, "q", b"one", b"two", delivery_mode=2)
    other.barrier(1)
    delete(client, "q")


def consumed(client: Client, other: Client, broker: Broker) -> None:
    client.declare(1, "q", durable=True)
    client.consume(1, "q", "tag")
    other.publish(1, "q", b"one", delivery_mode=2)
    client.ack(1, client.message().method.delivery_tag)
    delete(other, "q")
    client.expect(commands.Basic.Cancel)


def cancelled(client: Client, other: Client, broker: Broker) -> None:
    client.declare(1, "q", durable=True)
    client.consume(1, "q", "tag", no_ack=True)
    other.publish(1, "q", b"one", delivery_mode=2)
    client.message()
    client.call(1, commands.Basic.Cancel("tag"), commands.Basic.CancelOk)
    delete(client, "q")


def routed(client: Client, other: Client, broker: Broker) -> None:
    client.call(1, commands.Exchange.Declare(0, "x", "topic"), commands.Exchange.DeclareOk)
    client.declare(1, "q")
    client.call(1, commands.Queue.Bind(0, "q", "x", "a.#"), commands.Queue.BindOk)
    other.publish(1, "a.b", b"one", b"longer", exchange="x")
    other.barrier(1)
    client.call(1, commands.Exchange.Delete(0, "x"), commands.Exchange.DeleteOk)
    delete(client, "q")


def confirmed(client: Client, other: Client, broker: Broker) -> None:
    client.open_channel(2)
    client.call(2, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.declare(2, "q", durable=True)
    client.publish(2, "q", b"one", delivery_mode=2)
    client.expect(commands.Basic.Ack)
    client.call(2, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    delete(client, "q")


def transacted(client: Client, other: Client, broker: Broker) -> None:
    client.declare(1, "q")
    client.open_channel(2)
    client.call(2, commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish(2, "q", b"never committed")
    client.call(2, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    delete(client, "q")


def with_arguments(**arguments: Any) -> Callable[[Client, Client, Broker], None]:
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}

    def featured(client: Client, other: Client, broker: Broker) -> None:
        client.declare(1, "q", durable=True, arguments=named)
        client.consume(1, "q", "tag")
        headers = {"g": "group", "k": "key", "x-deduplication-header": "seen"}
        other.publish(1, "q", b"one", delivery_mode=2, headers=headers, expiration="60000")
        client.send(1, commands.Basic.Nack(client.message().method.delivery_tag, False, True))
        client.barrier(1)
        client.call(1, commands.Basic.Cancel("tag"), commands.Basic.CancelOk)
        delete(other, "q")

    return featured


def connected(client: Client, other: Client, broker: Broker) -> None:
    with Client(broker.host, broker.port) as passing:
        passing.handshake()
        passing.open_channel(1)
        passing.declare(1, "own", exclusive=True)
        passing.consume(1, "own", "tag")
        other.publish(1, "own", b"one", b"two")
        passing.messages(2)
        passing.close()
    wait_until(lambda: connection_count(broker) == 2, "the connection is gone")


def dropped(client: Client, other: Client, broker: Broker) -> None:
    with Client(broker.host, broker.port) as passing:
        passing.handshake()
        passing.open_channel(1)
        passing.declare(1, "own", exclusive=True)
        passing.publish(1, "own", b"one", b"two")
        passing.barrier(1)
        passing.drop()
    wait_until(lambda: connection_count(broker) == 2, "the connection is gone")


def refused(client: Client, other: Client, broker: Broker) -> None:
    client.open_channel(2)
    client.consume(2, client.declare(2, "q"), "tag")
    client.send(2, commands.Basic.Ack(99))
    client.expect(commands.Channel.Close)
    client.send(2, commands.Channel.CloseOk())
    delete(client, "q")


LIVES: dict[str, Callable[[Client, Client, Broker], None]] = {
    "a plain queue": plain,
    "a durable queue": durable,
    "a queue with a consumer": consumed,
    "a queue whose consumer was cancelled": cancelled,
    "an exchange and its queue": routed,
    "a channel with confirms": confirmed,
    "a channel with a transaction": transacted,
    "a channel that was closed for an error": refused,
    "a connection with an exclusive queue": connected,
    "a connection that was lost": dropped,
    "a queue with priorities": with_arguments(max_priority=3),
    "a queue with dead letters and a limit": with_arguments(dead_letter_exchange="", max_length=1, message_ttl=60_000),
    "a queue that refuses": with_arguments(max_length=10, overflow="reject-publish"),
    "a queue with a delivery limit": with_arguments(delivery_limit=5),
    "a queue with delayed retries": with_arguments(delayed_retry_min=60_000),
    "a queue that holds back": with_arguments(hold_on_publish=True),
    "a queue with a single active consumer": with_arguments(single_active_consumer=True),
    "a queue that expires": with_arguments(expires=60_000),
    "a queue with groups": with_arguments(group_header="g"),
    "a queue with last values": with_arguments(last_value_header="k"),
    "a sorted queue": with_arguments(sort_header="k"),
    "a queue with deduplication": with_arguments(message_deduplication=True, cache_size=10, cache_ttl=60_000),
    "a queue that expires anywhere": with_arguments(message_ttl=60_000, expire_anywhere=True),
    "a queue with consumer timeouts": with_arguments(consumer_timeout=60_000),
}


@pytest.mark.parametrize("life", LIVES)
def test_nothing_is_left_for_the_collector_of(life: str, broker: Broker, connect: Connect, no_collector: None) -> None:
    client, other = connect(broker), connect(broker)
    LIVES[life](client, other, broker)
    before = broker.call(ours_alive)
    broker.call(lambda server: unreachable())
    for _ in range(CYCLES):
        LIVES[life](client, other, broker)
    wait_until(lambda: not broker.call(ours_alive) - before, "what is gone is freed", timeout_s=60)
    assert not broker.call(lambda server: unreachable())
