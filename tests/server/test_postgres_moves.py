"""Moves into, out of and between queues in PostgreSQL, with the database away and the node killed at each step.

No confirmed message is lost, and what comes twice is marked the second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

from penstock import limits
from penstock.broker.operations.messages.message_moves import Target, move
from penstock.broker.operations.messages.redrive import redrive
from penstock.broker.vhost.vhost import VHost
from penstock.queues.queue import Queue
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import Inbox
from tests.pg_proxy import PgProxy
from tests.server.pika_clients import consume
from tests.server.postgres_nodes import PERSISTENT, POSTGRES, Nodes, nodes_on

PUT = b"put_rows"
COUNT = 20
BODIES = [b"%02d" % number for number in range(COUNT)]


def to(queue: str) -> dict[str, object]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


@pytest.fixture
def nodes(penstock_url: str) -> Iterator[Nodes]:
    with nodes_on(penstock_url) as opened:
        yield opened


@pytest.fixture
def proxy(nodes: Nodes, tmp_path: Path) -> Iterator[PgProxy]:
    folder = tmp_path / "proxy"
    folder.mkdir()
    made = PgProxy(nodes.url, folder)
    yield made
    made.close()


class Scene:
    """One node with a disk, behind a proxy to its database; its messages end in the queue `out`."""

    def __init__(self, nodes: Nodes, proxy: PgProxy, folder: Path) -> None:
        self.nodes = nodes
        self.proxy = proxy
        self.is_first_life = True
        self.broker = nodes.start(postgres_url=proxy.url, data_dir=str(folder / "data"))

    def channel(self) -> BlockingChannel:
        return self.nodes.publisher(self.broker)

    def on_vhost(self, work: Callable[[VHost], object]) -> object:
        return self.broker.call(lambda server: work(server.broker.vhosts["/"]))

    def on_queue(self, name: str, work: Callable[[Queue], object]) -> object:
        return self.on_vhost(lambda vhost: work(vhost.queues[name]))

    def moving(self) -> int:
        """Messages that are on their way to queues that answer later."""
        return int(str(self.on_vhost(lambda vhost: vhost.handovers.messages)))

    def refused_once(self) -> bool:
        return bool(self.on_vhost(lambda vhost: sum(queue.leaving.kept_count() for queue in vhost.all_queues())))

    def depth(self) -> int:
        """Messages in the queues of the node itself, companions too, but `out`."""

        def count(vhost: VHost) -> int:
            return sum(
                queue.backing.depth()
                for queue in vhost.all_queues()
                if not queue.backing.IS_REMOTE and queue.name != "out"
            )

        return int(str(self.on_vhost(count)))

    def link_is_up(self) -> bool:
        return bool(self.broker.call(lambda server: server.broker.postgres.link.is_up()))  # type: ignore[union-attr]

    def shut(self) -> None:
        self.proxy.shut()
        wait_until(lambda: not self.link_is_up(), "the node notices that the database is away")

    def ready(self, name: str) -> int:
        return int(str(self.on_queue(name, len)))

    def kill_and_start(self) -> None:
        self.is_first_life = False
        self.broker.kill()
        self.broker.start()


# --- from queues of the node into PostgreSQL: each has something to declare first, and a way to begin ------------


def publish(channel: BlockingChannel, exchange: str, key: str, properties: BasicProperties = PERSISTENT) -> None:
    for body in BODIES:
        channel.basic_publish(exchange, key, body, properties)


class Expired:
    """At most once, as RabbitMQ's default is."""

    arguments: ClassVar[dict[str, object]] = {"x-message-ttl": 1, **to("out")}

    def declare(self, channel: BlockingChannel) -> None:
        channel.queue_declare("out", durable=True, arguments=POSTGRES)
        channel.queue_declare("source", durable=True, arguments=self.arguments)

    def begin(self, scene: Scene, channel: BlockingChannel) -> None:
        publish(channel, "", "source")

    def begin_again(self, scene: Scene) -> None:
        """The node was ended in the middle: whatever does not begin by itself."""


