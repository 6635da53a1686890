"""Direct reply-to: the pseudo-queue amq.rabbitmq.reply-to."""

from __future__ import annotations

import re

from ..session import Session, script
from ..wire_client import Channel

PSEUDO = "amq.rabbitmq.reply-to"


def asking(s: Session) -> tuple[Channel, Channel, str]:
    """A requester and a server; the server has got a request, and this is its reply-to."""
    requester, server = s.channel(), s.channel()
    server.call("queue.declare", queue="q")
    requester.call("basic.consume", queue=PSEUDO, consumer_tag="replies", no_ack=True)
    requester.publish("question", "q", properties={"reply_to": PSEUDO, "correlation_id": "1"})
    s.settle()
    request = server.call("basic.get", queue="q", no_ack=True)
    found = re.search(r"reply_to='([^']*)'", request.properties if request is not None else "")
    return requester, server, found[1] if found else "none"


@script("a reply reaches the asker")
def _(s: Session) -> None:
    requester, server, reply_to = asking(s)
    server.publish("answer", reply_to, properties={"correlation_id": "1"})
    requester.expect("basic.deliver")


@script("a mandatory reply reaches the asker and comes back all the same")
def _(s: Session) -> None:
    requester, server, reply_to = asking(s)
    server.publish("answer", reply_to, mandatory=True)
    requester.expect("basic.deliver")
    s.settle()


@script("several replies reach the asker in order")
def _(s: Session) -> None:
    requester, server, reply_to = asking(s)
    for body in ("one", "two", "three"):
        server.publish(body, reply_to)
    for _each in range(3):
        requester.expect("basic.deliver")


@script("a reply under confirms is confirmed")
def _(s: Session) -> None:
    requester, server, reply_to = asking(s)
    server.call("confirm.select")
    server.publish("answer", reply_to)
    server.confirmed(1)
    requester.expect("basic.deliver")


@script("consuming replies with acknowledgements is refused")
def _(s: Session) -> None:
    s.channel().refused("basic.consume", queue=PSEUDO, consumer_tag="t", no_ack=False)


@script("consuming replies twice on a channel is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("basic.consume", queue=PSEUDO, consumer_tag="t1", no_ack=True)
    ch.refused("basic.consume", queue=PSEUDO, consumer_tag="t2", no_ack=True)


@script("consuming replies without a tag gives one")
def _(s: Session) -> None:
    s.channel().call("basic.consume", queue=PSEUDO, no_ack=True)


@script("consuming replies may be cancelled and begun again")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("basic.consume", queue=PSEUDO, consumer_tag="t1", no_ack=True)
    ch.call("basic.cancel", consumer_tag="t1")
    ch.call("basic.consume", queue=PSEUDO, consumer_tag="t2", no_ack=True)


@script("asking without consuming replies is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("question", "q", properties={"reply_to": PSEUDO})
    ch.expect_close()


@script("a mandatory reply to an asker that is gone comes back")
def _(s: Session) -> None:
    requester, server, reply_to = asking(s)
    requester.close()
    server.publish("late", reply_to, mandatory=True)
    server.publish("late and silent", reply_to)
    s.settle()


@script("a reply to a made-up address")
def _(s: Session) -> None:
    ch = s.channel()
    ch.publish("nobody", f"{PSEUDO}.made.up", mandatory=True)
    s.settle()


@script("a mandatory message to the pseudo-queue itself comes back")
def _(s: Session) -> None:
    ch = s.channel()
    ch.publish("nobody", PSEUDO, mandatory=True)
    s.settle()


@script("declaring the pseudo-queue passively tells that it is there")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue=PSEUDO, passive=True)
    ch.call("queue.declare", queue=PSEUDO)


@script("declaring an asker's address passively tells whether it is there")
def _(s: Session) -> None:
    requester, server, reply_to = asking(s)
    server.call("queue.declare", queue=reply_to, passive=True)
    requester.close()
    server.refused("queue.declare", queue=reply_to, passive=True)


@script("getting from the pseudo-queue is refused")
def _(s: Session) -> None:
    s.channel().refused("basic.get", queue=PSEUDO, no_ack=True)


@script("binding, purging and deleting the pseudo-queue")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1).refused("queue.bind", queue=PSEUDO, exchange="amq.direct", routing_key="k")
    wire.channel(2).refused("queue.purge", queue=PSEUDO)
    wire.channel(3).refused("queue.delete", queue=PSEUDO)


@script("a reply through another exchange than the default does not arrive")
def _(s: Session) -> None:
    _requester, server, reply_to = asking(s)
    server.publish("astray", reply_to, "amq.direct", mandatory=True)
    s.settle()
