"""The client's protocol without a socket: what it says, and what it makes of what it hears."""

from __future__ import annotations

import pytest

from penstock.client.amqp.address import Address
from penstock.client.amqp.channel import Channel
from penstock.client.amqp.connection import Connection
from penstock.client.amqp.frame_reader import FrameReader
from penstock.client.amqp.refused import Refused
from penstock.client.errors import ClientError, Closed, ConnectionLost, SetupMissing
from penstock.limits import MESSAGE_BYTES_MAX
from penstock.wire import frames, methods
from penstock.wire.properties import Properties, encode_properties

START = methods.ConnectionStart(0, 9, {}, b"AMQPLAIN PLAIN", b"en_US")
PLAIN_PROPERTIES = b"\0\0"


def said(channel: int, *spoken: methods.Method) -> bytes:
    return b"".join(frames.method_frame(channel, method.encode()) for method in spoken)


def heard(connection: Connection) -> list[methods.Method]:
    """The methods that it wants to send."""
    reader = FrameReader(131_072)
    reader.feed(connection.take_outgoing().removeprefix(frames.PROTOCOL_HEADER))
    found = []
    while (frame := reader.next()) is not None:
        if frame.kind == frames.METHOD:
            found.append(methods.decode_method(frame.payload, 0, len(frame.payload)))
    return found


def opened(tune: methods.ConnectionTune | None = None, heartbeat_s: int = 0) -> Connection:
    connection = Connection(Address("broker", 1, heartbeat_s=heartbeat_s))
    connection.feed(said(0, START, tune or methods.ConnectionTune(10, 4096, 60), methods.ConnectionOpenOk()))
    assert connection.is_open
    connection.take_outgoing()
    return connection


def opened_channel(connection: Connection) -> Channel:
    channel, answer = connection.open_channel()
    connection.feed(said(channel.number, methods.ChannelOpenOk()))
    assert answer.is_done
    connection.take_outgoing()
    return channel


def test_a_handshake() -> None:
    connection = Connection(Address("broker", 1, user="me", password="s", vhost="v", heartbeat_s=9))
    assert connection.take_outgoing() == frames.PROTOCOL_HEADER
    connection.feed(said(0, START))
    (start_ok,) = heard(connection)
    assert isinstance(start_ok, methods.ConnectionStartOk)
    assert (start_ok.mechanism, start_ok.response) == ("PLAIN", b"\0me\0s")
    connection.feed(said(0, methods.ConnectionTune(0, 0, 60)))
    assert heard(connection) == [methods.ConnectionTuneOk(2047, 131_072, 9), methods.ConnectionOpen("v")]
    assert not connection.is_open
    connection.feed(said(0, methods.ConnectionOpenOk()))
    assert connection.is_open
    assert connection.failure is None


def test_what_the_broker_allows_is_kept_to() -> None:
    connection = opened(methods.ConnectionTune(2, 4096, 60))
    channel = opened_channel(connection)
    opened_channel(connection)
    with pytest.raises(ClientError, match="2 channels"):
        connection.open_channel()
    channel.publish("", "q", PLAIN_PROPERTIES, bytes(5000), "")
    reader = FrameReader(4096)
    reader.feed(connection.take_outgoing())
    sizes = []
    while (frame := reader.next()) is not None:
        sizes.append(len(frame.payload))
    assert sizes[2:] == [4088, 912]


def test_properties_that_fit_into_no_frame_are_refused_here() -> None:
    channel = opened_channel(opened())
    properties = encode_properties(Properties(headers={"large": ("S", bytes(5000))}))
    with pytest.raises(ClientError, match="a frame has 4096"):
        channel.publish("", "q", properties, b"", "")


@pytest.mark.parametrize("code", [403, 530])
def test_a_login_that_is_refused_is_for_the_user_to_mend(code: int) -> None:
    connection = Connection(Address("broker", 1))
    connection.feed(said(0, START, methods.ConnectionClose(code, "no")))
    assert isinstance(connection.failure, SetupMissing)
    assert heard(connection)[-1] == methods.ConnectionCloseOk()


def test_a_connection_that_the_broker_closes_fails_whoever_waits() -> None:
    connection = opened()
    channel = opened_channel(connection)
    call = channel.call(methods.BasicGet("q"))
    confirm = channel.publish("", "q", PLAIN_PROPERTIES, b"x", "")
    connection.take_outgoing()
    connection.feed(said(0, methods.ConnectionClose(320, "CONNECTION_FORCED - bye")))
    assert isinstance(connection.failure, ConnectionLost)
    assert "CONNECTION_FORCED" in str(connection.failure)
    assert call.error is confirm.error is channel.failure is connection.failure
    assert channel.call(methods.BasicGet("q")).error is connection.failure
    assert channel.publish("", "q", PLAIN_PROPERTIES, b"x", "").error is connection.failure
    assert heard(connection) == [methods.ConnectionCloseOk()]


