"""Frames that are not frames, and methods that are not methods.

After errors of the frame itself RabbitMQ keeps the socket open for three more seconds, so those scripts end with
its connection.close.
"""

from __future__ import annotations

from tests.frame_socket import BODY, HEADER, METHOD

from ..session import Session, script, table
from ..wire_client import Wire
from ..wire_values import Raw, content_header, method


def opened(s: Session, **options: int) -> Wire:
    wire = s.connect(**options)
    wire.channel(1)
    return wire


@table(
    {
        "an unknown frame type on channel 0 closes the connection": (5, 0, b"x"),
        "an empty method frame closes the connection": (METHOD, 1, b""),
        "a method frame of three bytes closes the connection": (METHOD, 1, b"\x00\x3c\x00"),
        "an unknown class closes the connection": (METHOD, 1, b"\x00\x63\x00\x0a"),
        "an unknown method of a known class closes the connection": (METHOD, 1, b"\x00\x32\x00\x63"),
        "an unknown method on channel 0 closes the connection": (METHOD, 0, b"\x00\x0a\x00\x63"),
        "an unknown method on a channel that was never opened closes the connection": (METHOD, 7, b"\x00\x63\x00\x0a"),
        "octets after the arguments close the connection": (METHOD, 1, method("basic.qos") + b"\x00"),
        "a short string longer than its frame closes the connection": (METHOD, 1, b"\x00\x32\x00\x0a\x00\x00\xffabc"),
    }
)
def closes(s: Session, kind: int, channel: int, payload: bytes) -> None:
    """Send one frame, and read to the end."""
    wire = opened(s)
    wire.send_frame(kind, channel, payload)
    wire.expect_end()


@table(
    {
        "a wrong frame end closes the connection": (METHOD, 1, method("basic.qos"), b"\x00"),
        "a wrong frame end on channel 0 closes the connection": (8, 0, b"", b"\xcd"),
    }
)
def closes_after_a_wrong_end(s: Session, kind: int, channel: int, payload: bytes, end: bytes) -> None:
    """Send one frame with another end."""
    wire = opened(s)
    wire.send_frame(kind, channel, payload, end)
    wire.expect(0, "connection.close")


@table(
    {
        "a frame larger than negotiated closes the connection": (b"\x03\x00\x01" + (131_072 + 1).to_bytes(4, "big"),),
        "a frame larger than a small negotiated size closes the connection": (
            b"\x01\x00\x01" + (4096 + 1).to_bytes(4, "big"),
            4096,
        ),
        "a frame of four gigabytes is refused at its head": (b"\x03\x00\x01\xff\xff\xff\xff",),
        "a protocol header on an open connection closes it": (b"AMQP\x00\x00\x09\x01",),
    }
)
def closes_at_the_head(s: Session, data: bytes, frame_max: int = 131_072) -> None:
    """Send what is no frame, or the head of a frame that is too large."""
    wire = opened(s, frame_max=frame_max)
    wire.send_bytes(data)
    wire.expect(0, "connection.close")


@script("an unknown frame type closes the connection")
def _(s: Session) -> None:
    for kind in (0, 4, 7, 9, 255):
        wire = opened(s)
        wire.send_frame(kind, 1, b"x")
        wire.expect_end()


@script("a frame of exactly the negotiated size is accepted")
def _(s: Session) -> None:
    ch = s.channel(frame_max=4096)
    ch.call("queue.declare", queue="q")
    ch.publish(b"x" * (4096 - 8), "q")
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a frame of eight octets more than negotiated is let through")
def _(s: Session) -> None:
    ch = s.channel(frame_max=4096)
    ch.call("queue.declare", queue="q")
    ch.send("basic.publish", routing_key="q")
    ch.wire.send_frame(HEADER, 1, content_header(4096, {}))
    ch.wire.send_frame(BODY, 1, b"x" * 4096)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("arguments cut short close the connection")
def _(s: Session) -> None:
    for cut in (4, 6, 7, 10):
        wire = opened(s)
        wire.send_frame(METHOD, 1, method("queue.declare", queue="long name")[:cut])
        wire.expect_end()


@script("reserved bits are passed over")
def _(s: Session) -> None:
    wire = opened(s)
    wire.send_frame(METHOD, 1, method("basic.qos")[:-1] + b"\xfe")
    wire.expect(1, "basic.qos-ok")


@script("a short string that is not UTF-8 closes the connection")
def _(s: Session) -> None:
    wire = opened(s)
    wire.send(1, "basic.cancel", consumer_tag=Raw(b"\x03\xc3\x28\xff"))
    wire.expect_end()


@script("a routing key that is not UTF-8 is taken as it is")
def _(s: Session) -> None:
    wire = opened(s)
    wire.send(1, "basic.publish", routing_key=Raw(b"\x02\xff\xfe"), mandatory=True)
    wire.send_content(1, b"body")
    s.settle()


@script("a routing key of 255 bytes is accepted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.publish("far", "k" * 255, "amq.direct", mandatory=True)
    s.settle()


@script("server methods sent by a client are refused")
def _(s: Session) -> None:
    for name in (
        "queue.declare-ok",
        "basic.consume-ok",
        "tx.select-ok",
        "confirm.select-ok",
        "basic.get-empty",
    ):
        wire = opened(s)
        wire.send(1, name)
        wire.expect_end()


@script("basic.deliver sent by a client is refused")
def _(s: Session) -> None:
    wire = opened(s)
    wire.send(1, "basic.deliver", consumer_tag="t", delivery_tag=1, redelivered=False, routing_key="k")
    wire.send_content(1, b"body")
    wire.expect_end()


@script("frames that arrive in pieces are put together")
def _(s: Session) -> None:
    wire = s.connect()
    data = b"\x01\x00\x01\x00\x00\x00\x05\x00\x14\x00\x0a\x00\xce"
    for byte in data:
        wire.send_bytes(bytes([byte]))
    wire.expect(1, "channel.open-ok")


@script("a content on a channel that was never opened closes the connection")
def _(s: Session) -> None:
    for kind, payload in ((HEADER, content_header(4, {})), (BODY, b"body")):
        wire = opened(s)
        wire.send_frame(kind, 6, payload)
        wire.expect_end()
