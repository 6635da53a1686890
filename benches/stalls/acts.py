"""What one client does while another one measures how long it waits.

An act is a generator: up to its `yield` it prepares, behind it the probe counts.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from benches.brokers import Broker, Penstock
from benches.stalls.client import Client, bind, declare, method, publish, short, table

SETTLE_S: Final = 1.0
STEADY_S: Final = 20.0
STEADY_PER_S: Final = 19_000
SCATTERED: Final = 100_000
MIB: Final = 1024 * 1024
BODY: Final = b"0123456789"
PURGE: Final = (50, 30)
DELETE: Final = (50, 40)
COMMIT: Final = (90, 20)
ROLLBACK: Final = (90, 30)

Act = Callable[[Broker], Iterator[None]]


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    name: str
    told: str
    act: Act
    # Longest wait that is aimed at.
    goal_ms: float = 20.0
    # About penstock's HTTP endpoint.
    http: bool = False
    # RabbitMQ 3.10 does not get through the 100,000 single acks or nacks of the preparation within the deadline.
    is_penstock_only: bool = False


def delivered(
    broker: Broker, count: int, arguments: dict[str, str | list[bytes]] | None = None, in_tx: bool = False
) -> Client:
    """A client that has got `count` persistent messages of a durable queue and has not acknowledged them."""
    with_queue(broker, count, arguments).close()
    consumer = Client(broker.port)
    if in_tx:
        consumer.call((90, 10))
    consumer.consume("q")
    consumer.take(count)
    return consumer


def with_queue(
    broker: Broker, count: int, arguments: dict[str, str | list[bytes]] | None = None, body: bytes = BODY
) -> Client:
    client = Client(broker.port)
    client.send(declare("q", durable=True, arguments=arguments))
    if count:
        client.fill("q", count, body)
    return client


def until_waiting(broker: Broker, queue: str, count: int) -> None:
    client = Client(broker.port)
    while client.passive(queue) != count:
        time.sleep(0.02)
    client.close()


def disconnect(count: int) -> Act:
    def act(broker: Broker) -> Iterator[None]:
        consumer = delivered(broker, count)
        yield
        consumer.close()
        until_waiting(broker, "q", count)

    return act


def deliver(count: int) -> Act:
    def act(broker: Broker) -> Iterator[None]:
        with_queue(broker, count).close()
        consumer = Client(broker.port)
        yield
        consumer.consume("q")
        consumer.take(count)

    return act


def dead_letters(count: int) -> Act:
    def act(broker: Broker) -> Iterator[None]:
        client = Client(broker.port)
        client.send(declare("dead", durable=True))
        consumer = delivered(broker, count, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        yield
        consumer.send(method((60, 120), struct.pack(">QB", 0, 1)))
        until_waiting(broker, "dead", count)

    return act


def settle_all(count: int, number: tuple[int, int], arguments: bytes, left: int) -> Act:
    """One method that settles all deliveries: ack, nack with requeue, recover."""

    def act(broker: Broker) -> Iterator[None]:
        consumer = delivered(broker, count)
        consumer.call((60, 30), short("t") + b"\0")
        yield
        consumer.send(method(number, arguments))
        until_waiting(broker, "q", left)

    return act


def settle_scattered(number: tuple[int, int], arguments: bytes, left: int) -> Act:
    """The same, where every second delivery was acknowledged before, by itself."""

    def act(broker: Broker) -> Iterator[None]:
        consumer = delivered(broker, 2 * SCATTERED)
        consumer.call((60, 30), short("t") + b"\0")
        acks = [method((60, 80), struct.pack(">QB", tag, 0)) for tag in range(1, 2 * SCATTERED, 2)]
        for first in range(0, len(acks), 1_000):
            consumer.send(b"".join(acks[first : first + 1_000]))
        consumer.passive("q")
        yield
        consumer.send(method(number, arguments))
        until_waiting(broker, "q", left)

    return act


def vanish(count: int, number: tuple[int, int], body: bytes = BODY) -> Act:
    """One method after which the queue's messages are gone: purge, delete."""

    def act(broker: Broker) -> Iterator[None]:
        client = with_queue(broker, count, body=body)
        yield
        client.call(number, b"\0\0" + short("q") + b"\0")

    return act


def vanish_unacked(count: int, number: tuple[int, int]) -> Act:
    """The same, where every second message waits for its ack, and those between them have come back."""

    def act(broker: Broker) -> Iterator[None]:
        consumer = delivered(broker, count)
        consumer.call((60, 30), short("t") + b"\0")
        nacks = [method((60, 120), struct.pack(">QB", tag, 2)) for tag in range(1, count + 1, 2)]
        for first in range(0, len(nacks), 1_000):
            consumer.send(b"".join(nacks[first : first + 1_000]))
        consumer.passive("q")
        yield
        consumer.call(number, b"\0\0" + short("q") + b"\0")

    return act


