"""channel.flow: a client stops the deliveries of a channel, and has them resumed."""

from __future__ import annotations

import pytest
from pamqp import commands, frame

from penstock.testing import Broker
from tests.server.amqp_client import Client, publish_frames
from tests.server.brokers import consumer_states
from tests.server.conftest import Connect


def flow(client: Client, channel: int, active: bool) -> None:
    assert client.call(channel, commands.Channel.Flow(active), commands.Channel.FlowOk).active is active


def test_a_stopped_channel_gets_nothing_until_it_resumes(broker: Broker, connect: Connect) -> None:
    client, publisher = connect(broker), connect(broker)
    client.declare(1, "q")
    client.consume(1, "q")
    flow(client, 1, False)
    assert consumer_states(broker, "q")["not_interested"] == 1
    publisher.publish(1, "q", b"1", b"2")
    publisher.barrier(1)
    client.barrier(1)
    assert not client.waiting_messages()
    assert broker.queue_depth("q") == 2
    flow(client, 1, True)
    assert client.bodies(2) == [b"1", b"2"]
    assert consumer_states(broker, "q")["interested"] == 1


def test_another_consumer_gets_what_a_stopped_one_does_not_take(broker: Broker, connect: Connect) -> None:
    client, publisher = connect(broker), connect(broker)
    client.declare(1, "q")
    client.consume(1, "q", arguments={"x-priority": 9})
    client.open_channel(2)
    client.consume(2, "q")
    flow(client, 1, False)
    publisher.publish(1, "q", b"1")
    assert client.message().channel == 2


@pytest.mark.parametrize("arguments", [{}, {"x-browse": True}])
def test_a_consumer_that_comes_to_a_stopped_channel_waits(
    broker: Broker, connect: Connect, arguments: dict[str, bool]
) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.publish(1, "q", b"1")
    flow(client, 1, False)
    client.consume(1, "q", arguments=arguments)
    client.barrier(1)
    assert not client.waiting_messages()
    # What is asked for comes all the same.
    client.send(1, commands.Basic.Get(0, "q"))
    assert client.message().method.name == "Basic.GetOk"
    client.send(1, commands.Basic.Nack(1, requeue=True))
    flow(client, 1, True)
    assert client.message().body == b"1"


def test_credit_counts_on_a_channel_that_was_stopped(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.qos(1, 1)
    client.consume(1, "q")
    client.publish(1, "q", b"1", b"2", b"3")
    assert client.bodies(1) == [b"1"]
    flow(client, 1, False)
    client.ack(1, 1)
    client.barrier(1)
    assert not client.waiting_messages()
    flow(client, 1, True)
    assert client.bodies(1) == [b"2"]
    client.barrier(1)
    assert not client.waiting_messages()


def test_what_was_published_before_comes_before_flow_ok_and_nothing_behind_it(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.consume(1, "q")
    stop = frame.marshal(commands.Channel.Flow(False), 1)
    client.socket.sendall(publish_frames(1, "q", b"1") + stop + publish_frames(1, "q", b"2"))
    client.expect(commands.Channel.FlowOk)
    assert [message.body for message in client.waiting_messages()] == [b"1"]
    client.barrier(1)
    assert [message.body for message in client.waiting_messages()] == [b"1"]
