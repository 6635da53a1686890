"""Heartbeats both ways. One client's heartbeats are the clock by which another's silence is measured."""

from __future__ import annotations

import pytest
from pamqp import commands, heartbeat

from tests.interop.deadline import wait_until
from tests.server.brokers import connection_count
from tests.server.conftest import Connect, StartBroker


def test_the_interval_of_the_configuration_is_offered(start_broker: StartBroker, dial: Connect) -> None:
    client = dial(start_broker(heartbeat_s=7))
    client.socket.sendall(b"AMQP\x00\x00\x09\x01")
    client.expect(commands.Connection.Start)
    client.send(0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
    assert client.expect(commands.Connection.Tune).heartbeat == 7


def test_clients_that_send_anything_live_and_one_that_wants_no_heartbeats_gets_none(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker()
    clock = connect(broker, heartbeat_s=1)
    without = connect(broker, heartbeat_s=0)
    busy = connect(broker, heartbeat_s=1)
    # A second each: more than the two seconds after which a silent client is given up.
    for _ in range(3):
        clock.expect_heartbeat()
        clock.send_heartbeat()
        busy.barrier(1)
    clock.barrier(1)
    without.barrier(1)
    assert not without.seen(heartbeat.Heartbeat)
    assert connection_count(broker) == 3


def test_a_silent_client_is_dropped_and_its_messages_go_to_another(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker()
    other = connect(broker)
    other.declare(1, "q")
    other.publish(1, "q", b"one")
    silent = connect(broker, heartbeat_s=1)
    silent.consume(1, "q")
    assert silent.message().body == b"one"
    other.consume(1, "q")
    message = other.message()
    assert (message.body, message.method.redelivered) == (b"one", True)
    silent.expect_end()
    assert connection_count(broker) == 1


@pytest.mark.slow
def test_a_publisher_that_is_not_read_is_not_taken_for_dead(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(memory_bytes_max=100_000)
    clock = connect(broker, heartbeat_s=1)
    clock.declare(1, "q")
    blocked = connect(broker, heartbeat_s=1)
    blocked.publish(1, "q", b"x" * 200_000)
    blocked.expect(commands.Connection.Blocked)
    for _ in range(3):
        clock.expect_heartbeat()
        clock.send_heartbeat()
    assert connection_count(broker) == 2
    clock.call(1, commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk)
    blocked.expect(commands.Connection.Unblocked)
    blocked.barrier(1)
    # Being read again does not count as being silent all the while; from now on silence counts.
    wait_until(lambda: connection_count(broker) < 2, "the silent client is dropped")
