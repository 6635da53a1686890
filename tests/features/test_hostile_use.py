"""Clients that mean harm or do not know better: what they do costs others neither their turn nor their connection."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock.limits import TABLE_ITEMS_MAX
from penstock.server.server import Server
from tests.features.conftest import Restart
from tests.features.stage import (
    Stage,
    deaths,
    declare,
    drain,
    drain_until,
    headed,
    numbered,
    persistent,
    publish,
    ready,
    take,
)
from tests.interop.deadline import wait_until


def waiting_moves(server: Server) -> int:
    return len(server.broker.vhosts["/"].moves)


def ring_of_fan_outs(channel: BlockingChannel, count: int) -> list[str]:
    """Queues that keep nothing and dead-letter to each other: a message dies on each way through all of them."""
    names = [f"ring-{number}" for number in range(count)]
    channel.exchange_declare("round", "fanout")
    for name in names:
        declare(channel, name, x_max_length=0, x_dead_letter_exchange="round")
        channel.queue_bind(name, "round")
    return names


def test_one_message_that_is_multiplied_without_end_stops_nobody(stage: Stage) -> None:
    attacker, other = stage.channel(), stage.channel()
    # Fifteen queues make some 10^12 deaths.
    names = ring_of_fan_outs(attacker, 15)
    publish(attacker, names[0], b"one")
    declare(other, "work", x_max_length=0, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    declare(other, "dead")
    publish(other, "work", b"another's")
    assert take(other, "dead")[2] == b"another's"
    # It goes on, and what it remembers grows with the length of the ways, not with their number.
    assert 0 < stage.look(waiting_moves) < 15 * 15
    for name in names:
        attacker.queue_delete(name)
    wait_until(lambda: stage.look(waiting_moves) == 0, "nothing is left to move")


def test_what_was_too_much_for_one_turn_is_moved_in_later_ones(either: Stage) -> None:
    channel = either.channel()
    names = ring_of_fan_outs(channel, 5)
    declare(channel, "all")
    channel.queue_bind("all", "round")
    publish(channel, names[0], b"one")
    # A letter for each way of one to five different queues that begins at the first.
    ways = sum([1, 4, 4 * 3, 4 * 3 * 2, 4 * 3 * 2])
    seen: list[list[str]] = []
    while len(seen) < ways:
        _, properties, _ = take(channel, "all")
        seen.append(sorted([queue for queue, _, _ in deaths(properties)]))
    assert drain(channel, "all") == []
    assert either.look(waiting_moves) == 0
    assert sum([len(each) == 5 for each in seen]) == 24


def test_a_ring_that_a_made_up_history_keeps_turning_stops_nobody(stage: Stage) -> None:
    attacker, other = stage.channel(), stage.channel()
    for name, next_name in (("here", "there"), ("there", "here")):
        declare(attacker, name, x_max_length=0, x_dead_letter_exchange="", x_dead_letter_routing_key=next_name)
    # So many rejections allow for as many rounds.
    history = [{"queue": "elsewhere", "reason": "rejected", "count": 1 << 60}]
    publish(attacker, "here", b"one", headers={"x-death": history})
    declare(other, "work")
    publish(other, "work", b"another's")
    assert take(other, "work")[2] == b"another's"
    assert stage.look(waiting_moves) == 1
    attacker.queue_delete("there")
    wait_until(lambda: stage.look(waiting_moves) == 0, "the ring is cut")


def test_a_count_that_a_client_made_up_is_counted_on(stage: Stage) -> None:
    channel = stage.channel()
    declare(channel, "tries", x_hold_on_publish=True, x_delayed_retry_min=1)
    due_ms = stage.look(lambda server: server.broker.clock.wall_ms()) + 20
    properties = headed(x_delivery_count=(1 << 63) - 1, x_not_valid_before=due_ms)
    channel.basic_publish("", "tries", b"forged", properties)
    for _ in range(3):
        method, _, body = take(channel, "tries", ack=False)
        assert body == b"forged"
        channel.basic_nack(method.delivery_tag)
    assert take(channel, "tries")[2] == b"forged"


@pytest.mark.parametrize("count", [TABLE_ITEMS_MAX - 1, TABLE_ITEMS_MAX])
def test_a_message_with_as_many_headers_as_there_may_be_is_tried_again(stage: Stage, count: int) -> None:
    channel = stage.channel()
    declare(channel, "tries", x_delayed_retry_min=1, x_delivery_limit=2)
    channel.basic_publish("", "tries", b"heavy", persistent(headers={f"h{number}": 1 for number in range(count)}))
    counts: list[Any] = []
    for _ in range(3):
        method, properties, _ = take(channel, "tries", ack=False)
        counts.append(properties.headers.get("x-delivery-count", 0))
        channel.basic_nack(method.delivery_tag)
    assert counts == [0, 1, 2]
    assert ready(channel, "tries") == 0


def test_a_consumer_that_leaves_with_such_a_message_leaves_the_others_too(stage: Stage) -> None:
    channel, consumer = stage.channel(), stage.channel()
    declare(channel, "tries", x_delayed_retry_min=1)
    headers = {f"h{number}": 1 for number in range(TABLE_ITEMS_MAX)}
    channel.basic_publish("", "tries", b"heavy", persistent(headers=headers))
    publish(channel, "tries", *numbered(0, 3))
    for _ in range(4):
        take(consumer, "tries", ack=False)
    consumer.connection.close()
    assert sorted(drain_until(channel, "tries", 4)) == [b"0", b"1", b"2", b"heavy"]


def test_names_of_any_octets_and_of_the_greatest_length_have_companions(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    name = "ü" * 127 + "/"
    declare(channel, name, x_hold_on_publish=True, x_message_deduplication=True, x_cache_size=10, x_delayed_retry_min=1)
    due_ms = durable.look(lambda server: server.broker.clock.wall_ms()) + 20
    properties = headed(x_deduplication_header="../../key", x_not_valid_before=due_ms)
    channel.basic_publish("", name, b"held", properties)
    restart(durable)
    channel = durable.channel()
    assert take(channel, name)[2] == b"held"
    channel.basic_publish("", name, b"again", properties)
    assert ready(channel, name) == 0
    channel.queue_delete(name)
    assert durable.companion_names() == []


@pytest.mark.parametrize(
    "arguments", [{"x-sort-header": "h"}, {"x-last-value-header": "h"}, {"x-group-header": "h"}], ids=str
)
def test_what_cannot_be_compared_has_no_value(stage: Stage, arguments: dict[str, Any]) -> None:
    channel = stage.channel()
    channel.queue_declare("odd", arguments=arguments)
    values: list[Any] = [None, [], {}, [None], {"a": {"b": []}}, b"\xff"]
    for number, value in enumerate(values):
        channel.basic_publish("", "odd", b"%d" % number, pika.BasicProperties(headers={"h": value}))
    assert drain(channel, "odd") == numbered(0, len(values))


@pytest.mark.parametrize("arguments", [{}, {"x-sort-header": "h"}, {"x-message-ttl": 3_600_000}], ids=str)
def test_counts_of_messages_that_were_purged_are_forgotten(stage: Stage, arguments: dict[str, Any]) -> None:
    channel = stage.channel()
    channel.queue_declare("tries", durable=True, arguments={"x-delivery-limit": 5, **arguments})
    for _ in range(100):
        publish(channel, "tries", b"a", b"b")
        for _ in range(2):
            method, _, _ = take(channel, "tries", ack=False)
        channel.basic_nack(method.delivery_tag, multiple=True)
        channel.queue_purge("tries")
    publish(channel, "tries", b"stays")
    for count in range(3):
        method, properties, _ = take(channel, "tries", ack=False)
        assert (properties.headers or {}).get("x-delivery-count", 0) == count
        channel.basic_nack(method.delivery_tag)
    assert ready(channel, "tries") == 1
    assert stage.queue("tries", lambda queue: queue.backing.ram_bytes()) < 1_000


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ({"x-sort-header": "h"}, [b"1", b"0"]),
        ({"x-last-value-header": "h"}, [b"7", b"8"]),
        ({"x-group-header": "h"}, [b"7", b"8"]),
        ({"x-expire-anywhere": True}, [b"7", b"8"]),
    ],
    ids=str,
)
def test_a_full_queue_drops_the_first_in_its_own_order(
    stage: Stage, arguments: dict[str, Any], left: list[bytes]
) -> None:
    channel = stage.channel()
    channel.queue_declare("full", arguments={"x-max-length": 2, **arguments})
    for number in range(9):
        channel.basic_publish("", "full", b"%d" % number, headed(h=9 - number))
    assert drain(channel, "full") == left
