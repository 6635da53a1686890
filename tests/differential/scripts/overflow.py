"""Queues with a maximum length: dropping the head, refusing the publish."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_client import Channel


def limited(s: Session, **arguments: Any) -> Channel:
    """A channel with a queue `q` of these arguments."""
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={each.replace("_", "-"): arguments[each] for each in arguments})
    return ch


def refusing(s: Session, **arguments: Any) -> Channel:
    """The same with x-overflow=reject-publish and confirms."""
    ch = limited(s, x_overflow="reject-publish", **arguments)
    ch.call("confirm.select")
    return ch


def published(s: Session, ch: Channel, *bodies: str) -> None:
    for body in bodies:
        ch.publish(body, "q")
    s.settle()


def got(ch: Channel, count: int, queue: str = "q") -> None:
    for _each in range(count):
        ch.call("basic.get", queue=queue, no_ack=True)


# --- drop-head -------------------------------------------------------------------------------------------


@script("a full queue drops its oldest messages")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=3)
    published(s, ch, "1", "2", "3", "4", "5")
    s.count(ch, "q")
    got(ch, 4)


@script("drop-head is what a full queue does without a word about it")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=2, x_overflow="drop-head")
    published(s, ch, "1", "2", "3")
    got(ch, 3)


@script("an overflow word without a limit limits nothing")
def _(s: Session) -> None:
    ch = limited(s, x_overflow="reject-publish")
    published(s, ch, "1", "2", "3")
    s.count(ch, "q")


@script("a maximum length of 0 keeps nothing")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=0)
    published(s, ch, "1", "2")
    s.count(ch, "q")
    got(ch, 1)


@script("a maximum length of 0 lets messages through to a waiting consumer")
def _(s: Session) -> None:
    ch, consumer = limited(s, x_max_length=0), s.channel()
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    published(s, ch, "1", "2", "3")
    s.count(ch, "q")


@script("a maximum length of 0 drops what the consumer has no room for")
def _(s: Session) -> None:
    ch, consumer = limited(s, x_max_length=0), s.channel()
    consumer.call("basic.qos", prefetch_count=1)
    consumer.call("basic.consume", queue="q", consumer_tag="t")
    published(s, ch, "taken")
    published(s, ch, "dropped")
    consumer.send("basic.ack", delivery_tag=1)
    s.settle("acknowledged")
    published(s, ch, "taken too")


@script("unacknowledged messages do not count for the maximum length")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=2)
    published(s, ch, "1", "2")
    ch.call("basic.get", queue="q")
    ch.call("basic.get", queue="q")
    published(s, ch, "3", "4")
    s.count(ch, "q")
    got(ch, 2)


@script("messages that are requeued to a full queue push out the head")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=2)
    published(s, ch, "1", "2")
    ch.call("basic.get", queue="q")
    ch.call("basic.get", queue="q")
    published(s, ch, "3", "4")
    ch.send("basic.nack", delivery_tag=2, multiple=True, requeue=True)
    s.count(ch, "q")
    got(ch, 3)


@script("messages that a closed channel gives back push out the head")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=2)
    other = ch.wire.channel(2)
    published(s, ch, "1", "2")
    other.call("basic.get", queue="q")
    published(s, ch, "3")
    other.close()
    s.count(ch, "q")
    got(ch, 3)


@script("a maximum length in bytes counts bodies only")
def _(s: Session) -> None:
    ch = limited(s, x_max_length_bytes=10)
    ch.publish("12345", "q", properties={"headers": {"large": "x" * 1000}, "content_type": "text/plain"})
    published(s, ch, "67890")
    s.count(ch, "q")
    published(s, ch, "1")
    s.count(ch, "q")
    got(ch, 3)


@script("a maximum length in bytes drops as many messages as it takes")
def _(s: Session) -> None:
    ch = limited(s, x_max_length_bytes=10)
    published(s, ch, "1", "22", "333", "4444", "7777777")
    s.count(ch, "q")
    got(ch, 3)


@script("a message larger than the maximum in bytes empties the queue")
def _(s: Session) -> None:
    ch = limited(s, x_max_length_bytes=10)
    published(s, ch, "1", "2", "too large a message")
    s.count(ch, "q")
    got(ch, 1)


@script("empty bodies take no room in bytes")
def _(s: Session) -> None:
    ch = limited(s, x_max_length_bytes=0)
    published(s, ch, "", "", "x")
    s.count(ch, "q")
    published(s, ch, "")
    s.count(ch, "q")
    got(ch, 2)


@script("both limits hold")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=3, x_max_length_bytes=10)
    published(s, ch, "1", "2", "3", "4")
    s.count(ch, "q")
    published(s, ch, "55555555")
    s.count(ch, "q")
    got(ch, 4)


@script("dropped messages are confirmed")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=1)
    ch.call("confirm.select")
    for body in ("1", "2", "3"):
        ch.publish(body, "q", mandatory=True)
    ch.confirmed(3)
    s.count(ch, "q")


@script("a dropped persistent message of a durable queue is confirmed")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", durable=True, arguments={"x-max-length": 1})
    ch.call("confirm.select")
    for body in ("1", "2", "3"):
        ch.publish(body, "q", properties={"delivery_mode": 2})
    ch.confirmed(3)
    s.count(ch, "q")
    got(ch, 2)


@script("a transaction larger than the queue leaves its end")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=2)
    ch.call("tx.select")
    for body in ("1", "2", "3"):
        ch.publish(body, "q")
    ch.call("tx.commit")
    s.count(ch, "q")
    got(ch, 3)


@script("a purged queue has room again")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=2, x_max_length_bytes=2)
    published(s, ch, "1", "2")
    ch.call("queue.purge", queue="q")
    published(s, ch, "3", "4")
    s.count(ch, "q")
    got(ch, 2)


@script("what a consumer has taken makes room")
def _(s: Session) -> None:
    ch, consumer = limited(s, x_max_length=2), s.channel()
    published(s, ch, "1", "2", "3")
    consumer.call("basic.consume", queue="q", consumer_tag="t")
    s.settle("consumed")
    published(s, ch, "4", "5", "6")


# --- reject-publish --------------------------------------------------------------------------------------


@script("a full queue that rejects keeps its oldest messages")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=2, x_overflow="reject-publish")
    published(s, ch, "1", "2", "3", "4")
    s.count(ch, "q")
    got(ch, 3)


@script("a rejected publish is nacked")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=2)
    for body in ("1", "2", "3", "4"):
        ch.publish(body, "q")
    ch.confirmed(4)
    got(ch, 3)


@script("a queue that rejected takes messages again when it has room")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=1)
    for body in ("1", "2"):
        ch.publish(body, "q")
    ch.confirmed(2)
    got(ch, 1)
    ch.publish("3", "q")
    ch.confirmed(3)
    got(ch, 1)


@script("a maximum length of 0 rejects everything")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=0)
    ch.publish("1", "q")
    ch.confirmed(1)
    s.count(ch, "q")


@script("a maximum length of 0 rejects even with a consumer that waits")
def _(s: Session) -> None:
    ch, consumer = refusing(s, x_max_length=0), s.channel()
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    ch.publish("1", "q")
    ch.confirmed(1)
    s.settle()


@script("a message larger than the maximum in bytes is rejected alone")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length_bytes=10)
    for body in ("12345", "12345678901", "67890", "1", ""):
        ch.publish(body, "q")
        ch.confirmed(len(ch.confirms) + 1)
    got(ch, 4)


@script("unacknowledged messages leave room for publishes")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=1)
    ch.publish("1", "q")
    ch.confirmed(1)
    ch.call("basic.get", queue="q")
    ch.publish("2", "q")
    ch.confirmed(2)
    ch.publish("3", "q")
    ch.confirmed(3)


@script("messages requeued to a full queue that rejects are kept")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=1)
    ch.publish("1", "q")
    ch.confirmed(1)
    ch.call("basic.get", queue="q")
    ch.publish("2", "q")
    ch.confirmed(2)
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.count(ch, "q")
    got(ch, 2)


@script("a rejected mandatory message is nacked and not returned")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=0)
    ch.publish("1", "q", mandatory=True)
    ch.confirmed(1)


@script("a rejected publish without confirms vanishes without a word")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=0, x_overflow="reject-publish")
    ch.publish("1", "q", mandatory=True)
    s.count(ch, "q")


@script("a publish that one of two queues rejects is nacked")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=0)
    ch.call("queue.declare", queue="wide")
    for queue in ("q", "wide"):
        ch.call("queue.bind", queue=queue, exchange="amq.fanout")
    ch.publish("1", "", "amq.fanout")
    ch.confirmed(1)
    s.count(ch, "wide")
    s.count(ch, "q")
    got(ch, 1, "wide")


@script("a publish that two queues reject is nacked once")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=0)
    ch.call("queue.declare", queue="q2", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    for queue in ("q", "q2"):
        ch.call("queue.bind", queue=queue, exchange="amq.fanout")
    ch.publish("1", "", "amq.fanout")
    ch.confirmed(1)
    s.settle()


@script("a persistent publish that one of two durable queues rejects is nacked")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("confirm.select")
    arguments = {"x-max-length": 0, "x-overflow": "reject-publish"}
    ch.call("queue.declare", queue="q", durable=True, arguments=arguments)
    ch.call("queue.declare", queue="wide", durable=True)
    for queue in ("q", "wide"):
        ch.call("queue.bind", queue=queue, exchange="amq.fanout")
    ch.publish("1", "", "amq.fanout", properties={"delivery_mode": 2})
    ch.confirmed(1)
    s.count(ch, "wide")


@script("a rejected publish fails the transaction that made it")
def _(s: Session) -> None:
    ch = limited(s, x_max_length=1, x_overflow="reject-publish")
    other = ch.wire.channel(2)
    ch.call("tx.select")
    ch.publish("1", "q")
    ch.publish("2", "q")
    ch.refused("tx.commit")
    s.count(other, "q")


@script("a rejected publish with an expiration of 0 is nacked")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=1)
    ch.publish("1", "q")
    ch.publish("2", "q", properties={"expiration": "0"})
    ch.confirmed(2)


@script("an empty queue with a maximum length of 0 rejects what would expire at once")
def _(s: Session) -> None:
    ch = refusing(s, x_max_length=0, x_message_ttl=0)
    ch.publish("1", "q")
    ch.confirmed(1)
