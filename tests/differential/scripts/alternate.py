"""Alternate exchanges."""

from __future__ import annotations

from ..session import Session, script
from ..wire_client import Channel


def with_alternate(s: Session, alternate: str = "spare") -> Channel:
    """Exchange `x` with an alternate, queue `bound` bound to it by `k`."""
    ch = s.channel()
    arguments = {"alternate-exchange": alternate}
    ch.call("exchange.declare", exchange="x", exchange_type="direct", arguments=arguments)
    ch.call("queue.declare", queue="bound")
    ch.call("queue.bind", queue="bound", exchange="x", routing_key="k")
    return ch


@script("an exchange declared again with the same alternate is equivalent")
def _(s: Session) -> None:
    ch = with_alternate(s)
    arguments = {"alternate-exchange": "spare"}
    ch.call("exchange.declare", exchange="x", exchange_type="direct", arguments=arguments)


@script("the alternate gets what nothing else matched")
def _(s: Session) -> None:
    ch = with_alternate(s)
    ch.call("exchange.declare", exchange="spare", exchange_type="fanout")
    ch.call("queue.declare", queue="rest")
    ch.call("queue.bind", queue="rest", exchange="spare")
    ch.publish("matched", "k", "x", mandatory=True)
    ch.publish("rest", "other", "x", mandatory=True)
    s.settle()
    for queue in ("bound", "rest"):
        ch.call("basic.get", queue=queue, no_ack=True)
        ch.call("basic.get", queue=queue, no_ack=True)


@script("an alternate that does not exist is as none")
def _(s: Session) -> None:
    ch = with_alternate(s)
    ch.publish("back", "other", "x", mandatory=True)
    ch.publish("lost", "other", "x")
    s.settle()


@script("an alternate that matches nothing gives a mandatory message back")
def _(s: Session) -> None:
    ch = with_alternate(s)
    ch.call("exchange.declare", exchange="spare", exchange_type="direct")
    ch.publish("back", "other", "x", mandatory=True)
    s.settle()


@script("alternates may be chained")
def _(s: Session) -> None:
    ch = with_alternate(s)
    ch.call("exchange.declare", exchange="spare", exchange_type="direct", arguments={"alternate-exchange": "last"})
    ch.call("exchange.declare", exchange="last", exchange_type="fanout")
    ch.call("queue.declare", queue="rest")
    ch.call("queue.bind", queue="rest", exchange="last")
    ch.publish("far", "other", "x", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="rest", no_ack=True)


@script("alternates in a circle end in nothing")
def _(s: Session) -> None:
    ch = with_alternate(s)
    ch.call("exchange.declare", exchange="spare", exchange_type="direct", arguments={"alternate-exchange": "x"})
    ch.publish("back", "other", "x", mandatory=True)
    s.settle()


@script("an exchange may be its own alternate")
def _(s: Session) -> None:
    ch = with_alternate(s, "x")
    ch.publish("back", "other", "x", mandatory=True)
    s.settle()


@script("the default exchange is no alternate")
def _(s: Session) -> None:
    ch = with_alternate(s, "")
    ch.publish("by name", "bound", "x", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="bound", no_ack=True)


@script("an alternate counts per exchange and not per message in a chain of bindings")
def _(s: Session) -> None:
    ch = with_alternate(s)
    ch.call("exchange.declare", exchange="spare", exchange_type="fanout")
    ch.call("queue.declare", queue="rest")
    ch.call("queue.bind", queue="rest", exchange="spare")
    ch.call("exchange.declare", exchange="front", exchange_type="fanout")
    ch.call("exchange.bind", destination="x", source="front")
    ch.call("queue.declare", queue="direct")
    ch.call("queue.bind", queue="direct", exchange="front")
    ch.publish("both", "other", "front")
    s.settle()
    for queue in ("bound", "rest", "direct"):
        ch.call("basic.get", queue=queue, no_ack=True)


@script("an internal exchange may be an alternate")
def _(s: Session) -> None:
    ch = with_alternate(s)
    ch.call("exchange.declare", exchange="spare", exchange_type="fanout", internal=True)
    ch.call("queue.declare", queue="rest")
    ch.call("queue.bind", queue="rest", exchange="spare")
    ch.publish("inside", "other", "x", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="rest", no_ack=True)
