"""basic.get."""

from __future__ import annotations

from ..session import Session, script


@script("get from an empty queue")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.get", queue="q")


@script("get reports how many messages are left")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for body in ("one", "two", "three"):
        ch.publish(body, "q")
    for _each in range(4):
        ch.call("basic.get", queue="q", no_ack=True)


@script("get without no-ack leaves the message unacknowledged")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.call("basic.get", queue="q")
    s.count(ch, "q")
    ch.send("basic.ack", delivery_tag=1)
    ch.close()
    ch.wire.channel(1).call("basic.get", queue="q")


@script("get from an unknown queue is not found")
def _(s: Session) -> None:
    s.channel().refused("basic.get", queue="nowhere")


@script("get with an empty queue name means the queue declared last")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q1")
    ch.call("queue.declare", queue="q2")
    ch.publish("one", "q2")
    ch.call("basic.get", no_ack=True)


@script("get with an empty queue name and no declared queue is not found")
def _(s: Session) -> None:
    s.channel().refused("basic.get")


@script("get and consume count their tags together")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.publish("two", "q")
    ch.call("basic.get", queue="q", no_ack=True)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle()
    ch.send("basic.ack", delivery_tag=2)
    s.settle()


@script("get is not held back by prefetch")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.qos", prefetch_count=1, global_=True)
    for body in ("one", "two", "three"):
        ch.publish(body, "q")
    for _each in range(3):
        ch.call("basic.get", queue="q")
