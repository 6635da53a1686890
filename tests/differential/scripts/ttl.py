"""Expiration of single messages, at the head of the queue."""

from __future__ import annotations

from ..session import Session, script


@script("a message with expiration 0 and no consumer is gone")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("gone", "q", properties={"expiration": "0"})
    s.count(ch, "q")
    ch.call("basic.get", queue="q", no_ack=True)


@script("a message with expiration 0 reaches a consumer that waits")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    ch.publish("in time", "q", properties={"expiration": "0"})
    s.settle()


@script("a message expires at the head of its queue")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("short", "q", properties={"expiration": "50"})
    ch.publish("long", "q", properties={"expiration": "60000"})
    s.until_messages("q", 1)
    ch.call("basic.get", queue="q", no_ack=True)


@script("an expired message behind a lasting one goes when its turn comes")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("lasting", "q")
    ch.publish("short", "q", properties={"expiration": "0"})
    ch.publish("last", "q")
    s.count(ch, "q")
    for _each in range(3):
        ch.call("basic.get", queue="q", no_ack=True)


@script("a delivered message does not expire")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.qos", prefetch_count=1)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("taken", "q", properties={"expiration": "0"})
    ch.expect("basic.deliver")
    ch.publish("waits and goes", "q", properties={"expiration": "1"})
    s.until_messages("q", 0)
    ch.send("basic.ack", delivery_tag=1)
    s.settle()


@script("a requeued message that has expired is gone")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("taken", "q", properties={"expiration": "0"})
    ch.expect("basic.deliver")
    ch.call("basic.cancel", consumer_tag="t")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.until_messages("q", 0)
    ch.call("basic.get", queue="q")


@script("the expiration stays in the properties")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("dated", "q", properties={"expiration": "60000"})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)
