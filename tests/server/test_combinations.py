"""Features that meet: methods right behind publishes, queues that come and go under a publisher, pipelined definitions.

Everything at the users' door, with raw frames where it matters what comes in one write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pamqp import base, commands, frame

from penstock.config import Config
from penstock.testing import Broker
from tests.server.amqp_client import Client, publish_frames
from tests.server.brokers import check_health


@pytest.fixture(params=["memory", "folder"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    folder = tmp_path / "data" if request.param == "folder" else None
    with Broker(Config(login_refused_delay_s=0.0), data_dir=folder) as broker:
        yield broker
        check_health(broker)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Broker]:
    with Broker(Config(login_refused_delay_s=0.0), data_dir=tmp_path / "data") as broker:
        yield broker
        check_health(broker)


def connected(broker: Broker) -> Client:
    client = Client(broker.host, broker.port).handshake()
    client.open_channel(1)
    return client


def count_of(client: Client, queue: str) -> int:
    found = client.call(1, commands.Queue.Declare(0, queue, passive=True), commands.Queue.DeclareOk)
    return int(found.message_count)


# --- a method in the same write as publishes --------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "priorities": {"x-max-priority": 5},
    "one message": {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "one active consumer": {"x-single-active-consumer": True},
    "deduplicated": {"x-message-deduplication": True, "x-cache-size": 10},
    "limited deliveries": {"x-delivery-limit": 3},
    "expiring": {"x-message-ttl": 60_000},
}
METHODS: dict[str, tuple[base.Frame, type[base.Frame]]] = {
    "purge": (commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk),
    "delete": (commands.Queue.Delete(0, "q"), commands.Queue.DeleteOk),
    "declare": (commands.Queue.Declare(0, "q", passive=True), commands.Queue.DeclareOk),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_method_behind_publishes_finds_what_an_idle_consumer_has_left(broker: Broker, kind: str, method: str) -> None:
    """A consumer without a limit has everything, and every publish is confirmed once."""
    with connected(broker) as client, connected(broker) as other:
        client.declare(1, "dead", durable=True)
        client.declare(1, "q", durable=True, arguments=KINDS[kind])
        other.consume(1, "q", no_ack=True)
        client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        asked, answer = METHODS[method]
        # Different properties: not one run.
        publishes = [publish_frames(1, "q", b"%d" % each, delivery_mode=2, priority=1 + each % 2) for each in range(4)]
        client.socket.sendall(b"".join(publishes) + frame.marshal(asked, 1))
        found = client.expect(answer, 1)
        assert found.message_count == 0
        assert sorted(other.bodies(4)) == [b"0", b"1", b"2", b"3"]
        confirmed = 0
        while confirmed < 4:
            confirmed = client.expect(commands.Basic.Ack, 1).delivery_tag
        assert count_of(client, "dead") == 0


@pytest.mark.parametrize("credit", [1, 3])
@pytest.mark.parametrize("kind", ["plain", "priorities", "expiring"])
def test_a_consumer_with_little_credit_leaves_the_rest_to_the_method(broker: Broker, kind: str, credit: int) -> None:
    with connected(broker) as client, connected(broker) as other:
        client.declare(1, "q", durable=True, arguments=KINDS[kind])
        other.qos(1, credit)
        other.consume(1, "q")
        publishes = [publish_frames(1, "q", b"%d" % each, delivery_mode=2) for each in range(5)]
        client.socket.sendall(b"".join(publishes) + frame.marshal(commands.Queue.Purge(0, "q"), 1))
        assert client.expect(commands.Queue.PurgeOk, 1).message_count == 5 - credit
        assert other.bodies(credit) == [b"%d" % each for each in range(credit)]
        other.send(1, commands.Basic.Nack(0, multiple=True, requeue=True))
        again = other.messages(credit)
        assert [message.body for message in again] == [b"%d" % each for each in range(credit)]
        assert all(message.method.redelivered for message in again)


def test_a_full_prefetch_of_the_channel_holds_back_all_of_its_consumers(broker: Broker) -> None:
    """Those that acknowledge nothing, too; and what they leave stays for a consumer of another channel."""
    with connected(broker) as client:
        client.open_channel(2)
        for queue in ("a", "b"):
            client.declare(1, queue, durable=True)
        client.qos(1, 1, all_consumers=True)
        client.consume(1, "a", "acks")
        client.consume(1, "b", "none", no_ack=True)
        client.publish(2, "a", b"a")
        held = client.message()
        client.publish(2, "b", b"1", b"2")
        assert count_of(client, "b") == 2
        client.ack(1, held.method.delivery_tag)
        assert client.bodies(2) == [b"1", b"2"]


# --- queues that come and go under a publisher --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_publisher_reaches_the_queues_that_are_there_now_whatever_it_remembers(broker: Broker, seed: int) -> None:
    """Queues are deleted, declared again, bound and unbound by another connection between the publishes."""
    rng = Random(seed)
    with connected(broker) as publisher, connected(broker) as other:
        queues = ("one", "two", "three")
        bound: set[str] = set()
        there: dict[str, int] = {}
        for step in range(60):
            queue = rng.choice(queues)
            act = rng.randrange(4)
            if act == 0 and queue not in there:
                other.declare(1, queue, durable=True)
                there[queue] = 0
            elif act == 1 and queue in there:
                other.call(1, commands.Queue.Delete(0, queue), commands.Queue.DeleteOk)
                del there[queue]
                bound.discard(queue)
            elif act == 2 and queue in there:
                other.call(1, commands.Queue.Bind(0, queue, "amq.topic", "k.*"), commands.Queue.BindOk)
                bound.add(queue)
            elif queue in bound:
                other.call(1, commands.Queue.Unbind(0, queue, "amq.topic", "k.*"), commands.Queue.UnbindOk)
                bound.discard(queue)
            # The same frames each time, by both ways.
            publisher.publish(1, "k.x", b"t", exchange="amq.topic", delivery_mode=2)
            publisher.publish(1, queue, b"d", delivery_mode=2)
            publisher.barrier(1)
            for name in bound:
                there[name] += 1
            if queue in there:
                there[queue] += 1
            assert {name: count_of(other, name) for name in there} == there, f"after step {step}"


# --- definitions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", [1, 17, 90])
def test_of_definitions_that_were_sent_without_waiting_a_crash_leaves_a_beginning(
    durable: Broker, answers: int
) -> None:
    """With everything that was answered."""
    names = [f"q{number}" for number in range(40)]
    methods: list[base.Frame] = []
    for name in names:
        methods.append(commands.Queue.Declare(0, name, durable=True))
        methods.append(commands.Queue.Bind(0, name, "amq.direct", name))
        methods.append(commands.Queue.Unbind(0, name, "amq.direct", "nothing"))
        methods.append(commands.Queue.Bind(0, name, "amq.direct", "all"))
    client = connected(durable)
    client.send(1, *methods)
    replies = (commands.Queue.DeclareOk, commands.Queue.BindOk, commands.Queue.UnbindOk, commands.Queue.BindOk)
    for number in range(answers):
        client.expect(replies[number % 4], 1)
    durable.kill()
    client.drop()
    durable.start()
    with connected(durable) as client:
        client.publish(1, "all", b"all", exchange="amq.direct", delivery_mode=2)
        for name in names:
            client.publish(1, name, b"own", exchange="amq.direct", delivery_mode=2)
        client.barrier(1)
        found = [state_of(durable, client, name) for name in names]
        # Declared, then bound by its name, then by "all": 0, 1, 2, 3.
        assert found == sorted(found, reverse=True)
        assert len([each for each in found if 0 < each < 3]) <= 1
        assert sum(found) >= 3 * (answers // 4) + min(answers % 4, 2)


def state_of(broker: Broker, client: Client, name: str) -> int:
    """How many of its three definitions a queue has."""
    if not broker.call(lambda server: name in server.broker.vhosts["/"].queues):
        return 0
    return 1 + count_of(client, name)


def test_a_queue_that_is_deleted_right_behind_its_publishes_confirms_them_and_is_gone_after_a_crash(
    durable: Broker,
) -> None:
    """In one write, with large bodies, behind a consumer that takes half of them."""
    with connected(durable) as client, connected(durable) as other:
        client.declare(1, "q", durable=True)
        other.qos(1, 5)
        other.consume(1, "q")
        client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        publishes = [publish_frames(1, "q", b"%d" % each * 5_000, delivery_mode=2) for each in range(10)]
        client.socket.sendall(b"".join(publishes) + frame.marshal(commands.Queue.Delete(0, "q"), 1))
        assert client.expect(commands.Queue.DeleteOk, 1).message_count == 5
        confirmed = 0
        while confirmed < 10:
            confirmed = client.expect(commands.Basic.Ack, 1).delivery_tag
        assert len(other.bodies(5)) == 5
    durable.kill()
    durable.start()
    with connected(durable) as client:
        client.declare(1, "q", durable=True)
        assert count_of(client, "q") == 0
