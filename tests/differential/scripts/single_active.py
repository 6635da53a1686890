"""x-single-active-consumer: one consumer at a time gets everything, the others wait."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_client import Channel


def alone(s: Session, **arguments: Any) -> Channel:
    """A channel with a queue `q` that has one active consumer at a time."""
    ch = s.channel()
    arguments = {each.replace("_", "-"): arguments[each] for each in arguments}
    ch.call("queue.declare", queue="q", arguments={"x-single-active-consumer": True, **arguments})
    return ch


def consuming(s: Session, tag: str, prefetch: int = 0, no_ack: bool = False, **arguments: Any) -> Channel:
    """A consumer on a connection of its own."""
    ch = s.channel()
    if prefetch:
        ch.call("basic.qos", prefetch_count=prefetch)
    arguments = {each.replace("_", "-"): arguments[each] for each in arguments}
    ch.call("basic.consume", queue="q", consumer_tag=tag, no_ack=no_ack, arguments=arguments)
    return ch


def published(s: Session, ch: Channel, *bodies: str) -> None:
    for body in bodies:
        ch.publish(body, "q")
    s.settle()


@script("the first consumer is the active one and gets everything")
def _(s: Session) -> None:
    ch = alone(s)
    consuming(s, "first", no_ack=True)
    consuming(s, "second", no_ack=True)
    published(s, ch, "1", "2", "3", "4")


@script("waiting consumers count as consumers")
def _(s: Session) -> None:
    ch = alone(s)
    consuming(s, "first")
    consuming(s, "second")
    s.count(ch, "q")


@script("the first consumer gets what was there before")
def _(s: Session) -> None:
    ch = alone(s)
    published(s, ch, "1", "2", "3")
    consuming(s, "first")
    consuming(s, "second")
    s.settle()


@script("the active consumer that has no room does not yield")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first", 1)
    consuming(s, "second")
    published(s, ch, "1", "2", "3")
    s.count(ch, "q")
    first.send("basic.ack", delivery_tag=1)
    s.settle("acknowledged")
    s.count(ch, "q")


@script("the next consumer takes over when the active one is cancelled")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first", no_ack=True)
    consuming(s, "second", no_ack=True)
    consuming(s, "third", no_ack=True)
    published(s, ch, "1")
    first.call("basic.cancel", consumer_tag="first")
    published(s, ch, "2", "3")


@script("the takeover gets what the closed channel held and what waits in the queue")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first", 1)
    consuming(s, "second")
    published(s, ch, "1", "2", "3")
    first.close()
    s.until_consumers("q", 1)
    published(s, ch, "4")
    s.count(ch, "q")


@script("a cancelled consumer keeps its messages while the next one goes on")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first")
    consuming(s, "second")
    published(s, ch, "1", "2")
    first.call("basic.cancel", consumer_tag="first")
    published(s, ch, "3")
    first.send("basic.nack", delivery_tag=1, requeue=True)
    s.settle("requeued")


@script("the next consumer takes over when the channel of the active one is closed")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first")
    consuming(s, "second")
    published(s, ch, "1", "2")
    first.close()
    s.until_consumers("q", 1)
    published(s, ch, "3")


@script("the next consumer takes over when the connection of the active one is lost")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first")
    consuming(s, "second")
    published(s, ch, "1", "2")
    first.wire.hang_up()
    s.until_consumers("q", 1)
    published(s, ch, "3")


@script("a waiting consumer that goes changes nothing")
def _(s: Session) -> None:
    ch = alone(s)
    consuming(s, "first", no_ack=True)
    second = consuming(s, "second", no_ack=True)
    consuming(s, "third", no_ack=True)
    second.call("basic.cancel", consumer_tag="second")
    published(s, ch, "1", "2")


@script("a waiting consumer whose connection is lost is not chosen")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first", no_ack=True)
    second = consuming(s, "second", no_ack=True)
    consuming(s, "third", no_ack=True)
    second.wire.hang_up()
    s.until_consumers("q", 2)
    first.call("basic.cancel", consumer_tag="first")
    published(s, ch, "1", "2")


@script("consumers take over in the order of their coming")
def _(s: Session) -> None:
    ch = alone(s)
    names = ("first", "second", "third", "fourth")
    consumers = [consuming(s, name, no_ack=True) for name in names]
    for name, consumer in zip(names, consumers, strict=True):
        published(s, ch, f"for {name}")
        consumer.call("basic.cancel", consumer_tag=name)
    s.count(ch, "q")


@script("the order of the waiting does not change by deliveries")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first", no_ack=True)
    second = consuming(s, "second", no_ack=True)
    consuming(s, "third", no_ack=True)
    published(s, ch, "1", "2", "3", "4", "5")
    first.call("basic.cancel", consumer_tag="first")
    published(s, ch, "6", "7", "8")
    second.call("basic.cancel", consumer_tag="second")
    published(s, ch, "9")


@script("a consumer that comes back has to wait")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first", no_ack=True)
    second = consuming(s, "second", no_ack=True)
    first.call("basic.cancel", consumer_tag="first")
    first.call("basic.consume", queue="q", consumer_tag="first", no_ack=True)
    published(s, ch, "1", "2")
    second.call("basic.cancel", consumer_tag="second")
    published(s, ch, "3")


@script("two consumers of one channel are two")
def _(s: Session) -> None:
    ch = alone(s)
    consumer = consuming(s, "first", no_ack=True)
    consumer.call("basic.consume", queue="q", consumer_tag="second", no_ack=True)
    published(s, ch, "1", "2")
    consumer.call("basic.cancel", consumer_tag="first")
    published(s, ch, "3", "4")


@script("a consumer of higher priority does not displace the active one")
def _(s: Session) -> None:
    ch = alone(s)
    consuming(s, "low", no_ack=True, x_priority=1)
    consuming(s, "high", no_ack=True, x_priority=10)
    published(s, ch, "1", "2")


@script("the waiting consumer of the highest priority takes over")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first", no_ack=True)
    consuming(s, "low", no_ack=True, x_priority=1)
    high = consuming(s, "high", no_ack=True, x_priority=10)
    consuming(s, "middle", no_ack=True, x_priority=5)
    published(s, ch, "1")
    first.call("basic.cancel", consumer_tag="first")
    published(s, ch, "2", "3")
    high.call("basic.cancel", consumer_tag="high")
    published(s, ch, "4")


@script("an active consumer of high priority without room does not yield either")
def _(s: Session) -> None:
    ch = alone(s)
    high = consuming(s, "high", 1, x_priority=10)
    consuming(s, "low", no_ack=True)
    published(s, ch, "1", "2")
    s.count(ch, "q")
    high.send("basic.ack", delivery_tag=1)
    s.settle("acknowledged")


@script("an exclusive consumer is refused by a queue with a single active consumer")
def _(s: Session) -> None:
    ch = alone(s)
    ch.refused("basic.consume", queue="q", consumer_tag="t", exclusive=True)


@script("an exclusive consumer is refused beside an active one")
def _(s: Session) -> None:
    alone(s)
    consuming(s, "first")
    s.channel().refused("basic.consume", queue="q", consumer_tag="t", exclusive=True)


@script("an exclusive queue may have a single active consumer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", exclusive=True, arguments={"x-single-active-consumer": True})
    ch.call("basic.consume", queue="q", consumer_tag="first", no_ack=True)
    ch.call("basic.consume", queue="q", consumer_tag="second", no_ack=True)
    published(s, ch, "1", "2")


@script("basic.get works beside the active consumer")
def _(s: Session) -> None:
    ch = alone(s)
    consuming(s, "first", 1)
    consuming(s, "second")
    published(s, ch, "1", "2", "3")
    ch.call("basic.get", queue="q", no_ack=True)
    s.count(ch, "q")


@script("basic.get works without a consumer")
def _(s: Session) -> None:
    ch = alone(s)
    published(s, ch, "1")
    ch.call("basic.get", queue="q", no_ack=True)


@script("what the active consumer requeues comes back to it")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first")
    consuming(s, "second")
    published(s, ch, "1", "2")
    first.send("basic.nack", delivery_tag=2, multiple=True, requeue=True)
    s.settle()


@script("the takeover gets what the lost consumer held, in order, before newer messages")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first", 3)
    consuming(s, "second")
    published(s, ch, "1", "2", "3", "4", "5")
    first.wire.hang_up()
    s.until_consumers("q", 1)
    s.settle()


@script("waiting consumers hear when the queue is deleted")
def _(s: Session) -> None:
    ch = alone(s)
    consuming(s, "first")
    consuming(s, "second")
    s.settle()
    ch.call("queue.delete", queue="q")
    s.settle()


@script("a queue with only waiting consumers left is in use")
def _(s: Session) -> None:
    ch = alone(s)
    first = consuming(s, "first")
    consuming(s, "second")
    first.call("basic.cancel", consumer_tag="first")
    s.settle()
    ch.refused("queue.delete", queue="q", if_unused=True)


@script("an auto-delete queue goes with the last waiting consumer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", auto_delete=True, arguments={"x-single-active-consumer": True})
    first, second = consuming(s, "first"), consuming(s, "second")
    first.call("basic.cancel", consumer_tag="first")
    s.count(ch, "q")
    second.call("basic.cancel", consumer_tag="second")
    s.until_gone("q")
    ch.refused("queue.declare", queue="q", passive=True)


@script("a single active consumer of a priority queue gets the highest first")
def _(s: Session) -> None:
    ch = alone(s, x_max_priority=5)
    for priority in (1, 5, 3):
        ch.publish(str(priority), "q", properties={"priority": priority})
    s.settle()
    consuming(s, "first", no_ack=True)
    consuming(s, "second", no_ack=True)
    s.settle()


@script("the flag false lets all consumers work")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-single-active-consumer": False})
    consuming(s, "first", 1)
    consuming(s, "second", 1)
    published(s, ch, "1", "2")


@script("prefetch of the channel as a whole holds for the active consumer")
def _(s: Session) -> None:
    ch = alone(s)
    first = s.channel()
    first.call("basic.qos", prefetch_count=2, global_=True)
    first.call("basic.consume", queue="q", consumer_tag="first")
    consuming(s, "second")
    published(s, ch, "1", "2", "3")
    s.count(ch, "q")
    first.send("basic.ack", delivery_tag=1)
    s.settle("acknowledged")


@script("messages that the active consumer rejects are dead-lettered")
def _(s: Session) -> None:
    ch = alone(s, x_dead_letter_exchange="", x_dead_letter_routing_key="dlq")
    ch.call("queue.declare", queue="dlq")
    first = consuming(s, "first")
    consuming(s, "second")
    published(s, ch, "1")
    first.send("basic.reject", delivery_tag=1, requeue=False)
    s.until_messages("dlq", 1)
    ch.call("basic.get", queue="dlq", no_ack=True)
