"""x-expires: queues that go when nobody uses them.

Asking for a queue is use, so these scripts wait without asking. `clock` is a queue that nobody touches and that lives
longer than the one in question: when it is gone, so is the other one, if it goes at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.frame_socket import DEADLINE_S, Silence

from ..session import Session, script
from ..wire_client import Channel

# Long enough that a queue which is used all the time is never without use for so long.
TOUCHED_MS = 1_000


def expiring(s: Session, ms: int, queue: str = "q", **flags: bool) -> Channel:
    ch = s.channel()
    ch.call("queue.declare", queue=queue, arguments={"x-expires": ms}, **flags)
    return ch


def while_touched(s: Session, ch: Channel, touch: Callable[[], object]) -> None:
    """Do something again and again until an untouched queue of the same life is gone."""
    ch.call("queue.declare", queue="clock", arguments={"x-expires": TOUCHED_MS})
    deadline = time.monotonic() + DEADLINE_S
    while s.routable("clock"):
        touch()
        if time.monotonic() > deadline:
            raise Silence("an unused queue does not go")


@script("an unused queue goes")
def _(s: Session) -> None:
    ch = expiring(s, 1)
    s.until_unroutable("q")
    ch.refused("queue.declare", queue="q", passive=True)


@script("an unused queue goes with its messages")
def _(s: Session) -> None:
    ch = expiring(s, 1)
    ch.publish("lost", "q")
    s.until_unroutable("q")
    ch.call("queue.declare", queue="q")


@script("a durable unused queue goes too")
def _(s: Session) -> None:
    ch = expiring(s, 1, durable=True)
    s.until_unroutable("q")
    ch.call("queue.declare", queue="q", durable=True)


@script("an exclusive unused queue goes too")
def _(s: Session) -> None:
    ch = expiring(s, 1, exclusive=True)
    s.until_unroutable("q")
    ch.call("queue.declare", queue="q", exclusive=True)


@script("an unused queue that the server named goes too")
def _(s: Session) -> None:
    ch = s.channel()
    answer = ch.call("queue.declare", queue="", arguments={"x-expires": 1})
    assert answer is not None
    s.until_unroutable(answer.arguments["queue"])
    ch.refused("queue.purge", queue="")


@script("a mandatory message to an expired queue comes back")
def _(s: Session) -> None:
    ch = expiring(s, 1)
    s.until_unroutable("q")
    ch.publish("back", "q", mandatory=True)
    s.settle()


@script("the bindings of an expired queue go with it")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="fanout", auto_delete=True)
    # The queue must not go before it is bound.
    ch.call("queue.declare", queue="q", arguments={"x-expires": TOUCHED_MS})
    ch.call("queue.bind", queue="q", exchange="x")
    s.until_unroutable("q")
    ch.refused("exchange.declare", exchange="x", exchange_type="fanout", passive=True)


@script("a consumer keeps its queue")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-expires": TOUCHED_MS})
    ch.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)
    other = s.channel()
    other.call("queue.declare", queue="clock", arguments={"x-expires": 1_500})
    s.until_unroutable("clock")
    ch.publish("arrives", "q")
    s.settle()


@script("a queue goes when its consumer is cancelled")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-expires": TOUCHED_MS})
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.call("basic.cancel", consumer_tag="t")
    s.until_unroutable("q")
    ch.refused("queue.declare", queue="q", passive=True)


@script("a queue goes when the channel of its consumer is closed")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-expires": TOUCHED_MS})
    other = ch.wire.channel(2)
    other.call("basic.consume", queue="q", consumer_tag="t")
    other.close()
    s.until_unroutable("q")
    ch.refused("queue.declare", queue="q", passive=True)


@script("a queue goes when the connection of its consumer is lost")
def _(s: Session) -> None:
    ch, other = s.channel(), s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-expires": TOUCHED_MS})
    other.call("basic.consume", queue="q", consumer_tag="t")
    other.wire.hang_up()
    s.until_unroutable("q")
    ch.refused("queue.declare", queue="q", passive=True)


@script("one of two consumers is enough to keep a queue")
def _(s: Session) -> None:
    ch, other = s.channel(), s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-expires": TOUCHED_MS})
    ch.call("basic.consume", queue="q", consumer_tag="first", no_ack=True)
    other.call("basic.consume", queue="q", consumer_tag="second", no_ack=True)
    ch.call("basic.cancel", consumer_tag="first")
    ch.call("queue.declare", queue="clock", arguments={"x-expires": 1_500})
    s.until_unroutable("clock")
    ch.publish("arrives", "q")
    s.settle()


@script("declaring a queue again keeps it")
def _(s: Session) -> None:
    ch = expiring(s, TOUCHED_MS)
    arguments = {"x-expires": TOUCHED_MS}
    other = s.control().channel(2)
    while_touched(s, ch, lambda: other.call("queue.declare", queue="q", arguments=arguments))
    ch.call("queue.declare", queue="q", passive=True)


@script("asking for a queue keeps it")
def _(s: Session) -> None:
    ch = expiring(s, TOUCHED_MS)
    while_touched(s, ch, lambda: s.ask("q"))
    ch.call("queue.declare", queue="q", passive=True)


@script("basic.get keeps a queue")
def _(s: Session) -> None:
    ch = expiring(s, TOUCHED_MS)
    other = s.control().channel(2)
    while_touched(s, ch, lambda: other.call("basic.get", queue="q", no_ack=True))
    ch.call("queue.declare", queue="q", passive=True)


@script("publishing does not keep a queue")
def _(s: Session) -> None:
    ch = expiring(s, 50)
    ch.publish("no use", "q")
    # This waits by publishing.
    s.until_unroutable("q")
    ch.refused("queue.declare", queue="q", passive=True)


@script("a message that waits to be acknowledged does not keep its queue")
def _(s: Session) -> None:
    ch = expiring(s, TOUCHED_MS)
    ch.publish("held", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    s.until_unroutable("q")
    ch.send("basic.ack", delivery_tag=1)
    ch.refused("queue.declare", queue="q", passive=True)


@script("a message requeued to an expired queue is lost")
def _(s: Session) -> None:
    ch = expiring(s, TOUCHED_MS)
    ch.publish("held", "q")
    s.settle()
    ch.call("basic.get", queue="q")
    s.until_unroutable("q")
    ch.send("basic.nack", delivery_tag=1, requeue=True)
    ch.call("queue.declare", queue="q")
    s.count(ch, "q")


@script("the messages of an expired queue are not dead-lettered")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="dlq")
    arguments = {"x-expires": TOUCHED_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"}
    ch.call("queue.declare", queue="q", arguments=arguments)
    ch.publish("lost", "q")
    s.until_unroutable("q")
    s.count(ch, "dlq")


@script("an expired queue can be declared with other arguments")
def _(s: Session) -> None:
    ch = expiring(s, 1)
    s.until_unroutable("q")
    ch.call("queue.declare", queue="q", durable=True, arguments={"x-message-ttl": 60_000})
    ch.publish("kept", "q")
    s.count(ch, "q")


@script("a queue with a long life and an expired neighbour stays")
def _(s: Session) -> None:
    ch = expiring(s, 3_600_000)
    ch.publish("kept", "q")
    ch.call("queue.declare", queue="clock", arguments={"x-expires": 1})
    s.until_unroutable("clock")
    s.count(ch, "q")
    ch.call("basic.get", queue="q", no_ack=True)


@script("a queue that expired while a client was away is not found by it")
def _(s: Session) -> None:
    ch, other = s.channel(), s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-expires": 1})
    ch.close()
    s.until_unroutable("q")
    other.refused("basic.consume", queue="q", consumer_tag="t")
