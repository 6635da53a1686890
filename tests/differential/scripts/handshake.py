"""The handshake: protocol headers, SASL, tune, vhosts, and what may not be said before it is over.

RabbitMQ ends a connection that misbehaves before connection.open only after three seconds of silence, so cases
of that kind share a script, each on a connection of its own.
"""

from __future__ import annotations

from tests.frame_socket import HEADER, METHOD, PROTOCOL_HEADER

from ..session import Session, script
from ..wire_client import Wire
from ..wire_values import Typed, field, shortstr

PLAIN = b"\0guest\0guest"


def tuned(s: Session) -> Wire:
    """A connection that has got connection.tune."""
    wire = s.started()
    wire.start_ok(PLAIN)
    wire.expect(0, "connection.tune")
    return wire


def tune(wire: Wire, **values: int) -> None:
    """Answer connection.tune with these values and ask for the vhost."""
    wire.send(0, "connection.tune-ok", **({"channel_max": 2047, "frame_max": 131_072, "heartbeat": 60} | values))
    wire.send(0, "connection.open", virtual_host="/")


def amqplain(**fields: object) -> bytes:
    """An AMQPLAIN response is a table without its length."""
    return b"".join(shortstr(key) + field(value) for key, value in fields.items())


def all_end(wires: list[Wire]) -> None:
    for wire in wires:
        wire.expect_end()


@script("the whole handshake with PLAIN")
def _(s: Session) -> None:
    wire = s.dial()
    wire.send_bytes(PROTOCOL_HEADER)
    wire.expect(0, "connection.start")
    wire.start_ok(PLAIN)
    wire.expect(0, "connection.tune")
    tune(wire)
    wire.expect(0, "connection.open-ok")


@script("the whole handshake with AMQPLAIN")
def _(s: Session) -> None:
    wire = s.started()
    wire.start_ok(amqplain(LOGIN="guest", PASSWORD="guest"), mechanism="AMQPLAIN")
    wire.expect(0, "connection.tune")
    tune(wire)
    wire.expect(0, "connection.open-ok")


@script("AMQPLAIN does not care about the order of its fields or about others")
def _(s: Session) -> None:
    wire = s.started()
    wire.start_ok(amqplain(EXTRA=5, PASSWORD="guest", LOGIN="guest"), mechanism="AMQPLAIN")
    wire.expect(0, "connection.tune")


@script("a wrong protocol header is answered with the right one and the end")
def _(s: Session) -> None:
    headers = (b"AMQP\x00\x00\x09\x02", b"AMQP\x00\x00\x08\x00", b"AMQP\x05\x01\x00\x00", b"HTTP/1.1")
    for header in (*headers, b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\0\0\0\0\0\0\0\0"):
        wire = s.dial()
        wire.send_bytes(header)
        wire.expect_end()


@script("the protocol headers of AMQP 1.0 are answered with the right one and the end")
def _(s: Session) -> None:
    for header in (b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"):
        wire = s.dial()
        wire.send_bytes(header)
        wire.expect_end()


@script("the protocol header that 0-9 clients send is taken for 0-9-1")
def _(s: Session) -> None:
    wire = s.dial()
    wire.send_bytes(b"AMQP\x01\x01\x00\x09")
    wire.expect(0, "connection.start")


@script("the protocol headers of 0-8 are answered in kind")
def _(s: Session) -> None:
    for header in (b"AMQP\x01\x01\x08\x00", b"AMQP\x01\x01\x09\x01"):
        wire = s.dial()
        wire.send_bytes(header)
        wire.expect(0, "connection.start")


@script("a handshake sent byte by byte is understood")
def _(s: Session) -> None:
    wire = s.dial()
    for byte in PROTOCOL_HEADER:
        wire.send_bytes(bytes([byte]))
    wire.expect(0, "connection.start")


@script("a client may send its whole handshake in one go")
def _(s: Session) -> None:
    wire = s.dial()
    wire.send_bytes(PROTOCOL_HEADER)
    wire.start_ok(PLAIN)
    tune(wire)
    wire.send(1, "channel.open")
    wire.expect(1, "channel.open-ok")


@script("a mechanism that was not offered ends the connection")
def _(s: Session) -> None:
    wires = []
    for mechanism in ("KERBEROS", "EXTERNAL", "plain", "", "PLAIN AMQPLAIN"):
        wires.append(s.started())
        wires[-1].start_ok(PLAIN, mechanism=mechanism)
    all_end(wires)


@script("a malformed SASL response ends the connection")
def _(s: Session) -> None:
    wires = []
    for mechanism, response in (
        ("PLAIN", b""),
        ("PLAIN", b"guest"),
        ("PLAIN", b"\0guest"),
        ("PLAIN", b"other\0guest\0guest"),
        ("PLAIN", b"\0guest\0guest\0more"),
        ("AMQPLAIN", b""),
        ("AMQPLAIN", b"\xff\xff\xff"),
        ("AMQPLAIN", amqplain(LOGIN="guest")),
        ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD=5)),
        ("AMQPLAIN", amqplain(login="guest", password="guest")),
    ):
        wires.append(s.started())
        wires[-1].start_ok(response, mechanism=mechanism)
    all_end(wires)


@script("a wrong password is refused with a close")
def _(s: Session) -> None:
    wire = s.started()
    wire.start_ok(b"\0guest\0wrong")
    wire.expect_end()


