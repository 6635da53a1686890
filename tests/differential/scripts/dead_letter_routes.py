"""Where a dead letter is routed: its exchange, its keys, and what there is not."""

from __future__ import annotations

from ..session import Session, script
from ..wire_client import Channel
from .dead_letters import letters, mourned, rejected


def with_exchange(s: Session, kind: str, key: str | None = None, **exchange: object) -> Channel:
    """`q` dead-letters to the exchange `dlx` of that type, and `dlq` is not bound yet."""
    ch = mourned(s, key, "dlx")
    ch.call("exchange.declare", exchange="dlx", exchange_type=kind, **exchange)
    return ch


@script("a dead letter keeps its routing key")
def _(s: Session) -> None:
    ch = with_exchange(s, "direct")
    ch.call("queue.bind", queue="dlq", exchange="dlx", routing_key="q")
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("a dead letter of an exchange keeps the key it was published with")
def _(s: Session) -> None:
    ch = with_exchange(s, "direct")
    ch.call("queue.bind", queue="q", exchange="amq.topic", routing_key="a.#")
    ch.call("queue.bind", queue="dlq", exchange="dlx", routing_key="a.b")
    ch.publish("rejected", "a.b", "amq.topic")
    rejected(s, ch)
    letters(s, ch, 1)


@script("the queue's key for dead letters replaces the message's")
def _(s: Session) -> None:
    ch = with_exchange(s, "direct", "new")
    ch.call("queue.declare", queue="old")
    ch.call("queue.bind", queue="old", exchange="dlx", routing_key="q")
    ch.call("queue.bind", queue="dlq", exchange="dlx", routing_key="new")
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)
    s.count(ch, "old")


@script("an empty key for dead letters is a key")
def _(s: Session) -> None:
    ch = with_exchange(s, "direct", "")
    ch.call("queue.bind", queue="dlq", exchange="dlx", routing_key="")
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("a topic exchange routes dead letters")
def _(s: Session) -> None:
    ch = with_exchange(s, "topic", "dead.letter.q")
    ch.call("queue.bind", queue="dlq", exchange="dlx", routing_key="dead.#")
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("a fanout exchange copies dead letters")
def _(s: Session) -> None:
    ch = with_exchange(s, "fanout")
    ch.call("queue.declare", queue="dlq2")
    ch.call("queue.bind", queue="dlq", exchange="dlx")
    ch.call("queue.bind", queue="dlq2", exchange="dlx")
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)
    letters(s, ch, 1, "dlq2")


@script("a headers exchange routes dead letters by the message's headers")
def _(s: Session) -> None:
    ch = with_exchange(s, "headers")
    ch.call("queue.bind", queue="dlq", exchange="dlx", arguments={"x-match": "all", "colour": "red"})
    ch.publish("blue", "q", properties={"headers": {"colour": "blue"}})
    ch.publish("red", "q", properties={"headers": {"colour": "red"}})
    rejected(s, ch)
    rejected(s, ch)
    letters(s, ch, 1)


@script("a headers exchange can route by the reason of the first death")
def _(s: Session) -> None:
    ch = with_exchange(s, "headers")
    arguments = {"x-match": "all-with-x", "x-first-death-reason": "rejected"}
    ch.call("queue.bind", queue="dlq", exchange="dlx", arguments=arguments)
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("an exchange bound to the dead letter exchange gets its letters")
def _(s: Session) -> None:
    ch = with_exchange(s, "fanout")
    ch.call("exchange.declare", exchange="next", exchange_type="direct")
    ch.call("exchange.bind", destination="next", source="dlx")
    ch.call("queue.bind", queue="dlq", exchange="next", routing_key="q")
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("an internal exchange takes dead letters")
def _(s: Session) -> None:
    ch = with_exchange(s, "fanout", internal=True)
    ch.call("queue.bind", queue="dlq", exchange="dlx")
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("the default exchange takes dead letters by the message's own key")
def _(s: Session) -> None:
    ch = mourned(s, None)
    ch.call("queue.bind", queue="q", exchange="amq.fanout")
    ch.publish("rejected", "dlq", "amq.fanout")
    rejected(s, ch)
    letters(s, ch, 1)


@script("without a dead letter exchange of that name the letter is lost")
def _(s: Session) -> None:
    ch = mourned(s, None, "nowhere")
    ch.publish("lost", "q")
    rejected(s, ch)
    s.count(ch, "q")
    s.count(ch, "dlq")


