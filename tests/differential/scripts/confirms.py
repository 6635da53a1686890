"""Publisher confirms."""

from __future__ import annotations

from ..session import Session, script
from ..wire_client import Channel


def confirming(s: Session) -> Channel:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("confirm.select")
    return ch


@script("confirm.select may be sent twice")
def _(s: Session) -> None:
    ch = confirming(s)
    ch.call("confirm.select")
    ch.publish("one", "q")
    ch.confirmed(1)


@script("confirm.select with nowait gives no answer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.send("confirm.select", nowait=True)
    ch.publish("lost", "nowhere")
    ch.confirmed(1)


@script("routed messages are confirmed in count")
def _(s: Session) -> None:
    ch = confirming(s)
    for number in range(5):
        ch.publish(str(number), "q")
    ch.confirmed(5)


@script("messages published before confirm.select are not counted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("before", "q")
    ch.call("confirm.select")
    ch.publish("after", "q")
    ch.confirmed(1)


@script("an unroutable message is confirmed")
def _(s: Session) -> None:
    ch = confirming(s)
    ch.publish("lost", "nowhere")
    ch.confirmed(1)


@script("an unroutable mandatory message comes back before it is confirmed")
def _(s: Session) -> None:
    ch = confirming(s)
    ch.publish("back", "nowhere", mandatory=True)
    ch.confirmed(1)
    ch.publish("arrives", "q", mandatory=True)
    ch.confirmed(2)
    ch.publish("back too", "k", "amq.fanout", mandatory=True)
    ch.confirmed(3)


@script("persistent messages in a durable queue are confirmed")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", durable=True)
    ch.call("confirm.select")
    for number in range(3):
        ch.publish(str(number), "q", properties={"delivery_mode": 2})
    ch.confirmed(3)


@script("a message in several queues is confirmed once")
def _(s: Session) -> None:
    ch = confirming(s)
    ch.call("queue.declare", queue="q2", durable=True)
    for queue in ("q", "q2"):
        ch.call("queue.bind", queue=queue, exchange="amq.fanout")
    ch.publish("copies", "", "amq.fanout", properties={"delivery_mode": 2})
    ch.confirmed(1)


@script("a message that a consumer takes at once is confirmed")
def _(s: Session) -> None:
    consumer = s.channel()
    consumer.call("queue.declare", queue="q")
    consumer.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    ch = s.channel()
    ch.call("confirm.select")
    ch.publish("one", "q", properties={"delivery_mode": 2})
    ch.confirmed(1)
    consumer.expect("basic.deliver")


@script("an expired message is confirmed")
def _(s: Session) -> None:
    ch = confirming(s)
    ch.publish("gone", "q", properties={"expiration": "0"})
    ch.confirmed(1)
    s.count(ch, "q")


@script("an unknown exchange closes a confirming channel without a confirm")
def _(s: Session) -> None:
    ch = confirming(s)
    ch.publish("lost", "k", "nowhere")
    ch.expect_close()


@script("each channel counts its own confirms")
def _(s: Session) -> None:
    wire = s.connect()
    first, second = wire.channel(1), wire.channel(2)
    first.call("queue.declare", queue="q")
    for ch in (first, second):
        ch.call("confirm.select")
        ch.publish("one", "q")
        ch.confirmed(1)


@script("a client's acknowledgement is not a confirm")
def _(s: Session) -> None:
    ch = confirming(s)
    ch.publish("one", "q")
    ch.confirmed(1)
    ch.refused("basic.ack", delivery_tag=1)


@script("a reopened channel counts its confirms from one")
def _(s: Session) -> None:
    ch = confirming(s)
    ch.publish("one", "q")
    ch.confirmed(1)
    ch.close()
    ch.wire.channel(2)
    again = ch.wire.channel(3)
    again.call("confirm.select")
    again.publish("two", "q")
    again.confirmed(1)
