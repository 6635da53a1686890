"""Channels: open, close, flow, independence of errors, numbers, and what a closed channel does not hear."""

from __future__ import annotations

from ..session import Session, script


@script("a channel is opened, closed and opened again")
def _(s: Session) -> None:
    wire = s.connect()
    for _again in range(2):
        wire.channel(1).close()


@script("channel.open of an open channel closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.refused("channel.open")


@script("a method on a channel that was never opened closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(5, "queue.declare", queue="q")
    wire.expect_end()


@script("an acknowledgement on a channel that was never opened closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(5, "basic.ack", delivery_tag=1)
    wire.expect_end()


@script("a method on a closed channel closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1).close()
    wire.send(1, "basic.qos")
    wire.expect_end()


@script("channel.close of a channel that was never opened closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(5, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    wire.expect_end()


@script("channel.close-ok on a channel that was never opened closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    wire.send(5, "channel.close-ok")
    wire.expect_end()


@script("channel.close-ok that nobody asked for closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.send("channel.close-ok")
    ch.barrier()


@script("one channel more than negotiated closes the connection")
def _(s: Session) -> None:
    wire = s.connect(channel_max=2)
    wire.channel(1)
    wire.channel(2)
    wire.send(3, "channel.open")
    wire.expect_end()


@script("the number of channels is limited and not their numbers")
def _(s: Session) -> None:
    wire = s.connect(channel_max=1)
    wire.channel(65535).close()
    wire.channel(7).call("basic.qos", prefetch_count=1)


@script("a channel error leaves the other channels alone")
def _(s: Session) -> None:
    wire = s.connect()
    first, second = wire.channel(1), wire.channel(2)
    second.call("queue.declare", queue="q")
    first.refused("queue.purge", queue="nowhere")
    second.publish("one", "q")
    s.settle()
    second.call("basic.get", queue="q", no_ack=True)


@script("a channel closed by the server may be opened again")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1).refused("queue.purge", queue="nowhere")
    wire.channel(1).refused("queue.purge", queue="nowhere")
    wire.channel(1)


@script("what is sent on a channel after the server closed it is not heard")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    wire.answers_close = False
    ch.refused("queue.purge", queue="nowhere")
    wire.send(1, "queue.declare", queue="q")
    ch.publish("lost", "q")
    wire.send(1, "basic.ack", delivery_tag=77)
    wire.send(1, "channel.close-ok")
    wire.answers_close = True
    wire.channel(1).refused("queue.declare", queue="q", passive=True)


@script("channel.close of the client crossing that of the server is answered")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    wire.answers_close = False
    ch.refused("queue.purge", queue="nowhere")
    wire.send(1, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    wire.expect(1, "channel.close-ok")
    wire.send(1, "channel.close-ok")
    wire.answers_close = True
    wire.channel(1)


@script("channel.open after the server's close and before close-ok closes the connection")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    wire.answers_close = False
    ch.refused("queue.purge", queue="nowhere")
    wire.answers_close = True
    wire.send(1, "channel.open")
    wire.expect_end()


@script("channel.flow that asks for messages is answered")
def _(s: Session) -> None:
    s.channel().call("channel.flow", active=True)


@script("channel.flow that stops messages is not implemented")
def _(s: Session) -> None:
    s.channel().refused("channel.flow", active=False)


@script("channel.flow-ok from the client is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.send("channel.flow-ok", active=True)
    ch.expect_close()


@script("access.request is answered with a ticket")
def _(s: Session) -> None:
    ch = s.channel()
    # class 30, method 10: realm, then five bits; pamqp does not know the class any more
    ch.wire.send_frame(1, 1, b"\x00\x1e\x00\x0a\x05/data\x1f")
    ch.expect("unknown.30-11")


@script("methods with a ticket are answered like those without")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", ticket=101)
    ch.send("basic.publish", routing_key="q", ticket=65535)
    ch.wire.send_content(1, b"body")
    s.settle()
    ch.call("basic.get", queue="q", ticket=1, no_ack=True)


@script("closing a channel with a half-sent message drops it")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.send("basic.publish", routing_key="q")
    ch.send("channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    wire.expect(1, "channel.close-ok")
    if wire.open:
        s.count(wire.channel(2), "q")


@script("channels interleave their contents")
def _(s: Session) -> None:
    wire = s.connect()
    first, second = wire.channel(1), wire.channel(2)
    first.call("queue.declare", queue="q")
    first.send("basic.publish", routing_key="q")
    second.publish("second", "q")
    second.barrier()
    wire.send_content(1, b"first")
    s.settle()
    first.call("basic.get", queue="q", no_ack=True)
    first.call("basic.get", queue="q", no_ack=True)
