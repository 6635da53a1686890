"""Bindings of queues to exchanges: bind, unbind, duplicates, arguments, protections."""

from __future__ import annotations

from ..session import Session, script
from ..wire_values import Typed


@script("a queue bound twice in the same way gets a message once")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for _again in range(2):
        ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="k")
    ch.publish("one", "k", "amq.direct")
    s.count(ch, "q")


@script("a queue bound by several matching keys gets a message once")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for key in ("a.*", "*.b", "#", "a.b"):
        ch.call("queue.bind", queue="q", exchange="amq.topic", routing_key=key)
    ch.publish("one", "a.b", "amq.topic")
    s.count(ch, "q")


@script("a queue bound with nowait is bound without an answer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.send("queue.bind", queue="q", exchange="amq.direct", routing_key="k", nowait=True)
    ch.publish("one", "k", "amq.direct")
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("an empty queue name in bind means the queue declared last")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", exchange="amq.direct", routing_key="k")
    ch.publish("one", "k", "amq.direct")
    ch.publish("two", "", "amq.direct", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("an empty queue name and an empty key in bind mean the queue declared last for both")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", exchange="amq.direct")
    ch.publish("one", "q", "amq.direct")
    ch.publish("two", "", "amq.direct", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("an empty key in bind with a queue name stays empty")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="amq.direct")
    ch.publish("one", "q", "amq.direct", mandatory=True)
    ch.publish("two", "", "amq.direct")
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("an empty queue name in bind without a declared queue is not found")
def _(s: Session) -> None:
    s.channel().refused("queue.bind", exchange="amq.direct", routing_key="k")


@script("bind to an unknown exchange is not found")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.bind", queue="q", exchange="nowhere", routing_key="k")


@script("bind of an unknown queue is not found")
def _(s: Session) -> None:
    s.channel().refused("queue.bind", queue="nowhere", exchange="amq.direct", routing_key="k")


@script("bind of an unknown queue to an unknown exchange names the exchange")
def _(s: Session) -> None:
    s.channel().refused("queue.bind", queue="noqueue", exchange="noexchange", routing_key="k")


@script("bind to the default exchange is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.bind", queue="q", exchange="", routing_key="k")


@script("unbind from the default exchange is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.unbind", queue="q", exchange="", routing_key="q")


@script("unbind of what was never bound is answered as if it had been")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.unbind", queue="q", exchange="amq.direct", routing_key="never")


@script("unbind of an unknown queue is answered as if it had been bound")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.unbind", queue="nowhere", exchange="amq.direct", routing_key="k")


@script("unbind from an unknown exchange is answered as if it had been bound")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.unbind", queue="q", exchange="nowhere", routing_key="k")


@script("unbind with an empty queue name and no declared queue is not found")
def _(s: Session) -> None:
    s.channel().refused("queue.unbind", exchange="amq.direct", routing_key="k")


@script("unbind takes away the binding with the same key and arguments only")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="k", arguments={"a": 1})
    ch.call("queue.unbind", queue="q", exchange="amq.direct", routing_key="k")
    ch.publish("still bound", "k", "amq.direct")
    ch.call("queue.unbind", queue="q", exchange="amq.direct", routing_key="k", arguments={"a": 2})
    ch.publish("still bound", "k", "amq.direct")
    ch.call("queue.unbind", queue="q", exchange="amq.direct", routing_key="k", arguments={"a": 1})
    ch.publish("no longer", "k", "amq.direct", mandatory=True)
    s.count(ch, "q")


@script("the order of arguments does not tell bindings apart")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="k", arguments={"a": 1, "b": "x"})
    ch.call("queue.unbind", queue="q", exchange="amq.direct", routing_key="k", arguments={"b": "x", "a": 1})
    ch.publish("no longer", "k", "amq.direct", mandatory=True)
    s.settle()


@script("the wire types of arguments tell bindings apart")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="k", arguments={"a": Typed("I", 1)})
    ch.call("queue.unbind", queue="q", exchange="amq.direct", routing_key="k", arguments={"a": Typed("l", 1)})
    ch.publish("still bound", "k", "amq.direct", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a durable queue may be bound to a transient exchange")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", durable=True)
    ch.call("exchange.declare", exchange="x", exchange_type="fanout")
    ch.call("queue.bind", queue="q", exchange="x")
    ch.publish("one", "k", "x")
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a fanout exchange takes no notice of keys")
def _(s: Session) -> None:
    ch = s.channel()
    for queue in ("q1", "q2"):
        ch.call("queue.declare", queue=queue)
        ch.call("queue.bind", queue=queue, exchange="amq.fanout", routing_key=f"key of {queue}")
    ch.publish("to all", "anything", "amq.fanout")
    s.settle()
    ch.call("basic.get", queue="q1", no_ack=True)
    ch.call("basic.get", queue="q2", no_ack=True)


@script("a direct exchange matches whole keys and case")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="Key")
    for key in ("Key", "key", "Key.", "", "#"):
        ch.publish(f"by {key!r}", key, "amq.direct", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a binding goes with its queue")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="k")
    ch.call("queue.delete", queue="q")
    ch.call("queue.declare", queue="q")
    ch.publish("nobody", "k", "amq.direct", mandatory=True)
    s.settle()
