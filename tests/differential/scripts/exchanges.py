"""Exchanges: declare, equivalence, predeclared ones, internal, auto-delete, delete."""

from __future__ import annotations

from ..session import Session, script

PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


@script("exchanges of the four types are declared and declared again")
def _(s: Session) -> None:
    ch = s.channel()
    for kind in ("direct", "fanout", "topic", "headers"):
        for _again in range(2):
            ch.call("exchange.declare", exchange=f"x-{kind}", exchange_type=kind)


@script("an exchange declared with nowait is there without an answer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.send("exchange.declare", exchange="x", exchange_type="direct", nowait=True)
    ch.call("exchange.declare", exchange="x", exchange_type="direct", passive=True)


@script("the predeclared exchanges are there")
def _(s: Session) -> None:
    ch = s.channel()
    for name, kind in PREDECLARED.items():
        ch.call("exchange.declare", exchange=name, exchange_type=kind, passive=True)


@script("a predeclared exchange may be declared as it is")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="amq.direct", exchange_type="direct", durable=True)


@script("a predeclared exchange declared otherwise is refused as not equivalent")
def _(s: Session) -> None:
    s.channel().refused("exchange.declare", exchange="amq.direct", exchange_type="fanout", durable=True)


@script("an exchange name beginning with amq. is refused")
def _(s: Session) -> None:
    s.channel().refused("exchange.declare", exchange="amq.mine", exchange_type="direct")


@script("a passive declare of an unknown exchange is not found")
def _(s: Session) -> None:
    s.channel().refused("exchange.declare", exchange="nowhere", exchange_type="direct", passive=True)


@script("a passive declare ignores the type of an exchange")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.call("exchange.declare", exchange="x", exchange_type="fanout", durable=True, passive=True)
    ch.call("exchange.declare", exchange="x", exchange_type="nonsense", passive=True)


@script("an unknown exchange type is refused")
def _(s: Session) -> None:
    s.channel().refused("exchange.declare", exchange="x", exchange_type="nonsense")


@script("an empty exchange type is refused")
def _(s: Session) -> None:
    s.channel().refused("exchange.declare", exchange="x", exchange_type="")


@script("an exchange type of a plugin that is not there is refused")
def _(s: Session) -> None:
    s.channel().refused("exchange.declare", exchange="x", exchange_type="x-consistent-hash")


@script("an exchange redeclared with another type is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.refused("exchange.declare", exchange="x", exchange_type="topic")


@script("an exchange redeclared with another durable flag is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", durable=True)


@script("an exchange redeclared with another auto_delete flag is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", auto_delete=True)


@script("an exchange redeclared with another internal flag is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", internal=True)


@script("an exchange redeclared with an alternate exchange is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", arguments={"alternate-exchange": "a"})


@script("an exchange redeclared without its alternate exchange is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct", arguments={"alternate-exchange": "a"})
    ch.refused("exchange.declare", exchange="x", exchange_type="direct")


@script("an exchange redeclared with another alternate exchange is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct", arguments={"alternate-exchange": "a"})
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", arguments={"alternate-exchange": "b"})


@script("unknown arguments of an exchange are accepted and not compared")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct", arguments={"x-colour": "red", "size": 3})
    ch.call("exchange.declare", exchange="x", exchange_type="direct", arguments={"x-colour": "blue"})


@script("an alternate exchange that is not a string is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", arguments={"alternate-exchange": 5})


@script("the default exchange cannot be declared")
def _(s: Session) -> None:
    s.channel().refused("exchange.declare", exchange="", exchange_type="direct", durable=True)


@script("the default exchange cannot be declared passively")
def _(s: Session) -> None:
    s.channel().refused("exchange.declare", exchange="", exchange_type="direct", passive=True)


@script("the default exchange cannot be deleted")
def _(s: Session) -> None:
    s.channel().refused("exchange.delete", exchange="")


@script("a predeclared exchange cannot be deleted")
def _(s: Session) -> None:
    s.channel().refused("exchange.delete", exchange="amq.topic")


@script("an unknown exchange named amq. cannot be deleted either")
def _(s: Session) -> None:
    s.channel().refused("exchange.delete", exchange="amq.nowhere")


@script("delete of an unknown exchange is answered as if it had been there")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.delete", exchange="nowhere")
    ch.call("exchange.delete", exchange="nowhere", if_unused=True)


@script("delete if-unused of an exchange with a binding is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="x", routing_key="k")
    ch.refused("exchange.delete", exchange="x", if_unused=True)


@script("delete if-unused of an exchange that is only the destination of bindings deletes it")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.call("exchange.bind", destination="x", source="amq.direct", routing_key="k")
    ch.call("exchange.delete", exchange="x", if_unused=True)
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", passive=True)


@script("delete of an exchange takes its bindings away")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="x", routing_key="k")
    ch.call("exchange.delete", exchange="x")
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.publish("lost", "k", "x", mandatory=True)
    s.settle()


@script("delete of an exchange with nowait gives no answer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct")
    ch.send("exchange.delete", exchange="x", nowait=True)
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", passive=True)


@script("an auto-delete exchange goes with its last queue binding")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct", auto_delete=True)
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="x", routing_key="k1")
    ch.call("queue.bind", queue="q", exchange="x", routing_key="k2")
    ch.call("queue.unbind", queue="q", exchange="x", routing_key="k1")
    ch.call("exchange.declare", exchange="x", exchange_type="direct", passive=True)
    ch.call("queue.unbind", queue="q", exchange="x", routing_key="k2")
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", passive=True)


@script("an auto-delete exchange goes when its last bound queue is deleted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct", auto_delete=True)
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="x", routing_key="k")
    ch.call("queue.delete", queue="q")
    ch.refused("exchange.declare", exchange="x", exchange_type="direct", passive=True)


@script("an auto-delete exchange that never had a binding stays")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct", auto_delete=True)
    ch.call("queue.declare", queue="q")
    ch.call("queue.unbind", queue="q", exchange="x", routing_key="k")
    ch.call("exchange.declare", exchange="x", exchange_type="direct", passive=True)


@script("an internal exchange cannot be published to")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="direct", internal=True)
    ch.publish("no", "k", "x")
    ch.expect_close()


@script("an internal exchange passes on what another exchange routes to it")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="in", exchange_type="fanout", internal=True)
    ch.call("exchange.declare", exchange="out", exchange_type="fanout")
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="in")
    ch.call("exchange.bind", destination="in", source="out")
    ch.publish("through", "k", "out")
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("line breaks are taken out of a declared exchange name")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x\r\n1", exchange_type="direct")
    ch.call("exchange.declare", exchange="x1", exchange_type="direct", passive=True)
    ch.call("exchange.delete", exchange="x1")
