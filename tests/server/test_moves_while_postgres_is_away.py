"""Messages on their way into PostgreSQL while it is away: each way of moving, over stops and kills of the node.

Everything that was confirmed is in its target afterwards, once where nothing was killed in the middle of a put.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from penstock import limits
from penstock.config import Config
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.pg_proxy import PgProxy
from tests.server.brokers import check_health
from tests.server.postgres_nodes import PERSISTENT, POSTGRES, Nodes, nodes_on

COUNT = 30
LETTERS: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "pg"}
PUT = b"put_rows"


class Scene:
    """A node with a folder and a PostgreSQL behind a door."""

    def __init__(self, broker: Broker, nodes: Nodes, proxy: PgProxy) -> None:
        self.broker = broker
        self.nodes = nodes
        self.proxy = proxy
        self._connections: list[pika.BlockingConnection] = []

    def channel(self) -> BlockingChannel:
        connection = pika.BlockingConnection(pika.URLParameters(self.broker.url))
        self._connections.append(connection)
        channel = connection.channel()
        channel.confirm_delivery()
        return channel

    def close_clients(self) -> None:
        connections, self._connections = self._connections, []
        for connection in connections:
            with suppress(AMQPError):
                connection.close()

    def in_target(self) -> Counter[bytes]:
        return Counter(self.nodes.payloads("pg"))


@pytest.fixture
def scene(penstock_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    # What waits for a database is refused soon: a move must not count on its patience.
    monkeypatch.setattr(limits, "PG_OUTBOX_WAIT_S", 0.2)
    (tmp_path / "door").mkdir()
    with nodes_on(penstock_url) as nodes:
        proxy = PgProxy(penstock_url, tmp_path / "door")
        config = Config(login_refused_delay_s=0.0, postgres_url=proxy.url)
        try:
            with Broker(config, data_dir=tmp_path / "data") as broker:
                scene = Scene(broker, nodes, proxy)
                yield scene
                scene.close_clients()
                check_health(broker)
        finally:
            proxy.close()


def bodies() -> list[bytes]:
    return [b"%d" % number for number in range(COUNT)]


# --- ways to move -------------------------------------------------------------------------------------------


def expired(channel: BlockingChannel) -> None:
    channel.queue_declare("source", durable=True, arguments={**LETTERS, "x-message-ttl": 1})
    publish_all(channel, "", "source")


def expired_at_least_once(channel: BlockingChannel) -> None:
    arguments = {**LETTERS, "x-message-ttl": 1, "x-dead-letter-strategy": "at-least-once"}
    channel.queue_declare("source", durable=True, arguments=arguments)
    publish_all(channel, "", "source")


def rejected_with_priorities(channel: BlockingChannel) -> None:
    channel.queue_declare("source", durable=True, arguments={**LETTERS, "x-max-priority": 5})
    for number, body in enumerate(bodies()):
        channel.basic_publish("", "source", body, pika.BasicProperties(delivery_mode=2, priority=number % 6))
    while (got := channel.basic_get("source"))[0] is not None:
        last = got[0].delivery_tag
    channel.basic_nack(last, multiple=True, requeue=False)


def pushed_out(channel: BlockingChannel) -> None:
    channel.queue_declare("source", durable=True, arguments={**LETTERS, "x-max-length": 1})
    publish_all(channel, "", "source")
    channel.basic_publish("", "source", b"stays", PERSISTENT)


def over_the_delivery_limit(channel: BlockingChannel) -> None:
    channel.queue_declare("source", durable=True, arguments={**LETTERS, "x-delivery-limit": 1})
    publish_all(channel, "", "source")
    for _ in range(2):
        tags = []
        while (got := channel.basic_get("source"))[0] is not None:
            tags.append(got[0].delivery_tag)
        for tag in tags:
            channel.basic_nack(tag, requeue=True)


def delayed(channel: BlockingChannel) -> None:
    channel.exchange_declare("late", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.queue_bind("pg", "late")
    publish_all(channel, "late", "", {"x-delay": 1})


def fanned_out(channel: BlockingChannel) -> None:
    """The letters go to a queue of the node as well."""
    channel.exchange_declare("letters", "fanout", durable=True)
    channel.queue_declare("beside", durable=True)
    for queue in ("pg", "beside"):
        channel.queue_bind(queue, "letters")
    arguments = {"x-dead-letter-exchange": "letters", "x-message-ttl": 1}
    channel.queue_declare("source", durable=True, arguments=arguments)
    publish_all(channel, "", "source")


def over_a_queue_between(channel: BlockingChannel) -> None:
    channel.queue_declare("between", durable=True, arguments={**LETTERS, "x-message-ttl": 1})
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "between", "x-message-ttl": 1}
    channel.queue_declare("source", durable=True, arguments=arguments)
    publish_all(channel, "", "source")


def publish_all(channel: BlockingChannel, exchange: str, key: str, headers: dict[str, Any] | None = None) -> None:
    for body in bodies():
        channel.basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2, headers=headers))


Move = Callable[[BlockingChannel], None]
MOVES: list[Move] = [
    expired,
    expired_at_least_once,
    rejected_with_priorities,
    pushed_out,
    over_the_delivery_limit,
    delayed,
    fanned_out,
    over_a_queue_between,
]


BY_CONSUMERS = (rejected_with_priorities, over_the_delivery_limit)


# --- ways for the node to go on -------------------------------------------------------------------------------


def nothing(scene: Scene) -> None:
    return None


def stopped(scene: Scene) -> None:
    scene.close_clients()
    scene.broker.stop()
    start(scene)


def killed(scene: Scene) -> None:
    scene.broker.kill()
    scene.close_clients()
    start(scene)


def killed_twice(scene: Scene) -> None:
    killed(scene)
    scene.proxy.shut()
    killed(scene)


def start(scene: Scene) -> None:
    """A node does not start without its database."""
    scene.proxy.open()
    scene.broker.start()


def pass_a_moment(channel: BlockingChannel) -> None:
    """Moves are tried meanwhile, and find no database."""
    channel.connection.process_data_events(1.0)


@pytest.mark.parametrize("end", [nothing, stopped, killed, killed_twice])
@pytest.mark.parametrize("move", MOVES)
def test_every_confirmed_message_is_in_its_target_when_the_database_is_back(
    scene: Scene, move: Move, end: Callable[[Scene], None]
) -> None:
    channel = scene.channel()
    channel.queue_declare("pg", durable=True, arguments=POSTGRES)
    scene.proxy.shut()
    move(channel)
    pass_a_moment(channel)
    assert scene.in_target() == Counter()
    end(scene)
    scene.proxy.open()
    if move in BY_CONSUMERS and end is not nothing:
        # What a consumer did to them is forgotten with it: they may be where they were, to be delivered again.
        back = drain(scene.channel(), "source")
        wait_until(lambda: set(back) | set(scene.in_target()) == set(bodies()), "all are there")
        assert scene.in_target() + Counter(back) == Counter(bodies())
    else:
        wait_until(lambda: set(scene.in_target()) == set(bodies()), "all are there")
        assert scene.in_target() == Counter(bodies())
    if move is fanned_out:
        channel = scene.channel()
        assert channel.queue_declare("beside", passive=True).method.message_count >= COUNT


@pytest.mark.parametrize("move", [expired, rejected_with_priorities, delayed, over_a_queue_between])
def test_a_put_whose_answer_is_lost_is_put_again_and_nothing_is_lost(scene: Scene, move: Move) -> None:
    channel = scene.channel()
    channel.queue_declare("pg", durable=True, arguments=POSTGRES)
    scene.proxy.cut_at(PUT, is_carried_out=True)
    move(channel)
    wait_until(lambda: set(scene.in_target()) == set(bodies()), "all are there")
    deadline = time.monotonic() + 20
    while scene.proxy.cut_count == 0 and time.monotonic() < deadline:
        pass_a_moment(channel)
    # The source is empty in the end: the next start moves nothing a second time.
    wait_until(lambda: not sources_left(scene), "nothing is left to move")
    before = scene.in_target()
    # Behind this confirm the acks are on disk.
    channel.queue_declare("last", durable=True)
    channel.basic_publish("", "last", b"m", PERSISTENT)
    killed(scene)
    channel = scene.channel()
    channel.basic_publish("", "pg", b"behind", PERSISTENT)
    assert scene.in_target() == before + Counter([b"behind"])


def drain(channel: BlockingChannel, queue: str) -> list[bytes]:
    found: list[bytes] = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def sources_left(scene: Scene) -> int:
    def count(server: Any) -> int:
        vhost = server.broker.vhosts["/"]
        return sum(queue.backing.depth() for queue in vhost.all_queues() if queue.name != "pg")

    return scene.broker.call(count)


def test_a_target_that_is_deleted_meanwhile_keeps_nobody_waiting(scene: Scene) -> None:
    """The letters have nowhere to go then, as if the target had never been there."""
    channel = scene.channel()
    channel.queue_declare("pg", durable=True, arguments=POSTGRES)
    blocker = scene.nodes.sql
    blocker.execute("BEGIN")
    blocker.execute("LOCK TABLE penstock.messages IN SHARE MODE")
    expired(channel)
    pass_a_moment(channel)
    deleting = scene.channel()
    blocker.execute("ROLLBACK")
    deleting.queue_delete("pg")
    wait_until(lambda: sources_left(scene) == 0, "nothing waits for the queue that is gone")
    channel.queue_declare("other", durable=True)
    channel.basic_publish("", "other", b"m", PERSISTENT)
