"""Deliveries as penstock encodes them, read by pamqp."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import body, commands, frame, header
from tests.effort import examples

from penstock import limits
from penstock.message import FRAME_END, Entry, Envelope
from penstock.server.channel.delivery import DeliveryEncoder
from penstock.wire.properties import Properties, encode_properties

FRAME_BYTES_MAX = 4096
ROOM = FRAME_BYTES_MAX - limits.FRAME_OVERHEAD_BYTES
PLAIN = Envelope("", "q", b"\x00\x00")


@dataclass
class Delivered:
    """A delivery as a client sees it."""

    channel: int
    method: commands.Basic.Deliver
    header: header.ContentHeader
    payloads: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.payloads)


def read_deliveries(data: bytes) -> list[Delivered]:
    """All deliveries in the data; there must be nothing else, and no frame may be too large."""
    found: list[Delivered] = []
    while data:
        size, channel, value = frame.unmarshal(data)
        assert size <= FRAME_BYTES_MAX
        assert data[size - 1 : size] == FRAME_END
        data = data[size:]
        if isinstance(value, commands.Basic.Deliver):
            size, header_channel, content_header = frame.unmarshal(data)
            data = data[size:]
            assert header_channel == channel
            assert isinstance(content_header, header.ContentHeader)
            found.append(Delivered(channel, value, content_header, []))
        else:
            assert isinstance(value, body.ContentBody)
            assert channel == found[-1].channel
            found[-1].payloads.append(value.value)
    return found


def entry(text: bytes, envelope: Envelope = PLAIN) -> Entry:
    return (envelope, text + FRAME_END, None)


def encoded(entries: list[Entry], first_tag: int = 1, redelivered: bool = False, tag: str = "ctag") -> list[Delivered]:
    out: list[bytes] = []
    counted = DeliveryEncoder(5, tag, FRAME_BYTES_MAX).encode(out, entries, first_tag, redelivered)
    data = b"".join(out)
    # The count steers the flushing of output. It may leave out the frames of split bodies, no more.
    assert abs(counted - len(data)) <= 16 * len(entries) + len(data) // 100
    return read_deliveries(data)


def test_a_delivery_carries_everything_a_client_needs() -> None:
    properties = encode_properties(Properties(content_type="text/plain", headers={"n": ("I", 5)}, delivery_mode=2))
    [delivered] = encoded([entry(b"hello", Envelope("exchange", "routing.key", properties))], first_tag=77)
    method = delivered.method
    assert delivered.channel == 5
    assert (method.consumer_tag, method.delivery_tag, method.redelivered) == ("ctag", 77, False)
    assert (method.exchange, method.routing_key) == ("exchange", "routing.key")
    assert delivered.header.properties.content_type == "text/plain"
    assert delivered.header.properties.headers == {"n": 5}
    assert (delivered.header.body_size, delivered.body) == (5, b"hello")


@pytest.mark.parametrize("redelivered", [False, True])
def test_the_redelivered_flag_is_that_of_the_run(redelivered: bool) -> None:
    found = encoded([entry(b"a"), entry(b""), entry(bytes(2 * ROOM))], redelivered=redelivered)
    assert [delivered.method.redelivered for delivered in found] == [redelivered] * 3


@pytest.mark.parametrize("first_tag", [1, 255, 256, 2**32 - 1, 2**62])
def test_delivery_tags_count_up_from_the_first(first_tag: int) -> None:
    found = encoded([entry(b"a"), entry(b"b"), entry(b"cc"), entry(b"")], first_tag)
    assert [delivered.method.delivery_tag for delivered in found] == [first_tag + index for index in range(4)]


def test_an_empty_body_has_a_header_and_no_body_frame() -> None:
    found = encoded([entry(b""), entry(b"x"), entry(b"")])
    assert [delivered.header.body_size for delivered in found] == [0, 1, 0]
    assert [delivered.payloads for delivered in found] == [[], [b"x"], []]


@pytest.mark.parametrize(
    ("size", "frame_count"),
    [
        (1, 1),
        (ROOM - 2, 1),
        (ROOM - 1, 1),
        (ROOM, 1),
        (ROOM + 1, 2),
        (ROOM + 2, 2),
        (FRAME_BYTES_MAX - 1, 2),
        (FRAME_BYTES_MAX, 2),
        (FRAME_BYTES_MAX + 1, 2),
        (2 * ROOM - 1, 2),
        (2 * ROOM, 2),
        (2 * ROOM + 1, 3),
        (10 * ROOM, 10),
    ],
)
def test_a_body_is_split_exactly_where_it_must_be(size: int, frame_count: int) -> None:
    text = bytes(number % 251 for number in range(size))
    [delivered] = encoded([entry(text)])
    assert delivered.header.body_size == size
    assert len(delivered.payloads) == frame_count
    assert delivered.body == text


def test_bodies_full_of_frame_ends_come_back_as_they_were() -> None:
    texts = [b"\xce", b"\xce" * ROOM, b"\xce" * (ROOM + 1)]
    assert [delivered.body for delivered in encoded([entry(text) for text in texts])] == texts


def test_messages_with_other_envelopes_and_sizes_are_not_mixed_up() -> None:
    first, second = Envelope("x", "one", b"\x00\x00"), Envelope("yy", "two", b"\x08\x00\x09")
    entries = [entry(b"a", first), entry(b"b", second), entry(b"c", first), entry(b"dd", first), entry(b"", second)]
    found = encoded(entries)
    assert [(d.method.exchange, d.method.routing_key, d.body) for d in found] == [
        ("x", "one", b"a"),
        ("yy", "two", b"b"),
        ("x", "one", b"c"),
        ("x", "one", b"dd"),
        ("yy", "two", b""),
    ]
    assert [d.header.properties.priority for d in found] == [None, 9, None, None, 9]


@pytest.mark.parametrize("name", ["", "t" * 255, "ü" * 100])
def test_names_of_every_length_fit(name: str) -> None:
    envelope = Envelope(name, name, b"\x00\x00")
    [delivered] = encoded([entry(b"x", envelope)], tag=name)
    method = delivered.method
    assert (method.consumer_tag, method.exchange, method.routing_key) == (name, name, name)


ENVELOPES = [
    PLAIN,
    Envelope("exchange", "k" * 200, encode_properties(Properties(priority=1, headers={"a": ("S", b"b" * 50)}))),
    Envelope("x", "", encode_properties(Properties(message_id="m"))),
]


@settings(deadline=None, max_examples=examples(50))
@given(
    st.lists(
        st.tuples(st.sampled_from(ENVELOPES), st.integers(0, 6) | st.integers(ROOM - 1, ROOM + 2)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 2**40),
    st.booleans(),
)
def test_any_run_is_read_back_as_it_was(
    messages: list[tuple[Envelope, int]], first_tag: int, redelivered: bool
) -> None:
    entries = [entry(bytes([index]) * size, envelope) for index, (envelope, size) in enumerate(messages)]
    found = encoded(entries, first_tag, redelivered)
    assert len(found) == len(entries)
    for index, (delivered, (envelope, stored, _)) in enumerate(zip(found, entries, strict=True)):
        assert delivered.method.delivery_tag == first_tag + index
        assert delivered.method.redelivered is redelivered
        assert delivered.method.routing_key == envelope.routing_key
        assert delivered.body == stored[:-1]
        assert delivered.header.body_size == len(stored) - 1
