"""A broker that is killed with -9 in the middle of something large, or right behind a move.

What takes many turns (a commit of thousands, a connection that is lost with thousands of deliveries) is whole after the
kill, or has not happened. What was delivered behind a move comes back marked.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.crash.broker_process import BrokerProcess
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client, ConnectionEnded, publish_frames

pytestmark = pytest.mark.slow

PERSISTENT = pika.BasicProperties(delivery_mode=2)
LARGE = 6_000


class House:
    """A data folder, and one life of its broker after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives = 0
        self.broker: BrokerProcess | None = None

    def start(self) -> BrokerProcess:
        self._lives += 1
        self.broker = BrokerProcess(self._folder / "data", self._folder / f"{self._lives}.log").wait_until_ready()
        return self.broker

    def kill_and_start(self) -> BrokerProcess:
        assert self.broker is not None
        self.broker.kill()
        return self.start()

    def raw(self) -> Client:
        assert self.broker is not None
        client = Client("127.0.0.1", self.broker.port)
        client.handshake()
        client.open_channel(1)
        return client

    @contextlib.contextmanager
    def pika(self) -> Iterator[BlockingChannel]:
        assert self.broker is not None
        parameters = pika.ConnectionParameters("127.0.0.1", self.broker.port, heartbeat=0)
        connection = pika.BlockingConnection(parameters)
        try:
            yield connection.channel()
        finally:
            with contextlib.suppress(AMQPError):
                connection.close()

    def close(self) -> None:
        if self.broker is not None:
            self.broker.kill()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()


def ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def fill(house: House, queue: str, count: int) -> None:
    """Confirmed, all of them."""
    client = house.raw()
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish(1, queue, *[b"%d" % number for number in range(count)], delivery_mode=2)
    last = 0
    while last < count:
        confirm = client.expect(commands.Basic.Ack)
        last = max(last, confirm.delivery_tag)
    client.close()


def taken(house: House, queue: str) -> list[tuple[bytes, bool]]:
    """Everything in the queue, with its mark."""
    client = house.raw()
    count = client.call(1, commands.Queue.Declare(0, queue, passive=True), commands.Queue.DeclareOk).message_count
    client.consume(1, queue, no_ack=True)
    found = [(message.body, bool(message.method.redelivered)) for message in client.messages(count)]
    client.close()
    return found


# --- commits --------------------------------------------------------------------------------------------


def is_committed(client: Client, wait_s: float) -> bool:
    """Whether commit-ok came within so long."""
    client.socket.settimeout(wait_s)
    with contextlib.suppress(TimeoutError, ConnectionEnded):
        return bool(client.socket.recv(1))
    return False


@pytest.mark.parametrize("seed", range(4))
def test_a_large_commit_is_whole_or_not_there_wherever_the_broker_is_killed(house: House, seed: int) -> None:
    """Publishes to two queues, and the acks of another one's messages."""
    rng = Random(seed)
    house.start()
    with house.pika() as channel:
        for queue in ("done", "out", "copy"):
            channel.queue_declare(queue, durable=True)
        for queue in ("out", "copy"):
            channel.queue_bind(queue, "amq.fanout")
    fill(house, "done", 500)
    client = house.raw()
    client.consume(1, "done")
    client.messages(500)
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    frames = [publish_frames(1, "k", b"%d" % each, "amq.fanout", delivery_mode=2) for each in range(LARGE)]
    client.socket.sendall(b"".join(frames))
    client.ack(1, 500, multiple=True)
    client.barrier(1)
    client.send(1, commands.Tx.Commit())
    is_told = is_committed(client, rng.choice((0.001, 0.05, 0.2, 5.0)) * rng.random() + 0.001)
    house.kill_and_start()
    client.drop()
    with house.pika() as channel:
        left = {queue: ready(channel, queue) for queue in ("done", "out", "copy")}
        whole, nothing = {"done": 0, "out": LARGE, "copy": LARGE}, {"done": 500, "out": 0, "copy": 0}
        assert left == whole if is_told else left in (whole, nothing)
        if left == whole:
            assert [body for body, _ in taken(house, "copy")] == [b"%d" % each for each in range(LARGE)]


# --- connections that are lost with much in hand ------------------------------------------------------------


def client_with_everything(house: House, count: int) -> Client:
    house.start()
    with house.pika() as channel:
        channel.queue_declare("q", durable=True)
    fill(house, "q", count)
    client = house.raw()
    client.consume(1, "q")
    client.messages(count)
    return client


