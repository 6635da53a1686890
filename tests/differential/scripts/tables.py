"""Field tables: wrong types, wrong lengths, nesting, duplicates."""

from __future__ import annotations

from ..session import Session, script
from ..wire_values import Raw, longstr


def nested(depth: int) -> Raw:
    """A table in a table in a table, built without recursion."""
    table = longstr(b"")
    for _level in range(depth):
        table = longstr(b"\x01tF" + table)
    return Raw(table)


@script("an unknown field type closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("queue.declare", queue="q", arguments=Raw(longstr(b"\x01aZ\x00\x00\x00\x00")))


@script("a table longer than its frame closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("queue.declare", queue="q", arguments=Raw(b"\x00\x00\x00\xff\x01aI"))


@script("a table shorter than its fields closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("queue.declare", queue="q", arguments=Raw(b"\x00\x00\x00\x05\x01aI\x00\x00\x00\x01"))


@script("a field name longer than its table closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("queue.declare", queue="q", arguments=Raw(longstr(b"\xffa")))


@script("a field name that is not UTF-8")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("queue.declare", queue="q", arguments=Raw(longstr(b"\x02\xff\xfet\x01")))


@script("a field without a value closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("queue.declare", queue="q", arguments=Raw(longstr(b"\x01aI\x00\x00")))


@script("an inner table longer than the outer closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("queue.declare", queue="q", arguments=Raw(longstr(b"\x01aF\x00\x00\x00\x09")))


@script("an array longer than its table closes the connection")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("queue.declare", queue="q", arguments=Raw(longstr(b"\x01aA\x00\x00\x00\x09")))


@script("booleans other than 0 and 1 are true")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("odd", "q", properties={"headers": Raw(longstr(b"\x01at\x02"))})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("duplicate fields of a header table are passed on")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("twice", "q", properties={"headers": Raw(longstr(b"\x01aI\x00\x00\x00\x01\x01aI\x00\x00\x00\x02"))})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("tables nested thirty deep are passed on")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("deep", "q", properties={"headers": nested(30)})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("tables nested a hundred deep in a method")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments=nested(100))


@script("an empty field name is accepted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("nameless", "q", properties={"headers": {"": "value"}})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a field name may be as long as 255 bytes")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("long name", "q", properties={"headers": {"n" * 255: 1}})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)
