"""Connections that go without a word, in every state, and what they leave."""

from __future__ import annotations

from ..session import Session, script


@script("a connection that drops takes its consumers along")
def _(s: Session) -> None:
    wire, other = s.connect(), s.channel()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    wire.hang_up()
    s.until_consumers("q", 0)
    other.publish("kept", "q")
    s.settle()
    other.call("basic.get", queue="q", no_ack=True)


@script("a dropped exclusive consumer makes way")
def _(s: Session) -> None:
    wire, other = s.connect(), s.channel()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t", exclusive=True)
    wire.hang_up()
    s.until_consumers("q", 0)
    other.call("basic.consume", queue="q", consumer_tag="next", exclusive=True)


@script("a dropped transaction leaves nothing")
def _(s: Session) -> None:
    wire, other = s.connect(), s.channel()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.call("tx.select")
    ch.publish("uncommitted", "q")
    ch.barrier()
    wire.hang_up()
    s.count(other, "q")


@script("a drop during the handshake leaves the server well")
def _(s: Session) -> None:
    s.dial().hang_up()
    half = s.dial()
    half.send_bytes(b"AMQP")
    half.hang_up()
    s.started().hang_up()
    s.channel().call("basic.qos", prefetch_count=1)


@script("a drop in the middle of a frame leaves the server well")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1)
    wire.send_bytes(b"\x01\x00\x01\x00\x00\x00\x20half a frame")
    wire.hang_up()
    s.channel().call("basic.qos", prefetch_count=1)


@script("many exclusive queues go with their connection")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    for number in range(20):
        ch.call("queue.declare", queue=f"q{number}", exclusive=True)
    wire.hang_up()
    for number in range(20):
        s.until_gone(f"q{number}")
    s.channel().call("queue.declare", queue="q7")


@script("messages a dropped connection held come before newer ones")
def _(s: Session) -> None:
    wire, other = s.connect(), s.channel()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.publish("two", "q")
    ch.call("basic.get", queue="q")
    wire.hang_up()
    s.until_messages("q", 2)
    other.publish("three", "q")
    s.settle()
    for _each in range(3):
        other.call("basic.get", queue="q", no_ack=True)


@script("a consumer that never acknowledges and drops gives everything back in order")
def _(s: Session) -> None:
    first, second = s.channel(), s.channel()
    second.call("queue.declare", queue="q")
    first.call("basic.consume", queue="q", consumer_tag="first")
    for number in range(10):
        second.publish(str(number), "q")
    s.settle()
    first.wire.hang_up()
    s.until_messages("q", 10)
    second.call("basic.consume", queue="q", consumer_tag="second", no_ack=True)
    s.settle()