@script("a wrong password with AMQPLAIN is refused with a close")
def _(s: Session) -> None:
    wire = s.started()
    wire.start_ok(amqplain(LOGIN="guest", PASSWORD="wrong"), mechanism="AMQPLAIN")
    wire.expect_end()


@script("an unknown user and an empty password are refused as a wrong password is")
def _(s: Session) -> None:
    wires = []
    for response in (b"\0nobody\0guest", b"\0guest\0", b"\0\0guest", b"\0\xff\xfe\0guest"):
        wires.append(s.started())
        wires[-1].start_ok(response)
    all_end(wires)


@script("a wrong password ends the connection of a client that does not know the close")
def _(s: Session) -> None:
    wire = s.started()
    wire.start_ok(b"\0guest\0wrong", capabilities={})
    wire.expect_end()


@script("an unknown locale is accepted")
def _(s: Session) -> None:
    wire = s.started()
    wire.start_ok(PLAIN, locale="tlh_KX")
    wire.expect(0, "connection.tune")


@script("client properties without capabilities are accepted")
def _(s: Session) -> None:
    wire = s.started()
    wire.send(0, "connection.start-ok", client_properties={}, mechanism="PLAIN", response=PLAIN, locale="en_US")
    wire.expect(0, "connection.tune")


@script("client properties of odd types are accepted")
def _(s: Session) -> None:
    wire = s.started()
    properties = {"capabilities": {"basic.nack": 1}, "product": Typed("x", b"odd"), "version": [1, 2]}
    wire.send(0, "connection.start-ok", client_properties=properties, mechanism="PLAIN", response=PLAIN)
    wire.expect(0, "connection.tune")


@script("tune-ok may ask for less and for another heartbeat")
def _(s: Session) -> None:
    for values in (
        {"channel_max": 1, "frame_max": 8192, "heartbeat": 1},
        {"frame_max": 4096},
        {"heartbeat": 0},
        {"heartbeat": 65535},
    ):
        wire = tuned(s)
        tune(wire, **values)
        wire.expect(0, "connection.open-ok")


@script("tune-ok above the offer or below the minimum ends the connection")
def _(s: Session) -> None:
    wires = []
    for name, value in (("frame_max", 131_073), ("channel_max", 2048), ("frame_max", 4095), ("frame_max", 1)):
        wires.append(tuned(s))
        tune(wires[-1], **{name: value})
    all_end(wires)


@script("tune-ok without a limit where the server has one")
def _(s: Session) -> None:
    wires = [tuned(s), tuned(s)]
    tune(wires[0], frame_max=0)
    tune(wires[1], channel_max=0)
    for wire in wires:
        wire.open = wire.expect(0, "connection.open-ok") is not None


@script("an unknown vhost is refused")
def _(s: Session) -> None:
    for vhost in ("nowhere", "", "//"):
        wire = tuned(s)
        wire.send(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0)
        wire.send(0, "connection.open", virtual_host=vhost)
        wire.expect_end()


@script("what is said too early on channel 0 ends the connection")
def _(s: Session) -> None:
    wires = [s.started() for _each in range(4)]
    wires[0].send(0, "connection.open", virtual_host="/")
    wires[1].send(0, "connection.tune-ok", channel_max=0, frame_max=0, heartbeat=0)
    wires[2].send(0, "connection.secure-ok", response="")
    wires[3].send(0, "connection.close", reply_code=200, reply_text="changed my mind", class_id=0, method_id=0)
    wires += [tuned(s) for _each in range(4)]
    wires[4].send(0, "connection.open", virtual_host="/")
    wires[5].start_ok(PLAIN)
    wires[6].send(0, "connection.secure-ok", response="")
    wires[7].send(0, "connection.close", reply_code=200, reply_text="changed my mind", class_id=0, method_id=0)
    all_end(wires)


@script("what is said on other channels before the login ends the connection")
def _(s: Session) -> None:
    wires = [s.started() for _each in range(3)]
    wires[0].send(1, "channel.open")
    wires[1].send(1, "queue.declare", queue="q")
    wires[2].send_frame(HEADER, 1, b"\x00\x3c\x00\x00")
    wires.append(tuned(s))
    wires[3].send(1, "channel.open")
    all_end(wires)


@script("channel.open before connection.open is an unexpected frame")
def _(s: Session) -> None:
    wire = tuned(s)
    wire.send(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0)
    wire.send(1, "channel.open")
    wire.expect_end()


@script("a method of channel 0 between tune-ok and open is refused")
def _(s: Session) -> None:
    wire = tuned(s)
    wire.send(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0)
    wire.send(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0)
    wire.expect_end()


@script("connection.close between tune-ok and open is refused")
def _(s: Session) -> None:
    wire = tuned(s)
    wire.send(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0)
    wire.send(0, "connection.close", reply_code=200, reply_text="changed my mind", class_id=0, method_id=0)
    wire.expect_end()


@script("malformed frames before the login end the connection")
def _(s: Session) -> None:
    wires = [s.started() for _each in range(5)]
    wires[0].send_bytes(b"\x01\x00\x00\x00\x01\x00\x00")
    wires[1].send_frame(9, 0, b"x")
    wires[2].send_frame(METHOD, 0, b"\x00\x0a\x00\x0b\x00")
    wires[3].send_frame(METHOD, 0, b"\x00\x0a\x00\x63")
    wires[4].send_frame(METHOD, 0, b"\x00\x0a\x00\x0b", end=b"\x00")
    all_end(wires)