def settle_in_tx(count: int, how: int, end: tuple[int, int]) -> Act:
    """A nack of all deliveries in a transaction, and its end."""

    def act(broker: Broker) -> Iterator[None]:
        Client(broker.port).send(declare("dead", durable=True))
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        consumer = delivered(broker, count, dead, in_tx=True)
        consumer.call((60, 30), short("t") + b"\0")
        consumer.send(method((60, 120), struct.pack(">QB", 0, how)))
        consumer.passive("q")
        yield
        consumer.call(end)
        consumer.passive("q")

    return act


def commit(count: int) -> Act:
    def act(broker: Broker) -> Iterator[None]:
        client = with_queue(broker, 0)
        client.call((90, 10))
        pair = publish("", "q", b"x") + publish("", "q", b"yy")
        for _ in range(count // 1_000):
            client.send(pair * 500)
        client.passive("q")
        yield
        client.call((90, 20))

    return act


def copied_keys(broker: Broker) -> Iterator[None]:
    client = Client(broker.port)
    client.send(declare("q", durable=False))
    for words in itertools.product("a*", repeat=12):
        client.send(bind("q", "amq.topic", ".".join(words) + ".#.x"))
    client.passive("q")
    keys = [b".".join([b"a"] * 127)] * (120_000 // 258)
    properties = struct.pack(">H", 0x2000) + table({"CC": keys})
    yield
    client.send(publish("amq.topic", "a", b"x", properties))
    client.passive("q")


def one_long_key(broker: Broker) -> Iterator[None]:
    client = Client(broker.port)
    client.send(declare("q", durable=False))
    for words in itertools.product("a*", repeat=12):
        client.send(bind("q", "amq.topic", ".".join(words) + ".#.x"))
    client.passive("q")
    properties = struct.pack(">H", 0x2000) + table({"CC": [b".".join([b"a"] * 60_000)]})
    yield
    # Some brokers refuse such a key, and close the channel: that is an answer, too.
    client.send(publish("amq.topic", "a", b"x", properties))
    client.send(method((50, 10), b"\0\0" + short("q") + b"\x01" + table({})))
    client.sock.recv(1)


def binds(count: int) -> Act:
    def act(broker: Broker) -> Iterator[None]:
        client = Client(broker.port)
        client.send(declare("q", durable=False))
        burst = b"".join([bind("q", "amq.topic", f"a.{number}.*.b.#") for number in range(count)])
        client.passive("q")
        yield
        client.send(burst)
        client.passive("q")

    return act


def declares(count: int) -> Act:
    def act(broker: Broker) -> Iterator[None]:
        client = Client(broker.port)
        burst = b"".join([declare(f"queue-{number}", durable=True) for number in range(count)])
        yield
        client.send(burst)
        client.passive(f"queue-{count - 1}")

    return act


def publish_large(broker: Broker) -> Iterator[None]:
    client = with_queue(broker, 0)
    client.call((85, 10), b"\0")
    octets = publish("", "q", bytes(64 * MIB))
    yield
    client.send(octets)
    client.expect((60, 80))


def get_large(broker: Broker) -> Iterator[None]:
    """From a lazy queue, so that the body is read from the disk."""
    client = with_queue(broker, 0, {"x-queue-mode": "lazy"})
    client.call((85, 10), b"\0")
    client.send(publish("", "q", bytes(64 * MIB)))
    client.expect((60, 80))
    yield
    client.send(method((60, 70), b"\0\0" + short("q") + b"\x01"))
    left = 64 * MIB
    while left > 0:
        left -= len(client.sock.recv(1 << 20))


def steady(broker: Broker) -> Iterator[None]:
    """Traffic at a pace that leaves the broker some time; 1 queue, acknowledged by hundreds."""
    with_queue(broker, 0).close()
    load = [sys.executable, "-m", "benches.stalls.steady", str(broker.port), str(STEADY_PER_S)]
    processes = [subprocess.Popen([*load, role], env=dict(os.environ)) for role in ("publish", "consume")]
    try:
        time.sleep(SETTLE_S)
        yield
        time.sleep(STEADY_S)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def idle_queues(count: int) -> Act:
    def act(broker: Broker) -> Iterator[None]:
        client = Client(broker.port)
        for first in range(0, count, 100):
            client.send(b"".join([declare(f"queue-{first + number}", durable=False) for number in range(100)]))
        client.passive(f"queue-{count - 1}")
        yield
        time.sleep(10.0)

    return act


def http_flood(broker: Broker) -> Iterator[None]:
    assert isinstance(broker, Penstock)
    sockets = [socket.create_connection(("127.0.0.1", broker.http_port)) for _ in range(30)]
    for sock in sockets:
        sock.setblocking(False)
    request = b"GET /api/history HTTP/1.1\r\nHost: x\r\n\r\n" * 50
    yield
    until = time.monotonic() + 6.0
    while time.monotonic() < until:
        for sock in sockets:
            try:
                sock.send(request)
                sock.recv(1 << 20)
            except OSError:
                continue
        time.sleep(0.001)


def nothing(broker: Broker) -> Iterator[None]:
    yield
    time.sleep(5.0)


CASES: Final = (
    Case("nothing", "nobody does anything: what the machine itself adds", nothing, 5.0),
    Case("disconnect-100k", "disconnect with 100,000 unacked tiny messages, durable queue", disconnect(100_000)),
    Case("disconnect-200k", "… with 200,000", disconnect(200_000)),
    Case("disconnect-300k", "… with 300,000", disconnect(300_000)),
    Case("deliver-50k", "delivery of 50,000 to a consumer without prefetch", deliver(50_000)),
    Case("deliver-200k", "… of 200,000", deliver(200_000)),
    Case("nack-dlx-200k", "nack multiple of 200,000, dead-letter exchange", dead_letters(200_000)),
    Case(
        "nack-requeue-200k",
        "nack multiple of 200,000, requeue",
        settle_all(200_000, (60, 120), struct.pack(">QB", 0, 3), 200_000),
    ),
    Case("ack-200k", "ack multiple of 200,000", settle_all(200_000, (60, 80), struct.pack(">QB", 0, 1), 0)),
    Case("recover-200k", "basic.recover of 200,000", settle_all(200_000, (60, 110), b"\x01", 200_000)),
    Case(
        "ack-scattered",
        "ack multiple of 100,000 that stand between acked ones",
        settle_scattered((60, 80), struct.pack(">QB", 0, 1), 0),
        is_penstock_only=True,
    ),
    Case(
        "recover-scattered",
        "basic.recover of those",
        settle_scattered((60, 110), b"\x01", SCATTERED),
        is_penstock_only=True,
    ),
    Case("purge-200k", "queue.purge of 200,000", vanish(200_000, PURGE)),
    Case("delete-200k", "queue.delete of 200,000", vanish(200_000, DELETE)),
    Case(
        "purge-unacked",
        "queue.purge of 100,000 between 100,000 unacked",
        vanish_unacked(200_000, PURGE),
        is_penstock_only=True,
    ),
    Case("delete-unacked", "queue.delete of those", vanish_unacked(200_000, DELETE), is_penstock_only=True),
    Case("purge-large", "queue.purge of 40,000 of 5 KB", vanish(40_000, PURGE, bytes(5_000))),
    Case("delete-large", "queue.delete of 40,000 of 5 KB", vanish(40_000, DELETE, bytes(5_000))),
    Case("tx-nack-200k", "tx.commit of a nack of 200,000, dead-letter exchange", settle_in_tx(200_000, 1, COMMIT)),
    Case("tx-requeue-200k", "tx.commit of a nack of 200,000, requeue", settle_in_tx(200_000, 3, COMMIT)),
    Case("tx-rollback-200k", "tx.rollback of a nack of 200,000", settle_in_tx(200_000, 1, ROLLBACK)),
    Case("commit-200k", "tx.commit of 200,000", commit(200_000)),
    Case("commit-500k", "tx.commit of 500,000", commit(500_000)),
    Case("cc-keys", "one publish with 120 KB of CC keys, 4,096 topic bindings", copied_keys),
    Case("cc-one-key", "… with one CC key of 120 KB", one_long_key),
    Case("binds-20k", "20,000 topic binds in one burst", binds(20_000)),
    Case("declares-5k", "5,000 durable declares in one burst", declares(5_000)),
    Case("publish-64m", "publish of 64 MiB", publish_large),
    Case("get-64m", "basic.get of 64 MiB, from disk", get_large),
    Case("steady", "steady traffic, 19,000 messages/s, persistent", steady, 5.0),
    Case("queues-50k", "50,000 queues, idle", idle_queues(50_000), 5.0),
    Case("http", "30 connections that flood the HTTP endpoint", http_flood, http=True),
)
BY_NAME: Final = {case.name: case for case in CASES}
