"""Calls about messages on a running broker, with real clients that publish and consume at the same time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pika
import pytest

from penstock.broker.operations.messages.held_calls import list_held, release_now
from penstock.broker.operations.messages.message_edits import Changes, edit
from penstock.broker.operations.messages.message_moves import Target, delete, move, purge_some
from penstock.broker.operations.messages.message_search import Query, search
from penstock.broker.operations.messages.messages_at_hand import pause, peek, resume
from penstock.broker.operations.messages.redrive import redrive
from penstock.broker.vhost.vhost import VHost
from penstock.testing import Broker
from tests.interop.pika_inbox import publish_all
from tests.server.brokers import check_health
from tests.server.pika_clients import OpenChannel, consume, pika_channels, quiet

T = TypeVar("T")

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def open_channel(broker: Broker) -> Iterator[OpenChannel]:
    with pika_channels(broker) as open_one:
        yield open_one


def on(broker: Broker, call: Callable[[VHost], T]) -> T:
    """Call on the broker's own thread, as the console does."""
    return broker.call(lambda server: call(server.broker.vhosts["/"]))


def test_messages_behind_an_unacknowledged_one_are_searched_deleted_and_moved(
    broker: Broker, open_channel: OpenChannel
) -> None:
    publisher, slow, fast = open_channel(), open_channel(), open_channel()
    publisher.queue_declare("q")
    publisher.queue_declare("other")
    slow.basic_qos(prefetch_count=1)
    waiting, moved = consume(slow, "q"), consume(fast, "other", auto_ack=True)
    publish_all(publisher, "q", b"1", b"2", b"3 bad", b"4", b"5 bad")
    waiting.wait_for(slow, 1)
    quiet(publisher)
    bad = [message.seq_id for message in on(broker, lambda vhost: search(vhost, "q", Query(body=b"bad"))).messages]
    states = [message.state for message in on(broker, lambda vhost: peek(vhost, "q", with_unacked=True)).messages]
    assert states == ["unacked", "ready", "ready", "ready", "ready"]
    assert on(broker, lambda vhost: delete(vhost, "q", [0, bad[0]])).busy == [0]
    assert on(broker, lambda vhost: move(vhost, "q", [bad[1]], Target(queue="other"))).done == [bad[1]]
    moved.wait_for(fast, 1)
    for count in (2, 3):
        slow.basic_ack(waiting.tags[-1])
        waiting.wait_for(slow, count)
    slow.basic_ack(waiting.tags[-1])
    quiet(slow, fast)
    assert waiting.bodies == [b"1", b"2", b"4"]
    assert not any(waiting.redelivered)
    assert moved.bodies == [b"5 bad"]
    assert broker.queue_depth("q") == 0


def test_an_edited_message_comes_last(broker: Broker, open_channel: OpenChannel) -> None:
    publisher, reader = open_channel(), open_channel()
    publisher.queue_declare("q")
    publish_all(publisher, "q", b"1", b"2", b"3")
    quiet(publisher)
    changes = Changes(body=b"1, corrected", headers={"by": "hand"})
    assert on(broker, lambda vhost: edit(vhost, "q", 0, changes)).new_seq_id == 3
    got = consume(reader, "q", auto_ack=True)
    got.wait_for(reader, 3)
    assert got.bodies == [b"2", b"3", b"1, corrected"]
    assert got.deliveries[-1][1].headers == {"by": "hand"}


def test_the_first_messages_are_purged_under_a_waiting_consumer(broker: Broker, open_channel: OpenChannel) -> None:
    publisher, reader = open_channel(), open_channel()
    publisher.queue_declare("q")
    on(broker, lambda vhost: pause(vhost, "q"))
    got = consume(reader, "q", auto_ack=True)
    publish_all(publisher, "q", b"1", b"2", b"3")
    quiet(publisher, reader)
    assert got.bodies == []
    assert on(broker, lambda vhost: purge_some(vhost, "q", 2)).left == 1
    on(broker, lambda vhost: resume(vhost, "q"))
    got.wait_for(reader, 1)
    assert got.bodies == [b"3"]


def test_a_rejected_message_is_redriven_to_its_consumer(broker: Broker, open_channel: OpenChannel) -> None:
    publisher, worker = open_channel(), open_channel()
    publisher.queue_declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    publisher.queue_declare("q", arguments=arguments)
    got = consume(worker, "q")
    publish_all(publisher, "q", b"1", b"2")
    got.wait_for(worker, 2)
    for tag in got.tags:
        worker.basic_reject(tag, requeue=False)
    quiet(worker)
    assert on(broker, lambda vhost: redrive(vhost, "dead", dry_run=True)).moved == 2
    assert on(broker, lambda vhost: redrive(vhost, "dead", seq_ids=[1])).moved == 1
    got.wait_for(worker, 3)
    assert got.bodies[2] == b"2"
    assert got.deliveries[2][1].headers == {"x-redriven-count": 1}
    assert broker.queue_depth("dead") == 1


