"""x-death field by field, over one death and over many."""

from __future__ import annotations

from typing import Any

from ..session import Session, script, table
from ..wire_client import Channel
from ..wire_values import Typed
from .dead_letters import letters, mourned, rejected


def ring(s: Session, *queues: str) -> Channel:
    """Queues of which each dead-letters to the next and the last to the first."""
    ch = s.channel()
    for queue, target in zip(queues, [*queues[1:], queues[0]], strict=True):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        ch.call("queue.declare", queue=queue, arguments=arguments)
    return ch


def pushed(s: Session, ch: Channel, *queues: str) -> None:
    """Reject the message in each of the queues, where it comes by the rejection before."""
    for queue in queues:
        s.until_messages(queue, 1)
        rejected(s, ch, queue)


@table(
    {
        "the headers of a dead letter are sorted by their names": (
            {"z": 1, "x-first": 2, "b": 3, "B": 4, "x-e": 5, "x-d": 6, "": 7},
        ),
        "a count of another width goes on as it is": (
            {"x-death": [{"count": Typed("I", 7), "reason": "rejected", "queue": "q"}]},
        ),
        "a death without a count is counted anew": ({"x-death": [{"reason": "rejected", "queue": "q", "mine": "x"}]},),
        "an empty x-death gets its first entry": ({"x-death": []},),
        "x-death that is a string is replaced": ({"x-death": "nonsense"},),
        "x-death that is a table is replaced": ({"x-death": {"count": 1}},),
        "first death headers of the publisher without an x-death": (
            {"x-first-death-queue": "mine", "x-first-death-reason": 5},
        ),
        "an entry that names no queue is kept": ({"x-death": [{"count": Typed("l", 3)}, {}]},),
        "an entry of x-death whose fields have other types is kept": (
            {"x-death": [{"count": "many", "reason": 5, "queue": True}]},
        ),
    }
)
def forwarded(s: Session, headers: dict[str, Any]) -> None:
    """What becomes of a message published with these headers."""
    ch = mourned(s)
    ch.publish("rejected", "q", properties={"headers": headers})
    rejected(s, ch)
    letters(s, ch, 1)


@script("a message without headers gets them with its death")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.publish("bare", "q", properties={"content_type": "text/plain"})
    rejected(s, ch)
    letters(s, ch, 1)


@script("headers of every type survive a death")
def _(s: Session) -> None:
    kinds = {"b": -5, "B": 5, "s": -5, "u": 5, "I": -5, "i": 5, "l": -5, "T": 5, "f": 1.5, "d": 1.5}
    headers: dict[str, Any] = {f"n-{kind}": Typed(kind, value) for kind, value in kinds.items()}
    headers["bool"] = True
    headers["void"] = None
    headers["bytes"] = b"\x00\xff"
    headers["decimal"] = Typed("D", (2, 314))
    headers["table"] = {"z": 1, "a": [1, "two", {"three": 3}]}
    forwarded(s, headers)


@script("x-death names the exchange and the key of the publish")
def _(s: Session) -> None:
    ch = mourned(s)
    ch.call("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    ch.publish("rejected", "a.b.c", "amq.topic")
    rejected(s, ch)
    letters(s, ch, 1)


@script("a second death in the same queue for the same reason raises the count")
def _(s: Session) -> None:
    ch = ring(s, "q1", "q2")
    ch.publish("again", "q1")
    pushed(s, ch, "q1", "q2", "q1")
    letters(s, ch, 1, "q2")


@script("the latest death comes first in x-death")
def _(s: Session) -> None:
    ch = ring(s, "q1", "q2", "q3")
    ch.publish("round", "q1")
    pushed(s, ch, "q1", "q2", "q3", "q1", "q2")
    letters(s, ch, 1, "q3")


@script("deaths in one queue for two reasons are two entries")
def _(s: Session) -> None:
    ch = s.channel()
    for queue, target, ttl in (("q", "dlq", 0), ("dlq", "q", 600_000)):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target, "x-message-ttl": ttl}
        ch.call("queue.declare", queue=queue, arguments=arguments)
    ch.call("basic.consume", queue="q", consumer_tag="t")
    ch.publish("rejected, then expired", "q")
    ch.expect("basic.deliver")
    ch.call("basic.cancel", consumer_tag="t")
    ch.send("basic.reject", delivery_tag=1, requeue=False)
    pushed(s, ch, "dlq")
    letters(s, ch, 1)


