"""The memory alarm: publishers wait, everyone else goes on."""

from __future__ import annotations

import pytest
from pamqp import commands

from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import CAPABILITIES, Client
from tests.server.brokers import connection_count, unread_connection_count
from tests.server.conftest import Connect, StartBroker

LIMIT_BYTES = 1_000_000
WITHOUT_BLOCKED = {name: True for name in CAPABILITIES if name != "connection.blocked"}


@pytest.fixture(params=["asyncio", "uvloop"])
def broker(request: pytest.FixtureRequest, start_broker: StartBroker) -> Broker:
    return start_broker(loop=request.param, memory_bytes_max=LIMIT_BYTES)


def fill(publisher: Client, queue: str = "q") -> None:
    publisher.publish(1, queue, *[b"x" * 100_000] * 12)
    publisher.expect(commands.Connection.Blocked)


def test_a_publisher_is_blocked_until_the_queue_is_drained(broker: Broker, connect: Connect) -> None:
    publisher, consumer = connect(broker), connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *[b"x" * 100_000] * 12)
    blocked = publisher.expect(commands.Connection.Blocked)
    assert blocked.reason == "low on memory"
    publisher.publish(1, "q", b"held back")
    consumer.qos(1, 2)
    consumer.consume(1, "q")
    for _ in range(12):
        message = consumer.message()
        assert len(message.body) == 100_000
        consumer.ack(1, message.method.delivery_tag)
    publisher.expect(commands.Connection.Unblocked)
    assert consumer.message().body == b"held back"
    publisher.barrier(1)
    assert not publisher.seen(commands.Connection.Blocked)


def test_only_clients_that_understand_it_are_told(broker: Broker, connect: Connect) -> None:
    told, untold, idle = connect(broker), connect(broker, capabilities=WITHOUT_BLOCKED), connect(broker)
    told.declare(1, "q")
    untold.publish(1, "q", b"first")
    untold.barrier(1)
    fill(told)
    assert unread_connection_count(broker) == 2
    untold.publish(1, "q", b"second")
    idle.call(1, commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk)
    told.expect(commands.Connection.Unblocked)
    untold.barrier(1)
    idle.barrier(1)
    for client in (untold, idle):
        assert not client.seen(commands.Connection.Blocked)
        assert not client.seen(commands.Connection.Unblocked)
    assert broker.queue_depth("q") == 1


def test_clients_that_do_not_publish_go_on(broker: Broker, connect: Connect) -> None:
    publisher, other = connect(broker), connect(broker)
    publisher.declare(1, "q")
    fill(publisher)
    newcomer = connect(broker)
    assert newcomer.declare(1, "later") == "later"
    other.send(1, commands.Basic.Get(0, "q"))
    message = other.message()
    other.ack(1, message.method.delivery_tag)
    other.barrier(1)
    assert broker.queue_depth("q") == 11


def test_a_client_whose_first_publish_comes_during_the_alarm_is_blocked_too(broker: Broker, connect: Connect) -> None:
    publisher, late = connect(broker), connect(broker)
    publisher.declare(1, "q")
    fill(publisher)
    late.publish(1, "q", b"y")
    late.expect(commands.Connection.Blocked)
    assert unread_connection_count(broker) == 2
    connect(broker).call(1, commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk)
    late.expect(commands.Connection.Unblocked)
    late.barrier(1)


def test_unacknowledged_messages_count(broker: Broker, connect: Connect) -> None:
    publisher, consumer = connect(broker), connect(broker)
    publisher.declare(1, "q")
    consumer.consume(1, "q")
    publisher.publish(1, "q", *[b"x" * 100_000] * 12)
    consumer.messages(12)
    publisher.expect(commands.Connection.Blocked)
    consumer.ack(1, 12, multiple=True)
    publisher.expect(commands.Connection.Unblocked)


def test_deleting_the_queue_ends_the_alarm(broker: Broker, connect: Connect) -> None:
    publisher, other = connect(broker), connect(broker)
    publisher.declare(1, "q")
    fill(publisher)
    other.call(1, commands.Queue.Delete(0, "q"), commands.Queue.DeleteOk)
    publisher.expect(commands.Connection.Unblocked)


def test_many_small_messages_count_with_what_they_cost_besides_their_bodies(broker: Broker, connect: Connect) -> None:
    publisher = connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *[b""] * 6_000)
    publisher.expect(commands.Connection.Blocked)


def test_a_blocked_publisher_that_is_gone_is_noticed_when_the_alarm_ends(broker: Broker, connect: Connect) -> None:
    publisher, other = connect(broker), connect(broker)
    publisher.declare(1, "q")
    fill(publisher)
    publisher.drop()
    other.call(1, commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk)
    wait_until(lambda: connection_count(broker) == 1, "the publisher's end is noticed")


def test_the_alarm_stays_when_the_publisher_that_caused_it_is_gone(broker: Broker, connect: Connect) -> None:
    publisher = connect(broker)
    publisher.declare(1, "q")
    fill(publisher)
    broker.faults.cut_connections()
    publisher.expect_end()
    again = connect(broker)
    again.publish(1, "q", b"y")
    again.expect(commands.Connection.Blocked)
