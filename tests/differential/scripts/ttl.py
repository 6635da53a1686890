"""Time to live: of single messages and of all messages of a queue, at the head of the queue."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_client import Channel

# A time to live that no script reaches.
LONG_MS = 3_600_000


def short_lived(s: Session, ttl_ms: int, **arguments: Any) -> Channel:
    """A channel with a queue `q` whose messages live that long."""
    ch = s.channel()
    arguments = {each.replace("_", "-"): arguments[each] for each in arguments}
    ch.call("queue.declare", queue="q", arguments={"x-message-ttl": ttl_ms, **arguments})
    return ch


def expiring(s: Session, ch: Channel, body: str, ms: int, queue: str = "q") -> None:
    """Publish a message with an expiration, and see to it that it has reached its queue."""
    ch.publish(body, queue, properties={"expiration": str(ms)})
    s.settle()


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


# --- x-message-ttl ---------------------------------------------------------------------------------------


@script("messages of a queue with a time to live expire")
def _(s: Session) -> None:
    ch = short_lived(s, 1)
    ch.publish("one", "q")
    ch.publish("two", "q")
    s.settle()
    s.until_messages("q", 0)
    ch.call("basic.get", queue="q", no_ack=True)


@script("messages of a queue with a long time to live stay and show no expiration")
def _(s: Session) -> None:
    ch = short_lived(s, LONG_MS)
    ch.publish("stays", "q")
    s.count(ch, "q")
    ch.call("basic.get", queue="q", no_ack=True)


@script("a time to live of 0 keeps nothing without a consumer")
def _(s: Session) -> None:
    ch = short_lived(s, 0)
    ch.publish("gone", "q")
    s.count(ch, "q")
    ch.call("basic.get", queue="q", no_ack=True)


@script("a time to live of 0 lets messages through to a waiting consumer")
def _(s: Session) -> None:
    ch, consumer = short_lived(s, 0), s.channel()
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    for number in range(3):
        ch.publish(str(number), "q")
    s.count(ch, "q")


@script("a time to live of 0 drops what the consumer has no room for")
def _(s: Session) -> None:
    ch, consumer = short_lived(s, 0), s.channel()
    consumer.call("basic.qos", prefetch_count=1)
    consumer.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("taken", "q")
    s.settle()
    ch.publish("gone", "q")
    s.settle()
    consumer.send("basic.ack", delivery_tag=1)
    s.settle("acknowledged")
    ch.publish("taken too", "q")
    s.settle()


@script("a message with a time to live of 0 is confirmed and not returned")
def _(s: Session) -> None:
    ch = short_lived(s, 0)
    ch.call("confirm.select")
    ch.publish("gone", "q", mandatory=True)
    ch.confirmed(1)
    s.count(ch, "q")


@script("the shorter time to live wins when it is the message's")
def _(s: Session) -> None:
    ch = short_lived(s, LONG_MS)
    expiring(s, ch, "short", 1)
    s.until_messages("q", 0)
    ch.call("basic.get", queue="q", no_ack=True)


@script("the shorter time to live wins when it is the queue's")
def _(s: Session) -> None:
    ch = short_lived(s, 1)
    expiring(s, ch, "long", LONG_MS)
    s.until_messages("q", 0)
    ch.call("basic.get", queue="q", no_ack=True)


@script("an expired message waits behind one that lives longer")
def _(s: Session) -> None:
    ch = short_lived(s, LONG_MS)
    ch.call("queue.declare", queue="clock")
    ch.publish("lasting", "q")
    expiring(s, ch, "short", 1)
    expiring(s, ch, "last", LONG_MS)
    # A message that went in later and lives longer has gone: so has the time of the short one.
    expiring(s, ch, "tick", 50, "clock")
    s.until_messages("clock", 0)
    s.count(ch, "q")
    for _each in range(3):
        ch.call("basic.get", queue="q", no_ack=True)


@script("many expired messages behind a lasting one go at once with it")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("lasting", "q")
    for number in range(20):
        ch.publish(str(number), "q", properties={"expiration": "0"})
    s.count(ch, "q")
    ch.call("basic.get", queue="q", no_ack=True)
    s.count(ch, "q")


@script("a consumer gets the lasting messages between the expired ones")
def _(s: Session) -> None:
    ch, consumer = s.channel(), s.channel()
    ch.call("queue.declare", queue="q")
    for number in range(6):
        properties = {"expiration": "0"} if number % 2 else {}
        ch.publish(str(number), "q", properties=properties)
    s.count(ch, "q")
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    s.count(ch, "q")


@script("expired messages behind a lasting one count when the queue is purged")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("lasting", "q")
    expiring(s, ch, "expired", 0)
    ch.call("queue.purge", queue="q")
    s.count(ch, "q")


@script("expired messages behind a lasting one count when the queue is deleted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("lasting", "q")
    expiring(s, ch, "expired", 0)
    ch.call("queue.delete", queue="q")


@script("a queue whose messages have expired is empty")
def _(s: Session) -> None:
    ch = short_lived(s, 1)
    ch.publish("gone", "q")
    s.settle()
    s.until_messages("q", 0)
    ch.call("queue.purge", queue="q")
    ch.call("queue.delete", queue="q", if_empty=True)


@script("messages published after a purge live their own time")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    expiring(s, ch, "purged", LONG_MS)
    ch.call("queue.purge", queue="q")
    expiring(s, ch, "short", 1)
    s.until_messages("q", 0)
    ch.publish("lasting", "q")
    s.count(ch, "q")


@script("an unacknowledged message outlives its time")
def _(s: Session) -> None:
    ch = short_lived(s, 0)
    ch.call("queue.declare", queue="clock")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("held", "q")
    ch.expect("basic.deliver")
    expiring(s, ch, "tick", 1, "clock")
    s.until_messages("clock", 0)
    ch.send("basic.ack", delivery_tag=1)
    s.count(ch, "q")


@script("a requeued message of a queue with a time to live has expired meanwhile")
def _(s: Session) -> None:
    ch = short_lived(s, 0)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("held", "q")
    ch.expect("basic.deliver")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.count(ch, "q")


@script("a message that is requeued before its time expires in the queue")
def _(s: Session) -> None:
    ch = short_lived(s, 300)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("held", "q")
    ch.expect("basic.deliver")
    ch.call("basic.cancel", consumer_tag="t")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.settle()
    s.until_messages("q", 0)
    ch.call("basic.get", queue="q", no_ack=True)


@script("a message that a closed channel gives back has expired")
def _(s: Session) -> None:
    ch = short_lived(s, 0)
    other = ch.wire.channel(2)
    other.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("held", "q")
    other.expect("basic.deliver")
    other.close()
    s.until_consumers("q", 0)
    s.count(ch, "q")


@script("a requeued message that has expired behind an older one stays until its turn")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.qos", prefetch_count=2)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("lasting", "q")
    ch.publish("short", "q", properties={"expiration": "0"})
    s.settle()
    ch.call("basic.cancel", consumer_tag="t")
    ch.send("basic.nack", delivery_tag=2, multiple=True, requeue=True)
    s.count(ch, "q")
    ch.call("basic.get", queue="q", no_ack=True)
    s.count(ch, "q")


@script("a requeued lasting message holds up an expired one behind it")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("lasting", "q")
    expiring(s, ch, "expired", 0)
    ch.publish("also lasting", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.count(ch, "q")
    for _each in range(2):
        ch.call("basic.get", queue="q", no_ack=True)


@script("messages of a transaction that live for 0 ms are gone after the commit")
def _(s: Session) -> None:
    ch = short_lived(s, LONG_MS)
    ch.call("tx.select")
    ch.publish("in time", "q", properties={"expiration": "0"})
    ch.publish("behind nothing", "q", properties={"expiration": "0"})
    ch.call("tx.commit")
    s.count(ch, "q")


@script("a fanout's copies expire each in its queue")
def _(s: Session) -> None:
    ch = short_lived(s, 1)
    ch.call("queue.declare", queue="lasting")
    for queue in ("q", "lasting"):
        ch.call("queue.bind", queue=queue, exchange="amq.fanout")
    ch.publish("two lives", "", "amq.fanout")
    s.settle()
    s.until_messages("q", 0)
    s.count(ch, "lasting")
    ch.call("basic.get", queue="lasting", no_ack=True)


@script("the largest expiration is accepted and holds")
def _(s: Session) -> None:
    ch = s.channel()
    largest = 10 * 365 * 24 * LONG_MS
    ch.call("queue.declare", queue="q", arguments={"x-message-ttl": largest})
    expiring(s, ch, "far", largest)
    s.count(ch, "q")
    ch.call("basic.get", queue="q", no_ack=True)


@script("messages of many lives expire each when it is at the head")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for ms in (20, 10, 5, 1, 30, 2):
        ch.publish(str(ms), "q", properties={"expiration": str(ms)})
    s.settle()
    s.until_messages("q", 0)
    ch.publish("next", "q")
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)
