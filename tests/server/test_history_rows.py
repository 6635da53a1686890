"""What the journal says of messages: why each left its queue, and who got it. A real broker, and real clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock.broker.operations.messages.held_calls import cancel, release_now
from penstock.broker.operations.messages.message_edits import Changes, edit
from penstock.broker.operations.messages.message_moves import Target, delete, move, purge_some
from penstock.broker.operations.messages.redrive import redrive
from penstock.broker.vhost.vhost import VHost
from penstock.disk.os_files import OsFiles
from penstock.journal.format import rows
from penstock.journal.reading.replay import BatchView, replay
from penstock.server.server import Server
from penstock.store.inspect.dump import dump
from penstock.store.inspect.fsck import fsck
from penstock.store.node.queue_names import parse_label
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import Inbox, get_one, ready_count, wait_for_ready
from tests.server.brokers import queue_of
from tests.server.pika_clients import OpenChannel, pika_channels

# (kind, number among the messages of the queue, who got it, why).
Event = tuple[str, int, str, int]

KINDS = {
    value: name.lower()
    for name, value in vars(rows).items()
    if isinstance(value, int) and name.isupper() and value in range(1, 15) and not name.startswith(("ROW_", "NAME_"))
    if name not in ("PERSISTENT", "SHARED_PROPS", "REFERENCE")
}
QUEUE, NOBODY = "the queue", ""


class History:
    """What a stopped broker has written."""

    def __init__(self, data_dir: Path) -> None:
        # By the name of the queue.
        self.events: dict[str, list[Event]] = {}
        self.labels: list[dict[str, Any]] = []
        self._queues: dict[int, str] = {}
        self._consumers: dict[int, str] = {}
        self._segment = -1
        end = replay(OsFiles(data_dir), "journal", 0, 0, self._visit)
        assert not end.rotten

    def _visit(self, batch: BatchView) -> None:
        if batch.segment != self._segment:
            # Every segment names what it uses.
            self._segment, self._queues, self._consumers = batch.segment, {}, {}
        for row in batch.rows:
            self._row(batch, row)

    def _row(self, batch: BatchView, row: tuple[int, ...]) -> None:
        seq, queue, actor, count, _, entry, kind, _, arg, _ = row
        if kind == rows.NAME and arg == rows.NAME_QUEUE:
            label = parse_label(batch.body(entry))
            assert label is not None
            self._queues[seq] = json.loads(label.text)["queue"]
        elif kind == rows.NAME and arg == rows.NAME_CONSUMER:
            assert queue == -1
            self.labels.append(json.loads(batch.body(entry)))
            self._consumers[seq] = self.labels[-1]["consumer"]
        elif kind < rows.NAME:
            who = QUEUE if actor == -1 else NOBODY if actor == 0 else self._consumers[actor]
            why = 0 if kind == rows.PUBLISHED else arg
            events = self.events.setdefault(self._queues[queue], [])
            events.extend([(KINDS[kind], seq + index, who, why) for index in range(count)])

    def of(self, queue: str) -> list[Event]:
        """Everything about the messages of a queue but that they came; numbers count from its first message."""
        events = self.events.get(queue, [])
        first = min([event[1] for event in events], default=0)
        return [(kind, seq - first, who, why) for kind, seq, who, why in events if kind != "published"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as running:
        yield running


@pytest.fixture
def open_channel(broker: Broker) -> Iterator[OpenChannel]:
    with pika_channels(broker) as open_one:
        yield open_one


@pytest.fixture
def channel(open_channel: OpenChannel) -> BlockingChannel:
    channel = open_channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def history(broker: Broker, channel: BlockingChannel, tmp_path: Path) -> Callable[[], History]:
    def read() -> History:
        channel.connection.close()
        broker.stop()
        assert fsck(OsFiles(tmp_path)).findings == []
        return History(tmp_path)

    return read


def declare(channel: BlockingChannel, queue: str, **arguments: object) -> None:
    named = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments=named)


def publish(channel: BlockingChannel, queue: str, *bodies: bytes, exchange: str = "", **properties: Any) -> None:
    """Confirmed: it is in the queue when this returns."""
    for body in bodies:
        channel.basic_publish(exchange, queue, body, pika.BasicProperties(delivery_mode=2, **properties))


def consume(channel: BlockingChannel, queue: str, tag: str, auto_ack: bool = False, **arguments: object) -> Inbox:
    inbox = Inbox()
    named = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    channel.basic_consume(queue, inbox, auto_ack=auto_ack, consumer_tag=tag, arguments=named)
    return inbox


def on(broker: Broker, call: Callable[[VHost], Any]) -> Any:
    return broker.call(lambda server: call(server.broker.vhosts["/"]))


def depth(broker: Broker, queue: str) -> int:
    return int(on(broker, lambda vhost: vhost.queues[queue].backing.depth()))


# --- consumers ----------------------------------------------------------------------------------------


def test_an_acknowledged_message_was_delivered_to_its_consumer(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a", b"b")
    inbox = consume(channel, "q", "reader")
    inbox.wait_for(channel, 2)
    channel.basic_ack(0, multiple=True)
    found = history()
    assert found.of("q") == [
        ("delivered", 0, "reader", 0),
        ("delivered", 1, "reader", 0),
        ("acked", 0, NOBODY, 0),
        ("acked", 1, NOBODY, 0),
    ]


def test_a_consumer_is_named_with_its_connection_and_channel(
    broker: Broker, channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a")
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": 'billing "blue"'}
    named = pika.BlockingConnection(parameters)
    second = named.channel(7)
    inbox = consume(second, "q", "täg")
    inbox.wait_for(second, 1)
    second.basic_nack(1)
    named.close()
    wait_for_ready(channel, "q", 1)
    inbox = consume(channel, "q", "other")
    inbox.wait_for(channel, 1)
    channel.basic_ack(1)
    socket_end = f" -> {broker.host}:{broker.port}"
    found = history()
    first, other = found.labels
    assert first == {"consumer": "täg", "connection": 'billing "blue"', "channel": 7}
    assert (other["consumer"], other["channel"]) == ("other", 1)
    assert other["connection"].startswith("127.0.0.1:")
    assert other["connection"].endswith(socket_end)


def test_what_nobody_has_to_acknowledge_is_fetched_by_its_consumer(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a")
    inbox = consume(channel, "q", "eager", auto_ack=True)
    inbox.wait_for(channel, 1)
    assert history().of("q") == [("fetched", 0, "eager", 0)]


def test_basic_get_has_no_name(channel: BlockingChannel, history: Callable[[], History]) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a", b"b")
    method, _, _ = channel.basic_get("q")
    channel.basic_ack(method.delivery_tag)
    channel.basic_get("q", auto_ack=True)
    assert history().of("q") == [("delivered", 0, NOBODY, 0), ("acked", 0, NOBODY, 0), ("fetched", 1, NOBODY, 0)]


def test_a_requeued_message_is_delivered_again(channel: BlockingChannel, history: Callable[[], History]) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a")
    inbox = consume(channel, "q", "reader")
    inbox.wait_for(channel, 1)
    channel.basic_nack(1, requeue=True)
    inbox.wait_for(channel, 2)
    channel.basic_ack(2)
    assert history().of("q") == [
        ("delivered", 0, "reader", 0),
        ("requeued", 0, NOBODY, 0),
        ("delivered", 0, "reader", 0),
        ("acked", 0, NOBODY, 0),
    ]


def test_two_consumers_are_told_apart(open_channel: OpenChannel, history: Callable[[], History]) -> None:
    one, two = open_channel(), open_channel()
    one.confirm_delivery()
    for channel in (one, two):
        channel.basic_qos(prefetch_count=1)
    declare(one, "q")
    first, second = consume(one, "q", "one"), consume(two, "q", "two")
    publish(one, "q", b"a")
    publish(one, "q", b"b")
    wait_until(
        lambda: len(first) + len(second) == 2,
        "both messages",
        lambda: (one.connection.process_data_events(0.02), two.connection.process_data_events(0.02)),
    )
    for channel, inbox in ((one, first), (two, second)):
        for tag in inbox.tags:
            channel.basic_ack(tag)
        channel.connection.close()
    got = sorted([event[2] for event in history().of("q") if event[0] == "delivered"])
    assert got == ["one"] * len(first) + ["two"] * len(second)
    assert len(first) == len(second) == 1


def test_a_transient_message_has_no_history(channel: BlockingChannel, history: Callable[[], History]) -> None:
    declare(channel, "q")
    channel.basic_publish("", "q", b"light")
    inbox = consume(channel, "q", "reader")
    inbox.wait_for(channel, 1)
    channel.basic_ack(1)
    assert history().of("q") == []


def test_priorities_have_the_same_consumer_on_every_level(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q", max_priority=2)
    inbox = consume(channel, "q", "reader")
    publish(channel, "q", b"low")
    publish(channel, "q", b"high", priority=2)
    inbox.wait_for(channel, 2)
    channel.basic_ack(0, multiple=True)
    found = history()
    delivered = [event for events in found.events.values() for event in events if event[0] == "delivered"]
    assert [event[2] for event in delivered] == ["reader", "reader"]
    assert [label["consumer"] for label in found.labels] == ["reader"]


# --- dying --------------------------------------------------------------------------------------------


def test_a_message_that_is_refused_for_good_is_rejected(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a")
    get_one(channel, "q")
    channel.basic_reject(1, requeue=False)
    assert history().of("q") == [("delivered", 0, NOBODY, 0), ("rejected", 0, NOBODY, 1)]


def test_a_rejected_message_with_a_place_to_go_to_is_dead_lettered(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "dead")
    declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    publish(channel, "q", b"a")
    inbox = consume(channel, "q", "reader")
    inbox.wait_for(channel, 1)
    channel.basic_nack(1, requeue=False)
    wait_for_ready(channel, "dead", 1)
    found = history()
    assert found.of("q") == [("delivered", 0, "reader", 0), ("dead_lettered", 0, NOBODY, 1)]
    assert found.of("dead") == []


def test_a_dead_letter_that_no_queue_takes_is_what_it_died_of(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="nowhere", max_length=1)
    publish(channel, "q", b"a", b"b")
    get_one(channel, "q")
    channel.basic_reject(1, requeue=False)
    assert history().of("q") == [
        ("delivered", 0, QUEUE, 0),
        ("dropped", 0, NOBODY, 3),
        ("delivered", 1, NOBODY, 0),
        ("rejected", 1, NOBODY, 1),
    ]


def test_a_message_whose_time_is_over_is_expired(
    broker: Broker, channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q", message_ttl=1)
    publish(channel, "q", b"a", b"b")
    wait_until(lambda: depth(broker, "q") == 0, "both to expire")
    assert history().of("q") == [("expired", 0, NOBODY, 2), ("expired", 1, NOBODY, 2)]


def test_an_expired_message_with_a_place_to_go_to_is_dead_lettered(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "dead")
    declare(channel, "q", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    publish(channel, "q", b"a")
    wait_for_ready(channel, "dead", 1)
    assert history().of("q") == [("delivered", 0, QUEUE, 0), ("dead_lettered", 0, NOBODY, 2)]


def test_what_is_too_much_is_dropped(channel: BlockingChannel, history: Callable[[], History]) -> None:
    declare(channel, "q", max_length=1)
    publish(channel, "q", b"a", b"b")
    assert history().of("q") == [("dropped", 0, NOBODY, 3)]


def test_what_is_too_much_and_has_a_place_to_go_to_is_dead_lettered(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "dead")
    declare(channel, "q", max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    publish(channel, "q", b"a", b"b")
    wait_for_ready(channel, "dead", 1)
    assert history().of("q") == [("delivered", 0, QUEUE, 0), ("dead_lettered", 0, NOBODY, 3)]


@pytest.mark.parametrize(("with_dead_letters", "end"), [(False, "dropped"), (True, "dead_lettered")])
def test_a_message_that_came_back_too_often_says_so(
    channel: BlockingChannel, history: Callable[[], History], with_dead_letters: bool, end: str
) -> None:
    declare(channel, "dead")
    place = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"} if with_dead_letters else {}
    declare(channel, "q", delivery_limit=0, **place)
    publish(channel, "q", b"a")
    get_one(channel, "q")
    channel.basic_nack(1, requeue=True)
    wait_for_ready(channel, "dead", 1 if with_dead_letters else 0)
    wait_for_ready(channel, "q", 0)
    assert history().of("q") == [("delivered", 0, NOBODY, 0), (end, 0, NOBODY, 4)]


# --- by hand --------------------------------------------------------------------------------------------


def test_a_purge_is_one_row_for_all(channel: BlockingChannel, history: Callable[[], History]) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a", b"b")
    channel.queue_purge("q")
    assert history().of("q") == [("purged", 0, NOBODY, 0), ("purged", 1, NOBODY, 0)]


def test_what_an_operator_does_is_told_apart(
    broker: Broker, channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q")
    declare(channel, "other")
    publish(channel, "q", b"0", b"1", b"2", b"3")
    assert on(broker, lambda vhost: delete(vhost, "q", [1])).done == [1]
    assert on(broker, lambda vhost: move(vhost, "q", [2], Target(queue="other"))).done == [2]
    assert on(broker, lambda vhost: edit(vhost, "q", 3, Changes(body=b"three"))).outcome == "edited"
    assert on(broker, lambda vhost: purge_some(vhost, "q", 1)).count == 1
    assert history().of("q") == [
        ("delivered", 1, QUEUE, 0),
        ("purged", 1, NOBODY, 0),
        ("delivered", 2, QUEUE, 0),
        ("moved", 2, NOBODY, 0),
        ("delivered", 3, QUEUE, 0),
        ("moved", 3, NOBODY, 0),
        ("purged", 0, NOBODY, 0),
    ]


def test_a_redriven_letter_is_moved(broker: Broker, channel: BlockingChannel, history: Callable[[], History]) -> None:
    declare(channel, "dead")
    declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    publish(channel, "q", b"a")
    get_one(channel, "q")
    channel.basic_reject(1, requeue=False)
    wait_for_ready(channel, "dead", 1)
    assert on(broker, lambda vhost: redrive(vhost, "dead")).moved == 1
    assert history().of("dead") == [("delivered", 0, QUEUE, 0), ("moved", 0, NOBODY, 0)]


# --- queues with an order of their own --------------------------------------------------------------------


def test_a_selector_gives_what_the_queue_has_taken(
    open_channel: OpenChannel, channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a", headers={"colour": "blue"})
    publish(channel, "q", b"b", headers={"colour": "red"})
    reds = open_channel()
    red = consume(reds, "q", "red", selector="colour = 'red'")
    red.wait_for(reds, 1)
    reds.basic_nack(1, requeue=True)
    red.wait_for(reds, 2)
    reds.basic_ack(2)
    reds.connection.close()
    channel.basic_get("q", auto_ack=True)
    assert history().of("q") == [
        ("delivered", 0, QUEUE, 0),
        ("delivered", 1, QUEUE, 0),
        ("given", 1, "red", 0),
        ("returned", 1, NOBODY, 0),
        ("given", 1, "red", 0),
        ("acked", 1, NOBODY, 0),
        ("fetched", 0, NOBODY, 0),
    ]


def test_a_selector_without_acknowledgements_fetches(channel: BlockingChannel, history: Callable[[], History]) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a", headers={"colour": "red"})
    red = consume(channel, "q", "red", auto_ack=True, selector="colour = 'red'")
    red.wait_for(channel, 1)
    assert history().of("q") == [("delivered", 0, QUEUE, 0), ("fetched", 0, "red", 0)]


def test_a_value_that_is_not_the_last_is_dropped(channel: BlockingChannel, history: Callable[[], History]) -> None:
    declare(channel, "q", last_value_header="key")
    publish(channel, "q", b"old", b"new", headers={"key": "k"})
    channel.queue_purge("q")
    assert history().of("q") == [
        ("delivered", 0, QUEUE, 0),
        ("delivered", 1, QUEUE, 0),
        ("dropped", 0, NOBODY, 0),
        ("purged", 1, NOBODY, 0),
    ]


def test_held_messages_are_moved_when_they_are_released_and_purged_when_they_are_cancelled(
    broker: Broker, channel: BlockingChannel, history: Callable[[], History]
) -> None:
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
    declare(channel, "q")
    channel.queue_bind("q", "later", "q")
    publish(channel, "q", b"0", b"1", exchange="later", headers={"x-delay": 3_600_000})
    publish(channel, "unknown", b"2", exchange="later", headers={"x-delay": 3_600_000})
    held = on(broker, lambda vhost: next(iter(vhost.companions.queues)))
    assert on(broker, lambda vhost: release_now(vhost, held, [0, 2])).done == [0, 2]
    assert on(broker, lambda vhost: cancel(vhost, held, [1])).done == [1]
    assert ready_count(channel, "q") == 1
    assert history().of("amq.held-exchange.later") == [
        ("delivered", 0, QUEUE, 0),
        ("delivered", 2, QUEUE, 0),
        ("moved", 0, NOBODY, 0),
        ("dropped", 2, NOBODY, 0),
        ("delivered", 1, QUEUE, 0),
        ("purged", 1, NOBODY, 0),
    ]


def test_a_message_that_waits_for_its_next_try_is_moved_there(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q", delayed_retry_min=1, delivery_limit=5)
    publish(channel, "q", b"a")
    get_one(channel, "q")
    channel.basic_nack(1, requeue=True)
    method, _, _ = get_one(channel, "q")
    channel.basic_ack(method.delivery_tag)
    found = history()
    assert found.of("q") == [
        ("delivered", 0, NOBODY, 0),
        ("moved", 0, NOBODY, 0),
        ("delivered", 1, NOBODY, 0),
        ("acked", 1, NOBODY, 0),
    ]
    assert found.of("amq.held-queue.q") == [("delivered", 0, QUEUE, 0), ("moved", 0, NOBODY, 0)]


def test_keys_that_leave_the_window_of_deduplication_are_dropped(
    channel: BlockingChannel, history: Callable[[], History]
) -> None:
    declare(channel, "q", message_deduplication=True, cache_size=1)
    publish(channel, "q", b"a", headers={"x-deduplication-header": "1"})
    publish(channel, "q", b"b", headers={"x-deduplication-header": "2"})
    assert history().of("amq.dedup.q") == [("dropped", 0, NOBODY, 0)]


# --- segments and starts ----------------------------------------------------------------------------------


def test_messages_of_the_last_run_are_delivered_to_who_gets_them(
    broker: Broker, channel: BlockingChannel, tmp_path: Path
) -> None:
    declare(channel, "q")
    publish(channel, "q", b"a", b"b")
    channel.connection.close()
    broker.stop()
    broker.start()
    with pika_channels(broker) as open_one:
        second = open_one()
        kept = consume(second, "q", "keeper")
        kept.wait_for(second, 2)
        second.basic_cancel("keeper")
        second.basic_ack(1)
        second.basic_nack(2)
        wait_for_ready(second, "q", 1)
        eager = consume(second, "q", "eager", auto_ack=True)
        eager.wait_for(second, 1)
    broker.stop()
    assert History(tmp_path).of("q") == [
        ("delivered", 0, "keeper", 0),
        ("delivered", 1, "keeper", 0),
        ("acked", 0, NOBODY, 0),
        ("requeued", 1, NOBODY, 0),
        ("delivered", 1, QUEUE, 0),
        ("fetched", 1, "eager", 0),
    ]


def test_a_dump_shows_who_and_why(channel: BlockingChannel, history: Callable[[], History], tmp_path: Path) -> None:
    declare(channel, "dead")
    declare(channel, "q", dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=60_000)
    publish(channel, "q", b"a")
    inbox = consume(channel, "q", "reader")
    inbox.wait_for(channel, 1)
    channel.basic_nack(1, requeue=False)
    wait_for_ready(channel, "dead", 1)
    history()
    shown: list[dict[str, object]] = []
    for path in sorted((tmp_path / "journal").glob("*.pnj")):
        shown.extend(dump(OsFiles(tmp_path), f"journal/{path.name}", 1000))
    named = [record for record in shown if record.get("names") == "consumer"]
    delivered = [record for record in shown if record["record"] == "delivered"]
    died = [record for record in shown if record["record"] == "dead-lettered"]
    assert [json.loads(str(record["text"]))["consumer"] for record in named] == ["reader"]
    assert [record["to"] for record in delivered] == [named[0]["text"]]
    assert [record["reason"] for record in died] == ["rejected"]


def open_backing(name: str, server: Server) -> None:
    queue_of(server, name).own_backing()


def test_consumers_that_are_gone_are_forgotten(broker: Broker, open_channel: OpenChannel) -> None:
    def known() -> int:
        return broker.call(lambda server: len(server.broker.node.journal.names.actors))  # type: ignore[union-attr]

    keeper, closing = open_channel(), open_channel()
    for queue in ("cancelled", "deleted", "lost"):
        declare(keeper, queue)
        # A consumer is named when there is something that it could get.
        broker.call(partial(open_backing, queue))
    consume(keeper, "cancelled", "one")
    consume(keeper, "deleted", "two")
    consume(closing, "lost", "three")
    consume(keeper, "lost", "browser", browse=True)
    assert known() == 3
    keeper.basic_cancel("one")
    assert known() == 2
    closing.queue_delete("deleted")
    assert known() == 1
    closing.connection.close()
    wait_until(lambda: known() == 0, "the last consumer to be forgotten")
