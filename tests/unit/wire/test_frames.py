"""Frames as penstock makes them, read by pamqp."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import body, commands, frame, header, heartbeat

from penstock import limits
from penstock.message import FRAME_END
from penstock.wire import frames, methods
from penstock.wire.properties import Properties, encode_properties

FRAME_BYTES_MAX = 64
ROOM = FRAME_BYTES_MAX - limits.FRAME_OVERHEAD_BYTES


def read_all(data: bytes) -> list[tuple[int, object, int]]:
    """Channel, frame and size of every frame; there must be nothing else."""
    found = []
    while data:
        size, channel, value = frame.unmarshal(data)
        assert size > 0
        assert data[size - 1 : size] == FRAME_END
        found.append((channel, value, size))
        data = data[size:]
    return found


def read_content(data: bytes, channel: int) -> tuple[header.ContentHeader, list[bytes]]:
    """The header and the payloads of the body frames, all on one channel."""
    found = read_all(data)
    assert {number for number, _, _ in found} == {channel}
    first = found[0][1]
    assert isinstance(first, header.ContentHeader)
    payloads = []
    for _, value, _ in found[1:]:
        assert isinstance(value, body.ContentBody)
        payloads.append(value.value)
    return first, payloads


def test_a_heartbeat_is_a_heartbeat() -> None:
    [(channel, value, _)] = read_all(frames.HEARTBEAT_FRAME)
    assert channel == 0
    assert isinstance(value, heartbeat.Heartbeat)


@pytest.mark.parametrize("channel", [0, 1, 255, 256, 65535])
def test_a_method_frame_keeps_its_channel_and_arguments(channel: int) -> None:
    payload = methods.BasicAck(7, True).encode()
    [(number, value, _)] = read_all(frames.method_frame(channel, payload))
    assert number == channel
    assert isinstance(value, commands.Basic.Ack)
    assert (value.delivery_tag, value.multiple) == (7, True)


def test_a_content_header_says_size_and_properties() -> None:
    properties = encode_properties(Properties(content_type="text/plain", delivery_mode=2))
    found, payloads = read_content(frames.header_frame(3, 2**40, properties), 3)
    assert found.body_size == 2**40
    assert (found.properties.content_type, found.properties.delivery_mode) == ("text/plain", 2)
    assert payloads == []


@settings(deadline=None)
@given(st.integers(0, 5 * ROOM) | st.integers(ROOM - 2, ROOM + 2) | st.sampled_from([2 * ROOM, 3 * ROOM + 1]))
def test_content_is_split_into_full_frames_that_fit(size: int) -> None:
    text = bytes(number % 256 for number in range(size))
    data = frames.content_frames(9, b"\x00\x00", text + FRAME_END, FRAME_BYTES_MAX)
    found, payloads = read_content(data, 9)
    assert found.body_size == size
    assert b"".join(payloads) == text
    # As few frames as possible, none of them empty.
    assert len(payloads) == -(-size // ROOM)
    assert all(len(payload) == ROOM for payload in payloads[:-1])
    assert max(frame_size for _, _, frame_size in read_all(data)) <= FRAME_BYTES_MAX


@pytest.mark.parametrize("text", [b"\xce", b"\xce\xce", b"\xce" * ROOM, b"\xce" * (ROOM + 1)])
def test_frame_ends_within_a_body_are_payload(text: bytes) -> None:
    found, payloads = read_content(frames.content_frames(1, b"\x00\x00", text + FRAME_END, FRAME_BYTES_MAX), 1)
    assert found.body_size == len(text)
    assert b"".join(payloads) == text


def test_the_head_of_a_body_frame_and_a_stored_body_make_a_frame() -> None:
    [(channel, value, _)] = read_all(frames.body_frame_head(2, 5) + b"hello" + FRAME_END)
    assert channel == 2
    assert isinstance(value, body.ContentBody)
    assert value.value == b"hello"
