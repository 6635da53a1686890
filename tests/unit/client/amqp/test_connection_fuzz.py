"""Anything at all, in any pieces, into a connection: it takes it or says what it was, and keeps no more than it may."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.amqp.address import Address
from penstock.client.amqp.channel import Channel
from penstock.client.amqp.connection import Connection
from penstock.client.errors import ClientError
from penstock.wire import frames, methods
from penstock.wire.properties import Properties, encode_properties

FRAME_BYTES_MAX = 4096
WINDOW = 2
HANDSHAKE: list[methods.Method] = [
    methods.ConnectionStart(0, 9, {}, b"PLAIN", b"en_US"),
    methods.ConnectionTune(3, FRAME_BYTES_MAX, 60),
    methods.ConnectionOpenOk(),
]
SPOKEN: list[methods.Method] = [
    *HANDSHAKE,
    methods.ConnectionClose(320, "bye"),
    methods.ConnectionCloseOk(),
    methods.ConnectionBlocked("why"),
    methods.ChannelOpenOk(),
    methods.ChannelFlow(True),
    methods.ChannelClose(404, "NOT_FOUND"),
    methods.ChannelCloseOk(),
    methods.QueueDeclareOk("q", 1, 1),
    methods.BasicGetOk(1, False, "", "q", 0),
    methods.BasicGetEmpty(),
    methods.BasicDeliver("t", 1, True, "", "q"),
    methods.BasicReturn(312, "NO_ROUTE", "", "q"),
    methods.BasicAck(1),
    methods.BasicAck(0, multiple=True),
    methods.BasicNack(2, multiple=True),
    methods.BasicCancel("t"),
    methods.ConfirmSelectOk(),
]
CHANNELS = st.sampled_from([0, 1, 1, 1, 2, 3])
PROPERTIES = st.sampled_from(
    [b"\0\0", b"", b"\xff\xff", encode_properties(Properties(message_id="m", headers={"a": ("A", [("I", 1)])}))]
)
METHOD_FRAMES = st.builds(
    lambda channel, method: frames.method_frame(channel, method.encode()), CHANNELS, st.sampled_from(SPOKEN)
)
HEADER_FRAMES = st.builds(frames.header_frame, CHANNELS, st.sampled_from([0, 1, 5, 2**40]), PROPERTIES)
BODY_FRAMES = st.builds(lambda channel, body: frames.frame(frames.BODY, channel, body), CHANNELS, st.binary(max_size=6))
ODD_FRAMES = st.builds(frames.frame, st.integers(0, 255), CHANNELS, st.binary(max_size=20))
PIECES = st.one_of(
    METHOD_FRAMES, METHOD_FRAMES, HEADER_FRAMES, BODY_FRAMES, ODD_FRAMES, st.just(frames.HEARTBEAT_FRAME), st.binary()
)


def check(connection: Connection) -> None:
    """What is true of a connection whatever it was fed."""
    assert len(connection._reader._data) <= FRAME_BYTES_MAX or not connection.is_open
    for channel in connection.channels.values():
        assert len(channel.deliveries) <= WINDOW
        assert channel.failure is None
    if connection.failure is not None:
        assert isinstance(connection.failure, ClientError)
        assert str(connection.failure)
        assert not connection.channels
        assert not connection.is_open


def busy(connection: Connection) -> Channel:
    """A channel that waits for everything there is to wait for."""
    channel, _ = connection.open_channel()
    channel.window = WINDOW
    channel.consumer_tag = "t"
    channel.call(methods.BasicGet("q"))
    channel.publish("", "q", b"\0\0", b"x", "m")
    channel.publish("", "q", b"\0\0", b"x", "n")
    return channel


@given(st.lists(PIECES, max_size=30), st.integers(1, 40))
def test_a_connection_survives_whatever_a_broker_says(pieces: list[bytes], step: int) -> None:
    connection = Connection(Address("broker", 1))
    for method in HANDSHAKE:
        connection.feed(frames.method_frame(0, method.encode()))
    channels = [busy(connection), busy(connection)]
    data = b"".join(pieces)
    for start in range(0, len(data), step):
        connection.feed(data[start : start + step])
        connection.take_outgoing()
        check(connection)
    connection.lose("over")
    for channel in channels:
        assert channel.failure is not None
        assert not channel.deliveries


@given(st.one_of(st.binary(), st.lists(PIECES, max_size=8).map(b"".join)))
def test_a_handshake_survives_whatever_a_broker_says(data: bytes) -> None:
    whole, in_pieces = Connection(Address("broker", 1)), Connection(Address("broker", 1))
    whole.feed(data)
    for octet in data:
        in_pieces.feed(bytes([octet]))
    assert str(whole.failure) == str(in_pieces.failure)
    assert whole.is_open == in_pieces.is_open
    assert whole.take_outgoing() == in_pieces.take_outgoing()
