"""Clients that do everything at once for a while: no message is lost, none comes back after its ack, nothing stalls."""

from __future__ import annotations

import random
import threading
import time

import pytest
from pamqp import commands

from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client
from tests.server.brokers import check_health, connection_count, queue_of
from tests.server.conftest import Connect, StartBroker

QUEUES = ("a", "b", "c")
SOAK_S = 2.0


class Ledger:
    """What is known for certain about each message."""

    def __init__(self) -> None:
        self.published: set[bytes] = set()
        # Its ack was handled by the broker.
        self.acked: set[bytes] = set()
        # Its ack was sent by a client that vanished: handled or not.
        self.doubtful: set[bytes] = set()


class Walker:
    """A client that takes random steps, from a seed."""

    def __init__(self, broker: Broker, ledger: Ledger, seed: int) -> None:
        self.broker = broker
        self.ledger = ledger
        self.name = b"%d" % seed
        self.random = random.Random(seed)
        self.count = 0
        self.failure: BaseException | None = None

    def walk(self) -> None:
        end = time.monotonic() + SOAK_S
        try:
            while time.monotonic() < end:
                self.one_connection()
        except BaseException as failure:  # looked at by the test
            self.failure = failure

    def one_connection(self) -> None:
        with Client(self.broker.host, self.broker.port) as client:
            client.handshake()
            client.open_channel(1)
            client.open_channel(2)
            client.call(2, commands.Confirm.Select(), commands.Confirm.SelectOk)
            held: list[tuple[int, bytes]] = []
            tags: list[str] = []
            sent = 0
            for _ in range(self.random.randrange(5, 40)):
                step = self.random.random()
                if step < 0.3:
                    sent += self.publish(client, sent)
                elif step < 0.45:
                    client.qos(1, self.random.choice([0, 1, 2, 10]), self.random.random() < 0.2)
                    priority = self.random.choice([0, 0, 1, 5])
                    tags.append(client.consume(1, self.random.choice(QUEUES), arguments={"x-priority": priority}))
                elif step < 0.55 and tags:
                    tag = tags.pop(self.random.randrange(len(tags)))
                    client.call(1, commands.Basic.Cancel(tag), commands.Basic.CancelOk)
                else:
                    self.settle(client, held)
            self.leave(client, held)

    def publish(self, client: Client, sent: int) -> int:
        bodies = [b"%b-%d" % (self.name, self.count + number) for number in range(self.random.randrange(1, 60))]
        self.count += len(bodies)
        client.publish(2, self.random.choice(QUEUES), *bodies)
        confirmed = 0
        while confirmed < sent + len(bodies):
            confirmed = client.expect(commands.Basic.Ack, 2).delivery_tag
        self.ledger.published.update(bodies)
        return len(bodies)

    def settle(self, client: Client, held: list[tuple[int, bytes]]) -> None:
        """Acknowledge or give back some of what has arrived, and wait until the broker has done so."""
        client.barrier(1)
        while client.waiting_messages():
            message = client.message()
            held.append((message.method.delivery_tag, message.body))
        self.random.shuffle(held)
        some = [held.pop() for _ in range(self.random.randrange(len(held) + 1))]
        acked = []
        for tag, body in some:
            if self.random.random() < 0.7:
                client.ack(1, tag)
                acked.append(body)
            else:
                client.send(1, commands.Basic.Nack(tag, False, True))
        self.ledger.doubtful.update(acked)
        client.barrier(1)
        self.ledger.acked.update(acked)
        self.ledger.doubtful.difference_update(acked)

    def leave(self, client: Client, held: list[tuple[int, bytes]]) -> None:
        way = self.random.random()
        if way < 0.3:
            client.close()
        elif way < 0.6:
            client.drop()
        else:
            acked = held[: len(held) // 2]
            self.ledger.doubtful.update([body for _, body in acked])
            for tag, _ in acked:
                client.ack(1, tag)
            client.reset()


@pytest.mark.parametrize(("loop", "seed"), [("asyncio", 100), ("uvloop", 200)])
def test_nothing_is_lost_while_clients_come_and_go(
    loop: str, seed: int, start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(loop=loop)
    keeper = connect(broker)
    for name in QUEUES:
        keeper.declare(1, name)
    ledger = Ledger()
    walkers = [Walker(broker, ledger, seed + number) for number in range(4)]
    threads = [threading.Thread(target=walker.walk) for walker in walkers]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        check_health(broker)
        threads[0].join(0.05)
    assert [walker.failure for walker in walkers] == [None] * 4
    wait_until(lambda: connection_count(broker) == 1, "all are gone")
    left = drain(broker, connect(broker))
    assert len(ledger.published) > 200
    assert len(left) == len(set(left)), "a message was there twice"
    assert not ledger.acked & set(left), "a message came back after its ack"
    assert ledger.published - ledger.acked - ledger.doubtful - set(left) == set(), "messages were lost"


def drain(broker: Broker, client: Client) -> list[bytes]:
    depths = [broker.queue_depth(name) for name in QUEUES]
    for name in QUEUES:
        client.consume(1, name, no_ack=True)
    bodies = client.bodies(sum(depths))
    assert [broker.call(lambda server, name=name: queue_of(server, name).backing.depth()) for name in QUEUES] == [0] * 3
    return bodies


def test_the_walkers_themselves_would_notice_a_loss(broker: Broker, connect: Connect) -> None:
    keeper = connect(broker)
    for name in QUEUES:
        keeper.declare(1, name)
    walker = Walker(broker, Ledger(), 1)
    with Client(broker.host, broker.port) as client:
        client.handshake()
        client.open_channel(2)
        client.call(2, commands.Confirm.Select(), commands.Confirm.SelectOk)
        walker.publish(client, 0)
        for name in QUEUES:
            client.call(2, commands.Queue.Purge(0, name), commands.Queue.PurgeOk)
    assert walker.ledger.published - walker.ledger.acked - set(drain(broker, connect(broker)))
