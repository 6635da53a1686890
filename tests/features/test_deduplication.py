"""x-message-deduplication: a message whose key was seen is not enqueued again."""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.features.conftest import Restart
from tests.features.stage import (
    FAR_MS,
    Stage,
    declare,
    drain,
    drain_until,
    headed,
    is_taken,
    numbered,
    ready,
    take,
    wait_for_ready,
)
from tests.interop.deadline import wait_until

KEY = "x-deduplication-header"


def declare_dedup(channel: BlockingChannel, size: int = 10, **arguments: Any) -> None:
    declare(channel, "q", x_message_deduplication=True, x_cache_size=size, **arguments)


def send(channel: BlockingChannel, key: Any, body: bytes, persist: bool = True, **headers: Any) -> bool:
    return is_taken(channel, "", "q", body, headed(persist, x_deduplication_header=key, **headers))


def test_a_key_comes_in_once_and_its_duplicates_are_confirmed(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel)
    assert [send(channel, key, body) for key, body in (("a", b"1"), ("a", b"2"), ("b", b"3"), ("a", b"4"))] == [
        True
    ] * 4
    assert drain(channel, "q") == [b"1", b"3"]
    # Also when the first one was taken out.
    assert send(channel, "a", b"5")
    assert drain(channel, "q") == []


def test_a_message_without_a_key_always_comes_in(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel)
    for body in numbered(0, 2):
        assert is_taken(channel, "", "q", body)
        assert send(channel, None, body)
        assert send(channel, {}, body)
    assert ready(channel, "q") == 6


def test_keys_of_different_types_differ(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel)
    keys: list[Any] = ["5", 5, True, "True", -5, 5_000_000_000, "", "x" * 300, "x" * 301]
    for number, key in enumerate(keys):
        send(channel, key, b"%d" % number)
        send(channel, key, b"duplicate")
    assert drain(channel, "q") == numbered(0, len(keys))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_oldest_key_is_forgotten_when_there_are_too_many(either: Stage, size: int) -> None:
    channel = either.channel()
    declare_dedup(channel, size)
    for key in "abcd":
        send(channel, key, key.encode())
    drain(channel, "q")
    for key in "dcba":
        send(channel, key, key.encode())
    # The ones that were known push nothing out; each of the others pushes out the oldest.
    assert drain(channel, "q") == [key.encode() for key in "dcba"[size:]]
    assert either.held_count("dedup", "q") == size


def test_a_key_is_forgotten_after_its_time(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel, x_cache_ttl=200)
    assert send(channel, "a", b"1")
    assert send(channel, "a", b"duplicate")
    found: list[bytes] = []

    def again() -> bool:
        send(channel, "a", b"2")
        found.extend(drain(channel, "q"))
        return b"2" in found

    wait_until(again, "the key is new again")
    assert found == [b"1", b"2"]


def test_a_message_may_say_for_how_long_its_own_key_counts(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel, x_cache_ttl=FAR_MS)
    send(channel, "long", b"long")
    send(channel, "short", b"short", x_cache_ttl=20)
    found: list[bytes] = []

    def again() -> bool:
        send(channel, "long", b"long again")
        send(channel, "short", b"short again", x_cache_ttl=FAR_MS)
        found.extend(drain(channel, "q"))
        return b"short again" in found

    wait_until(again, "the short key is new again")
    assert found == [b"long", b"short", b"short again"]


@pytest.mark.parametrize("ttl", [0, -1, "10", True])
def test_a_time_of_a_key_that_cannot_be_is_the_queues(stage: Stage, ttl: Any) -> None:
    channel = stage.channel()
    declare_dedup(channel)
    for _ in range(2):
        send(channel, "a", b"1", x_cache_ttl=ttl)
    assert drain(channel, "q") == [b"1"]


def test_the_largest_time_of_a_key_is_kept_over_a_crash(durable: Stage) -> None:
    channel = durable.channel()
    declare_dedup(channel)
    send(channel, "a", b"1", x_cache_ttl=(1 << 63) - 1)
    durable.kill_and_start()
    channel = durable.channel()
    send(channel, "a", b"2")
    assert drain(channel, "q") == [b"1"]


def test_another_header_can_hold_the_key(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel, x_deduplication_header="order-id")
    for body in numbered(0, 2):
        is_taken(channel, "", "q", body, headed(order_id=7, x_deduplication_header=body.decode()))
    assert drain(channel, "q") == [b"0"]