class ExpiredAtLeastOnce(Expired):
    arguments: ClassVar[dict[str, object]] = {**Expired.arguments, "x-dead-letter-strategy": "at-least-once"}


class Dropped(Expired):
    arguments: ClassVar[dict[str, object]] = {"x-max-length": 0, **to("out")}


class DroppedByPriority(Expired):
    arguments: ClassVar[dict[str, object]] = {"x-max-length": 0, "x-max-priority": 3, **to("out")}


class PassedOn(Expired):
    """A full queue refuses what a move brings, and passes it on as a dead letter."""

    def declare(self, channel: BlockingChannel) -> None:
        channel.queue_declare("out", durable=True, arguments=POSTGRES)
        full = {"x-max-length": 0, "x-overflow": "reject-publish-dlx", **to("out")}
        channel.queue_declare("full", durable=True, arguments=full)
        channel.queue_declare("source", durable=True, arguments={"x-message-ttl": 1, **to("full")})


class Rejected(Expired):
    arguments: ClassVar[dict[str, object]] = to("out")

    def begin(self, scene: Scene, channel: BlockingChannel) -> None:
        publish(channel, "", "source")
        inbox = consume(channel, "source")
        inbox.wait_for(channel, COUNT)
        channel.basic_nack(0, multiple=True, requeue=False)
        channel.basic_cancel(channel.consumer_tags[0])

    def begin_again(self, scene: Scene) -> None:
        """They are ready again, where they were rejected."""
        channel = scene.channel()
        left = scene.ready("source")
        inbox = consume(channel, "source")
        inbox.wait_for(channel, left)
        channel.basic_nack(0, multiple=True, requeue=False)
        channel.basic_cancel(channel.consumer_tags[0])


class Delayed(Expired):
    def declare(self, channel: BlockingChannel) -> None:
        channel.queue_declare("out", durable=True, arguments=POSTGRES)
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
        channel.queue_bind("out", "later")

    def begin(self, scene: Scene, channel: BlockingChannel) -> None:
        publish(channel, "later", "", BasicProperties(delivery_mode=2, headers={"x-delay": 20}))


class MovedByHand(Rejected):
    def begin(self, scene: Scene, channel: BlockingChannel) -> None:
        publish(channel, "", "source")
        outcome = scene.on_vhost(lambda vhost: move(vhost, "source", range(COUNT), Target(queue="out")))
        assert sorted([*outcome.done, *outcome.moving]) == list(range(COUNT))  # type: ignore[attr-defined]

    def begin_again(self, scene: Scene) -> None:
        """Nobody remembers what a person wanted: the messages are where they were."""
        scene.on_vhost(lambda vhost: move(vhost, "source", range(COUNT), Target(queue="out")))


class Redriven(Expired):
    """They say that they died in `out`."""

    def declare(self, channel: BlockingChannel) -> None:
        channel.queue_declare("out", durable=True, arguments=POSTGRES)
        channel.queue_declare("source", durable=True)
        death = {"queue": "out", "reason": "rejected", "exchange": "", "routing-keys": ["out"], "count": 1}
        publish(channel, "", "source", BasicProperties(delivery_mode=2, headers={"x-death": [death]}))

    def begin_again(self, scene: Scene) -> None:
        scene.on_vhost(lambda vhost: redrive(vhost, "source"))

    def begin(self, scene: Scene, channel: BlockingChannel) -> None:
        result = scene.on_vhost(lambda vhost: redrive(vhost, "source"))
        assert result.moved + result.moving == COUNT  # type: ignore[attr-defined]


INTO = [
    Expired,
    ExpiredAtLeastOnce,
    Dropped,
    DroppedByPriority,
    PassedOn,
    Rejected,
    Delayed,
    MovedByHand,
    Redriven,
]


# --- what happens meanwhile -----------------------------------------------------------------------------


def away_until_refused(scene: Scene, begin: Callable[[], None]) -> None:
    scene.shut()
    begin()
    wait_until(scene.refused_once, "the move is refused")
    scene.proxy.open()