def test_a_channel_that_the_broker_closes_leaves_the_others_alone() -> None:
    connection = opened()
    one, two = opened_channel(connection), opened_channel(connection)
    refused, kept = one.call(methods.QueueDeclare("q")), two.call(methods.QueueDeclare("q"))
    connection.feed(said(1, methods.ChannelClose(406, "PRECONDITION_FAILED - other", 50, 10)))
    assert isinstance(refused.error, Refused)
    assert refused.error.reply_code == 406
    connection.feed(said(2, methods.QueueDeclareOk("q", 0, 0)))
    assert kept.reply == methods.QueueDeclareOk("q", 0, 0)
    # Its number is free again.
    assert opened_channel(connection).number == 1


def test_a_channel_that_is_closed_for_nothing_we_called_is_lost() -> None:
    connection = opened()
    channel = opened_channel(connection)
    call = channel.call(methods.BasicGet("q"))
    connection.feed(said(1, methods.ChannelClose(406, "PRECONDITION_FAILED - too slow")))
    assert isinstance(call.error, ConnectionLost)
    assert connection.failure is None


def test_closes_that_meet_on_the_way_close_once() -> None:
    connection = opened()
    channel = opened_channel(connection)
    closed = channel.close()
    connection.feed(said(1, methods.ChannelClose(404, "NOT_FOUND"), methods.ChannelCloseOk()))
    assert connection.failure is None
    assert closed.is_done
    assert closed.error is None
    assert isinstance(channel.failure, Closed)


def test_what_comes_on_a_channel_that_is_being_closed_is_not_looked_at() -> None:
    connection = opened()
    channel = opened_channel(connection)
    call = channel.call(methods.BasicGet("q"))
    closed = channel.close()
    late = said(1, methods.BasicGetOk(1, False, "", "q", 0)) + frames.header_frame(1, 1, PLAIN_PROPERTIES)
    connection.feed(late + frames.frame(frames.BODY, 1, b"x") + said(1, methods.ChannelCloseOk()))
    assert closed.is_done
    assert isinstance(call.error, Closed)
    assert connection.failure is None


def test_confirms_come_one_by_one_or_many_at_once() -> None:
    connection = opened()
    channel = opened_channel(connection)
    answers = [channel.publish("", "q", PLAIN_PROPERTIES, b"", str(number)) for number in range(6)]

    def done() -> str:
        return "".join("-" if not one.is_done else "n" if one.error else "y" for one in answers)

    connection.feed(said(1, methods.BasicAck(2)))
    assert done() == "-y----"
    connection.feed(said(1, methods.BasicNack(3, multiple=True)))
    assert done() == "nyn---"
    # Those that are not owed are nothing.
    connection.feed(said(1, methods.BasicAck(3), methods.BasicAck(99), methods.BasicAck(2, multiple=True)))
    assert done() == "nyn---"
    connection.feed(said(1, methods.BasicAck(0, multiple=True)))
    assert done() == "nynyyy"


def test_a_returned_message_is_an_error_also_when_it_is_confirmed() -> None:
    connection = opened()
    channel = opened_channel(connection)
    answers = [channel.publish("", "q", PLAIN_PROPERTIES, b"", name) for name in ("a", "b", "b")]
    header = frames.header_frame(1, 0, encode_properties(Properties(message_id="b")))
    connection.feed(said(1, methods.BasicReturn(312, "NO_ROUTE", "", "q")) + header)
    assert not answers[1].is_done
    connection.feed(said(1, methods.BasicAck(3, multiple=True)))
    assert [answer.error is not None for answer in answers] == [False, True, False]
    assert all(answer.is_done for answer in answers)
    assert isinstance(answers[1].error, Refused)
    assert answers[1].error.reply_code == 312


def test_a_returned_message_without_an_id_is_an_error_too() -> None:
    connection = opened()
    channel = opened_channel(connection)
    answer = channel.publish("", "q", PLAIN_PROPERTIES, b"", "")
    returned = said(1, methods.BasicReturn(312, "NO_ROUTE", "", "q")) + frames.header_frame(1, 0, PLAIN_PROPERTIES)
    connection.feed(returned + said(1, methods.BasicAck(1)))
    assert answer.is_done
    assert isinstance(answer.error, Refused)


def test_a_consumer_that_the_broker_cancels_is_none() -> None:
    connection = opened()
    channel = opened_channel(connection)
    channel.consumer_tag = "t"
    connection.feed(said(1, methods.BasicCancel("other", no_wait=True)))
    assert channel.consumer_tag == "t"
    connection.feed(said(1, methods.BasicCancel("t")))
    assert channel.consumer_tag is None
    assert heard(connection) == [methods.BasicCancelOk("t")]


