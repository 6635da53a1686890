"""Runs of publishes with sizes and properties of their own, against the careful reader."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from wire_strategies import short_text, tables, unsigned

from penstock.errors import AmqpError
from penstock.message import FRAME_END, Entry, Envelope, wire_address
from penstock.wire import frames, methods
from penstock.wire.content import read_content
from penstock.wire.mixed_run import MixedRoute, plain_envelope, scan_mixed
from penstock.wire.properties import Properties, decode_properties, encode_properties
from penstock.wire.property_shapes import DIRECT_REPLY, MISSES_MAX, SHAPES_MAX, PropertyShapes, walk

PUBLISH_FRAME = frames.method_frame(1, methods.BasicPublish("x", "key", False, False).encode())
PAYLOAD_MAX = 60
BODY_SIZE_MAX = 40
PSEUDO_QUEUE = DIRECT_REPLY.decode()
ROUTE = MixedRoute(PUBLISH_FRAME, "x", "key", wire_address("x", "key"), PAYLOAD_MAX, BODY_SIZE_MAX, PropertyShapes())
NO_PROPERTIES = b"\x00\x00"


def message(text: bytes, properties: bytes = NO_PROPERTIES, publish_frame: bytes = PUBLISH_FRAME) -> bytes:
    return (
        publish_frame
        + frames.header_frame(1, len(text), properties)
        + frames.body_frame_head(1, len(text))
        + text
        + FRAME_END
    )


def scanned(data: bytes, pos: int = 0) -> tuple[list[Entry], int]:
    entries: list[Entry] = []
    return entries, scan_mixed(ROUTE, data, pos, entries)


def contents(envelope: Envelope) -> tuple[object, ...]:
    return (
        envelope.exchange,
        envelope.routing_key,
        envelope.address,
        envelope.properties,
        envelope.persistent,
        envelope.priority,
        envelope.expiration_ms,
    )


def test_messages_of_other_sizes_and_properties_are_taken_together() -> None:
    named = encode_properties(Properties(message_id="m", delivery_mode=2, priority=3))
    data = message(b"a") + message(b"bb") + message(b"c", named) + message(b"d", named)
    entries, stop = scanned(b"junk" + data, 4)
    assert stop == 4 + len(data)
    assert [body for _, body, _ in entries] == [b"a\xce", b"bb\xce", b"c\xce", b"d\xce"]
    assert [envelope.properties for envelope, _, _ in entries] == [NO_PROPERTIES, NO_PROPERTIES, named, named]
    assert [(envelope.persistent, envelope.priority) for envelope, _, _ in entries[1:3]] == [(False, 0), (True, 3)]
    # Neighbours with equal properties share their envelope, and all share the address.
    assert entries[0][0] is entries[1][0]
    assert entries[2][0] is entries[3][0]
    assert {id(envelope.address) for envelope, _, _ in entries} == {id(ROUTE.address)}


def test_a_header_may_fill_its_frame() -> None:
    properties = encode_properties(Properties(message_id="m" * (PAYLOAD_MAX - frames.CONTENT_HEADER_BYTES - 3)))
    assert frames.CONTENT_HEADER_BYTES + len(properties) == PAYLOAD_MAX
    assert len(scanned(message(b"x", properties))[0]) == 1


BROKEN = {
    "another publish": message(b"x", publish_frame=frames.method_frame(2, PUBLISH_FRAME[7:-1])),
    "no content": PUBLISH_FRAME,
    "an empty body": PUBLISH_FRAME + frames.header_frame(1, 0, NO_PROPERTIES),
    "a body that is too large": message(b"x" * (BODY_SIZE_MAX + 1)),
    "a header that does not fit into a frame": message(b"x", encode_properties(Properties(message_id="m" * 46))),
    "a CC header": message(b"x", encode_properties(Properties(headers={"CC": ("A", [])}))),
    "a BCC header": message(b"x", encode_properties(Properties(headers={"BCC": ("V", None)}))),
    "broken headers": message(b"x", b"\x20\x00\x00\x00\x00\x04\x01aSx"),
    "an expiration": message(b"x", encode_properties(Properties(expiration="5"))),
    "a direct reply-to": message(b"x", encode_properties(Properties(reply_to="amq.rabbitmq.reply-to"))),
    "a user-id": message(b"x", encode_properties(Properties(user_id="guest"))),
    "properties that are cut short": message(b"x", b"\x00\x80\x05ab"),
    "properties that are too long": message(b"x", b"\x00\x80\x01ab"),
    "undefined properties": message(b"x", b"\x00\x01"),
    "no property flags": message(b"x", b"\x00"),
    "a size of more than 32 bits": PUBLISH_FRAME
    + frames.header_frame(1, 2**32 + 1, NO_PROPERTIES)
    + frames.body_frame_head(1, 1)
    + b"x\xce",
    "a weight": message(b"x").replace(b"\x00\x3c\x00\x00", b"\x00\x3c\x00\x01"),
    "another class": message(b"x").replace(b"\x00\x3c\x00\x00", b"\x00\x32\x00\x00"),
    "a header on another channel": PUBLISH_FRAME
    + frames.header_frame(2, 1, NO_PROPERTIES)
    + frames.body_frame_head(1, 1)
    + b"x\xce",
    "a body on another channel": PUBLISH_FRAME
    + frames.header_frame(1, 1, NO_PROPERTIES)
    + frames.body_frame_head(2, 1)
    + b"x\xce",
    "a body in two frames": PUBLISH_FRAME
    + frames.header_frame(1, 2, NO_PROPERTIES)
    + 2 * (frames.body_frame_head(1, 1) + b"x\xce"),
    "a heartbeat before the body": PUBLISH_FRAME
    + frames.header_frame(1, 1, NO_PROPERTIES)
    + frames.HEARTBEAT_FRAME
    + frames.body_frame_head(1, 1)
    + b"x\xce",
    "a body without its end": message(b"x")[:-1] + b"\x00",
    "a header without its end": message(b"x").replace(b"\xce\x03", b"\x00\x03"),
    "a header frame of 4 GiB": PUBLISH_FRAME + b"\x02\x00\x01\xff\xff\xff\xff\x00\x3c\x00\x00",
}


@pytest.mark.parametrize("what", list(BROKEN))
def test_the_run_ends_before_what_is_not_plain_or_not_right(what: str) -> None:
    good = message(b"a") + message(b"bb")
    entries, stop = scanned(good + BROKEN[what] + message(b"c"))
    assert len(entries) == 2
    assert stop == len(good)


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=BODY_SIZE_MAX), max_size=4), st.data())
def test_a_run_that_is_cut_off_anywhere_ends_with_the_last_whole_message(
    texts: list[bytes], data: st.DataObject
) -> None:
    whole = [message(text) for text in texts]
    stream = b"".join(whole)
    cut = data.draw(st.integers(0, len(stream)))
    entries, stop = scanned(stream[:cut])
    complete = [text for number, text in enumerate(texts) if len(b"".join(whole[: number + 1])) <= cut]
    assert [body for _, body, _ in entries] == [text + FRAME_END for text in complete]
    assert stop == len(b"".join(whole[: len(complete)]))


plain_properties = st.builds(
    Properties,
    content_type=st.none() | short_text,
    content_encoding=st.none() | short_text,
    headers=st.none() | tables.map(lambda table: {name: table[name] for name in table if name not in ("CC", "BCC")}),
    delivery_mode=st.none() | unsigned(8),
    priority=st.none() | unsigned(8),
    correlation_id=st.none() | short_text,
    reply_to=st.none() | short_text.filter(lambda text: text != PSEUDO_QUEUE),
    message_id=st.none() | short_text,
    timestamp=st.none() | unsigned(64),
    type=st.none() | short_text,
    app_id=st.none() | short_text,
    cluster_id=st.none() | short_text,
)


@settings(deadline=None)
@given(plain_properties)
def test_plain_properties_are_read_as_the_careful_reader_reads_them(properties: Properties) -> None:
    raw = encode_properties(properties)
    envelope = plain_envelope(ROUTE, raw)
    assert envelope is not None
    assert contents(envelope) == contents(read_content("x", "key", raw).envelope)


@settings(deadline=None, max_examples=examples(300))
@given(
    st.binary(min_size=2, max_size=30)
    | st.tuples(unsigned(16), st.binary(max_size=30)).map(lambda pair: pair[0].to_bytes(2, "big") + pair[1])
    | plain_properties.map(encode_properties).flatmap(
        lambda raw: (
            st.integers(2, len(raw)).map(lambda cut: raw[:cut]) | st.binary(max_size=2).map(lambda end: raw + end)
        )
    )
)
def test_no_octets_are_plain_properties_that_the_careful_reader_refuses_or_reads_otherwise(raw: bytes) -> None:
    envelope = plain_envelope(ROUTE, raw)
    try:
        careful = read_content("x", "key", raw)
    except AmqpError:
        assert envelope is None
        return
    if envelope is not None:
        assert contents(envelope) == contents(careful.envelope)
        assert (careful.cc, careful.bcc, careful.user_id) == ([], [], None)
        assert careful.reply_to != PSEUDO_QUEUE
    else:
        found = decode_properties(raw)
        names = found.headers or {}
        is_meant = found.expiration is not None or found.user_id is not None or "CC" in names or "BCC" in names
        assert is_meant or found.reply_to == PSEUDO_QUEUE


@settings(deadline=None, max_examples=examples(300))
@given(plain_properties.map(encode_properties), st.data())
def test_what_agrees_with_a_known_shape_is_read_as_if_none_were_known(raw: bytes, data: st.DataObject) -> None:
    shapes = PropertyShapes()
    for _ in range(3):
        assert shapes.look(raw) == walk(raw, None)[0] >= 0
    for _ in range(10):
        changed = bytearray(raw)
        for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=3)):
            changed[at] = data.draw(unsigned(8))
        assert shapes.look(bytes(changed)) == walk(bytes(changed), None)[0]


def test_a_value_may_become_no_direct_reply_to() -> None:
    raw = encode_properties(Properties(reply_to="x" * len(PSEUDO_QUEUE), priority=7, delivery_mode=2))
    asks = encode_properties(Properties(reply_to=PSEUDO_QUEUE, priority=7, delivery_mode=2))
    shapes = PropertyShapes()
    assert [shapes.look(octets) for octets in (raw, raw, raw, asks, raw)] == [15, 15, 15, -1, 15]


def test_shapes_are_forgotten_when_there_are_many_or_when_they_do_not_fit_any_more() -> None:
    shapes = PropertyShapes()
    for length in range(2 * SHAPES_MAX):
        raw = encode_properties(Properties(headers={"h": ("S", bytes(length))}))
        assert [shapes.look(raw) for _ in range(3)] == [0, 0, 0]
        assert len(shapes._shapes) <= SHAPES_MAX
    for name in ("message_id", "app_id") * 2:
        raw = encode_properties(Properties(**{name: "one"}))
        assert [shapes.look(raw) for _ in range(3 * MISSES_MAX)] == [0] * 3 * MISSES_MAX
