"""More about arguments of queue.declare: ranges, wire types, which one is named, and equivalence of each."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_values import Typed
from .queue_arguments import each_refused, redeclared

# The largest time to live, in milliseconds.
TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000
# A value of every wire type that is no integer.
NO_INTEGERS: tuple[Any, ...] = (
    Typed("f", 1.0),
    Typed("d", 1.0),
    Typed("D", (0, 1)),
    Typed("T", 1),
    b"1",
    "",
    {"a": 1},
    [],
    None,
    False,
)


def each_accepted(s: Session, name: str, *values: Any) -> None:
    """Declare a queue with each value, and with the same value again."""
    ch = s.channel()
    for number, value in enumerate(values, 1):
        for _each in range(2):
            ch.call("queue.declare", queue=f"q{number}", arguments={name: value})


@script("x-message-ttl of other types is refused by the name of the type")
def _(s: Session) -> None:
    each_refused(s, "x-message-ttl", *NO_INTEGERS)


@script("x-expires of other types is refused by the name of the type")
def _(s: Session) -> None:
    each_refused(s, "x-expires", *NO_INTEGERS)


@script("x-max-length of other types is refused by the name of the type")
def _(s: Session) -> None:
    each_refused(s, "x-max-length", *NO_INTEGERS)


@script("x-max-length-bytes of other types is refused by the name of the type")
def _(s: Session) -> None:
    each_refused(s, "x-max-length-bytes", *NO_INTEGERS)


@script("x-max-priority of other types is refused by the name of the type")
def _(s: Session) -> None:
    each_refused(s, "x-max-priority", *NO_INTEGERS)


@script("x-overflow of other types is refused by the name of the type")
def _(s: Session) -> None:
    each_refused(s, "x-overflow", Typed("l", 1), 1.0, b"drop-head", {}, [], None, "", "DROP-HEAD", "drop-head ")


@script("x-dead-letter-exchange of other types is refused by the name of the type")
def _(s: Session) -> None:
    each_refused(s, "x-dead-letter-exchange", Typed("l", 1), 1.0, b"x", {}, [], Typed("T", 1))


@script("x-dead-letter-routing-key of other types is refused by the name of the type")
def _(s: Session) -> None:
    wire = s.connect()
    values: list[Any] = [Typed("l", 1), 1.0, b"x", {}, [], None, True]
    for number, value in enumerate(values, 1):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": value}
        wire.channel(number).refused("queue.declare", queue=f"q{number}", arguments=arguments)


@script("x-single-active-consumer of other types is refused by the name of the type")
def _(s: Session) -> None:
    each_refused(s, "x-single-active-consumer", 0, 1.0, b"x", {}, [], None)


@script("x-message-ttl from 0 to ten years is accepted")
def _(s: Session) -> None:
    each_accepted(s, "x-message-ttl", 0, 1, 2**31, 2**32, TEN_YEARS_MS)


@script("x-message-ttl beyond ten years is refused")
def _(s: Session) -> None:
    each_refused(s, "x-message-ttl", TEN_YEARS_MS + 1, 2**63 - 1, -(2**63))


@script("x-expires to ten years is accepted")
def _(s: Session) -> None:
    each_accepted(s, "x-expires", 3_600_000, 2**32, TEN_YEARS_MS)


@script("x-expires beyond ten years is refused")
def _(s: Session) -> None:
    each_refused(s, "x-expires", TEN_YEARS_MS + 1, 2**63 - 1, -(2**63))


@script("an expiration beyond ten years is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("fine", "q", properties={"expiration": str(TEN_YEARS_MS)})
    ch.publish("too far", "q", properties={"expiration": str(TEN_YEARS_MS + 1)})
    ch.expect_close()


@script("a maximum length of 64 bits is accepted")
def _(s: Session) -> None:
    each_accepted(s, "x-max-length", 2**32, 2**63 - 1)


@script("a maximum length in bytes of 64 bits is accepted")
def _(s: Session) -> None:
    each_accepted(s, "x-max-length-bytes", 2**32, 2**63 - 1)


@script("x-max-priority from 0 to 255 is accepted")
def _(s: Session) -> None:
    each_accepted(s, "x-max-priority", 0, 1, Typed("B", 255), Typed("l", 10))


@script("x-max-priority beyond 255 is refused")
def _(s: Session) -> None:
    each_refused(s, "x-max-priority", 256, 2**31, -(2**63))


@script("x-dead-letter-exchange takes any name")
def _(s: Session) -> None:
    each_accepted(s, "x-dead-letter-exchange", "", "nowhere", "amq.direct", "with blanks and ünïcode")


@script("a routing key for dead letters with the default exchange is accepted")
def _(s: Session) -> None:
    ch = s.channel()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ""}
    ch.call("queue.declare", queue="q", arguments=arguments)
    ch.call("queue.declare", queue="q", arguments=arguments)


@script("all these arguments together are accepted and compared")
def _(s: Session) -> None:
    arguments: dict[str, Any] = {
        "x-message-ttl": 60_000,
        "x-expires": 3_600_000,
        "x-max-length": 10,
        "x-max-length-bytes": 1000,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "dlx",
        "x-dead-letter-routing-key": "k",
        "x-max-priority": 5,
        "x-single-active-consumer": True,
        "x-queue-mode": "lazy",
    }
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments=arguments)
    ch.call("queue.declare", queue="q", arguments=dict(reversed(arguments.items())))
    ch.refused("queue.declare", queue="q", arguments={**arguments, "x-max-priority": 6})


@script("of several invalid arguments one is named")
def _(s: Session) -> None:
    # In the order in which they are named; they are sent the other way round.
    invalid: dict[str, Any] = {
        "x-dead-letter-exchange": 5,
        "x-expires": 0,
        "x-message-ttl": -1,
        "x-dead-letter-routing-key": 5,
        "x-max-length": -1,
        "x-max-length-bytes": -1,
        "x-max-priority": 256,
        "x-overflow": "nonsense",
        "x-single-active-consumer": 1,
    }
    wire = s.connect()
    for number in range(1, len(invalid) + 1):
        wire.channel(number).refused("queue.declare", queue="q", arguments=dict(reversed(invalid.items())))
        del invalid[next(iter(invalid))]


@script("of several unequal arguments one is named")
def _(s: Session) -> None:
    # In the order in which they are named.
    first: dict[str, Any] = {
        "x-expires": 3_600_000,
        "x-message-ttl": 60_000,
        "x-dead-letter-exchange": "x",
        "x-dead-letter-routing-key": "k",
        "x-max-length": 10,
        "x-max-length-bytes": 1000,
        "x-max-priority": 5,
        "x-overflow": "drop-head",
        "x-queue-mode": "lazy",
        "x-single-active-consumer": True,
    }
    wire = s.connect()
    wire.channel(100).call("queue.declare", queue="q", arguments=first)
    given: dict[str, Any] = {}
    for number, (name, value) in enumerate(first.items(), 1):
        wire.channel(number).refused("queue.declare", queue="q", arguments=given)
        given[name] = value
    wire.channel(101).call("queue.declare", queue="q", arguments=given)


@script("an invalid argument with nowait closes the channel")
def _(s: Session) -> None:
    ch = s.channel()
    ch.send("queue.declare", queue="q", nowait=True, arguments={"x-message-ttl": -1})
    ch.expect_close()


@script("an unequal argument with nowait closes the channel")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-message-ttl": 60_000})
    ch.send("queue.declare", queue="q", nowait=True)
    ch.expect_close()


@script("a queue that was refused is not there")
def _(s: Session) -> None:
    ch = s.channel()
    ch.refused("queue.declare", queue="q", arguments={"x-message-ttl": -1})
    again = ch.wire.channel(2)
    again.refused("queue.declare", queue="q", passive=True)


@script("a queue that the server names is checked too")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="", arguments={"x-message-ttl": 60_000, "x-max-length": 5})
    # The name is made up before the check and appears in the text.
    ch.refused("queue.declare", queue="", arguments={"x-max-length": -1})


@script("an integer that comes back as a double is unequal")
def _(s: Session) -> None:
    redeclared(s, {"x-message-ttl": 60_000}, {"x-message-ttl": 60_000.0})


@script("an integer that comes back as a string is unequal")
def _(s: Session) -> None:
    redeclared(s, {"x-max-length": 5}, {"x-max-length": "5"})


@script("an integer that comes back as nothing is unequal")
def _(s: Session) -> None:
    redeclared(s, {"x-expires": 3_600_000}, {"x-expires": None})


@script("a flag that comes back as a number is unequal")
def _(s: Session) -> None:
    redeclared(s, {"x-single-active-consumer": True}, {"x-single-active-consumer": 1})


@script("a string that comes back as bytes is the same")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-dead-letter-exchange": "a"})
    ch.call("queue.declare", queue="q", arguments={"x-dead-letter-exchange": b"a"})


@script("an overflow word that was not there is unequal, though it is the default")
def _(s: Session) -> None:
    redeclared(s, {}, {"x-overflow": "drop-head"})


@script("a missing overflow word is unequal, though it is the default")
def _(s: Session) -> None:
    redeclared(s, {"x-overflow": "drop-head"}, {})


@script("a false flag that was not there is unequal")
def _(s: Session) -> None:
    redeclared(s, {}, {"x-single-active-consumer": False})


@script("a maximum priority of 0 that was not there is unequal")
def _(s: Session) -> None:
    redeclared(s, {}, {"x-max-priority": 0})


@script("a maximum length that is missing is unequal")
def _(s: Session) -> None:
    redeclared(s, {"x-max-length": 5}, {})


@script("a maximum length in bytes that was not there is unequal")
def _(s: Session) -> None:
    redeclared(s, {}, {"x-max-length-bytes": 5})


@script("a routing key for dead letters that is missing is unequal")
def _(s: Session) -> None:
    first = {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k"}
    redeclared(s, first, {"x-dead-letter-exchange": "a"})


@script("a routing key for dead letters that was not there is unequal")
def _(s: Session) -> None:
    second = {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k"}
    redeclared(s, {"x-dead-letter-exchange": "a"}, second)


@script("an empty exchange for dead letters is not the same as none")
def _(s: Session) -> None:
    redeclared(s, {"x-dead-letter-exchange": ""}, {})


@script("arguments of other kinds of queues are refused by a classic queue")
def _(s: Session) -> None:
    wire = s.connect()
    others: dict[str, Any] = {
        "x-max-age": "1h",
        "x-stream-max-segment-size-bytes": 1000,
        "x-initial-cluster-size": 3,
        "x-quorum-initial-group-size": 3,
        "x-max-in-memory-length": 5,
        "x-max-in-memory-bytes": 5,
    }
    for number, (name, value) in enumerate(others.items(), 1):
        wire.channel(number).refused("queue.declare", queue=f"q{number}", arguments={name: value})
