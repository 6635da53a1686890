"""Contents: their order, their sizes, their headers, and what happens when they are wrong."""

from __future__ import annotations

from ..session import Session, script
from ..wire_client import BODY, HEADER, METHOD, Channel
from ..wire_values import Raw, content_header, method


def publishing(s: Session) -> Channel:
    """A channel that has sent basic.publish and owes the content."""
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.send("basic.publish", routing_key="q")
    return ch


@script("a body frame without a method closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.wire.send_frame(BODY, 1, b"body")
    ch.wire.expect_end()


@script("a header frame without a method closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.wire.send_frame(HEADER, 1, content_header(4, {}))
    ch.wire.expect_end()


@script("a header frame after a method without content closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("basic.qos")
    ch.wire.send_frame(HEADER, 1, content_header(4, {}))
    ch.wire.expect_end()


@script("a method in place of the header closes the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(METHOD, 1, method("basic.qos"))
    ch.wire.expect_end()


@script("a body in place of the header closes the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(BODY, 1, b"body")
    ch.wire.expect_end()


@script("a method in place of the body closes the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, {}))
    ch.wire.send_frame(METHOD, 1, method("basic.qos"))
    ch.wire.expect_end()


@script("a second header in place of the body closes the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, {}))
    ch.wire.send_frame(HEADER, 1, content_header(4, {}))
    ch.wire.expect_end()


@script("a method in the middle of the body closes the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(10, {}))
    ch.wire.send_frame(BODY, 1, b"12345")
    ch.wire.send_frame(METHOD, 1, method("basic.qos"))
    ch.wire.expect_end()


@script("a header of another class closes the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, {}, class_id=50))
    ch.wire.expect_end()


@script("a header with a weight closes the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, {}, weight=1))
    ch.wire.expect_end()


@script("more body than declared is not a message")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, {}))
    ch.wire.send_frame(BODY, 1, b"12345")
    ch.open = False
    s.count(ch.wire.channel(2), "q")


@script("a body frame after an empty content closes the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(0, {}))
    ch.wire.send_frame(BODY, 1, b"")
    ch.wire.expect_end()


@script("empty body frames in the middle of a content are passed over")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, {}))
    for piece in (b"", b"12", b"", b"34"):
        ch.wire.send_frame(BODY, 1, piece)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a declared size above every limit")
def _(s: Session) -> None:
    for size in (2**63, 2**64 - 1, 512 * 1024 * 1024 + 1):
        ch = s.channel()
        ch.send("basic.publish", routing_key="nowhere")
        ch.wire.send_frame(HEADER, 1, content_header(size, {}))
        ch.open = False
        ch.wire.channel(2)


@script("a header frame cut short before the properties closes the connection")
def _(s: Session) -> None:
    for cut in (0, 2, 8, 11):
        ch = publishing(s)
        ch.wire.send_frame(HEADER, 1, content_header(4, {})[:cut])
        ch.wire.expect_end()


@script("a header frame without property flags closes the connection")
def _(s: Session) -> None:
    for cut in (12, 13):
        ch = publishing(s)
        ch.wire.send_frame(HEADER, 1, content_header(4, {})[:cut])
        ch.wire.send_frame(BODY, 1, b"body")
        ch.wire.expect_end()


@script("properties cut short close the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, Raw(b"\x80\x00\x05abc")))
    ch.wire.send_frame(BODY, 1, b"body")
    ch.wire.expect_end()


@script("octets after the properties close the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, Raw(b"\x80\x00\x01abc")))
    ch.wire.send_frame(BODY, 1, b"body")
    ch.wire.expect_end()


@script("property flags beyond the fourteen close the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, Raw(b"\x00\x02\x00\x00")))
    ch.wire.send_frame(BODY, 1, b"body")
    ch.wire.expect_end()


@script("property flags continued in a second word close the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, Raw(b"\x00\x01\x00\x00")))
    ch.wire.send_frame(BODY, 1, b"body")
    ch.wire.expect_end()


@script("a property that is not UTF-8 is passed on")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, Raw(b"\x80\x00\x02\xff\xfe")))
    ch.wire.send_frame(BODY, 1, b"body")
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a malformed header table closes the connection")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, Raw(b"\x20\x00\x00\x00\x00\x04\x01aZ\x00")))
    ch.wire.send_frame(BODY, 1, b"body")
    ch.wire.expect_end()


@script("a content sent in pieces of one octet arrives whole")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(10, {"message_id": "m"}))
    for octet in b"0123456789":
        ch.wire.send_frame(BODY, 1, bytes([octet]))
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a connection that drops in the middle of a content leaves nothing")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(10, {}))
    ch.wire.send_frame(BODY, 1, b"12345")
    ch.wire.hang_up()
    s.count(s.channel(), "q")