@script("a dead letter exchange may be declared after its queue")
def _(s: Session) -> None:
    ch = mourned(s, None, "dlx")
    ch.publish("lost", "q")
    rejected(s, ch)
    s.settle()
    ch.call("exchange.declare", exchange="dlx", exchange_type="fanout")
    ch.call("queue.bind", queue="dlq", exchange="dlx")
    ch.publish("found", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("a dead letter exchange may be deleted and declared again")
def _(s: Session) -> None:
    ch = with_exchange(s, "fanout")
    ch.call("queue.bind", queue="dlq", exchange="dlx")
    ch.call("exchange.delete", exchange="dlx")
    ch.publish("lost", "q")
    rejected(s, ch)
    s.count(ch, "dlq")
    ch.call("exchange.declare", exchange="dlx", exchange_type="direct")
    ch.call("queue.bind", queue="dlq", exchange="dlx", routing_key="q")
    ch.publish("found", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("a dead letter that no binding takes is lost")
def _(s: Session) -> None:
    ch = with_exchange(s, "direct")
    ch.publish("lost", "q")
    rejected(s, ch)
    s.count(ch, "q")
    s.count(ch, "dlq")


@script("a dead letter that no binding takes goes to the alternate exchange")
def _(s: Session) -> None:
    ch = mourned(s, None, "dlx")
    ch.call("exchange.declare", exchange="alternate", exchange_type="fanout")
    arguments = {"alternate-exchange": "alternate"}
    ch.call("exchange.declare", exchange="dlx", exchange_type="direct", arguments=arguments)
    ch.call("queue.bind", queue="dlq", exchange="alternate")
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)


@script("a mandatory message is not returned when its letter has no way to go")
def _(s: Session) -> None:
    ch = with_exchange(s, "direct")
    ch.publish("lost", "q", mandatory=True)
    rejected(s, ch)
    s.settle()


@script("a mandatory message that is dead-lettered at once is not returned")
def _(s: Session) -> None:
    ch = mourned(s, x_message_ttl=0)
    ch.publish("expired", "q", mandatory=True)
    letters(s, ch, 1)


@script("a key for dead letters may have 255 octets")
def _(s: Session) -> None:
    ch = with_exchange(s, "fanout", "k" * 255)
    ch.call("queue.bind", queue="dlq", exchange="dlx")
    ch.publish("rejected", "q")
    rejected(s, ch)
    letters(s, ch, 1)


# --- CC and BCC ------------------------------------------------------------------------------------------


@script("a dead letter with its own key goes to the keys in CC too")
def _(s: Session) -> None:
    ch = mourned(s, None)
    ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="k")
    ch.call("queue.declare", queue="copied")
    ch.publish("rejected", "k", "amq.direct", properties={"headers": {"CC": ["copied", "dlq"], "mine": 1}})
    rejected(s, ch)
    letters(s, ch, 1)
    letters(s, ch, 1, "copied")


@script("the queue's key for dead letters takes CC away")
def _(s: Session) -> None:
    ch = mourned(s, "dlq")
    ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="k")
    ch.call("queue.declare", queue="copied")
    ch.publish("rejected", "k", "amq.direct", properties={"headers": {"a": 1, "CC": ["copied"], "z": 2}})
    rejected(s, ch)
    letters(s, ch, 1)
    s.count(ch, "copied")


@script("the queue's key for dead letters takes BCC away")
def _(s: Session) -> None:
    ch = mourned(s, "dlq")
    ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="k")
    ch.call("queue.declare", queue="copied")
    ch.publish("rejected", "k", "amq.direct", properties={"headers": {"BCC": ["copied"]}})
    rejected(s, ch)
    letters(s, ch, 1)
    s.count(ch, "copied")


@script("a message that came by its CC key is dead-lettered with all its keys")
def _(s: Session) -> None:
    ch = mourned(s, "dlq")
    ch.publish("rejected", "elsewhere", properties={"headers": {"CC": ["q", "third"]}})
    rejected(s, ch)
    letters(s, ch, 1)


@script("a message that came by its BCC key is dead-lettered with its first key only")
def _(s: Session) -> None:
    ch = mourned(s, "dlq")
    ch.publish("rejected", "elsewhere", properties={"headers": {"BCC": ["q", "third"]}})
    rejected(s, ch)
    letters(s, ch, 1)


@script("a message that its queue gets by two keys is one message and one letter")
def _(s: Session) -> None:
    ch = mourned(s, "dlq")
    ch.publish("once", "q", properties={"headers": {"CC": ["q"]}})
    rejected(s, ch)
    letters(s, ch, 1)
