"""Bindings between exchanges."""

from __future__ import annotations

import itertools

from ..session import Session, script
from ..wire_client import Channel


def chain(s: Session, *exchanges: str) -> Channel:
    """Fanout exchanges bound one after the other, and queue `q` at the end."""
    ch = s.channel()
    for name in exchanges:
        ch.call("exchange.declare", exchange=name, exchange_type="fanout")
    for source, destination in itertools.pairwise(exchanges):
        ch.call("exchange.bind", destination=destination, source=source)
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange=exchanges[-1])
    return ch


@script("a message goes through a chain of exchanges")
def _(s: Session) -> None:
    ch = chain(s, "x1", "x2", "x3")
    ch.publish("far", "k", "x1", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a queue reached on two ways gets one message")
def _(s: Session) -> None:
    ch = chain(s, "x1", "x2")
    ch.call("queue.bind", queue="q", exchange="x1")
    ch.publish("once", "k", "x1")
    s.count(ch, "q")


@script("a circle of exchanges delivers once and ends")
def _(s: Session) -> None:
    ch = chain(s, "x1", "x2", "x3")
    ch.call("exchange.bind", destination="x1", source="x3")
    ch.publish("round", "k", "x2", mandatory=True)
    s.count(ch, "q")


@script("an exchange may be bound to itself")
def _(s: Session) -> None:
    ch = chain(s, "x1")
    ch.call("exchange.bind", destination="x1", source="x1")
    ch.publish("round", "k", "x1", mandatory=True)
    s.count(ch, "q")


@script("the key of a binding between exchanges counts for its source")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="fanout")
    ch.call("exchange.bind", destination="x", source="amq.topic", routing_key="a.#")
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="x")
    ch.publish("in", "a.b", "amq.topic", mandatory=True)
    ch.publish("back", "b.a", "amq.topic", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)
    ch.call("basic.get", queue="q", no_ack=True)


@script("exchange.unbind takes the binding away")
def _(s: Session) -> None:
    ch = chain(s, "x1", "x2")
    ch.call("exchange.unbind", destination="x2", source="x1")
    ch.publish("back", "k", "x1", mandatory=True)
    s.settle()


@script("exchange.unbind of what was never bound is answered as if it had been")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.unbind", destination="amq.fanout", source="amq.direct", routing_key="never")
    ch.call("exchange.unbind", destination="nowhere", source="amq.direct", routing_key="never")
    ch.call("exchange.unbind", destination="amq.fanout", source="nowhere", routing_key="never")


@script("exchange.bind with nowait gives no answer")
def _(s: Session) -> None:
    ch = chain(s, "x1")
    ch.send("exchange.bind", destination="x1", source="amq.direct", routing_key="k", nowait=True)
    ch.publish("in", "k", "amq.direct", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)
    ch.send("exchange.unbind", destination="x1", source="amq.direct", routing_key="k", nowait=True)
    ch.publish("back", "k", "amq.direct", mandatory=True)
    s.settle()


@script("exchange.bind from an unknown source is not found")
def _(s: Session) -> None:
    s.channel().refused("exchange.bind", destination="amq.fanout", source="nowhere")


@script("exchange.bind to an unknown destination is not found")
def _(s: Session) -> None:
    s.channel().refused("exchange.bind", destination="nowhere", source="amq.fanout")


@script("exchange.bind of two unknown exchanges names the source")
def _(s: Session) -> None:
    s.channel().refused("exchange.bind", destination="nodestination", source="nosource")


@script("exchange.bind with the default exchange is refused")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1).refused("exchange.bind", destination="", source="amq.fanout")
    wire.channel(2).refused("exchange.bind", destination="amq.fanout", source="")
    wire.channel(3).refused("exchange.unbind", destination="", source="amq.fanout")
    wire.channel(4).refused("exchange.unbind", destination="amq.fanout", source="")


@script("an auto-delete exchange goes when its last binding to an exchange is taken away")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x1", exchange_type="fanout", auto_delete=True)
    ch.call("exchange.declare", exchange="x2", exchange_type="fanout")
    ch.call("exchange.bind", destination="x2", source="x1")
    ch.call("exchange.unbind", destination="x2", source="x1")
    ch.refused("exchange.declare", exchange="x1", exchange_type="fanout", passive=True)


@script("an auto-delete exchange stays when it is no longer a destination")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x1", exchange_type="fanout")
    ch.call("exchange.declare", exchange="x2", exchange_type="fanout", auto_delete=True)
    ch.call("exchange.bind", destination="x2", source="x1")
    ch.call("exchange.unbind", destination="x2", source="x1")
    ch.call("exchange.declare", exchange="x2", exchange_type="fanout", passive=True)


@script("a chain of auto-delete exchanges goes when its end is deleted")
def _(s: Session) -> None:
    ch = s.channel()
    for name in ("x1", "x2"):
        ch.call("exchange.declare", exchange=name, exchange_type="fanout", auto_delete=True)
    ch.call("exchange.bind", destination="x2", source="x1")
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="x2")
    ch.call("queue.delete", queue="q")
    ch.refused("exchange.declare", exchange="x2", exchange_type="fanout", passive=True)
    ch.wire.channel(2).refused("exchange.declare", exchange="x1", exchange_type="fanout", passive=True)


@script("bindings go with a deleted destination exchange")
def _(s: Session) -> None:
    ch = chain(s, "x1", "x2")
    ch.call("exchange.delete", exchange="x2")
    ch.publish("back", "k", "x1", mandatory=True)
    s.settle()
