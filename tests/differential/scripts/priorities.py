"""x-max-priority: messages by priority, and what that means for limits, time to live and requeues."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_client import Channel
from .dead_letters import letters


def ranked(s: Session, maximum: int = 10, **arguments: Any) -> Channel:
    """A channel with a priority queue `q`."""
    ch = s.channel()
    arguments = {each.replace("_", "-"): arguments[each] for each in arguments}
    ch.call("queue.declare", queue="q", arguments={"x-max-priority": maximum, **arguments})
    return ch


def published(s: Session, ch: Channel, *priorities: int | None, **properties: Any) -> None:
    """Publish one message of each priority; the body is its place and priority."""
    for place, priority in enumerate(priorities, 1):
        own = {} if priority is None else {"priority": priority}
        ch.publish(f"{place} of {priority}", "q", properties={**own, **properties})
    s.settle()


def got(ch: Channel, count: int, **options: Any) -> None:
    for _each in range(count):
        ch.call("basic.get", queue="q", **{"no_ack": True, **options})


@script("the highest priority comes first")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 1, 5, 10, 3)
    got(ch, 5)


@script("messages of one priority keep their order")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 2, 1, 2, 1, 2)
    got(ch, 5)


@script("a message without priority has the lowest")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, None, 1, 0, None, 2)
    got(ch, 5)


@script("a priority above the maximum is the maximum and is shown as it was")
def _(s: Session) -> None:
    ch = ranked(s, 5)
    published(s, ch, 5, 200, 5, 255, 6)
    got(ch, 5)


@script("a queue with the maximum priority 0 is in order of arrival")
def _(s: Session) -> None:
    ch = ranked(s, 0)
    published(s, ch, 1, 9, 3)
    got(ch, 3)


@script("a queue with 255 priorities")
def _(s: Session) -> None:
    ch = ranked(s, 255)
    published(s, ch, 254, 255, 0, 128)
    got(ch, 4)


@script("a queue without a maximum priority does not look at priorities")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    published(s, ch, 1, 9, 3)
    got(ch, 3)


@script("a consumer gets the highest priority first")
def _(s: Session) -> None:
    ch, consumer = ranked(s), s.channel()
    published(s, ch, 1, 5, 3)
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    s.settle()


@script("a consumer with room gets messages as they come")
def _(s: Session) -> None:
    ch, consumer = ranked(s), s.channel()
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    for priority in (1, 5, 3):
        published(s, ch, priority)


@script("a consumer that acknowledges one by one gets the highest of what has come")
def _(s: Session) -> None:
    ch, consumer = ranked(s), s.channel()
    consumer.call("basic.qos", prefetch_count=1)
    consumer.call("basic.consume", queue="q", consumer_tag="t")
    published(s, ch, 1)
    published(s, ch, 2, 9, 4)
    for tag in range(1, 4):
        consumer.send("basic.ack", delivery_tag=tag)
        consumer.expect("basic.deliver")


@script("the counts of a priority queue are those of all priorities")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 1, 5, 5, None)
    s.count(ch, "q")
    got(ch, 1)
    s.count(ch, "q")


@script("a purge takes all priorities")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 1, 5, None)
    ch.call("queue.purge", queue="q")
    s.count(ch, "q")
    got(ch, 1)


@script("a deleted priority queue counts all priorities")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 1, 5, None)
    ch.call("queue.delete", queue="q")


@script("requeued messages go back to their priority and place")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 1, 5, 1, 5)
    for _each in range(3):
        ch.call("basic.get", queue="q")
    ch.send("basic.nack", delivery_tag=3, multiple=True, requeue=True)
    s.count(ch, "q")
    got(ch, 4)


@script("a requeued low message waits for the higher ones")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 1)
    ch.call("basic.get", queue="q")
    published(s, ch, 5, 3)
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.settle()
    got(ch, 3)


@script("what a closed channel held goes back to its priorities")
def _(s: Session) -> None:
    ch = ranked(s)
    other = ch.wire.channel(2)
    published(s, ch, 1, 5, 3)
    for _each in range(2):
        other.call("basic.get", queue="q")
    other.close()
    s.until_messages("q", 3)
    got(ch, 3)


@script("a full priority queue drops its head, which is of the highest priority")
def _(s: Session) -> None:
    ch = ranked(s, x_max_length=3)
    published(s, ch, 1, 5, 3, 2)
    s.count(ch, "q")
    got(ch, 4)


@script("a message of high priority that overfills its queue is dropped itself")
def _(s: Session) -> None:
    ch = ranked(s, x_max_length=2)
    published(s, ch, 1, 1, 9)
    got(ch, 3)


@script("the oldest of the highest priority is dropped")
def _(s: Session) -> None:
    ch = ranked(s, x_max_length=3)
    published(s, ch, 5, 1, 5, 5, 0)
    got(ch, 4)


@script("a maximum in bytes counts over all priorities")
def _(s: Session) -> None:
    ch = ranked(s, x_max_length_bytes=12)
    published(s, ch, 1, 5, 3)
    s.count(ch, "q")
    got(ch, 3)


@script("a full priority queue that rejects looks at no priority")
def _(s: Session) -> None:
    ch = ranked(s, x_max_length=2, x_overflow="reject-publish")
    ch.call("confirm.select")
    for priority in (1, 2, 9):
        ch.publish(str(priority), "q", properties={"priority": priority})
    ch.confirmed(3)
    got(ch, 3)


@script("a full priority queue dead-letters what it drops")
def _(s: Session) -> None:
    ch = ranked(s, x_max_length=1, x_dead_letter_exchange="", x_dead_letter_routing_key="dlq")
    ch.call("queue.declare", queue="dlq")
    published(s, ch, 1, 5, 3)
    letters(s, ch, 2)
    got(ch, 2)


@script("messages of a priority queue expire")
def _(s: Session) -> None:
    ch = ranked(s, x_message_ttl=1)
    published(s, ch, 1, 5, None)
    s.until_messages("q", 0)
    got(ch, 1)


@script("an expired low message waits behind a lasting high one")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 5)
    published(s, ch, 1, expiration="0")
    s.count(ch, "q")
    got(ch, 2)
    s.count(ch, "q")


@script("a high message that expires in front of an older low one is delivered all the same")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 1)
    # Only the first message of a queue starts the clock, and this one comes second.
    published(s, ch, 5, expiration="0")
    s.count(ch, "q")
    got(ch, 3)


@script("an expired message behind a lasting one of its priority waits")
def _(s: Session) -> None:
    ch = ranked(s)
    published(s, ch, 5)
    published(s, ch, 5, expiration="0")
    published(s, ch, 1)
    s.count(ch, "q")
    got(ch, 3)


@script("messages of many priorities expire from the highest down")
def _(s: Session) -> None:
    ch = ranked(s, x_dead_letter_exchange="", x_dead_letter_routing_key="dlq")
    ch.call("queue.declare", queue="dlq")
    published(s, ch, 9)
    published(s, ch, 1, 5, 3, 5, expiration="0")
    got(ch, 1)
    letters(s, ch, 4)


@script("a letter keeps its priority in a priority queue of letters")
def _(s: Session) -> None:
    ch = ranked(s)
    ch.call("queue.declare", queue="source", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    for priority in (1, 5, 3):
        ch.publish(str(priority), "source", properties={"priority": priority})
    s.settle()
    ch.call("basic.consume", queue="source", consumer_tag="t")
    s.settle()
    ch.send("basic.nack", delivery_tag=3, multiple=True, requeue=False)
    letters(s, ch, 3, "q")


@script("a rejected message of a priority queue is dead-lettered")
def _(s: Session) -> None:
    ch = ranked(s, x_dead_letter_exchange="", x_dead_letter_routing_key="dlq")
    ch.call("queue.declare", queue="dlq")
    published(s, ch, 1, 5)
    got(ch, 2, no_ack=False)
    ch.send("basic.nack", delivery_tag=2, multiple=True, requeue=False)
    letters(s, ch, 2)


@script("persistent messages of a durable priority queue are confirmed")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", durable=True, arguments={"x-max-priority": 5})
    ch.call("confirm.select")
    for priority in (1, 5, 3):
        ch.publish(str(priority), "q", properties={"priority": priority, "delivery_mode": 2})
    ch.confirmed(3)
    got(ch, 3)


@script("a transaction to a priority queue is in order after the commit")
def _(s: Session) -> None:
    ch = ranked(s)
    ch.call("tx.select")
    for priority in (1, 5, 3):
        ch.publish(str(priority), "q", properties={"priority": priority})
    ch.call("tx.commit")
    s.settle()
    got(ch, 3)


@script("message priority and consumer priority go together")
def _(s: Session) -> None:
    ch, low, high = ranked(s), s.channel(), s.channel()
    published(s, ch, 1, 5, 3)
    high.call("basic.qos", prefetch_count=1)
    high.call("basic.consume", queue="q", consumer_tag="high", arguments={"x-priority": 5})
    s.settle("high")
    low.call("basic.consume", queue="q", consumer_tag="low")
    s.settle("low")
