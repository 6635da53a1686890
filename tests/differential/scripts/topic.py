"""The topic exchange: words, stars, hashes, empty words."""

from __future__ import annotations

from ..session import Session, script


def probe(s: Session, patterns: list[str], keys: list[str]) -> None:
    """One queue per pattern; for each key, note which queues got it by their counts."""
    ch = s.channel()
    ch.call("exchange.declare", exchange="x", exchange_type="topic")
    for number, pattern in enumerate(patterns):
        ch.call("queue.declare", queue=f"q{number}")
        ch.call("queue.bind", queue=f"q{number}", exchange="x", routing_key=pattern)
    for key in keys:
        ch.publish(key, key, "x")
    s.settle()
    for number, pattern in enumerate(patterns):
        s.note(f"pattern {pattern!r}")
        answer = ch.call("basic.get", queue=f"q{number}", no_ack=True)
        while answer is not None and answer.name == "basic.get-ok":
            answer = ch.call("basic.get", queue=f"q{number}", no_ack=True)


@script("topic words match as they are")
def _(s: Session) -> None:
    probe(s, ["a", "a.b", "A.b"], ["a", "a.b", "A.b", "a.b.c", "ab", ""])


@script("a star matches exactly one word")
def _(s: Session) -> None:
    probe(s, ["*", "*.b", "a.*", "*.*", "a.*.c"], ["a", "a.b", "b", "a.b.c", "", "a.", ".b", "."])


@script("a hash matches any number of words")
def _(s: Session) -> None:
    probe(s, ["#", "#.b", "a.#", "a.#.c"], ["", "a", "b", "a.b", "a.c", "a.b.c", "a.x.y.c", "x.b", "x.y.b"])


@script("several hashes match once")
def _(s: Session) -> None:
    probe(s, ["#.#", "#.a.#", "#.a.#.b.#", "a.#.#"], ["", "a", "a.b", "x.a.y.b.z", "b.a", "a.a.b"])


@script("hash and star together want at least one word")
def _(s: Session) -> None:
    probe(s, ["#.*", "*.#", "*.#.*", "#.*.#"], ["", "a", "a.b", "a.b.c"])


@script("empty words are words")
def _(s: Session) -> None:
    probe(s, ["", ".", "a..b", "a.*.b", "*", "#"], ["", ".", "a..b", ".."])


@script("stars and hashes inside a word are only characters")
def _(s: Session) -> None:
    probe(s, ["a*", "a#.b", "**"], ["a*", "ab", "a#.b", "ax.b", "**", "x"])


@script("stars and hashes in a routing key are only words")
def _(s: Session) -> None:
    probe(s, ["a.b", "*.b", "#", "*", "a.*"], ["*.b", "#", "*", "a.#"])


@script("the example of the specification")
def _(s: Session) -> None:
    probe(s, ["*.stock.#"], ["usd.stock", "eur.stock.db", "stock.nasdaq", "usd.stock.db.x"])


@script("a topic binding taken away matches no more")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for key in ("a.#", "a.*"):
        ch.call("queue.bind", queue="q", exchange="amq.topic", routing_key=key)
    ch.call("queue.unbind", queue="q", exchange="amq.topic", routing_key="a.#")
    ch.publish("one", "a.b", "amq.topic", mandatory=True)
    ch.publish("back", "a.b.c", "amq.topic", mandatory=True)
    ch.call("queue.unbind", queue="q", exchange="amq.topic", routing_key="a.*")
    ch.publish("back too", "a.b", "amq.topic", mandatory=True)
    s.count(ch, "q")


@script("a pattern of several words and hashes matches")
def _(s: Session) -> None:
    # RabbitMQ's own matcher takes exponential time in the number of hashes, so there are not more of them here.
    several = ".".join(["#", "a"] * 4)
    probe(s, [several], ["a.a.a.a", "a.a.a", "a.b.a.b.a.b.a", "a.b.a.b.a.b.a.b"])


@script("a routing key of very many words matches")
def _(s: Session) -> None:
    many = ".".join(["a"] * 128)
    probe(s, ["#", many], [many, "." * 255])


@script("a pattern of more than 128 words")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="amq.topic", routing_key="." * 255)
