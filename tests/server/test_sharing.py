"""Who gets which message: turns, fairness, priorities, and what comes back when a consumer is gone."""

from __future__ import annotations

import threading

import pytest
from pamqp import commands

from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client
from tests.server.brokers import consumer_states
from tests.server.conftest import Connect


def bodies_of(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_consumers_on_several_connections_take_strict_turns(broker: Broker, connect: Connect) -> None:
    publisher = connect(broker)
    publisher.declare(1, "q")
    consumers = [connect(broker) for _ in range(3)]
    for consumer in consumers:
        consumer.consume(1, "q", no_ack=True)
    for body in bodies_of(12):
        publisher.publish(1, "q", body)
        publisher.barrier(1)
    for index, consumer in enumerate(consumers):
        assert consumer.bodies(4) == bodies_of(12)[index::3]


def test_consumers_on_one_channel_take_strict_turns(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    for tag in ("a", "b", "c"):
        client.consume(1, "q", tag, no_ack=True)
    for body in bodies_of(9):
        client.publish(1, "q", body)
        client.barrier(1)
    assert [message.method.consumer_tag for message in client.messages(9)] == ["a", "b", "c"] * 3


@pytest.mark.parametrize("count", [3, 9, 20])
def test_a_few_messages_in_one_go_are_dealt_evenly(count: int, broker: Broker, connect: Connect) -> None:
    publisher = connect(broker)
    publisher.declare(1, "q")
    consumers = [connect(broker) for _ in range(3)]
    for consumer in consumers:
        consumer.consume(1, "q", no_ack=True)
    publisher.publish(1, "q", *bodies_of(count))
    wait_until(lambda: broker.queue_depth("q") == 0, "all are delivered")
    shares = []
    for consumer in consumers:
        consumer.barrier(1)
        shares.append([message.body for message in consumer.waiting_messages()])
    assert sorted([body for share in shares for body in share], key=int) == bodies_of(count)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for share in shares:
        assert share == sorted(share, key=int)


def test_many_messages_are_shared_fairly(either_broker: Broker, connect: Connect) -> None:
    broker = either_broker
    count = 20_000
    publisher = connect(broker)
    publisher.declare(1, "q")
    consumers = [connect(broker) for _ in range(4)]
    shares: list[list[bytes]] = [[] for _ in consumers]

    def take(client: Client, share: list[bytes]) -> None:
        while not share or share[-1] != b"end":
            share.append(client.message().body)

    for consumer in consumers:
        consumer.consume(1, "q", no_ack=True)
    threads = [threading.Thread(target=take, args=pair) for pair in zip(consumers, shares, strict=True)]
    for thread in threads:
        thread.start()
    publisher.publish(1, "q", *bodies_of(count))
    publisher.barrier(1)
    wait_until(lambda: broker.queue_depth("q") == 0, "all are delivered")
    # Four in turn: one for each.
    publisher.publish(1, "q", *[b"end"] * 4)
    for thread in threads:
        thread.join()
    taken = [body for share in shares for body in share if body != b"end"]
    assert sorted(taken, key=int) == bodies_of(count)
    assert min(map(len, shares)) > count / 4 * 0.5, [len(share) for share in shares]


def test_prefetch_keeps_a_slow_consumer_from_taking_more(broker: Broker, connect: Connect) -> None:
    publisher, slow, quick = connect(broker), connect(broker), connect(broker)
    publisher.declare(1, "q")
    for client in (slow, quick):
        client.qos(1, 2)
        client.consume(1, "q")
    publisher.publish(1, "q", *bodies_of(50))
    taken = []
    for _ in range(48):
        message = quick.message()
        taken.append(message.body)
        quick.ack(1, message.method.delivery_tag)
    quick.barrier(1)
    slow.barrier(1)
    assert sorted(taken + [message.body for message in slow.waiting_messages()], key=int) == bodies_of(50)
    assert broker.queue_depth("q") == 0


def test_a_higher_priority_gets_everything_until_its_prefetch_is_used_up(broker: Broker, connect: Connect) -> None:
    publisher, low, high = connect(broker), connect(broker), connect(broker)
    publisher.declare(1, "q")
    low.consume(1, "q", "low", no_ack=True)
    high.qos(1, 5)
    high.consume(1, "q", "high", arguments={"x-priority": 10})
    publisher.publish(1, "q", *bodies_of(12))
    publisher.barrier(1)
    first = high.messages(5)
    assert [message.body for message in first] == bodies_of(5)
    assert low.bodies(7) == bodies_of(12)[5:]
    high.ack(1, first[-1].method.delivery_tag, multiple=True)
    high.barrier(1)
    publisher.publish(1, "q", b"again high")
    assert high.message().body == b"again high"
    high.drop()
    message = low.message()
    assert (message.body, message.method.redelivered) == (b"again high", True)


def test_priorities_hold_on_one_channel_too(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.consume(1, "q", "low", no_ack=True, arguments={"x-priority": -5})
    client.consume(1, "q", "normal", no_ack=True)
    client.consume(1, "q", "high", no_ack=True, arguments={"x-priority": 5})
    client.publish(1, "q", *bodies_of(300))
    assert {message.method.consumer_tag for message in client.messages(300)} == {"high"}
    client.call(1, commands.Basic.Cancel("high"), commands.Basic.CancelOk)
    client.publish(1, "q", *bodies_of(10))
    assert {message.method.consumer_tag for message in client.messages(10)} == {"normal"}


def test_a_lower_priority_is_served_before_a_higher_one_comes(either_broker: Broker, connect: Connect) -> None:
    client = connect(either_broker)
    client.declare(1, "q")
    client.publish(1, "q", *bodies_of(1_000))
    client.barrier(1)
    # In one go. As in RabbitMQ the first has what is there before the second is added.
    client.send(
        1,
        commands.Basic.Consume(0, "q", "low", no_ack=True),
        commands.Basic.Consume(0, "q", "high", no_ack=True, arguments={"x-priority": 1}),
    )
    messages = client.messages(1_000)
    assert {message.method.consumer_tag for message in messages} == {"low"}
    assert [message.body for message in messages] == bodies_of(1_000)
    client.publish(1, "q", *bodies_of(10))
    assert {message.method.consumer_tag for message in client.messages(10)} == {"high"}


def test_what_a_lost_connection_held_comes_back_in_order(either_broker: Broker, connect: Connect) -> None:
    broker = either_broker
    publisher, doomed = connect(broker), connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *bodies_of(40))
    publisher.barrier(1)
    doomed.open_channel(2)
    for channel in (1, 2):
        doomed.qos(channel, 10)
        doomed.consume(channel, "q")
    held = doomed.messages(20)
    assert broker.queue_depth("q") == 20
    # Two of them are settled out of order before the end.
    for message in (held[7], held[3]):
        doomed.ack(message.channel, message.method.delivery_tag)
    acked = {held[7].body, held[3].body}
    more = doomed.messages(2)
    doomed.reset()
    wait_until(lambda: broker.queue_depth("q") == 38, "they are back")
    heir = connect(broker)
    heir.consume(1, "q", no_ack=True)
    messages = heir.messages(38)
    assert [message.body for message in messages] == [body for body in bodies_of(40) if body not in acked]
    seen = {message.body for message in held + more}
    assert all(message.method.redelivered == (message.body in seen) for message in messages)


def test_a_waiting_consumer_gets_what_comes_back_in_order(broker: Broker, connect: Connect) -> None:
    publisher, doomed, heir = connect(broker), connect(broker), connect(broker)
    publisher.declare(1, "q")
    doomed.consume(1, "q")
    publisher.publish(1, "q", *bodies_of(500))
    assert doomed.bodies(500) == bodies_of(500)
    heir.consume(1, "q", no_ack=True)
    doomed.drop()
    messages = heir.messages(500)
    assert [message.body for message in messages] == bodies_of(500)
    assert all(message.method.redelivered for message in messages)


def test_acks_before_a_wrong_one_count(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.publish(1, "q", *bodies_of(4))
    client.consume(1, "q")
    client.messages(4)
    client.send(1, *[commands.Basic.Ack(tag) for tag in (1, 2, 3, 3)])
    assert client.expect(commands.Channel.Close, 1).reply_text == "PRECONDITION_FAILED - unknown delivery tag 3"
    wait_until(lambda: broker.queue_depth("q") == 1, "only the last one comes back")


def test_acks_past_the_last_delivery_count_up_to_it(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.publish(1, "q", *bodies_of(3))
    client.consume(1, "q")
    client.messages(3)
    client.send(1, *[commands.Basic.Ack(tag) for tag in (1, 2, 3, 4)])
    assert client.expect(commands.Channel.Close, 1).reply_text == "PRECONDITION_FAILED - unknown delivery tag 4"
    assert broker.queue_depth("q") == 0


def test_a_cancelled_consumer_leaves_its_turn_to_others(broker: Broker, connect: Connect) -> None:
    publisher, leaving, staying = connect(broker), connect(broker), connect(broker)
    publisher.declare(1, "q")
    leaving.consume(1, "q", "t", no_ack=True)
    staying.consume(1, "q", no_ack=True)
    leaving.call(1, commands.Basic.Cancel("t"), commands.Basic.CancelOk)
    publisher.publish(1, "q", *bodies_of(10))
    assert staying.bodies(10) == bodies_of(10)
    assert sum(consumer_states(broker, "q").values()) == 1