@script("a message that is rejected and then expires has both deaths")
def _(s: Session) -> None:
    ch = mourned(s, "short")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq", "x-message-ttl": 0}
    ch.call("queue.declare", queue="short", arguments=arguments)
    ch.publish("twice dead", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("a message that expires and is then rejected has both deaths")
def _(s: Session) -> None:
    ch = mourned(s, "next", x_message_ttl=1)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"}
    ch.call("queue.declare", queue="next", arguments=arguments)
    ch.publish("twice dead", "q")
    pushed(s, ch, "next")
    letters(s, ch, 1)


@script("the first death stays the first")
def _(s: Session) -> None:
    ch = s.channel()
    for queue, target in (("q1", "q2"), ("q2", "q3"), ("q3", "q4")):
        arguments = {"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": target}
        ch.call("queue.declare", queue=queue, arguments=arguments)
        ch.call("queue.bind", queue=queue, exchange="amq.direct", routing_key=queue)
    ch.call("queue.declare", queue="q4")
    ch.call("queue.bind", queue="q4", exchange="amq.direct", routing_key="q4")
    ch.publish("often", "q1")
    pushed(s, ch, "q1", "q2", "q3")
    letters(s, ch, 1, "q4")


@script("original-expiration is of the death that took it away")
def _(s: Session) -> None:
    ch = ring(s, "q1", "q2", "q3")
    ch.publish("dated", "q1", properties={"expiration": "600000"})
    pushed(s, ch, "q1", "q2")
    letters(s, ch, 1, "q3")


@script("a message published again with its x-death goes on counting")
def _(s: Session) -> None:
    death = {
        "count": Typed("l", 7),
        "reason": "rejected",
        "queue": "q",
        "time": Typed("T", 1_600_000_000),
        "exchange": "old",
        "routing-keys": ["old key"],
    }
    forwarded(s, {"x-death": [death]})


@script("x-death of another queue is kept behind the new death")
def _(s: Session) -> None:
    death = {"count": Typed("l", 3), "reason": "expired", "queue": "other", "exchange": "e", "routing-keys": ["k"]}
    forwarded(s, {"x-death": [death], "x-first-death-reason": "expired"})


@script("only the death of this queue and reason moves to the front")
def _(s: Session) -> None:
    deaths = [
        {"count": Typed("l", 3), "reason": "expired", "queue": "q"},
        {"count": Typed("l", 5), "reason": "rejected", "queue": "other"},
        {"count": Typed("l", 7), "reason": "rejected", "queue": "q"},
    ]
    forwarded(s, {"x-death": deaths})


@script("first death headers of the publisher are kept with an x-death")
def _(s: Session) -> None:
    death = {"count": Typed("l", 1), "reason": "expired", "queue": "other"}
    forwarded(s, {"x-death": [death], "x-first-death-queue": "mine"})


@script("the time of a counted death is that of the first")
def _(s: Session) -> None:
    death = {"count": Typed("l", 1), "reason": "rejected", "queue": "q", "time": Typed("T", 1_000_000_000)}
    other = {"count": Typed("l", 1), "reason": "rejected", "queue": "other", "time": Typed("T", 1_000_000_001)}
    forwarded(s, {"x-death": [other, death]})


@script("entries of the same queue and reason become one")
def _(s: Session) -> None:
    deaths = [
        {"count": Typed("l", 3), "reason": "rejected", "queue": "q", "exchange": "a"},
        {"count": Typed("l", 5), "reason": "expired", "queue": "other", "exchange": "b"},
        {"count": Typed("l", 7), "reason": "rejected", "queue": "q", "exchange": "c"},
        {"count": Typed("l", 9), "reason": "expired", "queue": "other", "exchange": "d"},
    ]
    forwarded(s, {"x-death": deaths})


@script("a counted death does not note the expiration")
def _(s: Session) -> None:
    ch = mourned(s)
    headers = {"x-death": [{"count": Typed("l", 1), "reason": "rejected", "queue": "q"}]}
    ch.publish("rejected", "q", properties={"headers": headers, "expiration": "600000"})
    rejected(s, ch)
    letters(s, ch, 1)


@script("a later death notes the expiration among its sorted fields")
def _(s: Session) -> None:
    ch = mourned(s)
    headers = {"x-death": [{"count": Typed("l", 1), "reason": "rejected", "queue": "other"}]}
    ch.publish("rejected", "q", properties={"headers": headers, "expiration": "600000"})
    rejected(s, ch)
    letters(s, ch, 1)


@script("many deaths are all told")
def _(s: Session) -> None:
    deaths = [{"count": Typed("l", n), "reason": "rejected", "queue": f"q{n}"} for n in range(1, 40)]
    forwarded(s, {"x-death": deaths})


@script("x-death does not route")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("plain", "q", properties={"headers": {"x-death": [{"queue": "q", "reason": "expired"}]}})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)
