"""Filters of consumers: what a selector sees of a message, and which consume arguments are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from wire_bench import Bench

from penstock import limits
from penstock.broker.features.envelope_view import PROPERTIES, EnvelopeView
from penstock.errors import ChannelException
from penstock.fields import Table
from penstock.message import Envelope, Incoming
from penstock.queues.consumers.publisher_marks import NoLocal, attached
from penstock.selectors.parser import PROPERTIES as SELECTOR_PROPERTIES
from penstock.server.channel.consumer_filters import SelectorFilter, consumer_filter
from penstock.wire.properties import Properties, encode_properties

FULL = Properties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers={"colour": ("S", b"red"), "size": ("l", 5), "list": ("A", [])},
    delivery_mode=2,
    priority=4,
    correlation_id="c-1",
    reply_to="answers",
    expiration="5000",
    message_id="m-1",
    timestamp=1_700_000_000,
    type="order",
    user_id="guest",
    app_id="shop",
)


def envelope(properties: Properties | None = None) -> Envelope:
    return Envelope("orders", "eu.de", encode_properties(properties or Properties()))


def selector(text: str, **more: str) -> Table:
    return {"x-selector": ("S", text.encode()), **{name: ("S", value.encode()) for name, value in more.items()}}


def accepts(arguments: Table, message: Envelope, no_local: NoLocal | None = None, seq_id: int = 0) -> bool:
    wants = consumer_filter(arguments, no_local, "queue 'q' in vhost '/'")
    assert wants is not None
    return wants.accepts(seq_id, message)


def test_without_arguments_there_is_no_filter() -> None:
    assert consumer_filter({"x-priority": ("I", 1)}, None, "q") is None


def test_every_property_that_a_selector_can_name_is_found() -> None:
    assert {*PROPERTIES, "exchange", "routing_key"} == set(SELECTOR_PROPERTIES)
    view = EnvelopeView(envelope(FULL))
    assert {name: view.prop(name) for name in sorted(SELECTOR_PROPERTIES)} == {
        "app_id": "shop",
        "content_encoding": "utf-8",
        "content_type": "text/plain",
        "correlation_id": "c-1",
        "delivery_mode": 2,
        "exchange": "orders",
        "expiration": "5000",
        "message_id": "m-1",
        "priority": 4,
        "reply_to": "answers",
        "routing_key": "eu.de",
        "timestamp": 1_700_000_000,
        "type": "order",
        "user_id": "guest",
    }
    empty = EnvelopeView(envelope())
    assert {empty.prop(name) for name in PROPERTIES} == {None}


def test_headers_have_plain_values_or_none() -> None:
    view = EnvelopeView(envelope(FULL))
    assert [view.header(name) for name in ("colour", "size", "list", "missing")] == ["red", 5, None, None]
    assert EnvelopeView(envelope()).header("colour") is None


def test_properties_that_cannot_be_decoded_are_missing() -> None:
    view = EnvelopeView(Envelope("x", "key", b"\x20\x00\x00\x00\x00\xff"))
    assert view.header("colour") is None
    assert view.prop("type") is None
    assert view.prop("exchange") == "x"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("colour = 'red' AND size > 4", True),
        ("colour = 'red' AND size > 5", False),
        ("amqp.type = 'order' AND amqp.routing_key LIKE 'eu.%'", True),
        ("missing = 1", False),
    ],
)
@pytest.mark.parametrize("name", ["x-selector", "x-filter-jms-selector"])
def test_a_selector_decides(name: str, text: str, wanted: bool) -> None:
    assert accepts({name: ("S", text.encode())}, envelope(FULL)) is wanted


def test_messages_that_share_an_envelope_are_decided_once() -> None:
    wants = consumer_filter(selector("colour = 'red'"), None, "q")
    assert isinstance(wants, SelectorFilter)
    red, blue = envelope(FULL), envelope(Properties(headers={"colour": ("S", b"blue")}))
    assert [wants.accepts(0, each) for each in (red, red, blue, red, blue)] == [True, True, False, True, False]


def test_no_local_refuses_what_the_own_connection_published_and_a_selector_may_refuse_more() -> None:
    bench = Bench()
    queue = bench.queue("q")
    own, others = NoLocal(bench), NoLocal(queue)
    marks = attached(None, own, queue.backing)
    attached(marks, others, queue.backing)
    marks.published(bench, 7, 1)
    for arguments in ({}, selector("size = 5")):
        assert not accepts(arguments, envelope(FULL), own, 7)
        assert accepts(arguments, envelope(FULL), own, 8)
        assert accepts(arguments, envelope(FULL), others, 7)
    assert not accepts(selector("size = 6"), envelope(FULL), others, 7)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x-selector": ("I", 5)}, "invalid arg 'x-selector' for the queue: expected a text, got signedint"),
        ({"x-selector": ("S", b"\xff")}, "invalid arg 'x-selector' for the queue: it is not UTF-8"),
        (
            selector("a = 1", **{"x-filter-jms-selector": "a = 2"}),
            "invalid arg 'x-selector' for the queue: x-filter-jms-selector says something else",
        ),
    ],
)
def test_a_selector_that_is_none_is_refused(arguments: Table, reason: str) -> None:
    with pytest.raises(ChannelException) as refused:
        consumer_filter(arguments, None, "the queue")
    assert refused.value.reply_text == f"PRECONDITION_FAILED - {reason}"


@pytest.mark.parametrize("name", ["x-selector", "x-filter-jms-selector"])
def test_a_mistake_in_a_selector_is_named_with_its_place(name: str) -> None:
    with pytest.raises(ChannelException) as refused:
        consumer_filter({name: ("S", b"colour = 'red' AND")}, None, "the queue")
    assert refused.value.reply_code == 406
    assert refused.value.reply_text.startswith(f"PRECONDITION_FAILED - invalid arg '{name}' for the queue: column 19: ")


def test_the_same_selector_under_both_names_is_one() -> None:
    assert accepts(selector("size = 5", **{"x-filter-jms-selector": "size = 5"}), envelope(FULL))


# --- through basic.consume ----------------------------------------------------------------------------


def consume(bench: Bench, no_local: bool = False, **arguments: Any) -> list[Any]:
    client = bench.client()
    frames = client.call(commands.Basic.Consume(0, "q", "c", no_local=no_local, arguments=arguments))
    return [frame.reply_text for frame in frames if isinstance(frame, commands.Channel.Close)] or [
        client.channel().subscriptions["c"].consumers[0]
    ]


@pytest.mark.parametrize(
    ("place", "seq_id"), [(None, 0), ("first", 0), ("next", 3), (2, 2), (1_000_000_000_000, 1_000_000_000_000)]
)
def test_a_browser_begins_at_its_place(place: object, seq_id: int) -> None:
    bench = Bench()
    bench.queue("q")
    bench.client().publish("", "q", b"x", b"y", b"z")
    client = bench.client()
    # It is not to read on while the test looks.
    client.connection.pause_writing()
    arguments = {"x-browse": True} if place is None else {"x-browse": True, "x-browse-from": place}
    client.send(commands.Basic.Consume(0, "q", "c", arguments=arguments))
    assert client.channel().subscriptions["c"].consumers[0].browse_seq_id == seq_id


@pytest.mark.parametrize("place", ["last", -1, True, 1.5])
def test_a_place_that_is_none_is_refused(place: object) -> None:
    bench = Bench()
    bench.queue("q")
    assert consume(bench, **{"x-browse": True, "x-browse-from": place}) == [
        "PRECONDITION_FAILED - invalid arg 'x-browse-from' for queue 'q' in vhost '/':"
        " expected first, next or the number of a message"
    ]


def test_a_place_is_for_browsers_only() -> None:
    bench = Bench()
    bench.queue("q")
    assert consume(bench, **{"x-browse-from": "next"}) == [
        "PRECONDITION_FAILED - invalid arg 'x-browse-from' for queue 'q' in vhost '/':"
        " it is for consumers with x-browse=true"
    ]


def test_a_queue_with_priorities_has_no_next_place() -> None:
    bench = Bench()
    bench.vhost.declare_queue("q", False, False, None, {"x-max-priority": ("I", 5)})
    assert consume(bench, **{"x-browse": True, "x-browse-from": "next"}) == [
        "PRECONDITION_FAILED - invalid arg 'x-browse-from' for queue 'q' in vhost '/':"
        " a queue with priorities is not browsed from next on"
    ]
    bench.vhost.declare_queue("q", False, False, None, {"x-max-priority": ("I", 5)})
    assert consume(bench, **{"x-browse": True, "x-browse-from": "first"})[0].browse_seq_id == 0


def test_a_consumer_has_the_filter_that_it_asked_for() -> None:
    bench = Bench()
    bench.queue("q")
    [plain] = consume(bench)
    assert (plain.filter, plain.no_local) == (None, None)
    [chooser] = consume(bench, **{"x-selector": "size = 5"})
    assert isinstance(chooser.filter, SelectorFilter)
    [stranger] = consume(bench, no_local=True)
    assert stranger.no_local.publisher is stranger.subscription.channel.connection
    assert stranger.filter is not None


def test_a_refused_consumer_leaves_nothing_behind() -> None:
    bench = Bench()
    queue = bench.queue("q")
    assert consume(bench, **{"x-selector": "colour ="})[0].startswith("PRECONDITION_FAILED - invalid arg 'x-selector'")
    assert queue.consumer_count() == 0


@pytest.mark.parametrize("browse", [False, True])
def test_a_consumer_that_finds_nothing_for_it_in_a_long_queue_lets_others_have_their_turn(browse: bool) -> None:
    bench = Bench()
    queue = bench.queue("q")
    count = 20 * limits.TURN_MESSAGES_MAX
    queue.publish(Incoming(envelope(), [b"x\xce"] * count), None)
    client = bench.client()
    client.send(
        commands.Basic.Consume(0, "q", "c", arguments={"x-browse": browse, "x-selector": "amqp.type = 'nobody'"})
    )
    turns = 0
    while bench.loop.turn():
        turns += 1
    # What one turn may look at, rounded up to whole looks.
    assert turns >= count // (limits.TURN_MESSAGES_MAX + 2 * limits.LOOKS_PER_FETCH)
    assert len(queue) == count
    bench.client().publish("", "q", b"at last", message_type="nobody")
    assert [frame.consumer_tag for frame in client.read() if isinstance(frame, commands.Basic.Deliver)] == ["c"]