def answer_lost(scene: Scene, begin: Callable[[], None]) -> None:
    """The rows are committed, and the node does not hear of it."""
    scene.proxy.cut_at(PUT, is_carried_out=True)
    begin()
    wait_until(lambda: scene.proxy.cut_count == 1, "an answer is lost")


def killed_while_away(scene: Scene, begin: Callable[[], None]) -> None:
    scene.shut()
    begin()
    wait_until(lambda: scene.moving() > 0 or scene.refused_once(), "the move has begun")
    scene.proxy.open()
    scene.kill_and_start()


def killed_after_commit(scene: Scene, begin: Callable[[], None]) -> None:
    answer_lost(scene, begin)
    scene.kill_and_start()


def stopped_while_away(scene: Scene, begin: Callable[[], None]) -> None:
    scene.shut()
    begin()
    wait_until(lambda: scene.moving() > 0 or scene.refused_once(), "the move has begun")
    scene.is_first_life = False
    scene.broker.stop()
    scene.proxy.open()
    scene.broker.start()


MISHAPS = [away_until_refused, answer_lost, killed_while_away, killed_after_commit, stopped_while_away]


def check_arrived(inbox: Inbox) -> None:
    """Everything is there, and nothing twice without a mark."""
    assert set(inbox.bodies) == set(BODIES)
    unmarked = Counter([body for body, again in zip(inbox.bodies, inbox.redelivered, strict=True) if not again])
    assert not [body for body, count in unmarked.items() if count > 1], "came twice, and did not say so"


@pytest.mark.parametrize("mishap", MISHAPS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("kind", INTO, ids=lambda each: each.__name__)
def test_a_move_into_postgresql_loses_nothing(
    nodes: Nodes,
    proxy: PgProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Expired],
    mishap: Callable[[Scene, Callable[[], None]], None],
) -> None:
    monkeypatch.setattr(limits, "PG_OUTBOX_WAIT_S", 0.2)
    scene = Scene(nodes, proxy, tmp_path)
    channel = scene.channel()
    route = kind()
    route.declare(channel)
    mishap(scene, lambda: route.begin(scene, channel))
    if not scene.is_first_life:
        route.begin_again(scene)
    wait_until(lambda: scene.depth() == 0, "the source is empty", timeout_s=60)
    nodes.sql.execute("SELECT penstock.return_orphans()")
    consumer = scene.channel()
    inbox = consume(consumer, "out")
    wait_until(
        lambda: set(inbox.bodies) == set(BODIES) and nodes.ready("out") == 0,
        "all have arrived",
        lambda: consumer.connection.process_data_events(0.05),
    )
    check_arrived(inbox)


# --- out of PostgreSQL -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [{}, {"x-max-priority": 3}, POSTGRES], ids=["local", "priority", "postgres"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["lost", "killed"])
def test_a_dead_letter_from_postgresql_is_kept_until_it_is_safe_elsewhere(
    nodes: Nodes, proxy: PgProxy, tmp_path: Path, target: dict[str, object], is_killed: bool
) -> None:
    """The database goes away between the delivery and the rejection; then the node is killed, or is not."""
    scene = Scene(nodes, proxy, tmp_path)
    channel = scene.channel()
    channel.queue_declare("out", durable=True, arguments=target)
    channel.queue_declare("source", durable=True, arguments={**POSTGRES, **to("out")})
    publish(channel, "", "source")
    inbox = consume(channel, "source")
    inbox.wait_for(channel, COUNT)
    scene.shut()
    channel.basic_nack(0, multiple=True, requeue=False)
    channel.basic_cancel(channel.consumer_tags[0])
    if is_killed:
        scene.broker.kill()
        scene.proxy.open()
        scene.broker.start()
        channel = scene.channel()
        again = consume(channel, "source")
        nodes.sql.execute("SELECT penstock.return_orphans()")
        again.wait_for(channel, COUNT)
        assert all(again.redelivered)
        channel.basic_nack(0, multiple=True, requeue=False)
        channel.basic_cancel(channel.consumer_tags[0])
    else:
        scene.proxy.open()
    nodes.wait_until_settled("source")
    consumer = scene.channel()
    arrived = consume(consumer, "out")
    wait_until(
        lambda: set(arrived.bodies) == set(BODIES),
        "all have arrived",
        lambda: consumer.connection.process_data_events(0.05),
    )
    check_arrived(arrived)