def test_a_message_is_put_together_of_its_frames() -> None:
    connection = opened()
    channel = opened_channel(connection)
    channel.window = 1
    data = said(1, methods.BasicDeliver("t", 5, True, "x", "k")) + frames.header_frame(1, 3, PLAIN_PROPERTIES)
    for part in (b"a", b"", b"bc"):
        assert not channel.deliveries
        data += frames.frame(frames.BODY, 1, part)
    for octet in data:
        connection.feed(bytes([octet]))
    (delivery,) = channel.deliveries
    assert (delivery.body, delivery.tag, delivery.is_redelivered) == (b"abc", 5, True)


def test_flow_and_heartbeats_and_blocking_are_taken_note_of() -> None:
    connection = opened()
    opened_channel(connection)
    connection.feed(said(1, methods.ChannelFlow(False)) + frames.HEARTBEAT_FRAME)
    assert heard(connection) == [methods.ChannelFlowOk(False)]
    connection.feed(said(0, methods.ConnectionBlocked("low on disk")))
    assert connection.blocked == "low on disk"
    connection.feed(said(0, methods.ConnectionUnblocked()))
    assert connection.blocked is None


DELIVER = said(1, methods.BasicDeliver("t", 1, False, "", "q"))
HEADER = frames.header_frame(1, 1, PLAIN_PROPERTIES)
MUST_NOT = [
    (b"\x01\x00\x01\x00\x00\x10\x00" + bytes(4097), "a frame of 4096 bytes"),
    (b"\x01\x00\x01\x00\x00\x00\x04" + bytes(5), "does not end"),
    (b"\x05\x00\x01\x00\x00\x00\x00\xce", "unknown type 5"),
    (b"\x08\x00\x01\x00\x00\x00\x00\xce", "a heartbeat on channel 1"),
    (frames.frame(frames.BODY, 0, b"x"), "channel 0"),
    (said(9, methods.BasicGetEmpty()), "channel 9, which is not open"),
    (said(0, methods.ChannelOpenOk()), "channel.open-ok, which is not expected"),
    (said(0, START), "connection.start, which is not expected"),
    (said(0, methods.ConnectionCloseOk()), "not expected"),
    (said(1, methods.ConnectionUnblocked()), "connection.unblocked on channel 1"),
    (said(1, methods.BasicGetEmpty()), "nobody has asked"),
    (said(1, methods.ChannelCloseOk()), "nobody has asked"),
    (said(1, methods.BasicPublish("", "q")), "nobody has asked"),
    (frames.frame(frames.METHOD, 1, b"\0\x3c\0\x63"), "unknown method"),
    (frames.frame(frames.METHOD, 1, b"\0"), "without a class"),
    (HEADER, "without a message"),
    (frames.frame(frames.BODY, 1, b"x"), "without a message"),
    (DELIVER + DELIVER, "in the middle of a message"),
    (DELIVER + frames.frame(frames.BODY, 1, b"x"), "before the header"),
    (DELIVER + HEADER + HEADER, "a second header"),
    (DELIVER + HEADER + frames.frame(frames.BODY, 1, b"xy"), "longer than its header says"),
    (DELIVER + frames.frame(frames.HEADER, 1, bytes(14)), "class basic"),
    (DELIVER + frames.header_frame(1, MESSAGE_BYTES_MAX + 1, PLAIN_PROPERTIES), "at most"),
    (DELIVER + frames.header_frame(1, 1, b"\xff\xff"), "property flags"),
    (DELIVER + HEADER + frames.frame(frames.BODY, 1, b"x"), "more than the 0 messages"),
]


@pytest.mark.parametrize(("data", "words"), MUST_NOT, ids=[words for _, words in MUST_NOT])
def test_what_a_broker_must_not_send_ends_the_connection(data: bytes, words: str) -> None:
    connection = opened()
    channel = opened_channel(connection)
    connection.feed(data)
    assert isinstance(connection.failure, ConnectionLost)
    assert words in str(connection.failure)
    assert channel.failure is connection.failure
    # And nothing that follows is looked at.
    connection.feed(said(0, methods.ConnectionBlocked("too late")))
    assert connection.blocked is None


def test_frames_smaller_than_amqp_allows_are_refused() -> None:
    connection = Connection(Address("broker", 1))
    connection.feed(said(0, START, methods.ConnectionTune(0, 100, 0)))
    assert "frames of 100 bytes" in str(connection.failure)


def test_a_goodbye_is_answered() -> None:
    connection = opened()
    channel = opened_channel(connection)
    answer = connection.close()
    assert heard(connection) == [methods.ConnectionClose(200, "OK")]
    connection.feed(said(0, methods.ConnectionCloseOk()))
    assert answer.is_done
    assert answer.error is None
    assert isinstance(channel.failure, Closed)
    assert connection.close().error is connection.failure
