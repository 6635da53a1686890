"""Methods right behind a publish, in one write: a consumer that waits has the message before the method acts.

The consumer has a channel of its own where the answer and the deliveries may come in either order.
"""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_client import Channel


def _idle_consumer(s: Session, **options: Any) -> tuple[Channel, Channel]:
    """A channel that publishes to `q`, and another of the same connection that consumes from it."""
    wire = s.connect()
    publisher, consumer = wire.channel(1), wire.channel(2)
    publisher.call("queue.declare", queue="q")
    consumer.call("basic.consume", queue="q", consumer_tag="t", **options)
    return publisher, consumer


def _three_and(channel: Channel, name: str, **arguments: Any) -> None:
    """Publish three messages to `q` and send a method, in one write; read until its answer."""
    with channel.wire.at_once():
        for number in range(3):
            channel.publish(f"m{number}", "q")
        channel.send(name, **arguments)


def _behind_a_publish(name: str, *answers: str, no_ack: bool, **arguments: Any) -> None:
    how = "without acknowledgements" if no_ack else "that acknowledges"
    shown = " ".join([name, *arguments])

    @script(f"{shown} behind publishes finds the queue as an idle consumer {how} leaves it")
    def _(s: Session) -> None:
        publisher, _ = _idle_consumer(s, no_ack=no_ack)
        _three_and(publisher, name, queue="q", **arguments)
        publisher.expect(*answers)
        s.settle()


for without_acks in (True, False):
    _behind_a_publish("basic.get", "basic.get-ok", "basic.get-empty", no_ack=without_acks)
    _behind_a_publish("queue.purge", "queue.purge-ok", no_ack=without_acks)
    _behind_a_publish("queue.delete", "queue.delete-ok", no_ack=without_acks)
    _behind_a_publish("queue.delete", "queue.delete-ok", no_ack=without_acks, if_empty=True)
    _behind_a_publish("queue.declare", "queue.declare-ok", no_ack=without_acks, passive=True)
    _behind_a_publish("queue.declare", "queue.declare-ok", no_ack=without_acks)


@script("basic.cancel behind publishes is answered behind their deliveries")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    _three_and(ch, "basic.cancel", consumer_tag="t")
    ch.expect("basic.cancel-ok")
    s.count(ch, "q")


@script("basic.cancel of the consumer that comes first leaves nothing to the one behind it")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="high", no_ack=True, arguments={"x-priority": 1})
    ch.call("basic.consume", queue="q", consumer_tag="low", no_ack=True)
    _three_and(ch, "basic.cancel", consumer_tag="high")
    ch.expect("basic.cancel-ok")
    s.settle()


@script("channel.close behind publishes is answered behind their deliveries")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    _three_and(ch, "channel.close", reply_code=200, reply_text="done", class_id=0, method_id=0)
    ch.expect("channel.close-ok")
    s.count(wire.channel(2), "q")


@script("a consumer that comes behind publishes gets nothing of what one before it could take")
def _(s: Session) -> None:
    publisher, _ = _idle_consumer(s)
    _three_and(publisher, "basic.consume", queue="q", consumer_tag="late", arguments={"x-priority": 9})
    publisher.expect("basic.consume-ok")
    s.settle()


@script("a lower global prefetch behind publishes comes too late for them")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    _three_and(ch, "basic.qos", prefetch_count=1, global_=True)
    ch.expect("basic.qos-ok")
    s.settle()


def _returned_behind_a_publish(name: str, **arguments: Any) -> None:
    @script(f"what {name} returns behind publishes is delivered after them")
    def _(s: Session) -> None:
        ch = s.channel()
        ch.call("queue.declare", queue="q")
        ch.call("basic.consume", queue="q", consumer_tag="t")
        ch.publish("first", "q")
        ch.expect("basic.deliver")
        _three_and(ch, name, **arguments)
        s.settle()


_returned_behind_a_publish("basic.reject", delivery_tag=1, requeue=True)
_returned_behind_a_publish("basic.nack", delivery_tag=1, requeue=True)
