"""pika's BlockingConnection: exchanges of every type, bindings between them, alternate exchanges."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.interop.fixture_types import Name


def bound_queue(channel: BlockingChannel, exchange: str, *keys: str, **arguments: Any) -> str:
    """A new exclusive queue bound with each key."""
    queue = str(channel.queue_declare("", exclusive=True).method.queue)
    for key in keys:
        channel.queue_bind(queue, exchange, key, arguments or None)
    return queue


def drained(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)


@pytest.fixture
def confirming(channel: BlockingChannel) -> BlockingChannel:
    """With confirms a publish has reached its queues when basic_publish returns."""
    channel.confirm_delivery()
    return channel


@pytest.mark.parametrize(
    ("exchange", "exchange_type"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_the_standard_exchanges_exist(channel: BlockingChannel, exchange: str, exchange_type: str) -> None:
    channel.exchange_declare(exchange, exchange_type, passive=True)
    channel.exchange_declare(exchange, exchange_type, durable=True)
    assert channel.is_open


def test_a_direct_exchange_routes_by_equal_key_and_once_per_queue(confirming: BlockingChannel, name: Name) -> None:
    exchange = name("direct")
    confirming.exchange_declare(exchange, "direct", auto_delete=True)
    red = bound_queue(confirming, exchange, "red", "also red", "red")
    blue = bound_queue(confirming, exchange, "blue")
    for key in ("red", "blue", "also red", "green", ""):
        confirming.basic_publish(exchange, key, key.encode())
    assert drained(confirming, red) == [b"red", b"also red"]
    assert drained(confirming, blue) == [b"blue"]


def test_a_fanout_exchange_ignores_the_key(confirming: BlockingChannel, name: Name) -> None:
    exchange = name("fanout")
    confirming.exchange_declare(exchange, "fanout", auto_delete=True)
    queues = [bound_queue(confirming, exchange, key) for key in ("", "a", "b")]
    confirming.basic_publish(exchange, "whatever", b"all")
    assert [drained(confirming, queue) for queue in queues] == [[b"all"]] * 3


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("stock.*.nyse", ["stock.ibm.nyse"]),
        ("stock.#", ["stock", "stock.ibm.nyse", "stock.usd"]),
        ("#", ["", "stock", "stock.ibm.nyse", "stock.usd", "a.b.c.d.nyse"]),
        ("#.nyse", ["stock.ibm.nyse", "a.b.c.d.nyse"]),
        ("*", ["stock"]),
        ("#.#", ["", "stock", "stock.ibm.nyse", "stock.usd", "a.b.c.d.nyse"]),
        ("#.*", ["stock", "stock.ibm.nyse", "stock.usd", "a.b.c.d.nyse"]),
        ("a.#.c.#.nyse", ["a.b.c.d.nyse"]),
        ("stock.*.*.*", []),
    ],
)
def test_a_topic_exchange_matches_words_with_stars_and_hashes(
    confirming: BlockingChannel, name: Name, pattern: str, matching: list[str]
) -> None:
    exchange = name("topic")
    confirming.exchange_declare(exchange, "topic", auto_delete=True)
    queue = bound_queue(confirming, exchange, pattern)
    for key in ("", "stock", "stock.ibm.nyse", "stock.usd", "a.b.c.d.nyse"):
        confirming.basic_publish(exchange, key, key.encode())
    assert drained(confirming, queue) == [key.encode() for key in matching]


def test_a_headers_exchange_matches_all_or_any(confirming: BlockingChannel, name: Name) -> None:
    exchange = name("headers")
    confirming.exchange_declare(exchange, "headers", auto_delete=True)
    pair = {"colour": "red", "size": 3}
    both = bound_queue(confirming, exchange, "", **{"x-match": "all", **pair})
    either = bound_queue(confirming, exchange, "", **{"x-match": "any", **pair})
    default = bound_queue(confirming, exchange, "", **pair)
    for body, headers in (
        (b"both", {"colour": "red", "size": 3, "more": True}),
        (b"one", {"colour": "red", "size": 4}),
        (b"none", {"colour": "blue"}),
        (b"empty", None),
    ):
        confirming.basic_publish(exchange, "", body, pika.BasicProperties(headers=headers))
    assert drained(confirming, both) == [b"both"]
    assert drained(confirming, either) == [b"both", b"one"]
    assert drained(confirming, default) == [b"both"]


def test_header_names_with_x_count_only_when_the_match_says_so(confirming: BlockingChannel, name: Name) -> None:
    exchange = name("headers")
    confirming.exchange_declare(exchange, "headers", auto_delete=True)
    pair = {"x-colour": "red", "size": 3}
    queues = {
        match: bound_queue(confirming, exchange, "", **{"x-match": match, **pair})
        for match in ("all", "any", "all-with-x", "any-with-x")
    }
    for body, headers in ((b"size", {"size": 3}), (b"colour", {"x-colour": "red"}), (b"both", pair)):
        confirming.basic_publish(exchange, "", body, pika.BasicProperties(headers=headers))
    assert {match: drained(confirming, queue) for match, queue in queues.items()} == {
        "all": [b"size", b"both"],
        "any": [b"size", b"both"],
        "all-with-x": [b"both"],
        "any-with-x": [b"size", b"colour", b"both"],
    }


def test_exchange_to_exchange_bindings_carry_messages_through_and_can_be_removed(
    confirming: BlockingChannel, name: Name
) -> None:
    source, middle = name("source"), name("middle")
    confirming.exchange_declare(source, "topic")
    confirming.exchange_declare(middle, "fanout")
    confirming.exchange_bind(middle, source, routing_key="logs.#")
    queue = bound_queue(confirming, middle, "")
    confirming.basic_publish(source, "logs.error", b"1")
    confirming.basic_publish(source, "other", b"2")
    confirming.exchange_unbind(middle, source, routing_key="logs.#")
    confirming.basic_publish(source, "logs.error", b"3")
    assert drained(confirming, queue) == [b"1"]
    confirming.exchange_delete(source)
    confirming.exchange_delete(middle)


def test_exchanges_bound_in_a_circle_deliver_once(confirming: BlockingChannel, name: Name) -> None:
    one, two = name("one"), name("two")
    for exchange in (one, two):
        confirming.exchange_declare(exchange, "fanout")
    confirming.exchange_bind(one, two)
    confirming.exchange_bind(two, one)
    queue = bound_queue(confirming, one, "")
    confirming.queue_bind(queue, two)
    confirming.basic_publish(one, "", b"round")
    assert drained(confirming, queue) == [b"round"]
    confirming.exchange_delete(one)
    confirming.exchange_delete(two)


def test_an_alternate_exchange_takes_only_what_nothing_else_matched(confirming: BlockingChannel, name: Name) -> None:
    main, other = name("main"), name("alternate")
    confirming.exchange_declare(other, "fanout", auto_delete=True)
    confirming.exchange_declare(main, "direct", auto_delete=True, arguments={"alternate-exchange": other})
    known = bound_queue(confirming, main, "known")
    rest = bound_queue(confirming, other, "")
    confirming.basic_publish(main, "known", b"1", mandatory=True)
    confirming.basic_publish(main, "unknown", b"2", mandatory=True)
    assert drained(confirming, known) == [b"1"]
    assert drained(confirming, rest) == [b"2"]


def test_an_unbound_queue_gets_nothing_more(confirming: BlockingChannel, name: Name) -> None:
    queue = bound_queue(confirming, "amq.topic", name("a"), name("b"))
    confirming.queue_unbind(queue, "amq.topic", name("a"))
    confirming.queue_unbind(queue, "amq.topic", name("never bound"))
    confirming.basic_publish("amq.topic", name("a"), b"a")
    confirming.basic_publish("amq.topic", name("b"), b"b")
    assert drained(confirming, queue) == [b"b"]


def test_an_auto_delete_exchange_dies_with_its_last_binding(channel: BlockingChannel, name: Name) -> None:
    exchange = name("auto")
    channel.exchange_declare(exchange, "direct", auto_delete=True)
    queue = bound_queue(channel, exchange, "a", "b")
    channel.queue_unbind(queue, exchange, "a")
    channel.exchange_declare(exchange, passive=True)
    channel.queue_unbind(queue, exchange, "b")
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.exchange_declare(exchange, passive=True)
    assert closed.value.reply_code == 404


def test_an_internal_exchange_refuses_publishes_from_clients(channel: BlockingChannel, name: Name) -> None:
    exchange = name("internal")
    channel.exchange_declare(exchange, "fanout", internal=True, auto_delete=True)
    channel.basic_publish(exchange, "", b"no")
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.exchange_declare(exchange, passive=True)
    assert closed.value.reply_code == 403
