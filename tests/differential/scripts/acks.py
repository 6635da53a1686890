"""Acknowledgements: ack, nack, reject, multiple, unknown tags, requeue order, recover."""

from __future__ import annotations

from ..session import Session, script
from ..wire_client import Channel


def three_delivered(s: Session) -> Channel:
    """A channel that consumes `q` and holds three unacknowledged messages."""
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for body in ("one", "two", "three"):
        ch.publish(body, "q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle("three delivered")
    return ch


def what_is_left(s: Session, ch: Channel) -> None:
    """Close the channel and look at what has come back to the queue."""
    ch.close()
    reader = ch.wire.channel(2)
    answer = reader.call("basic.get", queue="q", no_ack=True)
    while answer is not None and answer.name == "basic.get-ok":
        answer = reader.call("basic.get", queue="q", no_ack=True)


@script("ack takes one message away")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.ack", delivery_tag=2)
    what_is_left(s, ch)


@script("ack multiple takes all up to the tag away")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.ack", delivery_tag=2, multiple=True)
    what_is_left(s, ch)


@script("ack multiple of tag 0 takes all away")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.ack", delivery_tag=0, multiple=True)
    what_is_left(s, ch)


@script("ack multiple of tag 0 with nothing outstanding is accepted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.send("basic.ack", delivery_tag=0, multiple=True)
    ch.barrier()


@script("ack of tag 0 without multiple is refused")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.refused("basic.ack", delivery_tag=0)


@script("ack of tag 0 without multiple and with nothing outstanding is refused")
def _(s: Session) -> None:
    s.channel().refused("basic.ack", delivery_tag=0)


@script("ack of an unknown tag is refused")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.refused("basic.ack", delivery_tag=99)


@script("ack multiple of a tag beyond the last is refused")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.refused("basic.ack", delivery_tag=99, multiple=True)


@script("ack multiple of a tag with nothing outstanding is refused")
def _(s: Session) -> None:
    s.channel().refused("basic.ack", delivery_tag=1, multiple=True)


@script("a second ack of the same tag is refused")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.ack", delivery_tag=1)
    ch.refused("basic.ack", delivery_tag=1)


@script("a second ack multiple of the same tag is refused")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.ack", delivery_tag=2, multiple=True)
    ch.send("basic.ack", delivery_tag=2, multiple=True)
    ch.barrier()


@script("ack multiple of an acknowledged tag is refused even with earlier ones outstanding")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.ack", delivery_tag=2)
    ch.send("basic.ack", delivery_tag=2, multiple=True)
    ch.barrier()


@script("an unknown tag gives all the channel's messages back")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.refused("basic.ack", delivery_tag=99)
    ch.wire.channel(2).call("basic.get", queue="q")
    s.settle()


@script("ack of a no-ack delivery is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    s.settle()
    ch.refused("basic.ack", delivery_tag=1)


@script("a delivery of one channel cannot be acknowledged on another")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.wire.channel(2).refused("basic.ack", delivery_tag=1)


@script("an unknown tag in nack is refused")
def _(s: Session) -> None:
    s.channel().refused("basic.nack", delivery_tag=7)


@script("an unknown tag in reject is refused")
def _(s: Session) -> None:
    s.channel().refused("basic.reject", delivery_tag=7, requeue=True)


@script("reject without requeue drops the message")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.reject", delivery_tag=2, requeue=False)
    what_is_left(s, ch)


@script("reject with requeue delivers the message again")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.reject", delivery_tag=2, requeue=True)
    s.settle()


@script("reject of tag 0 is refused")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.refused("basic.reject", delivery_tag=0, requeue=True)


@script("nack multiple without requeue drops all up to the tag")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.nack", delivery_tag=2, multiple=True, requeue=False)
    what_is_left(s, ch)


@script("nack multiple with requeue delivers them again in order")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.nack", delivery_tag=3, multiple=True, requeue=True)
    s.settle()


@script("nack multiple of tag 0 gives all back")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.call("basic.cancel", consumer_tag="t")
    ch.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    s.count(ch, "q")


@script("nack of tag 0 without multiple is refused")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.refused("basic.nack", delivery_tag=0)


@script("a requeued message returns to its original position")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for body in ("one", "two", "three", "four"):
        ch.publish(body, "q")
    for _each in range(3):
        ch.call("basic.get", queue="q")
    ch.send("basic.nack", delivery_tag=2, requeue=True)
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    s.settle()
    for _each in range(4):
        ch.call("basic.get", queue="q", no_ack=True)


@script("messages come back in order when their channel closes")
def _(s: Session) -> None:
    ch = three_delivered(s)
    what_is_left(s, ch)


@script("messages come back in order when their connection drops")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.wire.hang_up()
    s.until_messages("q", 3)
    reader = s.channel()
    for _each in range(4):
        reader.call("basic.get", queue="q", no_ack=True)


@script("messages of a dropped connection go to the next consumer marked redelivered")
def _(s: Session) -> None:
    ch = three_delivered(s)
    other = s.channel()
    other.call("basic.consume", queue="q", consumer_tag="other")
    ch.publish("four", "q")
    s.settle()
    ch.wire.hang_up()
    for _each in range(3):
        other.expect("basic.deliver")


@script("recover with requeue delivers everything again")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.call("basic.recover", requeue=True)
    s.settle()


@script("recover gives back what basic.get took")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.call("basic.get", queue="q")
    ch.call("basic.recover", requeue=True)
    ch.call("basic.get", queue="q")


@script("recover with nothing outstanding is answered")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("basic.recover", requeue=True)


@script("recover without requeue is not implemented")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.refused("basic.recover", requeue=False)


@script("recover-async with requeue delivers everything again without an answer")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.send("basic.recover-async", requeue=True)
    s.settle()


@script("recover-async without requeue is not implemented")
def _(s: Session) -> None:
    ch = three_delivered(s)
    ch.refused("basic.recover-async", requeue=False)
