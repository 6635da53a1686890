"""x-delivery-limit of quorum queues: how often a message is tried, and the reason delivery_limit."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_client import Channel
from .dead_letters import letters


def limited(s: Session, limit: int | None, target: str = "dlq") -> Channel:
    """A channel with a quorum queue `q` whose dead letters go to `dlq`."""
    ch = s.channel()
    ch.call("queue.declare", queue="dlq")
    arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-dead-letter-exchange": ""}
    arguments["x-dead-letter-routing-key"] = target
    if limit is not None:
        arguments["x-delivery-limit"] = limit
    ch.call("queue.declare", queue="q", durable=True, arguments=arguments)
    return ch


def consuming(s: Session) -> Channel:
    """A consumer that takes one message at a time."""
    consumer = s.channel()
    consumer.call("basic.qos", prefetch_count=1)
    consumer.call("basic.consume", queue="q", consumer_tag="t")
    return consumer


def tried(consumer: Channel, times: int, name: str = "basic.nack") -> None:
    """Take the message and give it back, again and again."""
    for tag in range(1, times + 1):
        consumer.expect("basic.deliver")
        consumer.send(name, delivery_tag=tag, requeue=True)


@script("a message that is requeued too often is dead-lettered for its delivery limit")
def _(s: Session) -> None:
    ch = limited(s, 2)
    consumer = consuming(s)
    ch.publish("tried", "q", properties={"delivery_mode": 2, "headers": {"mine": 1, "z": 2}})
    tried(consumer, 3)
    letters(s, ch, 1)
    s.count(ch, "q")


@script("a delivery limit of 0 lets a message be delivered once")
def _(s: Session) -> None:
    ch = limited(s, 0)
    consumer = consuming(s)
    ch.publish("once", "q")
    tried(consumer, 1)
    letters(s, ch, 1)


@script("a reject with requeue counts for the delivery limit")
def _(s: Session) -> None:
    ch = limited(s, 1)
    consumer = consuming(s)
    ch.publish("tried", "q")
    tried(consumer, 2, "basic.reject")
    letters(s, ch, 1)


@script("a reject without requeue is rejected whatever the limit")
def _(s: Session) -> None:
    ch = limited(s, 5)
    consumer = consuming(s)
    ch.publish("tried", "q")
    tried(consumer, 1)
    consumer.expect("basic.deliver")
    consumer.send("basic.reject", delivery_tag=2, requeue=False)
    letters(s, ch, 1)


@script("without a delivery limit the deliveries are counted only")
def _(s: Session) -> None:
    ch = limited(s, None)
    consumer = consuming(s)
    ch.publish("tried", "q")
    tried(consumer, 4)
    consumer.expect("basic.deliver")
    consumer.send("basic.ack", delivery_tag=5)
    s.count(ch, "dlq")


@script("messages are counted each on its own")
def _(s: Session) -> None:
    ch = limited(s, 2)
    consumer = consuming(s)
    ch.publish("tried", "q")
    tried(consumer, 2)
    consumer.expect("basic.deliver")
    consumer.send("basic.ack", delivery_tag=3)
    ch.publish("new", "q")
    consumer.expect("basic.deliver")
    consumer.send("basic.nack", delivery_tag=4, requeue=True)
    consumer.expect("basic.deliver")


@script("a closed channel counts for the delivery limit")
def _(s: Session) -> None:
    ch = limited(s, 1)
    ch.publish("tried", "q")
    for _each in range(2):
        consumer = consuming(s)
        consumer.expect("basic.deliver")
        consumer.close()
    letters(s, ch, 1)


@script("a lost connection counts for the delivery limit")
def _(s: Session) -> None:
    ch = limited(s, 0)
    consumer = consuming(s)
    ch.publish("once", "q")
    consumer.expect("basic.deliver")
    consumer.wire.hang_up()
    letters(s, ch, 1)


@script("basic.recover counts for the delivery limit")
def _(s: Session) -> None:
    ch = limited(s, 0)
    consumer = consuming(s)
    ch.publish("once", "q")
    consumer.expect("basic.deliver")
    consumer.call("basic.recover", requeue=True)
    letters(s, ch, 1)


@script("a message over its delivery limit without an exchange for it is gone")
def _(s: Session) -> None:
    ch = s.channel()
    arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 0}
    ch.call("queue.declare", queue="q", durable=True, arguments=arguments)
    consumer = consuming(s)
    ch.publish("once", "q")
    tried(consumer, 1)
    ch.publish("next", "q")
    consumer.expect("basic.deliver")


@script("messages that are requeued together are counted each")
def _(s: Session) -> None:
    ch = limited(s, 1)
    consumer = s.channel()
    consumer.call("basic.consume", queue="q", consumer_tag="t")
    for body in ("one", "two"):
        ch.publish(body, "q")
    for tag in (2, 4):
        consumer.expect("basic.deliver")
        consumer.expect("basic.deliver")
        consumer.send("basic.nack", delivery_tag=tag, multiple=True, requeue=True)
    letters(s, ch, 2)


@script("a letter for the delivery limit closes a ring")
def _(s: Session) -> None:
    ch = limited(s, 0, "q")
    consumer = consuming(s)
    ch.publish("once", "q")
    tried(consumer, 1)
    ch.publish("next", "q")
    consumer.expect("basic.deliver")


@script("basic.get shows the count of deliveries from the first one on")
def _(s: Session) -> None:
    ch = limited(s, 1)
    ch.publish("tried", "q", properties={"headers": {"z": 1}})
    for tag in (1, 2):
        s.until_messages("q", 1)
        ch.call("basic.get", queue="q")
        ch.send("basic.nack", delivery_tag=tag, requeue=True)
    letters(s, ch, 1)


@script("the header x-delivery-count of a publisher is hidden by the count and is back in the letter")
def _(s: Session) -> None:
    ch = limited(s, 1)
    consumer = consuming(s)
    ch.publish("tried", "q", properties={"headers": {"x-delivery-count": 7, "z": 1}})
    tried(consumer, 2)
    letters(s, ch, 1)


@script("another delivery limit is refused")
def _(s: Session) -> None:
    ch = s.channel()
    arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 5}
    ch.call("queue.declare", queue="q", durable=True, arguments=arguments)
    ch.refused("queue.declare", queue="q", durable=True, arguments={**arguments, "x-delivery-limit": 6})
