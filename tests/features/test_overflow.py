"""Full queues: x-max-length and x-max-length-bytes with each x-overflow that drops or refuses."""

from __future__ import annotations

import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.features.conftest import Restart
from tests.features.stage import (
    Stage,
    deaths,
    declare,
    drain,
    drain_until,
    is_taken,
    numbered,
    publish,
    ready,
    take,
    wait_for_ready,
)
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import Inbox


@pytest.mark.parametrize(("limit", "left"), [(0, 0), (1, 1), (2, 2), (4, 4), (5, 5), (6, 5)])
def test_dropping_at_the_head_keeps_the_newest(either: Stage, limit: int, left: int) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=limit)
    publish(channel, "q", *numbered(0, 5))
    assert drain(channel, "q") == numbered(5 - left, 5)


@pytest.mark.parametrize(("limit", "left"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (10, 5)])
def test_dropping_at_the_head_counts_bytes_of_bodies(either: Stage, limit: int, left: int) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length_bytes=limit)
    bodies = [b"%02d" % number for number in range(5)]
    publish(channel, "q", *bodies)
    assert drain(channel, "q") == bodies[5 - left :]


def test_both_limits_count(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=3, x_max_length_bytes=10)
    publish(channel, "q", b"a", b"b", b"c", b"d")
    assert ready(channel, "q") == 3
    publish(channel, "q", b"12345678")
    assert drain(channel, "q") == [b"c", b"d", b"12345678"]


