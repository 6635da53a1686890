"""Contents: their order, their sizes, their headers, and what happens when they are wrong."""

from __future__ import annotations

from tests.frame_socket import BODY, HEADER, METHOD

from ..session import Session, script, table
from ..wire_client import Channel
from ..wire_values import Raw, content_header, method


def publishing(s: Session) -> Channel:
    """A channel that has sent basic.publish and owes the content."""
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.send("basic.publish", routing_key="q")
    return ch


@table(
    {
        "a method in place of the header closes the connection": ((METHOD, method("basic.qos")),),
        "a body in place of the header closes the connection": ((BODY, b"body"),),
        "a method in place of the body closes the connection": (
            (HEADER, content_header(4, {})),
            (METHOD, method("basic.qos")),
        ),
        "a second header in place of the body closes the connection": (
            (HEADER, content_header(4, {})),
            (HEADER, content_header(4, {})),
        ),
        "a method in the middle of the body closes the connection": (
            (HEADER, content_header(10, {})),
            (BODY, b"12345"),
            (METHOD, method("basic.qos")),
        ),
        "a header of another class closes the connection": ((HEADER, content_header(4, {}, class_id=50)),),
        "a header with a weight closes the connection": ((HEADER, content_header(4, {}, weight=1)),),
        "a body frame after an empty content closes the connection": (
            (HEADER, content_header(0, {})),
            (BODY, b""),
        ),
        "properties cut short close the connection": (
            (HEADER, content_header(4, Raw(b"\x80\x00\x05abc"))),
            (BODY, b"body"),
        ),
        "octets after the properties close the connection": (
            (HEADER, content_header(4, Raw(b"\x80\x00\x01abc"))),
            (BODY, b"body"),
        ),
        "property flags beyond the fourteen close the connection": (
            (HEADER, content_header(4, Raw(b"\x00\x02\x00\x00"))),
            (BODY, b"body"),
        ),
        "property flags continued in a second word close the connection": (
            (HEADER, content_header(4, Raw(b"\x00\x01\x00\x00"))),
            (BODY, b"body"),
        ),
        "a malformed header table closes the connection": (
            (HEADER, content_header(4, Raw(b"\x20\x00\x00\x00\x00\x04\x01aZ\x00"))),
            (BODY, b"body"),
        ),
    }
)
def closes(s: Session, *frames: tuple[int, bytes]) -> None:
    """Send these frames where a content is owed, and read to the end."""
    ch = publishing(s)
    for kind, payload in frames:
        ch.wire.send_frame(kind, 1, payload)
    ch.wire.expect_end()


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


@script("more body than declared is not a message")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, {}))
    ch.wire.send_frame(BODY, 1, b"12345")
    ch.open = False
    s.count(ch.wire.channel(2), "q")


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


@script("a property that is not UTF-8 is passed on")
def _(s: Session) -> None:
    ch = publishing(s)
    ch.wire.send_frame(HEADER, 1, content_header(4, Raw(b"\x80\x00\x02\xff\xfe")))
    ch.wire.send_frame(BODY, 1, b"body")
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


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
