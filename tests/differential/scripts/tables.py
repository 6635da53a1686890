"""Field tables: wrong types, wrong lengths, nesting, duplicates."""

from __future__ import annotations

from typing import Any

from ..session import Session, script, table
from ..wire_values import Raw, longstr


def nested(depth: int) -> Raw:
    """A table in a table in a table, built without recursion."""
    inner = longstr(b"")
    for _level in range(depth):
        inner = longstr(b"\x01tF" + inner)
    return Raw(inner)


@table(
    {
        "an unknown field type closes the connection": (Raw(longstr(b"\x01aZ\x00\x00\x00\x00")),),
        "a table longer than its frame closes the connection": (Raw(b"\x00\x00\x00\xff\x01aI"),),
        "a table shorter than its fields closes the connection": (Raw(b"\x00\x00\x00\x05\x01aI\x00\x00\x00\x01"),),
        "a field name longer than its table closes the connection": (Raw(longstr(b"\xffa")),),
        "a field name that is not UTF-8": (Raw(longstr(b"\x02\xff\xfet\x01")),),
        "a field without a value closes the connection": (Raw(longstr(b"\x01aI\x00\x00")),),
        "an inner table longer than the outer closes the connection": (Raw(longstr(b"\x01aF\x00\x00\x00\x09")),),
        "an array longer than its table closes the connection": (Raw(longstr(b"\x01aA\x00\x00\x00\x09")),),
    }
)
def refused(s: Session, arguments: Raw) -> None:
    s.channel().refused("queue.declare", queue="q", arguments=arguments)


@table(
    {
        "booleans other than 0 and 1 are true": ("odd", Raw(longstr(b"\x01at\x02"))),
        "duplicate fields of a header table are passed on": (
            "twice",
            Raw(longstr(b"\x01aI\x00\x00\x00\x01\x01aI\x00\x00\x00\x02")),
        ),
        "tables nested thirty deep are passed on": ("deep", nested(30)),
        "an empty field name is accepted": ("nameless", {"": "value"}),
        "a field name may be as long as 255 bytes": ("long name", {"n" * 255: 1}),
    }
)
def passed_on(s: Session, body: str, headers: Any) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish(body, "q", properties={"headers": headers})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("tables nested a hundred deep in a method")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments=nested(100))
