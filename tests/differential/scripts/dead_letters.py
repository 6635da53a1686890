"""Dead letters: why messages die, and where their letters go."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_client import Channel

# Every property but the ones that dead-lettering is about.
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": {"mine": "kept", "number": 5},
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c",
    "reply_to": "r",
    "message_id": "m",
    "timestamp": 1_600_000_000,
    "message_type": "t",
    "user_id": "guest",
    "app_id": "a",
}


def mourned(s: Session, key: str | None = "dlq", exchange: str = "", **arguments: Any) -> Channel:
    """A channel with a queue `q` whose dead letters go to the queue `dlq`, unless told otherwise."""
    ch = s.channel()
    ch.call("queue.declare", queue="dlq")
    arguments["x-dead-letter-exchange"] = exchange
    if key is not None:
        arguments["x-dead-letter-routing-key"] = key
    ch.call("queue.declare", queue="q", arguments={each.replace("_", "-"): arguments[each] for each in arguments})
    return ch


def rejected(s: Session, ch: Channel, queue: str = "q") -> None:
    """Take the message at the head of a queue and reject it."""
    s.settle()
    answer = ch.call("basic.get", queue=queue)
    if answer is not None and answer.name == "basic.get-ok":
        ch.send("basic.reject", delivery_tag=answer.arguments["delivery_tag"], requeue=False)


def letters(s: Session, ch: Channel, count: int, queue: str = "dlq") -> None:
    """Wait for the letters and read them."""
    s.until_messages(queue, count)
    for _each in range(count):
        ch.call("basic.get", queue=queue, no_ack=True)


@script("a rejected message is dead-lettered")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)
    s.count(ch, "q")


@script("a message nacked without requeue is dead-lettered")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("nacked", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.send("basic.nack", delivery_tag=1, requeue=False)
    letters(s, ch, 1)


@script("messages nacked together are dead-lettered in their order")
def _(s: Session) -> None:
    ch = mourned(s)
    for number in range(5):
        ch.publish(str(number), "q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle()
    ch.send("basic.nack", delivery_tag=4, multiple=True, requeue=False)
    letters(s, ch, 4)


@script("messages rejected one by one are dead-lettered in the order of the rejections")
def _(s: Session) -> None:
    ch = mourned(s)
    for number in range(3):
        ch.publish(str(number), "q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle()
    for tag in (3, 1, 2):
        ch.send("basic.reject", delivery_tag=tag, requeue=False)
    letters(s, ch, 3)


@script("a requeued message is not dead-lettered")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("again", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.until_messages("q", 1)
    s.count(ch, "dlq")
    ch.call("basic.get", queue="q", no_ack=True)


@script("an acknowledged message is not dead-lettered")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("done", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.send("basic.ack", delivery_tag=1)
    s.count(ch, "dlq")


@script("a message that expires by the queue's time to live is dead-lettered")
def _(s: Session) -> None:
    ch = mourned(s, x_message_ttl=1)
    ch.publish("expired", "q")
    letters(s, ch, 1)


@script("a message that expires by its own expiration is dead-lettered without it")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("expired", "q", properties={"expiration": "1"})
    letters(s, ch, 1)


@script("a message with a time to live of 0 is dead-lettered at once")
def _(s: Session) -> None:
    ch = mourned(s, x_message_ttl=0)
    ch.publish("expired", "q")
    letters(s, ch, 1)


@script("messages dropped from the head of a full queue are dead-lettered")
def _(s: Session) -> None:
    ch = mourned(s, x_max_length=1)
    for body in ("first", "second", "third"):
        ch.publish(body, "q")
    letters(s, ch, 2)
    ch.call("basic.get", queue="q", no_ack=True)


@script("a message too large for its queue is dead-lettered with all before it")
def _(s: Session) -> None:
    ch = mourned(s, x_max_length_bytes=10)
    ch.publish("12345", "q")
    ch.publish("12345678901", "q")
    letters(s, ch, 2)
    s.count(ch, "q")


@script("a purged message is not dead-lettered")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("purged", "q")
    s.settle()
    ch.call("queue.purge", queue="q")
    s.count(ch, "dlq")


@script("the messages of a deleted queue are not dead-lettered")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("deleted", "q")
    s.settle()
    ch.call("queue.delete", queue="q")
    s.count(ch, "dlq")


@script("a closed channel requeues and does not dead-letter")
def _(s: Session) -> None:
    ch = mourned(s)
    other = ch.wire.channel(2)
    ch.publish("held", "q")
    s.settle()
    other.call("basic.get", queue="q")
    other.close()
    s.until_messages("q", 1)
    s.count(ch, "dlq")
    ch.call("basic.get", queue="q", no_ack=True)


@script("a lost connection requeues and does not dead-letter")
def _(s: Session) -> None:
    ch, other = mourned(s), s.channel()
    ch.publish("held", "q")
    s.settle()
    other.call("basic.get", queue="q")
    other.wire.hang_up()
    s.until_messages("q", 1)
    s.count(ch, "dlq")


@script("basic.recover does not dead-letter")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("held", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.call("basic.recover", requeue=True)
    s.until_messages("q", 1)
    s.count(ch, "dlq")


@script("a rejection in a transaction dead-letters at commit")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("rejected", "q")
    s.settle()
    ch.call("tx.select")
    ch.call("basic.get", queue="q")
    ch.send("basic.reject", delivery_tag=1, requeue=False)
    s.count(ch, "dlq")
    ch.call("tx.commit")
    letters(s, ch, 1)


@script("a rejection that is rolled back does not dead-letter")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("rejected", "q")
    s.settle()
    ch.call("tx.select")
    ch.call("basic.get", queue="q")
    ch.send("basic.reject", delivery_tag=1, requeue=False)
    ch.call("tx.rollback")
    s.count(ch, "dlq")


@script("rejected messages of a queue without a dead letter exchange are gone")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("rejected", "q")
    rejected(s, ch)
    s.count(ch, "q")


@script("a dead letter keeps the other properties")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("rejected", "q", properties=PROPERTIES)
    rejected(s, ch)
    letters(s, ch, 1)


@script("a dead letter with an expiration keeps the other properties")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("expired", "q", properties={**PROPERTIES, "expiration": "1"})
    letters(s, ch, 1)


@script("a rejected message loses its expiration too")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("rejected", "q", properties={"expiration": "600000"})
    rejected(s, ch)
    letters(s, ch, 1)


@script("an empty and a large body are dead-lettered whole")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish(b"", "q")
    ch.publish(b"large" * 60_000, "q")
    rejected(s, ch)
    rejected(s, ch)
    letters(s, ch, 2)


@script("a redelivered message is a new one in the queue of dead letters")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("often", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.until_messages("q", 1)
    rejected(s, ch)
    letters(s, ch, 1)


@script("a dead letter is delivered to a consumer that waits for it")
def _(s: Session) -> None:
    ch, reader = mourned(s), s.channel()
    reader.call("basic.consume", queue="dlq", consumer_tag="letters", no_ack=True)
    ch.publish("rejected", "q")
    rejected(s, ch)
    reader.expect("basic.deliver")


@script("a message rejected by its consumer makes room for the next")
def _(s: Session) -> None:
    ch, consumer = mourned(s), s.channel()
    consumer.call("basic.qos", prefetch_count=1)
    consumer.call("basic.consume", queue="q", consumer_tag="t")
    for number in range(3):
        ch.publish(str(number), "q")
    for tag in range(1, 4):
        consumer.expect("basic.deliver")
        consumer.send("basic.reject", delivery_tag=tag, requeue=False)
    letters(s, ch, 3)


@script("a message is confirmed though it is dead-lettered")
def _(s: Session) -> None:
    ch = mourned(s, x_message_ttl=0)
    ch.call("confirm.select")
    ch.publish("expired", "q", properties={"delivery_mode": 2})
    ch.confirmed(1)
    letters(s, ch, 1)


@script("a transient queue of a closed connection does not dead-letter")
def _(s: Session) -> None:
    ch, other = s.channel(), s.channel()
    ch.call("queue.declare", queue="dlq")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"}
    other.call("queue.declare", queue="q", exclusive=True, arguments=arguments)
    other.publish("lost", "q")
    s.settle()
    other.wire.hang_up()
    s.until_gone("q")
    s.count(ch, "dlq")