def test_keys_come_through_a_restart_and_a_crash_with_the_window(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    declare_dedup(channel, 3)
    for key in "abcde":
        send(channel, key, key.encode())
    for _ in range(2):
        restart(durable)
        channel = durable.channel()
        for key in "edc":
            assert send(channel, key, b"duplicate")
    assert durable.held_count("dedup", "q") == 3
    assert send(channel, "a", b"a again")
    assert send(channel, "c", b"c again")
    assert drain(channel, "q") == [b"a", b"b", b"c", b"d", b"e", b"a again", b"c again"]


def test_times_of_keys_go_on_over_a_restart(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    declare_dedup(channel, x_cache_ttl=500)
    send(channel, "far", b"far", x_cache_ttl=FAR_MS)
    send(channel, "a", b"1")
    restart(durable)
    channel = durable.channel()

    def again() -> bool:
        send(channel, "far", b"duplicate")
        send(channel, "a", b"2")
        return ready(channel, "q") == 3

    wait_until(again, "the key is new again")
    assert drain(channel, "q") == [b"far", b"1", b"2"]


def test_the_key_of_a_transient_message_is_lost_with_it(durable: Stage) -> None:
    """Otherwise the publisher that sends it again would be told that it is there."""
    channel = durable.channel()
    declare_dedup(channel)
    send(channel, "transient", b"1", persist=False)
    send(channel, "persistent", b"2")
    durable.kill_and_start()
    channel = durable.channel()
    send(channel, "transient", b"3", persist=False)
    send(channel, "persistent", b"duplicate")
    assert drain(channel, "q") == [b"2", b"3"]


def test_a_full_queue_that_refuses_does_not_remember_the_key(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel, x_max_length=1, x_overflow="reject-publish")
    assert [send(channel, "a", b"1"), send(channel, "b", b"2")] == [True, False]
    assert take(channel, "q")[2] == b"1"
    assert [send(channel, "b", b"3"), send(channel, "a", b"4")] == [True, False]
    assert drain(channel, "q") == [b"3"]


def test_a_held_message_counts_as_seen(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel, x_hold_on_publish=True)
    send(channel, "a", b"held", x_not_valid_before=(1 << 62))
    send(channel, "a", b"duplicate")
    assert drain(channel, "q") == []


def test_dead_letters_are_deduplicated_too(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel)
    declare(channel, "source", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    for body in numbered(0, 3):
        is_taken(channel, "", "source", body, headed(x_deduplication_header="same"))
    wait_until(lambda: either.queue("source", lambda queue: queue.backing.depth()) == 0, "all have died")
    assert drain(channel, "q") == [b"0"]


def test_a_batch_of_one_publisher_is_deduplicated_one_by_one(either: Stage) -> None:
    channel = either.channel(confirms=False)
    declare_dedup(channel, 100)
    for number in range(60):
        channel.basic_publish("", "q", b"%d" % number, headed(x_deduplication_header=number // 3))
    channel.tx_select()
    for number in range(60):
        channel.basic_publish("", "q", b"in tx", headed(x_deduplication_header=number // 3))
    channel.tx_commit()
    assert drain_until(channel, "q", 20) == [b"%d" % (3 * number) for number in range(20)]


def test_the_window_goes_with_its_queue(durable: Stage) -> None:
    channel = durable.channel()
    declare_dedup(channel)
    send(channel, "a", b"1")
    channel.queue_delete("q")
    assert durable.companion_names() == []
    declare_dedup(channel)
    send(channel, "a", b"2")
    durable.kill_and_start()
    assert drain(durable.channel(), "q") == [b"2"]


def test_a_purge_leaves_the_keys(either: Stage) -> None:
    channel = either.channel()
    declare_dedup(channel)
    send(channel, "a", b"1")
    channel.queue_purge("q")
    send(channel, "a", b"2")
    assert drain(channel, "q") == []


def test_deduplication_can_be_switched_off(stage: Stage) -> None:
    channel = stage.channel()
    declare(channel, "q", x_message_deduplication=False)
    for body in numbered(0, 2):
        send(channel, "a", body)
    wait_for_ready(channel, "q", 2)


@pytest.mark.parametrize(
    ("arguments", "name", "text"),
    [
        ({"x-message-deduplication": True}, "x-message-deduplication", "'x-cache-size' must say how many keys"),
        ({"x-message-deduplication": "yes", "x-cache-size": 1}, "x-message-deduplication", "expected true or false"),
        ({"x-message-deduplication": True, "x-cache-size": 0}, "x-cache-size", "0 is not between 1 and 10000000"),
        ({"x-message-deduplication": True, "x-cache-size": 10_000_001}, "x-cache-size", "10000001 is not between"),
        ({"x-message-deduplication": True, "x-cache-size": "1"}, "x-cache-size", "expected an integer"),
        ({"x-cache-size": 1}, "x-cache-size", "it has no effect without 'x-message-deduplication'"),
        ({KEY: "k"}, KEY, "it has no effect without 'x-message-deduplication'"),
        ({"x-message-deduplication": True, "x-cache-size": 1, KEY: ""}, KEY, "expected the name of a header"),
        (
            {"x-message-deduplication": True, "x-cache-size": 1, "x-cache-ttl": 0},
            "x-cache-ttl",
            "0 is not between 1 and",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_help(
    stage: Stage, arguments: dict[str, Any], name: str, text: str
) -> None:
    channel = stage.channel()
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.queue_declare("q", arguments=arguments)
    assert f"invalid arg '{name}' for queue 'q' in vhost '/': " in refused.value.reply_text
    assert text in refused.value.reply_text
