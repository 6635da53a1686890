"""Queues: declare in all its ways, equivalence, names, purge, delete, exclusive and auto-delete."""

from __future__ import annotations

from ..session import Session, script
from ..wire_values import Raw


@script("a queue is declared and reports no messages and no consumers")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")


@script("a queue declared again in the same way reports its messages and consumers")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.publish("two", "q")
    s.settle()
    ch.call("queue.declare", queue="q")
    ch.call("basic.qos", prefetch_count=1)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle()
    ch.call("queue.declare", queue="q")


@script("a queue declared without a name gets one from the server")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", exclusive=True)
    ch.call("queue.declare", exclusive=True)


@script("a queue declared with nowait is there without an answer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.send("queue.declare", queue="q", nowait=True)
    s.count(ch, "q")


@script("a queue declared with nowait and other attributes still closes the channel")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.declare", queue="q", durable=True, nowait=True)


@script("a passive declare of an unknown queue is not found")
def _(s: Session) -> None:
    s.channel().refused("queue.declare", queue="nowhere", passive=True)


@script("a passive declare does not compare attributes or arguments")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-expires": 100000})
    ch.call("queue.declare", queue="q", passive=True, durable=True, auto_delete=True, exclusive=True)


@script("a passive declare with an empty name does not mean the queue declared last")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.declare", passive=True)


@script("an empty queue name without an earlier declare is refused by passive declare")
def _(s: Session) -> None:
    s.channel().refused("queue.declare", passive=True)


@script("a redeclare with another durable flag is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.declare", queue="q", durable=True)


@script("a redeclare of a durable queue as transient is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", durable=True)
    ch.refused("queue.declare", queue="q")


@script("a redeclare with another auto_delete flag is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.declare", queue="q", auto_delete=True)


@script("a redeclare of a shared queue as exclusive is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.declare", queue="q", exclusive=True)


@script("a redeclare of an own exclusive queue as shared is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", exclusive=True)
    ch.refused("queue.declare", queue="q")


@script("an exclusive queue is locked for other connections")
def _(s: Session) -> None:
    owner = s.channel()
    owner.call("queue.declare", queue="q", exclusive=True)
    other = s.connect()
    for number, (name, arguments) in enumerate(
        [
            ("queue.declare", {"queue": "q"}),
            ("queue.declare", {"queue": "q", "exclusive": True}),
            ("queue.declare", {"queue": "q", "passive": True}),
            ("queue.bind", {"queue": "q", "exchange": "amq.direct", "routing_key": "k"}),
            ("queue.unbind", {"queue": "q", "exchange": "amq.direct", "routing_key": "k"}),
            ("queue.purge", {"queue": "q"}),
            ("queue.delete", {"queue": "q"}),
            ("basic.consume", {"queue": "q"}),
            ("basic.get", {"queue": "q"}),
        ],
        1,
    ):
        other.channel(number).refused(name, **arguments)


@script("another connection cannot unbind an exclusive queue")
def _(s: Session) -> None:
    owner = s.channel()
    owner.call("queue.declare", queue="q", exclusive=True)
    bound = {"queue": "q", "exchange": "amq.direct", "routing_key": "k"}
    headers = {"queue": "q", "exchange": "amq.headers", "routing_key": "k", "arguments": {"x-match": "all", "a": 1}}
    owner.call("queue.bind", **bound)
    owner.call("queue.bind", **headers)
    other = s.connect()
    other.channel(1).refused("queue.unbind", **bound)
    other.channel(2).refused("queue.unbind", **headers)
    # What is not bound is unbound already.
    other.channel(3).call("queue.unbind", **{**bound, "routing_key": "other"})
    other.channel(4).call("queue.unbind", **{**bound, "exchange": "amq.fanout"})
    other.channel(5).call("queue.unbind", **{**headers, "arguments": {"x-match": "all", "a": 2}})
    other.channel(6).refused("queue.unbind", **{**bound, "exchange": "nowhere"})
    owner.publish("still bound", "k", exchange="amq.direct")
    s.settle()
    owner.call("basic.get", queue="q", no_ack=True)
    owner.call("queue.unbind", **bound)


@script("anyone may publish to an exclusive queue")
def _(s: Session) -> None:
    owner = s.channel()
    owner.call("queue.declare", queue="q", exclusive=True)
    other = s.channel()
    other.publish("hello", "q")
    s.settle()
    owner.call("basic.get", queue="q", no_ack=True)


@script("an exclusive queue goes with its connection and not with its channel")
def _(s: Session) -> None:
    wire = s.connect()
    first = wire.channel(1)
    first.call("queue.declare", queue="q", exclusive=True)
    first.close()
    wire.channel(2).call("queue.declare", queue="q", passive=True)
    wire.hang_up()
    s.until_gone("q")
    s.channel().refused("queue.declare", queue="q", passive=True)


@script("an exclusive queue of a closed connection may be declared at once by another")
def _(s: Session) -> None:
    wire = s.connect()
    wire.channel(1).call("queue.declare", queue="q", exclusive=True)
    wire.send(0, "connection.close", reply_code=200, reply_text="bye", class_id=0, method_id=0)
    wire.expect(0, "connection.close-ok")
    s.channel().call("queue.declare", queue="q", exclusive=True)


@script("an auto-delete queue stays until its first consumer has come and gone")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", auto_delete=True)
    ch.call("basic.get", queue="q")
    ch.call("queue.declare", queue="q", passive=True)
    ch.call("basic.consume", queue="q", consumer_tag="t1")
    ch.call("basic.consume", queue="q", consumer_tag="t2")
    ch.call("basic.cancel", consumer_tag="t1")
    s.count(ch, "q")
    ch.call("basic.cancel", consumer_tag="t2")
    ch.refused("queue.declare", queue="q", passive=True)


@script("an auto-delete queue goes when the channel of its consumer closes")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q", auto_delete=True)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.close()
    s.until_gone("q")
    wire.channel(2).refused("queue.declare", queue="q", passive=True)


@script("an auto-delete queue goes when the connection of its consumer drops")
def _(s: Session) -> None:
    wire = s.connect()
    ch = wire.channel(1)
    ch.call("queue.declare", queue="q", auto_delete=True)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    wire.hang_up()
    s.until_gone("q")
    s.channel().refused("queue.declare", queue="q", passive=True)


@script("queue names beginning with amq. are refused")
def _(s: Session) -> None:
    s.channel().refused("queue.declare", queue="amq.mine")


@script("a passive declare of an unknown queue named amq. is only not found")
def _(s: Session) -> None:
    s.channel().refused("queue.declare", queue="amq.mine", passive=True)


@script("line breaks are taken out of a declared queue name")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q\r\n1")
    ch.call("queue.declare", queue="q1", passive=True)
    ch.call("queue.delete", queue="q1")


@script("a queue name may hold any characters up to 255 bytes")
def _(s: Session) -> None:
    ch = s.channel()
    for name in ("../etc", "a\0b", "'; DROP", '"', "%2F", "{}", "\u202eabc", "\U0001f600", "x" * 255):
        ch.call("queue.declare", queue=name)


@script("a queue name that is not UTF-8 closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue=Raw(b"\x02\xff\xfe"), exclusive=True)


@script("purge takes the ready messages and leaves the unacknowledged ones")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for body in ("one", "two", "three"):
        ch.publish(body, "q")
    ch.call("basic.get", queue="q")
    ch.call("queue.purge", queue="q")
    ch.call("basic.get", queue="q")
    ch.call("queue.purge", queue="q")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    ch.call("basic.get", queue="q", no_ack=True)


@script("purge with nowait gives no answer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.send("queue.purge", queue="q", nowait=True)
    s.count(ch, "q")


@script("purge of an unknown queue is not found")
def _(s: Session) -> None:
    s.channel().refused("queue.purge", queue="nowhere")


@script("purge with an empty name means the queue declared last")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.call("queue.purge")


@script("purge with an empty name and no declared queue is not found")
def _(s: Session) -> None:
    s.channel().refused("queue.purge")


@script("delete reports the messages that were ready")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for body in ("one", "two", "three"):
        ch.publish(body, "q")
    ch.call("basic.get", queue="q")
    ch.call("queue.delete", queue="q")


@script("delete of an unknown queue is answered as if it had been there")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.delete", queue="nowhere")
    ch.call("queue.delete", queue="nowhere", if_unused=True, if_empty=True)


@script("delete if-empty of a queue with messages is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.refused("queue.delete", queue="q", if_empty=True)


@script("delete if-empty of an empty queue deletes it")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.delete", queue="q", if_empty=True)
    ch.refused("queue.declare", queue="q", passive=True)


@script("delete if-empty looks at ready messages only")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.call("basic.get", queue="q")
    ch.call("queue.delete", queue="q", if_empty=True)


@script("delete if-unused of a queue with a consumer is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.refused("queue.delete", queue="q", if_unused=True)


@script("delete if-unused of a queue with messages and no consumer deletes it")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.call("queue.delete", queue="q", if_unused=True)


@script("delete if-unused and if-empty complains of the messages first")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("basic.qos", prefetch_count=1)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("one", "q")
    ch.publish("two", "q")
    s.settle()
    ch.refused("queue.delete", queue="q", if_unused=True, if_empty=True)


@script("delete with an empty name means the queue declared last")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.delete")
    ch.refused("queue.declare", queue="q", passive=True)


@script("the current queue name is remembered when that queue is deleted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.delete", queue="q")
    ch.refused("queue.purge")


@script("delete with nowait gives no answer")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.send("queue.delete", queue="q", nowait=True)
    ch.refused("queue.declare", queue="q", passive=True)


@script("an acknowledgement for a deleted queue is accepted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("one", "q")
    ch.call("basic.get", queue="q")
    ch.call("queue.delete", queue="q")
    ch.send("basic.ack", delivery_tag=1)
    ch.barrier()
