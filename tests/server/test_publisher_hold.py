"""Publishers are held to the pace of live consumers, and to no pace at all where nobody would take more anyway."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from pamqp import commands

from penstock import limits
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client, ConnectionEnded, publish_frames
from tests.server.brokers import unread_connection_count
from tests.server.conftest import Connect

BACKLOG = limits.THROTTLE_READY_MESSAGES + 1_000


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def drain(client: Client, byte_count: int) -> None:
    """Read as fast as can be: frames are counted by their bytes, not looked at."""
    while byte_count > 0:
        data = client.receive_bytes(1024 * 1024)
        if not data:
            raise ConnectionEnded
        byte_count -= len(data)


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_flat_out_publisher_with_a_live_consumer_keeps_the_backlog_small(
    no_ack: bool, either_broker: Broker, connect: Connect
) -> None:
    broker = either_broker
    count = 60_000
    publisher, consumer = connect(broker), connect(broker)
    publisher.declare(1, "q")
    consumer.consume(1, "q", "t", no_ack=no_ack)
    publisher.publish(1, "q", b"x" * 100)
    size = len(consumer.receive_bytes())
    reading = in_thread(lambda: drain(consumer, count * size))
    chunk = publish_frames(1, "q", b"x" * 100) * 1_000
    writing = in_thread(lambda: [publisher.socket.sendall(chunk) for _ in range(count // 1_000)])
    depths = []
    while reading.is_alive():
        depths.append(broker.queue_depth("q"))
    writing.join()
    reading.join()
    assert len(depths) > 10
    # The mark, and what may be read from one client before the next turn.
    assert max(depths) < 3 * limits.THROTTLE_READY_MESSAGES
    wait_until(lambda: unread_connection_count(broker) == 0, "the publisher is read again")


def test_without_consumers_a_backlog_may_grow(broker: Broker, connect: Connect) -> None:
    publisher = connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *[b"x"] * BACKLOG)
    publisher.barrier(1)
    assert unread_connection_count(broker) == 0
    assert broker.queue_depth("q") == BACKLOG


@pytest.mark.parametrize("consumer", ["out of credit", "browser"])
def test_consumers_that_take_nothing_hold_a_publisher_once_for_a_moment(
    consumer: str, broker: Broker, connect: Connect
) -> None:
    publisher, busy = connect(broker), connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *[b"x"] * BACKLOG)
    publisher.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    if consumer == "browser":
        busy.consume(1, "q", arguments={"x-browse": True})
        busy.messages(BACKLOG)
    else:
        busy.qos(1, 1)
        busy.consume(1, "q")
        busy.message()
    publisher.publish(1, "q", b"x")
    publisher.expect(commands.Basic.Ack)
    wait_until(lambda: unread_connection_count(broker) == 0, "the publisher is let go, nobody takes anything")
    for _ in range(5):
        publisher.publish(1, "q", b"x")
        publisher.expect(commands.Basic.Ack)
        assert unread_connection_count(broker) == 0


def test_a_held_publisher_that_leaves_is_forgotten(broker: Broker, connect: Connect) -> None:
    publisher, consumer = connect(broker), connect(broker)
    publisher.declare(1, "q")
    chunk = publish_frames(1, "q", b"x" * 100) * 20_000
    consumer.qos(1, 10)
    consumer.consume(1, "q")
    publisher.socket.sendall(chunk)
    publisher.reset()
    wait_until(lambda: broker.call(lambda server: len(server.connections)) == 1, "the publisher's end is noticed")
    wait_until(lambda: not broker.call(lambda server: server.flow.throttled), "nobody is held")
    assert len(consumer.messages(10)) == 10


def test_deleting_the_queue_lets_its_publisher_go(broker: Broker, connect: Connect) -> None:
    publisher, consumer = connect(broker), connect(broker)
    publisher.declare(1, "q")
    consumer.consume(1, "q", no_ack=True)
    publisher.publish(1, "q", *[b"x" * 100] * 20_000)
    consumer.call(1, commands.Queue.Delete(0, "q"), commands.Queue.DeleteOk)
    publisher.barrier(1)
    assert unread_connection_count(broker) == 0
