"""Consuming: tags, exclusive consumers, cancel, cancel notification, priorities, fairness."""

from __future__ import annotations

from ..session import Session, script
from ..wire_values import Typed


@script("a consumer without a tag gets one from the server")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q")
    ch.call("basic.consume", queue="q")


@script("a consumer gets what is waiting and what comes later")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("before", "q", properties={"message_id": "1"})
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("after", "q")
    s.settle()


@script("a consumer started with nowait gets messages without consume-ok")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.send("basic.consume", queue="q", consumer_tag="t", nowait=True)
    ch.publish("one", "q")
    s.settle()


@script("a consumer tag used twice on a channel closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.refused("basic.consume", queue="q", consumer_tag="t")


@script("the same consumer tag may be used on two channels")
def _(s: Session) -> None:
    wire = s.connect()
    first, second = wire.channel(1), wire.channel(2)
    first.call("queue.declare", queue="q")
    first.call("basic.consume", queue="q", consumer_tag="t")
    second.call("basic.consume", queue="q", consumer_tag="t")


@script("a cancelled consumer tag may be used again")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.call("basic.cancel", consumer_tag="t")
    ch.call("basic.consume", queue="q", consumer_tag="t")


@script("consuming from an unknown queue is not found")
def _(s: Session) -> None:
    s.channel().refused("basic.consume", queue="nowhere", consumer_tag="t")


@script("consuming with an empty queue name means the queue declared last")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", consumer_tag="t")
    ch.publish("one", "q")
    s.settle()


@script("consuming with an empty queue name and no declared queue is not found")
def _(s: Session) -> None:
    s.channel().refused("basic.consume", consumer_tag="t")


@script("an exclusive consumer keeps others out")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="only", exclusive=True)
    wire.channel(2).refused("basic.consume", queue="q", consumer_tag="late")
    wire.channel(3).refused("basic.consume", queue="q", consumer_tag="late", exclusive=True)
    ch.call("basic.cancel", consumer_tag="only")
    ch.call("basic.consume", queue="q", consumer_tag="next")


@script("an exclusive consumer is refused where others consume")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="first")
    wire.channel(2).refused("basic.consume", queue="q", consumer_tag="only", exclusive=True)


@script("an exclusive consumer does not keep basic.get out")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q")
    ch.call("basic.qos", prefetch_count=1)
    ch.call("basic.consume", queue="q", consumer_tag="only", exclusive=True)
    ch.publish("one", "q")
    ch.publish("two", "q")
    s.settle()
    wire.channel(2).call("basic.get", queue="q", no_ack=True)


@script("no-local is accepted and takes no effect")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t", no_local=True, no_ack=True)
    ch.publish("from myself", "q")
    s.settle()


@script("cancel stops deliveries and does not give back what is unacknowledged")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("one", "q")
    s.settle()
    ch.call("basic.cancel", consumer_tag="t")
    ch.publish("two", "q")
    s.count(ch, "q")
    ch.send("basic.ack", delivery_tag=1)
    ch.call("basic.get", queue="q", no_ack=True)
    ch.call("basic.get", queue="q", no_ack=True)


@script("cancel of an unknown tag is answered as if it had consumed")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("basic.cancel", consumer_tag="nobody")


@script("cancel with nowait gives no answer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.send("basic.cancel", consumer_tag="t", nowait=True)
    s.count(ch, "q")


@script("a consumer is told when its queue is deleted")
def _(s: Session) -> None:
    consumer, owner = s.channel(), s.channel()
    owner.call("queue.declare", queue="q")
    consumer.call("basic.consume", queue="q", consumer_tag="t1")
    consumer.call("basic.consume", queue="q", consumer_tag="t2")
    owner.call("queue.delete", queue="q")
    consumer.expect("basic.cancel")
    consumer.expect("basic.cancel")


@script("a consumer on the deleting channel is told too")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.send("queue.delete", queue="q", nowait=True)
    ch.expect("basic.cancel")


@script("a consumer without the capability is not told when its queue is deleted")
def _(s: Session) -> None:
    consumer, owner = s.channel(capabilities={}), s.channel()
    owner.call("queue.declare", queue="q")
    consumer.call("basic.consume", queue="q", consumer_tag="t")
    owner.call("queue.delete", queue="q")
    s.settle()
    consumer.call("basic.cancel", consumer_tag="t")


@script("a tag whose queue was deleted may be used again")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.send("queue.delete", queue="q", nowait=True)
    ch.expect("basic.cancel")
    s.settle()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")


@script("two consumers of a queue get messages in turn")
def _(s: Session) -> None:
    wire = s.connect()
    first, second = wire.channel(1), wire.channel(2)
    first.call("queue.declare", queue="q")
    first.call("basic.consume", queue="q", consumer_tag="t1", no_ack=True)
    second.call("basic.consume", queue="q", consumer_tag="t2", no_ack=True)
    for number in range(6):
        first.publish(str(number), "q")
        s.settle()


@script("a consumer of higher priority gets all while it has room")
def _(s: Session) -> None:
    wire = s.connect()
    low, high = wire.channel(1), wire.channel(2)
    low.call("queue.declare", queue="q")
    low.call("basic.consume", queue="q", consumer_tag="low")
    high.call("basic.qos", prefetch_count=2)
    high.call("basic.consume", queue="q", consumer_tag="high", arguments={"x-priority": 10})
    for number in range(4):
        low.publish(str(number), "q")
        s.settle()
    high.send("basic.ack", delivery_tag=1)
    s.settle()
    low.publish("again high", "q")
    s.settle()


@script("a consumer of negative priority gets what the others have no room for")
def _(s: Session) -> None:
    wire = s.connect()
    low, usual = wire.channel(1), wire.channel(2)
    low.call("queue.declare", queue="q")
    low.call("basic.consume", queue="q", consumer_tag="low", arguments={"x-priority": -5})
    usual.call("basic.qos", prefetch_count=1)
    usual.call("basic.consume", queue="q", consumer_tag="usual")
    for number in range(3):
        low.publish(str(number), "q")
        s.settle()


@script("x-priority may be an integer of any width")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    kinds = {"b": -1, "B": 1, "s": -3, "u": 3, "I": 7, "i": 7, "l": 2**40}
    for kind, value in kinds.items():
        ch.call("basic.consume", queue="q", consumer_tag=kind, arguments={"x-priority": Typed(kind, value)})


@script("x-priority that is no integer is refused")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1).call("queue.declare", queue="q")
    for number, value in enumerate(("10", 1.5, True, None, [1], {"a": 1}, Typed("T", 5), Typed("f", 1.0)), 2):
        wire.channel(number).refused("basic.consume", queue="q", arguments={"x-priority": value})


@script("unknown arguments of consume are accepted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call(
        "basic.consume",
        queue="q",
        consumer_tag="t",
        arguments={"x-colour": "red", "x-cancel-on-ha-failover": True},
    )
