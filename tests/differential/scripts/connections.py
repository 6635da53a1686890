"""Connections once open: close, misuse of channel 0, secrets, heartbeats, and one vhost's isolation."""

from __future__ import annotations

from tests.frame_socket import HEARTBEAT

from ..session import Session, script


@script("connection.close is answered")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(0, "connection.close", reply_code=200, reply_text="bye", class_id=0, method_id=0)
    wire.expect(0, "connection.close-ok")


@script("connection.close is answered while channels are open and messages unacknowledged")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.call("basic.get", queue="q")
    wire.send(0, "connection.close", reply_code=541, reply_text="", class_id=60, method_id=40)
    wire.expect(0, "connection.close-ok")
    s.until_messages("q", 1)
    s.channel().call("basic.get", queue="q", no_ack=True)


@script("what follows connection.close is not heard")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1)
    wire.send(0, "connection.close", reply_code=200, reply_text="bye", class_id=0, method_id=0)
    wire.send(1, "queue.declare", queue="q")
    wire.expect(0, "connection.close-ok")
    s.channel().refused("queue.declare", queue="q", passive=True)


@script("a connection error closes all its channels and no other connection")
def _(s: Session) -> None:
    wire, other = s.connect(), s.channel()
    first, second = wire.channel(1), wire.channel(2)
    first.call("queue.declare", queue="q")
    second.call("basic.consume", queue="q", consumer_tag="t")
    first.refused("basic.recover", requeue=False)
    s.until_consumers("q", 0)
    other.call("queue.declare", queue="q", passive=True)


@script("after the server's connection.close only close-ok is heard")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    wire.answers_close = False
    ch.refused("basic.recover", requeue=False)
    wire.send(1, "queue.declare", queue="q")
    wire.send(0, "connection.close-ok")
    wire.expect_end()
    s.channel().refused("queue.declare", queue="q", passive=True)


@script("connection.close crossing the server's is answered")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    wire.answers_close = False
    ch.refused("basic.recover", requeue=False)
    wire.send(0, "connection.close", reply_code=200, reply_text="bye", class_id=0, method_id=0)
    wire.expect(0, "connection.close-ok")


@script("connection.close-ok that nobody asked for is refused")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(0, "connection.close-ok")
    wire.expect_end()


@script("a second connection.open is refused")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(0, "connection.open", virtual_host="/")
    wire.expect_end()


@script("a second connection.tune-ok is refused")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(0, "connection.tune-ok", channel_max=1, frame_max=8192, heartbeat=1)
    wire.expect_end()


@script("a method of the server's own is refused on channel 0")
def _(s: Session) -> None:
    for name in ("connection.start", "connection.tune", "connection.blocked", "connection.open-ok"):
        wire = s.connect()
        arguments = {"server_properties": {}} if name == "connection.start" else {}
        wire.send(0, name, **arguments)
        wire.expect_end()


@script("channel methods on channel 0 are refused")
def _(s: Session) -> None:
    for name in ("channel.open", "queue.declare", "basic.qos"):
        wire = s.connect()
        wire.send(0, name)
        wire.expect_end()


@script("content on channel 0 is refused")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send_frame(3, 0, b"body")
    wire.expect_end()


@script("connection methods on other channels are refused")
def _(s: Session) -> None:
    for name in ("connection.close-ok", "connection.tune-ok"):
        wire = s.connect()
        wire.channel(1)
        wire.send(1, name)
        wire.expect_end()


@script("connection.close on another channel is refused")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1)
    wire.send(1, "connection.close", reply_code=200, reply_text="bye", class_id=0, method_id=0)
    wire.expect_end()


@script("connection.update-secret is answered")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(0, "connection.update-secret", new_secret="guest", reason="rotation")
    wire.expect(0, "connection.update-secret-ok")
    wire.channel(1)


@script("connection.update-secret takes any secret where passwords are checked at login only")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(0, "connection.update-secret", new_secret="something else", reason="")
    wire.expect(0, "connection.update-secret-ok")
    wire.channel(1)


@script("heartbeats from the client are taken at any time")
def _(s: Session) -> None:
    wire = s.connect(heartbeat=0)
    for _each in range(3):
        wire.send_frame(HEARTBEAT, 0, b"")
    wire.channel(1)


@script("the server sends heartbeats and drops a client that does not")
def _(s: Session) -> None:
    wire = s.connect(heartbeat=1)
    wire.channel(1)
    wire.expect(0, "heartbeat")
    s.note("a heartbeat came")
    wire.expect_end()


@script("any traffic counts as a heartbeat")
def _(s: Session) -> None:
    wire, silent = s.connect(heartbeat=1), s.connect(heartbeat=1)
    ch = wire.channel(1)
    while not silent.ended:
        silent.next_event()
        ch.barrier()
    ch.call("basic.qos", prefetch_count=1)


@script("a heartbeat on another channel closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1)
    wire.send_frame(HEARTBEAT, 1, b"")
    wire.expect_end()


@script("a heartbeat with a payload closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send_frame(HEARTBEAT, 0, b"x")
    wire.send(1, "channel.open")
    wire.expect(1, "channel.open-ok")


@script("two connections share the queues of a vhost")
def _(s: Session) -> None:
    first, second = s.channel(), s.channel()
    first.call("queue.declare", queue="q")
    first.publish("one", "q")
    s.settle()
    second.call("basic.get", queue="q", no_ack=True)
