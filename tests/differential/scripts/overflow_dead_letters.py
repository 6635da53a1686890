"""Full queues that dead-letter what they drop or refuse."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_client import Channel
from .dead_letters import letters
from .overflow import got


def mourning(s: Session, overflow: str, **arguments: Any) -> Channel:
    """A confirming channel with a full-going queue `q` whose letters go to `dlq`."""
    ch = s.channel()
    ch.call("queue.declare", queue="dlq")
    arguments = {each.replace("_", "-"): arguments[each] for each in arguments}
    arguments |= {"x-overflow": overflow, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"}
    ch.call("queue.declare", queue="q", arguments=arguments)
    ch.call("confirm.select")
    return ch


def each_confirmed(ch: Channel, *bodies: str, **properties: Any) -> None:
    """Publish one by one, each when the one before is confirmed or refused."""
    for body in bodies:
        ch.publish(body, "q", properties=properties)
        ch.confirmed(len(ch.confirms) + 1)


@script("reject-publish-dlx nacks and dead-letters what it refuses")
def _(s: Session) -> None:
    ch = mourning(s, "reject-publish-dlx", x_max_length=1)
    each_confirmed(ch, "1", "2", "3")
    letters(s, ch, 2)
    got(ch, 2)


@script("reject-publish does not dead-letter what it refuses")
def _(s: Session) -> None:
    ch = mourning(s, "reject-publish", x_max_length=1)
    each_confirmed(ch, "1", "2")
    s.count(ch, "dlq")
    got(ch, 2)


@script("reject-publish dead-letters what is rejected by a consumer")
def _(s: Session) -> None:
    ch = mourning(s, "reject-publish", x_max_length=1)
    each_confirmed(ch, "1")
    ch.call("basic.get", queue="q")
    ch.send("basic.reject", delivery_tag=1, requeue=False)
    letters(s, ch, 1)


@script("reject-publish-dlx by bytes")
def _(s: Session) -> None:
    ch = mourning(s, "reject-publish-dlx", x_max_length_bytes=5)
    each_confirmed(ch, "123", "456", "78", "")
    letters(s, ch, 1)
    got(ch, 4)


@script("reject-publish-dlx with a maximum length of 0 dead-letters everything")
def _(s: Session) -> None:
    ch = mourning(s, "reject-publish-dlx", x_max_length=0)
    each_confirmed(ch, "1", "2", delivery_mode=2, expiration="600000", headers={"mine": 1})
    letters(s, ch, 2)
    s.count(ch, "q")


@script("reject-publish-dlx with a maximum length of 0 dead-letters even with a consumer")
def _(s: Session) -> None:
    ch, consumer = mourning(s, "reject-publish-dlx", x_max_length=0), s.channel()
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    each_confirmed(ch, "1")
    letters(s, ch, 1)


@script("reject-publish-dlx without a dead letter exchange only nacks")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-max-length": 0, "x-overflow": "reject-publish-dlx"})
    ch.call("confirm.select")
    each_confirmed(ch, "1")
    s.count(ch, "q")


@script("reject-publish-dlx fails a transaction and dead-letters all the same")
def _(s: Session) -> None:
    ch = mourning(s, "reject-publish-dlx", x_max_length=1)
    other = ch.wire.channel(2)
    other.call("tx.select")
    other.publish("1", "q")
    other.publish("2", "q")
    other.refused("tx.commit")
    letters(s, ch, 1)
    got(ch, 1)


@script("reject-publish-dlx does not return a mandatory message")
def _(s: Session) -> None:
    ch = mourning(s, "reject-publish-dlx", x_max_length=0)
    ch.publish("1", "q", mandatory=True)
    ch.confirmed(1)
    letters(s, ch, 1)


@script("reject-publish-dlx keeps what is requeued to a full queue")
def _(s: Session) -> None:
    ch = mourning(s, "reject-publish-dlx", x_max_length=1)
    each_confirmed(ch, "1")
    ch.call("basic.get", queue="q")
    each_confirmed(ch, "2")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.count(ch, "q")
    s.count(ch, "dlq")
    got(ch, 2)


@script("drop-head dead-letters and confirms")
def _(s: Session) -> None:
    ch = mourning(s, "drop-head", x_max_length=1)
    each_confirmed(ch, "1", "2", "3")
    letters(s, ch, 2)


@script("drop-head with a maximum length of 0 dead-letters each message")
def _(s: Session) -> None:
    ch = mourning(s, "drop-head", x_max_length=0)
    each_confirmed(ch, "1", "2")
    letters(s, ch, 2)
    s.count(ch, "q")


@script("drop-head dead-letters what a requeue pushes out")
def _(s: Session) -> None:
    ch = mourning(s, "drop-head", x_max_length=1)
    each_confirmed(ch, "1")
    ch.call("basic.get", queue="q")
    each_confirmed(ch, "2")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    letters(s, ch, 1)
    got(ch, 2)


@script("a queue of dead letters that drops its head keeps the latest")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="end")
    for queue, target, length in (("q", "dlq", 1), ("dlq", "end", 2)):
        arguments = {"x-max-length": length, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        ch.call("queue.declare", queue=queue, arguments=arguments)
    for number in range(5):
        ch.publish(str(number), "q")
    s.until_messages("end", 2)
    got(ch, 3, "dlq")


@script("a letter that its queue refuses is lost")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="dlq", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    arguments = {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"}
    ch.call("queue.declare", queue="q", arguments=arguments)
    ch.call("confirm.select")
    each_confirmed(ch, "1", "2", "3", "4")
    s.settle()
    got(ch, 2, "dlq")
    got(ch, 2)


@script("a letter that its queue refuses with a letter goes on")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="end")
    arguments: dict[str, Any] = {"x-max-length": 0, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": ""}
    ch.call("queue.declare", queue="dlq", arguments={**arguments, "x-dead-letter-routing-key": "end"})
    ch.call("queue.declare", queue="q", arguments={**arguments, "x-dead-letter-routing-key": "dlq"})
    ch.publish("far", "q")
    letters(s, ch, 1, "end")


@script("a queue that refuses into itself loses the message")
def _(s: Session) -> None:
    ch = s.channel()
    arguments: dict[str, Any] = {"x-max-length": 0, "x-overflow": "reject-publish-dlx"}
    arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    ch.call("queue.declare", queue="q", arguments=arguments)
    ch.call("confirm.select")
    each_confirmed(ch, "1")
    s.count(ch, "q")
