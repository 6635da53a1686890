"""Chains and rings of queues: how far a dead letter goes."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_client import Channel
from .dead_letter_headers import pushed, ring
from .dead_letters import letters


def declared(ch: Channel, queue: str, target: str, **arguments: Any) -> None:
    """A queue that dead-letters to another one."""
    arguments = {each.replace("_", "-"): arguments[each] for each in arguments}
    arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    ch.call("queue.declare", queue=queue, arguments=arguments)


@script("a letter goes down a chain of queues with a time to live")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="end")
    for number in range(5):
        declared(ch, f"q{number}", f"q{number + 1}" if number < 4 else "end", x_message_ttl=number)
    ch.publish("far", "q0")
    letters(s, ch, 1, "end")


@script("a letter goes down a chain of full queues")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="end")
    for number in range(3):
        declared(ch, f"q{number}", f"q{number + 1}" if number < 2 else "end", x_max_length=1)
    for number in range(5):
        ch.publish(str(number), "q0")
    letters(s, ch, 2, "end")
    for number in range(3):
        ch.call("basic.get", queue=f"q{number}", no_ack=True)


@script("an expired message is not dead-lettered to the queue it died in")
def _(s: Session) -> None:
    ch = s.channel()
    declared(ch, "q", "q", x_message_ttl=0)
    ch.publish("gone", "q")
    s.settle()
    s.until_messages("q", 0)
    ch.call("basic.get", queue="q", no_ack=True)


@script("a message dropped from a full queue is not dead-lettered to it")
def _(s: Session) -> None:
    ch = s.channel()
    declared(ch, "q", "q", x_max_length=1)
    for number in range(3):
        ch.publish(str(number), "q")
    s.settle()
    s.count(ch, "q")
    ch.call("basic.get", queue="q", no_ack=True)


@script("a rejected message is dead-lettered to the queue it died in")
def _(s: Session) -> None:
    ch = ring(s, "q")
    ch.publish("again", "q")
    pushed(s, ch, "q", "q", "q")
    letters(s, ch, 1, "q")


@script("a rejected message in its own queue goes behind the others")
def _(s: Session) -> None:
    ch = ring(s, "q")
    ch.publish("one", "q")
    ch.publish("two", "q")
    s.until_messages("q", 2)
    ch.call("basic.get", queue="q")
    ch.send("basic.reject", delivery_tag=1, requeue=False)
    letters(s, ch, 2, "q")


@script("a letter that expires all the way round a ring is lost")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="seen")
    for queue, target in (("q1", "q2"), ("q2", "ring")):
        declared(ch, queue, target, x_message_ttl=0)
    arguments = {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 0}
    ch.call("queue.declare", queue="ring", arguments=arguments)
    ch.call("queue.bind", queue="q1", exchange="amq.fanout")
    ch.call("queue.bind", queue="seen", exchange="amq.fanout")
    ch.publish("round", "q1")
    letters(s, ch, 1, "seen")
    for queue in ("q1", "q2", "ring", "seen"):
        s.count(ch, queue)


@script("a ring with a rejection in it goes on for ever")
def _(s: Session) -> None:
    ch = s.channel()
    declared(ch, "q1", "q2", x_message_ttl=0)
    declared(ch, "q2", "q1")
    ch.publish("round", "q1")
    for _each in range(4):
        pushed(s, ch, "q2")
    letters(s, ch, 1, "q2")


@script("a rejection before the ring does not let the letter pass")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="seen")
    declared(ch, "start", "q1")
    arguments = {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 0}
    ch.call("queue.declare", queue="q1", arguments=arguments)
    ch.call("queue.bind", queue="q1", exchange="amq.fanout")
    ch.call("queue.bind", queue="seen", exchange="amq.fanout")
    ch.publish("round", "start")
    pushed(s, ch, "start")
    letters(s, ch, 1, "seen")
    s.count(ch, "q1")


@script("only the copies that close a ring are lost")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="other")
    ch.call("queue.declare", queue="q", arguments={"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 0})
    for queue in ("q", "other"):
        ch.call("queue.bind", queue=queue, exchange="amq.fanout")
    ch.publish("expired", "q")
    letters(s, ch, 1, "other")
    s.count(ch, "q")


@script("a message published again with its x-death is held for a ring")
def _(s: Session) -> None:
    ch = s.channel()
    declared(ch, "q1", "q2", x_message_ttl=0)
    ch.call("queue.declare", queue="q2")
    deaths = [{"count": 1, "reason": "expired", "queue": "q2"}]
    ch.publish("lost", "q1", properties={"headers": {"x-death": deaths}})
    deaths = [{"count": 1, "reason": "rejected", "queue": "q2"}]
    ch.publish("passes", "q1", properties={"headers": {"x-death": deaths}})
    letters(s, ch, 1, "q2")


@script("a ring of the reason maxlen is a ring")
def _(s: Session) -> None:
    ch = s.channel()
    declared(ch, "q1", "q2", x_max_length=1)
    declared(ch, "q2", "q1", x_max_length=1)
    for number in range(6):
        ch.publish(str(number), "q1")
        s.settle()
    for queue in ("q1", "q2"):
        s.count(ch, queue)
        ch.call("basic.get", queue=queue, no_ack=True)


@script("a ring of two reasons without a rejection is a ring")
def _(s: Session) -> None:
    ch = s.channel()
    declared(ch, "short", "full", x_message_ttl=0)
    declared(ch, "full", "short", x_max_length=0)
    ch.publish("lost", "full")
    s.settle()
    s.until_messages("short", 0)
    for queue in ("short", "full"):
        s.count(ch, queue)


@script("a letter may come back to a queue that it left by rejection")
def _(s: Session) -> None:
    ch = s.channel()
    declared(ch, "work", "wait")
    declared(ch, "wait", "work", x_message_ttl=1)
    ch.publish("retried", "work")
    pushed(s, ch, "work", "work", "work")
    letters(s, ch, 1, "work")
