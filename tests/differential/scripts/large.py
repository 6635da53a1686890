"""Bodies and headers of all sizes: split to the negotiated frame size, and put together again."""

from __future__ import annotations

from ..session import Session, script


def pattern(size: int) -> bytes:
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


@script("bodies around the frame size are split as RabbitMQ splits them")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for size in (131_063, 131_064, 131_065, 262_128, 262_129):
        ch.publish(pattern(size), "q")
        ch.call("basic.get", queue="q", no_ack=True)


@script("bodies are split to a small negotiated frame size")
def _(s: Session) -> None:
    ch = s.channel(frame_max=4096)
    ch.call("queue.declare", queue="q")
    for size in (4087, 4088, 4089, 20_000):
        ch.publish(pattern(size), "q")
        ch.call("basic.get", queue="q", no_ack=True)


@script("a body published in large frames is delivered in small ones")
def _(s: Session) -> None:
    publisher, consumer = s.channel(), s.channel(frame_max=8192)
    publisher.call("queue.declare", queue="q")
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    publisher.publish(pattern(50_000), "q")
    consumer.expect("basic.deliver")


@script("a body published in small frames is delivered in large ones")
def _(s: Session) -> None:
    publisher, consumer = s.channel(frame_max=4096), s.channel()
    publisher.call("queue.declare", queue="q")
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    publisher.publish(pattern(200_000), "q")
    consumer.expect("basic.deliver")


@script("a large unroutable body comes back whole")
def _(s: Session) -> None:
    ch = s.channel(frame_max=8192)
    ch.publish(pattern(30_000), "nowhere", mandatory=True)
    s.settle()


@script("many large bodies arrive intact and in order")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for number in range(10):
        ch.publish(bytes([number]) * 300_000, "q")
    ch.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    for _each in range(10):
        ch.expect("basic.deliver")


@script("a body of a few megabytes arrives intact")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish(pattern(5_000_000), "q")
    ch.call("basic.get", queue="q", no_ack=True)


@script("headers that fill a frame arrive intact")
def _(s: Session) -> None:
    ch = s.channel(frame_max=8192)
    ch.call("queue.declare", queue="q")
    ch.publish("body", "q", properties={"headers": {"big": "x" * 8000}})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("all 256 octets of a body come back")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish(bytes(range(256)), "q")
    ch.call("basic.get", queue="q", no_ack=True)
