"""Transactions: what waits for commit, what rollback undoes, and what does not mix."""

from __future__ import annotations

from ..session import Session, script
from ..wire_client import Channel


def selected(s: Session) -> Channel:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("tx.select")
    return ch


@script("tx.select may be sent twice")
def _(s: Session) -> None:
    ch = selected(s)
    ch.call("tx.select")


@script("commit without select is refused")
def _(s: Session) -> None:
    s.channel().refused("tx.commit")


@script("rollback without select is refused")
def _(s: Session) -> None:
    s.channel().refused("tx.rollback")


@script("commit and rollback of nothing are answered")
def _(s: Session) -> None:
    ch = selected(s)
    ch.call("tx.commit")
    ch.call("tx.rollback")


@script("published messages appear with commit")
def _(s: Session) -> None:
    ch = selected(s)
    ch.publish("one", "q")
    ch.publish("two", "q")
    s.count(ch, "q")
    ch.call("tx.commit")
    s.count(ch, "q")


@script("published messages vanish with rollback")
def _(s: Session) -> None:
    ch = selected(s)
    ch.publish("one", "q")
    ch.call("tx.rollback")
    ch.publish("two", "q")
    ch.call("tx.commit")
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)
    ch.call("basic.get", queue="q", no_ack=True)


@script("messages to several queues are committed together")
def _(s: Session) -> None:
    ch = selected(s)
    ch.call("queue.declare", queue="q2")
    ch.publish("one", "q")
    ch.publish("two", "q2")
    ch.call("tx.commit")
    s.count(ch, "q")
    s.count(ch, "q2")


@script("an unroutable mandatory message comes back at commit")
def _(s: Session) -> None:
    ch = selected(s)
    ch.publish("back", "nowhere", mandatory=True)
    s.settle("before commit")
    ch.call("tx.commit")
    s.settle()


@script("publishing to an unknown exchange in a transaction closes the channel at once")
def _(s: Session) -> None:
    ch = selected(s)
    ch.publish("lost", "k", "nowhere")
    ch.expect_close()


@script("acknowledgements take effect with commit")
def _(s: Session) -> None:
    ch = selected(s)
    s.channel().publish("one", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.send("basic.ack", delivery_tag=1)
    ch.call("tx.commit")
    ch.close()
    ch.wire.channel(1).call("basic.get", queue="q")


@script("acknowledgements that are not committed are undone by closing the channel")
def _(s: Session) -> None:
    ch = selected(s)
    s.channel().publish("one", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.send("basic.ack", delivery_tag=1)
    ch.close()
    ch.wire.channel(1).call("basic.get", queue="q")


@script("rollback undoes acknowledgements and does not redeliver")
def _(s: Session) -> None:
    ch = selected(s)
    s.channel().publish("one", "q")
    s.settle()
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle()
    ch.send("basic.ack", delivery_tag=1)
    ch.call("tx.rollback")
    s.settle("after rollback")
    ch.send("basic.ack", delivery_tag=1)
    ch.call("tx.commit")
    s.count(ch, "q")


@script("a rejected message is requeued at commit")
def _(s: Session) -> None:
    ch = selected(s)
    s.channel().publish("one", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.send("basic.reject", delivery_tag=1, requeue=True)
    s.count(ch, "q")
    ch.call("tx.commit")
    s.count(ch, "q")


@script("an acknowledgement waits for commit before it makes room")
def _(s: Session) -> None:
    ch = selected(s)
    other = s.channel()
    other.publish("one", "q")
    other.publish("two", "q")
    s.settle()
    ch.call("basic.qos", prefetch_count=1)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    s.settle()
    ch.send("basic.ack", delivery_tag=1)
    s.settle("acknowledged")
    ch.call("tx.commit")
    s.settle("committed")


@script("a second acknowledgement in one transaction is refused at once")
def _(s: Session) -> None:
    ch = selected(s)
    s.channel().publish("one", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    ch.send("basic.ack", delivery_tag=1)
    ch.refused("basic.ack", delivery_tag=1)


@script("an unknown tag in a transaction is refused at once")
def _(s: Session) -> None:
    ch = selected(s)
    ch.refused("basic.ack", delivery_tag=5)


@script("closing the channel drops what is not committed")
def _(s: Session) -> None:
    ch = selected(s)
    ch.publish("one", "q")
    ch.close()
    s.count(ch.wire.channel(2), "q")


@script("confirm.select on a transactional channel is refused")
def _(s: Session) -> None:
    selected(s).refused("confirm.select")


@script("tx.select on a confirming channel is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("confirm.select")
    ch.refused("tx.select")


@script("tx.commit on a confirming channel is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("confirm.select")
    ch.refused("tx.commit")


@script("purge and delete do not wait for commit")
def _(s: Session) -> None:
    ch = selected(s)
    s.channel().publish("one", "q")
    s.settle()
    ch.call("queue.purge", queue="q")
    s.count(ch, "q")
    ch.call("tx.rollback")
    s.count(ch, "q")
