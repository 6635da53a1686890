"""Prefetch: per consumer (global=false, as RabbitMQ means it) and per channel (global=true)."""

from __future__ import annotations

from ..session import Session, script
from ..wire_client import Channel


def five_waiting(s: Session) -> Channel:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for number in range(1, 6):
        ch.publish(str(number), "q")
    return ch


@script("prefetch_size is not implemented")
def _(s: Session) -> None:
    s.channel().refused("basic.qos", prefetch_size=1)


@script("prefetch limits what a consumer holds")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=2)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle("two delivered")
    ch.send("basic.ack", delivery_tag=1)
    s.settle("one acknowledged")
    ch.send("basic.ack", delivery_tag=3, multiple=True)
    s.settle("all acknowledged")


@script("prefetch of 0 is no limit")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=0)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle()


@script("prefetch per consumer is taken when the consumer starts")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=1)
    ch.call("basic.consume", queue="q", consumer_tag="one")
    s.settle()
    ch.call("basic.qos", prefetch_count=2)
    s.settle("raised, which does not concern the first")
    ch.call("basic.consume", queue="q", consumer_tag="two")
    s.settle()


@script("each consumer of a channel has its own prefetch")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=1)
    for tag in ("one", "two", "three"):
        ch.call("basic.consume", queue="q", consumer_tag=tag)
        s.settle()


@script("global prefetch is shared by the consumers of a channel")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=2, global_=True)
    ch.call("basic.consume", queue="q", consumer_tag="one")
    s.settle()
    ch.call("basic.consume", queue="q", consumer_tag="two")
    s.settle("two in all")
    ch.send("basic.ack", delivery_tag=1)
    s.settle()
    s.count(ch, "q")


@script("global prefetch may be raised while consuming")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=1, global_=True)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle("one")
    ch.call("basic.qos", prefetch_count=3, global_=True)
    s.settle("three")
    ch.call("basic.qos", prefetch_count=0, global_=True)
    s.settle("all")


@script("prefetch per consumer and then global prefetch both hold")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=2)
    ch.call("basic.qos", prefetch_count=3, global_=True)
    ch.call("basic.consume", queue="q", consumer_tag="one")
    s.settle("two of its own")
    ch.call("basic.consume", queue="q", consumer_tag="two")
    s.settle("one more in all")


@script("global prefetch is lifted by setting prefetch per consumer")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=3, global_=True)
    ch.call("basic.qos", prefetch_count=2)
    ch.call("basic.consume", queue="q", consumer_tag="one")
    s.settle()
    ch.call("basic.consume", queue="q", consumer_tag="two")
    s.settle()


@script("a no-ack consumer takes no notice of prefetch")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=1)
    ch.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    s.settle()


@script("a full global prefetch holds back a no-ack consumer of the same channel")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("basic.qos", prefetch_count=2, global_=True)
    ch.call("queue.declare", queue="q")
    ch.call("queue.declare", queue="other")
    ch.call("basic.consume", queue="q", consumer_tag="acks")
    ch.call("basic.consume", queue="other", consumer_tag="no-acks", no_ack=True)
    ch.publish("1", "q")
    s.settle("one place is left, and a no-ack consumer does not take it")
    ch.publish("2", "other")
    ch.publish("3", "other")
    s.settle("the last place is taken")
    ch.publish("4", "q")
    s.settle()
    ch.publish("5", "other")
    s.settle("a place is free again")
    ch.send("basic.ack", delivery_tag=1)
    s.settle()


@script("a full global prefetch lets a no-ack consumer of another channel alone")
def _(s: Session) -> None:
    wire = s.connect()
    full, free = wire.channel(1), wire.channel(2)
    full.call("basic.qos", prefetch_count=1, global_=True)
    full.call("queue.declare", queue="q")
    full.call("queue.declare", queue="other")
    full.call("basic.consume", queue="q", consumer_tag="acks")
    free.call("basic.consume", queue="other", consumer_tag="no-acks", no_ack=True)
    full.publish("1", "q")
    s.settle()
    full.publish("2", "other")
    s.settle()


@script("what get took counts against global prefetch")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.get", queue="q")
    ch.call("basic.qos", prefetch_count=1, global_=True)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle()


@script("a rejected message makes room")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=1)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle()
    ch.send("basic.reject", delivery_tag=1, requeue=False)
    s.settle("rejected")
    ch.send("basic.reject", delivery_tag=2, requeue=True)
    s.settle("requeued")


@script("prefetch is per channel and not per connection")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=1)
    other = ch.wire.channel(2)
    ch.call("basic.consume", queue="q", consumer_tag="limited")
    s.settle()
    other.call("basic.consume", queue="q", consumer_tag="unlimited")
    s.settle()


@script("a consumer out of room does not hold others back")
def _(s: Session) -> None:
    ch = five_waiting(s)
    ch.call("basic.qos", prefetch_count=1)
    ch.call("basic.consume", queue="q", consumer_tag="slow")
    s.settle()
    quick = s.channel()
    quick.call("basic.consume", queue="q", consumer_tag="quick", no_ack=True)
    s.settle()