def test_unacknowledged_messages_do_not_count_until_they_come_back(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead")
    declare(channel, "q", x_max_length=2, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    publish(channel, "q", b"0", b"1")
    tags = [take(channel, "q", ack=False)[0].delivery_tag for _ in range(2)]
    publish(channel, "q", b"2", b"3")
    assert ready(channel, "dead") == 0
    channel.basic_nack(tags[-1], multiple=True, requeue=True)
    wait_for_ready(channel, "dead", 2)
    assert (drain(channel, "dead"), drain(channel, "q")) == ([b"0", b"1"], [b"2", b"3"])


def test_a_full_queue_refuses_and_takes_again_when_it_has_room(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=2, x_overflow="reject-publish")
    assert [is_taken(channel, "", "q", body) for body in numbered(0, 4)] == [True, True, False, False]
    assert take(channel, "q")[2] == b"0"
    assert [is_taken(channel, "", "q", body) for body in numbered(4, 6)] == [True, False]
    assert drain(channel, "q") == [b"1", b"4"]


@pytest.mark.parametrize(("limit", "taken"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
def test_a_refusing_queue_counts_bytes(either: Stage, limit: int, taken: int) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length_bytes=limit, x_overflow="reject-publish")
    assert [is_taken(channel, "", "q", b"xx") for _ in range(3)].count(True) == taken
    assert ready(channel, "q") == taken


def test_a_fan_out_with_one_full_queue_is_refused_and_reaches_the_others(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "full", x_max_length=1, x_overflow="reject-publish")
    declare(channel, "roomy")
    for queue in ("full", "roomy"):
        channel.queue_bind(queue, "amq.fanout")
    assert [is_taken(channel, "amq.fanout", "", body) for body in numbered(0, 2)] == [True, False]
    assert (drain(channel, "full"), drain(channel, "roomy")) == ([b"0"], [b"0", b"1"])


def test_a_transaction_that_does_not_fit_says_so(either: Stage) -> None:
    channel = either.channel(confirms=False)
    declare(channel, "q", x_max_length=1, x_overflow="reject-publish")
    channel.tx_select()
    publish(channel, "q", b"0", b"1")
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.tx_commit()
    assert (refused.value.reply_code, refused.value.reply_text) == (406, "PRECONDITION_FAILED - partial tx completion")
    assert drain(either.channel(), "q") == [b"0"]


def test_what_a_full_queue_refuses_can_be_a_dead_letter(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead")
    arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
    declare(channel, "q", x_max_length=1, x_overflow="reject-publish-dlx", **arguments)
    assert [is_taken(channel, "", "q", body) for body in numbered(0, 3)] == [True, False, False]
    _, properties, body = take(channel, "dead")
    assert (body, deaths(properties)) == (b"1", [("q", "maxlen", 1)])
    assert (drain(channel, "q"), drain(channel, "dead")) == ([b"0"], [b"2"])


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_ring_counts_and_drops_what_is_not_acknowledged_too(either: Stage, limit: int) -> None:
    channel = either.channel()
    declare(channel, "dead")
    arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
    declare(channel, "q", x_max_length=limit, x_overflow="ring", **arguments)
    publish(channel, "q", *numbered(0, 3))
    tags = [take(channel, "q", ack=False)[0].delivery_tag for _ in range(limit)]
    publish(channel, "q", *numbered(3, 8))
    wait_for_ready(channel, "dead", 8 - limit)
    if tags:
        # The broker let them go long ago: neither of the two does any harm.
        channel.basic_ack(tags[0])
        if limit > 1:
            channel.basic_nack(tags[-1], multiple=True, requeue=True)
    assert drain(channel, "q") == numbered(8 - limit, 8)
    assert sorted(drain(channel, "dead")) == numbered(0, 8 - limit)


def test_a_ring_counts_bytes(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length_bytes=4, x_overflow="ring")
    publish(channel, "q", b"ab", b"cd")
    take(channel, "q", ack=False)
    publish(channel, "q", b"ef")
    assert drain(channel, "q") == [b"cd", b"ef"]
    publish(channel, "q", b"too long for it")
    assert drain(channel, "q") == []


def test_a_ring_that_takes_dead_letters_and_makes_some_itself_turns_round(either: Stage) -> None:
    """Its own dead are carried away after the ones that come in, in the same turn."""
    channel = either.channel()
    declare(channel, "end")
    arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "end"}
    declare(channel, "ring", x_max_length=2, x_overflow="ring", **arguments)
    declare(channel, "q", x_message_ttl=20, x_dead_letter_exchange="", x_dead_letter_routing_key="ring")
    publish(channel, "q", *numbered(0, 5))
    wait_for_ready(channel, "end", 3)
    assert (drain(channel, "end"), drain(channel, "ring")) == (numbered(0, 3), numbered(3, 5))


def test_a_ring_whose_dead_letters_nobody_takes_keeps_them(either: Stage) -> None:
    channel = either.channel()
    arguments = {"x_dead_letter_exchange": "later", "x_dead_letter_strategy": "at-least-once"}
    declare(channel, "ring", x_max_length=2, x_overflow="ring", **arguments)
    publish(channel, "ring", *numbered(0, 5))
    assert ready(channel, "ring") == 2
    channel.exchange_declare("later", "fanout", durable=True)
    declare(channel, "dead")
    channel.queue_bind("dead", "later")
    assert sorted(drain_until(channel, "dead", 3)) == numbered(0, 3)
    assert drain(channel, "ring") == numbered(3, 5)


def test_a_ring_with_an_order_of_its_own_drops_the_oldest(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead")
    arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead", "x_expire_anywhere": True}
    declare(channel, "ring", x_max_length=3, x_overflow="ring", **arguments)
    publish(channel, "ring", *numbered(0, 3))
    # One is looked at, and everything in front of it is on the shelf afterwards.
    method, _, _ = take(channel, "ring", ack=False)
    channel.basic_nack(method.delivery_tag, requeue=True)
    publish(channel, "ring", *numbered(3, 6))
    wait_for_ready(channel, "dead", 3)
    assert (drain(channel, "ring"), drain(channel, "dead")) == (numbered(3, 6), numbered(0, 3))


def test_a_ring_with_groups_drops_the_oldest_also_when_somebody_has_it(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "ring", x_max_length=2, x_overflow="ring", x_group_header="g")
    inbox = Inbox()
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("ring", inbox)
    for body in numbered(0, 6):
        publish(channel, "ring", body, headers={"g": "one"})
    inbox.wait_for(channel, 1)
    channel.basic_ack(inbox.tags[0])
    inbox.wait_for(channel, 2)
    assert inbox.bodies[1] == b"4"


@pytest.mark.parametrize(("overflow", "limit"), [("drop-head", 0), ("drop-head", 1), ("reject-publish", 1)])
def test_a_consumer_that_waits_gets_what_would_not_fit(either: Stage, overflow: str, limit: int) -> None:
    channel, consumer = either.channel(), either.channel()
    declare(channel, "q", x_max_length=limit, x_overflow=overflow)
    inbox = Inbox()
    consumer.basic_consume("q", inbox, auto_ack=True)
    publish(channel, "q", *numbered(0, 5))
    inbox.wait_for(consumer, 5)
    assert inbox.bodies == numbered(0, 5)


def test_limits_hold_after_a_restart(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    declare(channel, "drops", x_max_length=2)
    declare(channel, "refuses", x_max_length=2, x_overflow="reject-publish")
    declare(channel, "ring", x_max_length=2, x_overflow="ring")
    for queue in ("drops", "refuses", "ring"):
        publish(channel, queue, *numbered(0, 2))
    restart(durable)
    channel = durable.channel()
    assert not is_taken(channel, "", "refuses", b"2")
    publish(channel, "drops", b"2")
    publish(channel, "ring", b"2")
    assert drain(channel, "refuses") == numbered(0, 2)
    assert drain(channel, "drops") == drain(channel, "ring") == numbered(1, 3)


def test_a_queue_that_flows_to_disk_loses_nothing_and_keeps_little_in_memory(durable: Stage) -> None:
    channel = durable.channel()
    declare(channel, "plain")
    declare(channel, "q", x_max_length=10, x_overflow="flow-to-disk")

    def ram_bytes(name: str) -> int:
        return int(durable.queue(name, lambda queue: queue.backing.ram_bytes()))

    bodies = [b"%d %b" % (number, b"x" * 2000) for number in range(100)]
    for queue in ("plain", "q"):
        publish(channel, queue, *bodies)
    wait_until(lambda: ram_bytes("q") * 2 < ram_bytes("plain"), "the bodies are out of memory")
    assert drain(channel, "q") == bodies


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", "1", '"expected integer, got longstr"'),
        ("x-overflow", "drop-tail", "invalid_overflow"),
        ("x-overflow", 1, "{unacceptable_type,"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(stage: Stage, name: str, value: object, text: str) -> None:
    channel = stage.channel()
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.queue_declare("q", arguments={name: value})
    assert f"invalid arg '{name}' for queue 'q' in vhost '/': {text}" in refused.value.reply_text
