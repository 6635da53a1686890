"""Consumers over several queues, with flow, prefetch, deletions and crashes: no message comes twice, none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pamqp import commands, frame

from penstock.config import Config
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client, Message, publish_frames
from tests.server.brokers import check_health
from tests.server.postgres_nodes import POSTGRES

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "priorities": {"x-max-priority": 3},
    "grouped": {"x-group-header": "g"},
    "limited": {"x-delivery-limit": 20},
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(Config(login_refused_delay_s=0.0), data_dir=tmp_path / "data") as broker:
        yield broker
        check_health(broker)


def connected(broker: Broker) -> Client:
    client = Client(broker.host, broker.port).handshake()
    client.open_channel(1)
    return client


def over(*queues: str, **arguments: Any) -> dict[str, Any]:
    return {"arguments": {"x-multiqueue": list(queues), **arguments}}


def count_of(client: Client, queue: str) -> int:
    found = client.call(1, commands.Queue.Declare(0, queue, passive=True), commands.Queue.DeclareOk)
    return int(found.message_count)


def came(client: Client) -> list[Message]:
    """Everything that was sent to the client before this call."""
    client.barrier(1)
    found = client.waiting_messages()
    client._events.clear()
    return found


def test_flow_stops_and_resumes_a_consumer_over_several_queues_and_others_go_on(broker: Broker) -> None:
    with connected(broker) as client, connected(broker) as other:
        for queue in ("a", "b"):
            client.declare(1, queue, durable=True)
        client.consume(1, "", "many", **over("a", "b"))
        assert client.call(1, commands.Channel.Flow(False), commands.Channel.FlowOk).active is False
        other.publish(1, "a", b"a0", b"a1", delivery_mode=2)
        other.publish(1, "b", b"b0", b"b1", delivery_mode=2)
        other.barrier(1)
        assert came(client) == []
        # It counts as not interested: a method behind a publish finds the messages in the queue.
        behind = publish_frames(1, "a", b"a2", delivery_mode=2) + frame.marshal(commands.Basic.Get(0, "a", True), 1)
        other.socket.sendall(behind)
        assert other.message().body == b"a0"
        other.consume(1, "b", "beside", no_ack=True)
        assert other.bodies(2) == [b"b0", b"b1"]
        client.call(1, commands.Channel.Flow(True), commands.Channel.FlowOk)
        assert client.bodies(2) == [b"a1", b"a2"]
        assert [count_of(other, queue) for queue in ("a", "b")] == [0, 0]


def test_what_comes_back_to_several_queues_when_one_of_them_is_gone(broker: Broker) -> None:
    """A nack of everything: the queues that are left have their messages in order and marked."""
    with connected(broker) as client, connected(broker) as other:
        for queue in ("a", "b", "c"):
            client.declare(1, queue, durable=True)
            client.publish(1, queue, *[b"%s%d" % (queue.encode(), number) for number in range(20)], delivery_mode=2)
        client.consume(1, "", "many", **over("a", "b", "c"))
        assert len(client.messages(60)) == 60
        other.call(1, commands.Queue.Delete(0, "b"), commands.Queue.DeleteOk)
        client.send(1, commands.Basic.Cancel("many"))
        client.expect(commands.Basic.CancelOk)
        client.send(1, commands.Basic.Nack(0, multiple=True, requeue=True))
        client.barrier(1)
        for queue in ("a", "c"):
            other.consume(1, queue, queue, no_ack=True)
            again = other.messages(20)
            assert [message.body for message in again] == [b"%s%d" % (queue.encode(), number) for number in range(20)]
            assert all(message.method.redelivered for message in again)
        assert came(other) == []


def test_a_crash_gives_everything_back_that_a_consumer_over_several_queues_had(broker: Broker) -> None:
    with connected(broker) as client:
        for queue, kind in (("a", "plain"), ("b", "priorities"), ("c", "grouped")):
            client.declare(1, queue, durable=True, arguments=KINDS[kind])
            client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
            client.publish(1, queue, *[b"%d" % number for number in range(5)], delivery_mode=2)
        while client.expect(commands.Basic.Ack).delivery_tag < 15:
            pass
        client.consume(1, "", "many", **over("a", "b", "c"))
        taken = client.messages(15)
        client.ack(1, taken[0].method.delivery_tag)
        client.call(1, commands.Queue.Declare(0, "last", durable=True), commands.Queue.DeclareOk)
        broker.kill()
    broker.start()
    with connected(broker) as client:
        counts = [count_of(client, queue) for queue in ("a", "b", "c")]
        assert sum(counts) == 14
        client.consume(1, "", "many", **over("c", "b", "a"))
        assert all(message.method.redelivered for message in client.messages(14))


def test_a_consumer_over_a_queue_here_and_one_in_postgres(penstock_url: str, tmp_path: Path) -> None:
    """One prefetch over both, and both keep what was not acknowledged when the node is killed."""
    config = Config(login_refused_delay_s=0.0, postgres_url=penstock_url)
    with Broker(config, data_dir=tmp_path / "data") as broker:
        with connected(broker) as client:
            client.declare(1, "here", durable=True)
            client.declare(1, "there", durable=True, arguments=POSTGRES)
            client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
            for queue in ("here", "there"):
                client.publish(1, queue, *[b"%s %d" % (queue.encode(), each) for each in range(4)], delivery_mode=2)
            while client.expect(commands.Basic.Ack).delivery_tag < 8:
                pass
            client.qos(1, 2)
            client.consume(1, "", "both", **over("here", "there"))
            first = client.messages(2)
            assert came(client) == []
            for message in first:
                client.ack(1, message.method.delivery_tag)
            second = client.messages(2)
            bodies = [message.body for message in first + second]
            assert len(set(bodies)) == 4
            wait_until(lambda: count_of(client, "there") <= 4, "rows are counted")
            client.declare(1, "last", durable=True)
            broker.kill()
        broker.start()
        with connected(broker) as client:
            client.consume(1, "", "both", no_ack=True, **over("here", "there"))
            rest = {message.body for message in client.messages(6)}
            everything = {b"%s %d" % (queue, each) for queue in (b"here", b"there") for each in range(4)}
            assert rest | {message.body for message in first} == everything
        check_health(broker)


class Storm:
    """Clients that do what they like, and books of what must come of it."""

    def __init__(self, broker: Broker, rng: Random) -> None:
        self.rng = rng
        self.clients = [connected(broker) for _ in range(3)]
        self.publisher = connected(broker)
        self.queues = ("p", "q", "r")
        for queue, kind in zip(self.queues, rng.sample(sorted(KINDS), 3), strict=True):
            self.publisher.declare(1, queue, durable=True, arguments=KINDS[kind])
        self.sent = 0
        self.done: set[bytes] = set()
        # Of each client: what it has, by tag; its consumers; whether its flow is on.
        self.held: list[dict[int, bytes]] = [{} for _ in self.clients]
        self.tags: list[dict[str, bool]] = [{} for _ in self.clients]
        self.flows = [True for _ in self.clients]

    def step(self) -> None:
        at = self.rng.randrange(len(self.clients))
        act = self.rng.choice(
            (self.publish, self.publish, self.consume, self.ack, self.give_back, self.cancel, self.flow)
        )
        self.look(at)
        act(at)

    def look(self, at: int) -> None:
        for message in came(self.clients[at]):
            assert message.body not in self.done, f"{message.body!r} was delivered again"
            if self.tags[at].get(message.method.consumer_tag, False):
                self.done.add(message.body)
            else:
                assert message.method.delivery_tag not in self.held[at]
                self.held[at][message.method.delivery_tag] = message.body

    def publish(self, at: int) -> None:
        queue = self.rng.choice(self.queues)
        bodies = [b"%d" % number for number in range(self.sent, self.sent + self.rng.choice((1, 1, 30)))]
        self.sent += len(bodies)
        priority, headers = self.rng.randrange(3), {"g": self.rng.choice(("x", "y"))}
        self.publisher.publish(1, queue, *bodies, delivery_mode=2, priority=priority, headers=headers)
        self.publisher.barrier(1)

    def consume(self, at: int) -> None:
        if len(self.tags[at]) > 2:
            return
        tag, no_ack = f"{at}-{self.rng.random()}", self.rng.random() < 0.3
        self.tags[at][tag] = no_ack
        self.clients[at].qos(1, self.rng.choice((0, 1, 5)), self.rng.random() < 0.3)
        queues = self.rng.sample(self.queues, self.rng.randint(1, 3))
        priority = self.rng.choice((0, 0, 2))
        self.clients[at].consume(1, "", tag, no_ack=no_ack, **over(*queues, **{"x-priority": priority}))

    def ack(self, at: int) -> None:
        for tag in self.rng.sample(sorted(self.held[at]), min(len(self.held[at]), 7)):
            self.clients[at].ack(1, tag)
            self.done.add(self.held[at].pop(tag))

    def give_back(self, at: int) -> None:
        for tag in self.rng.sample(sorted(self.held[at]), min(len(self.held[at]), 2)):
            self.clients[at].send(1, commands.Basic.Nack(tag, requeue=True))
            del self.held[at][tag]

    def cancel(self, at: int) -> None:
        if self.tags[at]:
            tag = self.rng.choice(sorted(self.tags[at]))
            self.clients[at].call(1, commands.Basic.Cancel(tag), commands.Basic.CancelOk)
            self.look(at)
            del self.tags[at][tag]

    def flow(self, at: int) -> None:
        self.flows[at] = not self.flows[at]
        self.clients[at].call(1, commands.Channel.Flow(self.flows[at]), commands.Channel.FlowOk)

    def check_what_is_left(self) -> None:
        """Everybody leaves; what is left is there once."""
        for at, client in enumerate(self.clients):
            self.look(at)
            client.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
            for message in client.waiting_messages():
                if self.tags[at].get(message.method.consumer_tag, False):
                    self.done.add(message.body)
            client.close()
        left = sum([count_of(self.publisher, queue) for queue in self.queues])
        self.publisher.consume(1, "", "all", no_ack=True, **over(*self.queues))
        bodies = self.publisher.bodies(left)
        assert len(bodies) == len(set(bodies)), "a message is there twice"
        assert not self.done & set(bodies)
        assert self.done | set(bodies) == {b"%d" % number for number in range(self.sent)}
        self.publisher.close()


@pytest.mark.parametrize("seed", range(12))
def test_in_any_storm_every_message_is_settled_once_or_still_there(broker: Broker, seed: int) -> None:
    storm = Storm(broker, Random(seed))
    for _ in range(120):
        storm.step()
    storm.check_what_is_left()