def test_a_row_stays_reserved_until_the_journal_has_the_dead_letter(
    nodes: Nodes, proxy: PgProxy, tmp_path: Path
) -> None:
    """The finalization is posted by the token of the target, and not with the rejection."""
    scene = Scene(nodes, proxy, tmp_path)
    channel = scene.channel()
    channel.queue_declare("out", durable=True)
    channel.queue_declare("source", durable=True, arguments={**POSTGRES, **to("out")})
    channel.basic_publish("", "source", b"a", PERSISTENT)
    inbox = consume(channel, "source")
    inbox.wait_for(channel, 1)

    def reject(vhost: VHost) -> tuple[int, int, int]:
        source = vhost.queues["source"]
        seq_id = source.backing.pending_ids()[0]
        source.reject([seq_id])
        return len(vhost.queues["out"]), vhost.handovers.messages, source.backing.depth()

    assert scene.on_vhost(reject) == (1, 1, 1)
    wait_until(lambda: scene.moving() == 0, "the journal is synced")
    nodes.wait_until_settled("source")
    assert nodes.value("SELECT count(*) FROM penstock.messages") == 0


# --- how much, and to whom -------------------------------------------------------------------------------


def test_so_much_is_on_its_way_and_no_more(nodes: Nodes, proxy: PgProxy, tmp_path: Path) -> None:
    scene = Scene(nodes, proxy, tmp_path)

    def narrow(vhost: VHost) -> None:
        vhost.handovers._messages_max = 3

    scene.on_vhost(narrow)
    channel = scene.channel()
    route = Rejected()
    route.declare(channel)
    scene.shut()
    route.begin(scene, channel)
    wait_until(lambda: scene.moving() == 3, "three are on their way")
    wait_until(scene.refused_once, "the others wait at their source")
    assert scene.depth() == COUNT
    scene.proxy.open()
    nodes.wait_for_ready("out", COUNT)
    assert sorted(nodes.payloads("out")) == BODIES
    assert scene.depth() == 0


def test_a_target_that_has_it_is_left_out_when_another_one_is_tried_again(
    nodes: Nodes, proxy: PgProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PG_OUTBOX_WAIT_S", 0.2)
    scene = Scene(nodes, proxy, tmp_path)
    channel = scene.channel()
    channel.exchange_declare("dlx", "fanout", durable=True)
    channel.queue_declare("local", durable=True)
    channel.queue_declare("out", durable=True, arguments=POSTGRES)
    for queue in ("local", "out"):
        channel.queue_bind(queue, "dlx")
    channel.queue_declare("source", durable=True, arguments={"x-message-ttl": 1, "x-dead-letter-exchange": "dlx"})
    scene.shut()
    publish(channel, "", "source")
    wait_until(scene.refused_once, "the move is refused")
    scene.proxy.open()
    nodes.wait_for_ready("out", COUNT)
    wait_until(lambda: scene.on_queue("source", lambda queue: queue.backing.depth()) == 0, "the source is empty")
    assert scene.on_queue("local", len) == COUNT


def test_a_source_that_is_deleted_meanwhile_disturbs_nobody(nodes: Nodes, proxy: PgProxy, tmp_path: Path) -> None:
    scene = Scene(nodes, proxy, tmp_path)
    channel = scene.channel()
    route = Rejected()
    route.declare(channel)
    scene.shut()
    route.begin(scene, channel)
    wait_until(lambda: scene.moving() == COUNT, "all are on their way")
    channel.queue_delete("source")
    scene.proxy.open()
    nodes.wait_for_ready("out", COUNT)
    wait_until(lambda: scene.moving() == 0, "nothing is on its way")