def test_a_delayed_message_is_released_to_a_waiting_consumer(broker: Broker, open_channel: OpenChannel) -> None:
    publisher, reader = open_channel(), open_channel()
    publisher.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    publisher.queue_declare("q")
    publisher.queue_bind("q", "later", "k")
    got = consume(reader, "q", auto_ack=True)
    publisher.basic_publish("later", "k", b"1", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    quiet(publisher, reader)
    assert got.bodies == []
    (message,) = on(broker, lambda vhost: list_held(vhost, "later")).messages
    assert on(broker, lambda vhost: release_now(vhost, "later", [message.seq_id])).done == [message.seq_id]
    got.wait_for(reader, 1)
    assert got.bodies == [b"1"]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-group-header": "group"}], ids=str)
@pytest.mark.parametrize("is_durable", [True, False])
def test_nothing_is_lost_or_doubled_while_clients_publish_and_consume(
    tmp_path: Path, is_durable: bool, arguments: dict[str, object]
) -> None:
    rng = random.Random(5)
    with (
        Broker(data_dir=tmp_path / "data" if is_durable else None) as broker,
        pika_channels(broker) as open_channel,
    ):
        publisher, worker = open_channel(), open_channel()
        publisher.queue_declare("q", durable=True, arguments=arguments)
        publisher.queue_declare("other", durable=True)
        worker.basic_qos(prefetch_count=7)
        got = consume(worker, "q")
        acked: list[bytes] = []
        answered = sent = deleted = 0
        for _ in range(40):
            for _ in range(25):
                headers = {"group": f"group {rng.randrange(5)}"}
                properties = pika.BasicProperties(delivery_mode=2, priority=rng.randrange(4), headers=headers)
                publisher.basic_publish("", "q", b"%d" % sent, properties)
                sent += 1
            quiet(publisher, worker)
            for method, _, body in got.deliveries[answered : answered + rng.randrange(8)]:
                answered += 1
                if rng.randrange(4):
                    worker.basic_ack(method.delivery_tag)
                    acked.append(body)
                else:
                    worker.basic_nack(method.delivery_tag, requeue=True)
            ids = [message.seq_id for message in on(broker, lambda vhost: peek(vhost, "q", with_unacked=True)).messages]
            chosen = rng.sample(ids, min(6, len(ids)))
            on(broker, lambda vhost, chosen=chosen: move(vhost, "q", chosen[:4], Target(queue="other")))
            deleted += len(on(broker, lambda vhost, chosen=chosen: delete(vhost, "q", chosen[4:])).done)
        while broker.queue_depth("q") or answered < len(got):
            for method, _, body in got.deliveries[answered:]:
                answered += 1
                worker.basic_ack(method.delivery_tag)
                acked.append(body)
            quiet(worker)
        moved: list[bytes] = []
        while (found := publisher.basic_get("other", auto_ack=True)[2]) is not None:
            moved.append(found)
        ended = [*acked, *moved]
        assert len(moved) > 0
        assert len(ended) == len(set(ended)) == sent - deleted
        check_health(broker)


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_was_done_by_hand_is_so_after_a_restart(tmp_path: Path, is_killed: bool) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        with pika_channels(broker) as open_channel:
            publisher = open_channel()
            publisher.confirm_delivery()
            for name in ("q", "other", "still"):
                publisher.queue_declare(name, durable=True)
            for body in (b"1", b"2", b"3"):
                publisher.basic_publish("", "q", body, PERSISTENT)
            on(broker, lambda vhost: delete(vhost, "q", [0]))
            on(broker, lambda vhost: move(vhost, "q", [2], Target(queue="other")))
            on(broker, lambda vhost: edit(vhost, "q", 1, Changes(body=b"2, corrected")))
            on(broker, lambda vhost: pause(vhost, "still"))
            # The journal has one order: when this is safe, what was done before is.
            publisher.basic_publish("", "still", b"4", PERSISTENT)
        if is_killed:
            broker.kill()
        else:
            broker.stop()
        broker.start()
        found = {
            name: [message.body for message in on(broker, lambda vhost, name=name: peek(vhost, name)).messages]
            for name in ("q", "other", "still")
        }
        assert found == {"q": [b"2, corrected"], "other": [b"3"], "still": [b"4"]}
        with pika_channels(broker) as open_channel:
            reader = open_channel()
            assert reader.basic_get("still", auto_ack=True)[2] is None
            on(broker, lambda vhost: resume(vhost, "still"))
            assert reader.basic_get("still", auto_ack=True)[2] == b"4"
        check_health(broker)
