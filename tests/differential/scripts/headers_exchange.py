"""The headers exchange: x-match in all its values, types, and what it passes over."""

from __future__ import annotations

from typing import Any

from ..session import Session, script, table
from ..wire_values import Typed


@table(
    {
        "x-match all wants every header": (
            {"x-match": "all", "a": 1, "b": "x"},
            {"a": 1, "b": "x"},
            {"a": 1},
            {"a": 1, "b": "y"},
            {"b": "x", "c": 0, "a": 1},
            {},
            None,
        ),
        "x-match any wants one header": (
            {"x-match": "any", "a": 1, "b": "x"},
            {"a": 1},
            {"b": "x"},
            {"a": 2, "b": "y"},
            {"a": 2, "b": "x"},
            {},
            None,
        ),
        "without x-match every header is wanted": ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1}),
        "without any argument every message is wanted": ({}, {"a": 1}, {}, None),
        "x-match any without other arguments wants nothing": ({"x-match": "any"}, {"a": 1}, {}, None),
        "x-match all without other arguments wants everything": ({"x-match": "all"}, {"a": 1}, {}, None),
        "x-match all passes over headers named x-": (
            {"x-match": "all", "a": 1, "x-b": 2},
            {"a": 1},
            {"a": 1, "x-b": 3},
            {"x-b": 2},
        ),
        "x-match any passes over headers named x-": ({"x-match": "any", "a": 1, "x-b": 2}, {"a": 1}, {"x-b": 2}),
        "x-match all-with-x looks at headers named x-": (
            {"x-match": "all-with-x", "a": 1, "x-b": 2},
            {"a": 1},
            {"a": 1, "x-b": 2},
            {"a": 1, "x-b": 3},
            {"a": 1, "x-b": 2, "x-match": "no"},
        ),
        "x-match any-with-x looks at headers named x-": (
            {"x-match": "any-with-x", "a": 1, "x-b": 2},
            {"x-b": 2},
            {"a": 1},
            {"x-b": 3},
        ),
        "a void argument wants the header to be there whatever it is": (
            {"x-match": "all", "a": None},
            {"a": 1},
            {"a": "text"},
            {"a": None},
            {"b": 1},
        ),
        "numbers match across their widths and nothing else across types": (
            {"a": Typed("I", 1)},
            {"a": Typed("I", 1)},
            {"a": Typed("l", 1)},
            {"a": Typed("b", 1)},
            {"a": True},
            {"a": "1"},
            {"a": 1.0},
        ),
        "nested tables match in the same order of keys only": (
            {"t": {"a": 1, "b": 2}},
            {"t": {"a": 1, "b": 2}},
            {"t": {"b": 2, "a": 1}},
            {"t": {"a": 1}},
        ),
    }
)
def probe(s: Session, arguments: dict[str, Any], *candidates: dict[str, Any] | None) -> None:
    """Bind `q` with the arguments and see which header tables are routed: the others come back."""
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="amq.headers", arguments=arguments)
    for number, headers in enumerate(candidates):
        properties = {} if headers is None else {"headers": headers}
        ch.publish(f"candidate {number}", "ignored", "amq.headers", mandatory=True, properties=properties)
    s.settle()
    answer = ch.call("basic.get", queue="q", no_ack=True)
    while answer is not None and answer.name == "basic.get-ok":
        answer = ch.call("basic.get", queue="q", no_ack=True)


@script("an unknown x-match is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.bind", queue="q", exchange="amq.headers", arguments={"x-match": "some", "a": 1})


@script("an x-match that is no string is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.refused("queue.bind", queue="q", exchange="amq.headers", arguments={"x-match": 1})


@script("an unknown x-match in unbind is passed over")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.unbind", queue="q", exchange="amq.headers", arguments={"x-match": "some"})


@script("an unknown x-match is of no interest to other exchanges")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.bind", queue="q", exchange="amq.direct", routing_key="k", arguments={"x-match": "some"})


@script("header values of every type may match")
def _(s: Session) -> None:
    for number, value in enumerate(
        (
            "s",
            b"bytes",
            True,
            1.5,
            Typed("T", 5),
            Typed("D", (1, 15)),
            [1, "x"],
            {"n": {"m": 1}},
            Typed("s", 4),
        )
    ):
        ch = s.channel()
        queue = f"q{number}"
        ch.call("queue.declare", queue=queue)
        ch.call("queue.bind", queue=queue, exchange="amq.match", arguments={"number": number, "value": value})
        headers = {"value": value, "number": number}
        ch.publish("found", "", "amq.match", mandatory=True, properties={"headers": headers})
        s.settle()
        ch.call("basic.get", queue=queue, no_ack=True)


@script("a routing key does not matter to a headers exchange and tells bindings apart")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    for key in ("k1", "k2"):
        ch.call("queue.bind", queue="q", exchange="amq.headers", routing_key=key, arguments={"a": 1})
    ch.call("queue.unbind", queue="q", exchange="amq.headers", routing_key="k1", arguments={"a": 1})
    ch.publish("still", "k1", "amq.headers", mandatory=True, properties={"headers": {"a": 1}})
    s.count(ch, "q")
