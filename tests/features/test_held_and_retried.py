"""Queues that hold messages back: until they are valid, and until their next try."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.features.conftest import Restart
from tests.features.stage import (
    FAR_MS,
    Stage,
    deaths,
    declare,
    drain,
    drain_until,
    headed,
    is_taken,
    numbered,
    persistent,
    publish,
    ready,
    take,
    wait_for_ready,
)
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import Inbox

HELD = "held-queue"
TO_DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}


def in_ms(delay_ms: int) -> int:
    return int(time.time() * 1000) + delay_ms


def send(channel: BlockingChannel, body: bytes, not_before: Any, queue: str = "q", **properties: Any) -> None:
    headers = {"x-not-valid-before": not_before}
    channel.basic_publish("", queue, body, persistent(headers=headers, **properties))


def fail(channel: BlockingChannel, queue: str = "q") -> tuple[bytes, int]:
    """Take one and say that it did not work; its body and its count."""
    method, properties, body = take(channel, queue, ack=False)
    channel.basic_nack(method.delivery_tag, requeue=True)
    return body, (properties.headers or {}).get("x-delivery-count", 0)


def test_a_message_is_not_given_out_before_it_is_valid(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_hold_on_publish=True)
    send(channel, b"second", in_ms(500))
    send(channel, b"far", in_ms(FAR_MS))
    send(channel, b"first", in_ms(400))
    publish(channel, "q", b"now")
    assert drain(channel, "q") == [b"now"]
    assert drain_until(channel, "q", 2) == [b"first", b"second"]
    assert either.held_count(HELD, "q") == 1


def test_a_timestamp_is_in_seconds(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_hold_on_publish=True)
    now = datetime.now(tz=UTC)
    send(channel, b"far", now + timedelta(hours=1))
    send(channel, b"past", now - timedelta(hours=1))
    send(channel, b"soon", now + timedelta(seconds=2))
    assert drain(channel, "q") == [b"past"]
    assert drain_until(channel, "q", 1) == [b"soon"]
    assert either.held_count(HELD, "q") == 1


@pytest.mark.parametrize("value", [0, -1, 1, "tomorrow", str(1 << 62), True, None, {}, -(1 << 63)])
def test_what_is_no_later_time_does_not_wait(stage: Stage, value: Any) -> None:
    channel = stage.channel()
    declare(channel, "q", x_hold_on_publish=True)
    send(channel, b"x", value)
    assert drain(channel, "q") == [b"x"]


def test_a_queue_that_does_not_hold_does_not_look(stage: Stage) -> None:
    channel = stage.channel()
    declare(channel, "q")
    send(channel, b"x", in_ms(FAR_MS))
    assert drain(channel, "q") == [b"x"]


def test_the_latest_times_are_held_over_a_crash(durable: Stage) -> None:
    channel = durable.channel()
    declare(channel, "q", x_hold_on_publish=True)
    send(channel, b"x", (1 << 63) - 1)
    send(channel, b"y", datetime(9999, 12, 31, tzinfo=UTC))
    durable.kill_and_start()
    assert durable.held_count(HELD, "q") == 2
    assert drain(durable.channel(), "q") == []


def test_what_is_held_by_a_queue_comes_through_a_restart_and_goes_with_the_queue(
    durable: Stage, restart: Restart
) -> None:
    channel = durable.channel()
    declare(channel, "q", x_hold_on_publish=True)
    send(channel, b"second", in_ms(900))
    send(channel, b"first", in_ms(800))
    send(channel, b"far", in_ms(FAR_MS))
    restart(durable)
    channel = durable.channel()
    assert drain_until(channel, "q", 2) == [b"first", b"second"]
    channel.queue_delete("q")
    restart(durable)
    assert durable.companion_names() == []


def test_held_messages_do_not_count_as_ready_and_enter_whatever_the_limit(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_hold_on_publish=True, x_max_length=1, x_overflow="reject-publish")
    send(channel, b"held", in_ms(400))
    send(channel, b"held too", in_ms(400))
    assert ready(channel, "q") == 0
    assert [is_taken(channel, "", "q", body) for body in numbered(0, 2)] == [True, False]
    wait_for_ready(channel, "q", 3)
    assert drain(channel, "q") == [b"0", b"held", b"held too"]


def test_what_an_exclusive_queue_holds_goes_with_its_connection(either: Stage) -> None:
    channel = either.channel()
    channel.queue_declare("own", exclusive=True, arguments={"x-hold-on-publish": True, "x-delayed-retry-min": FAR_MS})
    send(channel, b"held", in_ms(FAR_MS), queue="own")
    publish(channel, "own", b"retried")
    fail(channel, "own")
    wait_until(lambda: either.held_count(HELD, "own") == 2, "both are held")
    channel.connection.close()
    wait_until(lambda: either.companion_names() == [], "they are gone")


def test_a_purge_leaves_what_is_held(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_hold_on_publish=True)
    send(channel, b"held", in_ms(1_000))
    publish(channel, "q", b"purged")
    channel.queue_purge("q")
    assert drain_until(channel, "q", 1) == [b"held"]


def test_a_held_message_that_is_due_finds_a_consumer(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_hold_on_publish=True)
    inbox = Inbox()
    channel.basic_consume("q", inbox, auto_ack=True)
    send(channel, b"x", in_ms(100))
    inbox.wait_for(channel, 1)
    assert (inbox.bodies, inbox.redelivered) == ([b"x"], [False])


# --- retry ---------------------------------------------------------------------------------------------------


def test_each_try_waits_longer_and_says_how_many_there_were(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_delayed_retry_min=100, x_delayed_retry_max=250)
    publish(channel, "q", b"x")
    waits_ms: list[int] = []
    for count in range(4):
        began_ms = in_ms(0)
        assert fail(channel) == (b"x", count)
        waits_ms.append(in_ms(0) - began_ms)
    # How much longer they take is up to the machine.
    assert [wait >= least - 1 for wait, least in zip(waits_ms, (0, 100, 200, 250), strict=True)] == [True] * 4


def test_a_message_that_was_tried_is_marked_redelivered_and_carries_its_count(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_delayed_retry_min=1)
    publish(channel, "q", b"x")
    fail(channel)
    method, properties, _ = take(channel, "q")
    assert (method.redelivered, properties.headers["x-delivery-count"]) == (True, 1)


@pytest.mark.parametrize("arguments", [{}, {"x_delayed_retry_min": 1}])
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_behind_the_limit_a_message_is_a_dead_letter(either: Stage, limit: int, arguments: dict[str, int]) -> None:
    channel = either.channel()
    declare(channel, "dead")
    declare(channel, "q", x_delivery_limit=limit, **TO_DEAD, **arguments)
    publish(channel, "q", b"poison")
    for count in range(limit + 1):
        assert fail(channel) == (b"poison", count)
    _, properties, body = take(channel, "dead")
    assert (body, deaths(properties)) == (b"poison", [("q", "delivery_limit", 1)])
    assert "x-delivery-count" not in properties.headers
    assert ready(channel, "q") == 0


def test_the_count_of_one_queue_does_not_count_in_the_next(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead", x_delivery_limit=2)
    declare(channel, "q", x_delivery_limit=2, x_delayed_retry_min=1, **TO_DEAD)
    publish(channel, "q", b"x")
    for _ in range(3):
        fail(channel)
    assert [fail(channel, "dead")[1] for _ in range(3)] == [0, 1, 2]
    wait_until(lambda: either.queue("dead", lambda queue: queue.backing.depth()) == 0, "it is gone")


def test_without_a_dead_letter_exchange_the_limit_ends_a_message(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_delivery_limit=0)
    publish(channel, "q", b"x")
    fail(channel)
    wait_until(lambda: either.queue("q", lambda queue: queue.backing.depth()) == 0, "it is gone")


@pytest.mark.parametrize(
    ("retry_type", "failed_waits", "lost_waits"),
    [("all", True, True), ("failed", True, False), ("returned", False, True), ("disabled", False, False)],
)
def test_the_type_says_which_returns_wait(either: Stage, retry_type: str, failed_waits: bool, lost_waits: bool) -> None:
    channel = either.channel()
    declare(channel, "q", x_delayed_retry_min=FAR_MS, x_delayed_retry_type=retry_type)
    publish(channel, "q", b"failed")
    fail(channel)
    assert ready(channel, "q") == (0 if failed_waits else 1)
    channel.queue_purge("q")
    publish(channel, "q", b"lost")
    other = either.channel()
    take(other, "q", ack=False)
    other.connection.close()
    wait_until(
        lambda: (
            either.held_count(HELD, "q") == failed_waits + lost_waits
            and ready(channel, "q") == (0 if lost_waits else 1)
        ),
        "the lost one is where it belongs",
    )


def test_counts_and_waits_come_through_a_restart_and_a_crash(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    declare(channel, "dead")
    declare(channel, "q", x_delayed_retry_min=300, x_delayed_retry_max=300, x_delivery_limit=2, **TO_DEAD)
    publish(channel, "q", b"x")
    for count in range(3):
        assert fail(channel) == (b"x", count)
        if count < 2:
            wait_until(lambda: durable.held_count(HELD, "q") == 1, "it waits")
            # An answer that comes when all that was gathered is on the disk.
            publish(channel, "dead", b"sync")
            restart(durable)
            channel = durable.channel()
    wait_for_ready(channel, "dead", 3)
    bodies = drain(channel, "dead")
    assert sorted(bodies) == [b"sync", b"sync", b"x"]


def test_a_consumer_that_fails_each_message_sees_each_as_often_as_it_may(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead")
    declare(channel, "q", x_delayed_retry_min=1, x_delayed_retry_max=5, x_delivery_limit=4, **TO_DEAD)
    publish(channel, "q", *numbered(0, 20))
    seen: dict[bytes, list[int]] = {}

    def failing(_channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        seen.setdefault(body, []).append((properties.headers or {}).get("x-delivery-count", 0))
        channel.basic_nack(method.delivery_tag, requeue=True)

    consumer = either.channel()
    channel, publisher = consumer, channel
    consumer.basic_consume("q", failing)
    wait_until(
        lambda: ready(publisher, "dead") == 20, "all are dead", lambda: consumer.connection.process_data_events(0.01)
    )
    assert seen == {body: [0, 1, 2, 3, 4] for body in numbered(0, 20)}


def test_a_consumer_that_goes_with_many_messages_returns_each_of_them_once(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_delayed_retry_min=50, x_delayed_retry_type="returned")
    publish(channel, "q", *numbered(0, 50))
    other = either.channel()
    inbox = Inbox()
    other.basic_consume("q", inbox)
    inbox.wait_for(other, 50)
    other.connection.close()
    assert drain_until(channel, "q", 50) == numbered(0, 50)


def test_a_headed_message_keeps_its_headers_over_its_tries(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_delayed_retry_min=1)
    channel.basic_publish("", "q", b"x", headed(own="h"))
    fail(channel)
    assert take(channel, "q")[1].headers == {"own": "h", "x-delivery-count": 1}