@pytest.mark.parametrize("way", ["close", "channel close", "drop", "reset", "nack"])
def test_a_kill_in_the_middle_of_giving_back_leaves_every_message_once_in_order_and_marked(
    house: House, way: str
) -> None:
    client = client_with_everything(house, LARGE)
    if way == "close":
        client.send(0, commands.Connection.Close(200, "done", 0, 0))
    elif way == "channel close":
        client.send(1, commands.Channel.Close(200, "done", 0, 0))
    elif way == "nack":
        client.send(1, commands.Basic.Nack(LARGE, multiple=True, requeue=True))
    elif way == "drop":
        client.drop()
    else:
        client.reset()
    house.kill_and_start()
    client.drop()
    assert taken(house, "q") == [(b"%d" % number, True) for number in range(LARGE)]


@pytest.mark.parametrize("how", ["delete", "purge"])
def test_a_queue_that_is_deleted_or_purged_while_it_gets_much_back_keeps_nothing(house: House, how: str) -> None:
    client = client_with_everything(house, LARGE)
    client.drop()
    with house.pika() as channel:
        if how == "delete":
            channel.queue_delete("q")
            channel.queue_declare("q", durable=True)
        else:
            wait_until(lambda: ready(channel, "q") == LARGE, "everything is back")
            assert channel.queue_purge("q").method.message_count == LARGE
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"new", PERSISTENT)
        assert ready(channel, "q") == 1
    house.kill_and_start()
    assert [body for body, _ in taken(house, "q")] == [b"new"]


# --- marks behind moves ---------------------------------------------------------------------------------

Arranged = Callable[[BlockingChannel], None]


def expired(channel: BlockingChannel) -> None:
    channel.queue_declare("source", durable=True, arguments={**LETTERS, "x-message-ttl": 1})
    channel.basic_publish("", "source", b"m", PERSISTENT)


def delayed(channel: BlockingChannel) -> None:
    arguments = {"x-delayed-type": "fanout"}
    channel.exchange_declare("late", "x-delayed-message", durable=True, arguments=arguments)
    channel.queue_bind("target", "late")
    channel.basic_publish("late", "", b"m", pika.BasicProperties(delivery_mode=2, headers={"x-delay": 5}))


def held(channel: BlockingChannel) -> None:
    channel.queue_declare("source", durable=True, arguments={**LETTERS, "x-message-ttl": 1})
    due_ms = int(time.time() * 1000) + 50
    headers = {"x-not-valid-before": due_ms}
    channel.basic_publish("", "source", b"m", pika.BasicProperties(delivery_mode=2, headers=headers))


def rejected(channel: BlockingChannel) -> None:
    channel.queue_declare("source", durable=True, arguments=LETTERS)
    channel.basic_publish("", "source", b"m", PERSISTENT)
    method, _, _ = channel.basic_get("source")
    channel.basic_reject(method.delivery_tag, requeue=False)


def dropped(channel: BlockingChannel) -> None:
    channel.queue_declare("source", durable=True, arguments={**LETTERS, "x-max-length": 1})
    channel.basic_publish("", "source", b"m", PERSISTENT)
    channel.basic_publish("", "source", b"stays", PERSISTENT)


def over_two_queues(channel: BlockingChannel) -> None:
    """Expired in one, expired in the next, with priorities."""
    middle = {**LETTERS, "x-message-ttl": 1, "x-max-priority": 3}
    channel.queue_declare("middle", durable=True, arguments=middle)
    first = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "middle", "x-message-ttl": 1}
    channel.queue_declare("source", durable=True, arguments=first)
    channel.basic_publish("", "source", b"m", pika.BasicProperties(delivery_mode=2, priority=2))


LETTERS: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "target"}


@pytest.mark.parametrize("no_ack", [False, True], ids=["unacked", "without ack"])
@pytest.mark.parametrize("arrange", [expired, delayed, held, rejected, dropped, over_two_queues])
def test_what_a_consumer_got_behind_a_move_comes_back_marked_after_a_kill(
    house: House, arrange: Arranged, no_ack: bool
) -> None:
    house.start()
    with house.pika() as channel:
        channel.queue_declare("target", durable=True)
        consumer = house.raw()
        consumer.consume(1, "target", no_ack=no_ack)
        channel.confirm_delivery()
        arrange(channel)
        message = consumer.message()
        assert message.method.redelivered is False
        # In the same moment: nothing of the move may have been synced.
        assert house.broker is not None
        house.broker.kill()
        consumer.drop()
    house.start()
    found: list[tuple[bytes, bool]] = []

    def is_back() -> bool:
        # What was rejected may be where it was: the rejection went with the consumer.
        for queue in ("target", "source") if arrange is rejected else ("target",):
            found.extend(taken(house, queue))
        return bool(found)

    if no_ack:
        # It may be gone for good.
        is_back()
    else:
        wait_until(is_back, "the message is back")
    assert [mark for body, mark in found if body == b"m"] in ([True], [] if no_ack else [True])
