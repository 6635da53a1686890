"""Whatever a client can make grow raises the memory alarm, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pamqp import body, commands, frame, header

from penstock import limits
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client, publish_frames
from tests.server.conftest import Connect, StartBroker

LIMIT_BYTES = 1_000_000
# None of these grows by more than a fraction of the limit in bodies.
BODY = b"x"


def large_properties(client: Client, other: Client) -> None:
    client.declare(1, "q", durable=True)
    for _ in range(30):
        client.publish(1, "q", BODY, delivery_mode=1, headers={"h": "x" * 100_000})


def larger_properties_of_persistent_messages(client: Client, other: Client) -> None:
    client.declare(1, "q", durable=True)
    for number in range(1000):
        client.publish(1, "q", BODY, delivery_mode=2, headers={"h": f"{number:04}" * 250})


def unacknowledged_messages(client: Client, other: Client) -> None:
    client.declare(1, "q")
    other.consume(1, "q")
    for _ in range(40):
        client.publish(1, "q", *[BODY] * 100)


def half_received_content(client: Client, other: Client) -> None:
    part = frame.marshal(body.ContentBody(b"x" * 100_000), 1)
    client.send(1, commands.Basic.Publish(0, "", "nowhere"))
    client.socket.sendall(frame.marshal(header.ContentHeader(0, 2_000_000, commands.Basic.Properties()), 1))
    client.socket.sendall(part * 12)


def an_open_transaction(client: Client, other: Client) -> None:
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    client.declare(1, "q")
    client.publish(1, "q", *[BODY] * 5000)


def keys_of_deduplication(client: Client, other: Client) -> None:
    client.declare(1, "q", arguments={"x-message-deduplication": True, "x-cache-size": 100_000, "x-max-length": 1})
    frames = [publish_frames(1, "q", BODY, headers={"x-deduplication-header": f"key {n}"}) for n in range(4000)]
    client.socket.sendall(b"".join(frames))


def shelved_messages(client: Client, other: Client) -> None:
    client.declare(1, "q", durable=True, arguments={"x-sort-header": "g", "x-queue-mode": "lazy"})
    other.qos(1, 1)
    other.consume(1, "q")
    frames = [publish_frames(1, "q", BODY, delivery_mode=2, headers={"g": f"{n}"}) for n in range(4000)]
    client.socket.sendall(b"".join(frames))


def channels(client: Client, other: Client) -> None:
    client.publish(1, "nowhere", BODY)
    for number in range(2, 260):
        client.open_channel(number)


def bindings(client: Client, other: Client) -> None:
    client.publish(1, "nowhere", BODY)
    client.declare(1, "q")
    for number in range(800):
        client.send(1, commands.Queue.Bind(0, "q", "amq.topic", f"a.{number}", nowait=True))


def queues(client: Client, other: Client) -> None:
    client.publish(1, "nowhere", BODY)
    for number in range(1200):
        client.send(1, commands.Queue.Declare(0, f"q{number}", nowait=True))


GROWTH: dict[str, Callable[[Client, Client], None]] = {
    each.__name__.replace("_", " "): each
    for each in (
        large_properties,
        larger_properties_of_persistent_messages,
        unacknowledged_messages,
        half_received_content,
        an_open_transaction,
        keys_of_deduplication,
        shelved_messages,
        channels,
        bindings,
        queues,
    )
}


def is_alarmed(broker: Broker) -> bool:
    return broker.call(lambda server: server.broker.memory_alarm.active)


@pytest.mark.parametrize("kind", GROWTH)
def test_the_memory_alarm_sees(kind: str, start_broker: StartBroker, connect: Connect, tmp_path: Path) -> None:
    broker = start_broker(data_dir=str(tmp_path / "data"), memory_bytes_max=LIMIT_BYTES)
    client, other = connect(broker), connect(broker)
    assert not is_alarmed(broker)
    GROWTH[kind](client, other)
    wait_until(lambda: is_alarmed(broker), f"the alarm is set by {kind}")
    client.expect(commands.Connection.Blocked)


def test_unfinished_content_of_all_connections_is_bounded(
    start_broker: StartBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is never finished cannot be consumed: it must not hold up all publishers for ever."""
    monkeypatch.setattr(limits, "PARTIAL_CONTENT_BYTES_MAX", 400_000)
    broker = start_broker(memory_bytes_max=LIMIT_BYTES)
    clients = [connect(broker) for _ in range(4)]

    def has_come(size: int) -> bool:
        return broker.call(lambda server: server.partial_bytes) >= size

    for number, client in enumerate(clients, 1):
        client.send(1, commands.Basic.Publish(0, "", "nowhere"))
        client.socket.sendall(frame.marshal(header.ContentHeader(0, 300_000, commands.Basic.Properties()), 1))
        client.socket.sendall(frame.marshal(body.ContentBody(b"x" * 120_000), 1))
        client.socket.sendall(frame.marshal(body.ContentBody(b"x" * 40_000), 1))
        if number < len(clients):
            wait_until(partial(has_come, number * 160_000), "what was sent has come")
    closed = clients[-1].expect(commands.Connection.Close)
    assert (closed.reply_code, closed.reply_text) == (
        506,
        "RESOURCE_ERROR - too much unfinished content on all connections",
    )
    for client in clients:
        client.drop()
    wait_until(lambda: broker.call(lambda server: server.partial_bytes) == 0, "nothing is left of it")
