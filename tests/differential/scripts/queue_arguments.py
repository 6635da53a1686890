"""Arguments of queue.declare: what is checked when a queue is declared, which one is named, and how a redeclare is
compared."""

from __future__ import annotations

from typing import Any

from ..session import Session, script, table
from ..wire_values import Typed

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


@table(
    {
        "x-message-ttl must be an integer that is not negative": (
            "x-message-ttl",
            "60000",
            -1,
            1.5,
            True,
            None,
            Typed("T", 5),
            2**40,
        ),
        "x-expires must be a positive integer": ("x-expires", "60000", 0, -1, True, 2**40),
        "x-max-length must be an integer that is not negative": ("x-max-length", "10", -1, 1.5, False),
        "x-max-length-bytes must be an integer that is not negative": ("x-max-length-bytes", "10", -1, [1]),
        "x-max-priority must be an integer from 0 to 255": ("x-max-priority", "10", -1, 256, 0, True),
        "x-overflow must be a known word": ("x-overflow", "nonsense", 5, True),
        "x-dead-letter-exchange must be a string": ("x-dead-letter-exchange", 5, True, None),
        "x-dead-letter-routing-key wants an exchange": ("x-dead-letter-routing-key", "k", 5),
        "x-single-active-consumer must be a boolean": ("x-single-active-consumer", "true", 1),
        "x-queue-type must be a known type": ("x-queue-type", "nonsense", 5),
        "x-queue-mode must be a known mode": ("x-queue-mode", "nonsense", 5),
        "x-queue-version must be a known version": ("x-queue-version", "2", 7),
        "x-message-ttl of other types is refused by the name of the type": ("x-message-ttl", *NO_INTEGERS),
        "x-expires of other types is refused by the name of the type": ("x-expires", *NO_INTEGERS),
        "x-max-length of other types is refused by the name of the type": ("x-max-length", *NO_INTEGERS),
        "x-max-length-bytes of other types is refused by the name of the type": ("x-max-length-bytes", *NO_INTEGERS),
        "x-max-priority of other types is refused by the name of the type": ("x-max-priority", *NO_INTEGERS),
        "x-overflow of other types is refused by the name of the type": (
            "x-overflow",
            Typed("l", 1),
            1.0,
            b"drop-head",
            {},
            [],
            None,
            "",
            "DROP-HEAD",
            "drop-head ",
        ),
        "x-dead-letter-exchange of other types is refused by the name of the type": (
            "x-dead-letter-exchange",
            Typed("l", 1),
            1.0,
            b"x",
            {},
            [],
            Typed("T", 1),
        ),
        "x-single-active-consumer of other types is refused by the name of the type": (
            "x-single-active-consumer",
            0,
            1.0,
            b"x",
            {},
            [],
            None,
        ),
        "x-message-ttl beyond ten years is refused": ("x-message-ttl", TEN_YEARS_MS + 1, 2**63 - 1, -(2**63)),
        "x-expires beyond ten years is refused": ("x-expires", TEN_YEARS_MS + 1, 2**63 - 1, -(2**63)),
        "x-max-priority beyond 255 is refused": ("x-max-priority", 256, 2**31, -(2**63)),
    }
)
def refused(s: Session, name: str, *values: Any) -> None:
    """Declare a queue with each value, each on a channel of its own."""
    wire = s.connect()
    for number, value in enumerate(values, 1):
        wire.channel(number).refused("queue.declare", queue=f"q{number}", arguments={name: value})


@table(
    {
        "x-message-ttl from 0 to ten years is accepted": ("x-message-ttl", 0, 1, 2**31, 2**32, TEN_YEARS_MS),
        "x-expires to ten years is accepted": ("x-expires", 3_600_000, 2**32, TEN_YEARS_MS),
        "a maximum length of 64 bits is accepted": ("x-max-length", 2**32, 2**63 - 1),
        "a maximum length in bytes of 64 bits is accepted": ("x-max-length-bytes", 2**32, 2**63 - 1),
        "x-max-priority from 0 to 255 is accepted": ("x-max-priority", 0, 1, Typed("B", 255), Typed("l", 10)),
        "x-dead-letter-exchange takes any name": (
            "x-dead-letter-exchange",
            "",
            "nowhere",
            "amq.direct",
            "with blanks and ünïcode",
        ),
    }
)
def accepted(s: Session, name: str, *values: Any) -> None:
    """Declare a queue with each value, and with the same value again."""
    ch = s.channel()
    for number, value in enumerate(values, 1):
        for _each in range(2):
            ch.call("queue.declare", queue=f"q{number}", arguments={name: value})


@table(
    {
        "another integer argument is refused": ({"x-message-ttl": 60000}, {"x-message-ttl": 60001}),
        "an integer argument that was not there is refused": ({}, {"x-message-ttl": 60000}),
        "an integer argument that is missing is refused": ({"x-expires": 60000}, {}),
        "another string argument is refused": ({"x-dead-letter-exchange": "a"}, {"x-dead-letter-exchange": "b"}),
        "a string argument that was not there is refused": ({}, {"x-dead-letter-exchange": "a"}),
        "a string argument that is missing is refused": ({"x-dead-letter-exchange": "a"}, {}),
        "another routing key for dead letters is refused": (
            {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k1"},
            {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k2"},
        ),
        "another maximum length is refused": ({"x-max-length": 5}, {"x-max-length": 6}),
        "another maximum length in bytes is refused": ({"x-max-length-bytes": 5}, {"x-max-length-bytes": 6}),
        "another maximum priority is refused": ({"x-max-priority": 5}, {"x-max-priority": 6}),
        "another overflow word is refused": ({"x-overflow": "drop-head"}, {"x-overflow": "reject-publish"}),
        "another queue mode is refused": ({"x-queue-mode": "lazy"}, {"x-queue-mode": "default"}),
        "another single-active-consumer flag is refused": (
            {"x-single-active-consumer": True},
            {"x-single-active-consumer": False},
        ),
        "a missing single-active-consumer flag is refused": ({"x-single-active-consumer": True}, {}),
        "another queue type is refused": ({"x-queue-type": "classic"}, {"x-queue-type": "quorum"}),
        "the arguments for an existing queue are compared and not checked": (
            {"x-message-ttl": 60000},
            {"x-message-ttl": "soon"},
        ),
        "an invalid argument that the existing queue has not is refused as unequal": ({}, {"x-expires": -5}),
        "an integer that comes back as a double is unequal": ({"x-message-ttl": 60_000}, {"x-message-ttl": 60_000.0}),
        "an integer that comes back as a string is unequal": ({"x-max-length": 5}, {"x-max-length": "5"}),
        "an integer that comes back as nothing is unequal": ({"x-expires": 3_600_000}, {"x-expires": None}),
        "a flag that comes back as a number is unequal": (
            {"x-single-active-consumer": True},
            {"x-single-active-consumer": 1},
        ),
        "an overflow word that was not there is unequal, though it is the default": ({}, {"x-overflow": "drop-head"}),
        "a missing overflow word is unequal, though it is the default": ({"x-overflow": "drop-head"}, {}),
        "a false flag that was not there is unequal": ({}, {"x-single-active-consumer": False}),
        "a maximum priority of 0 that was not there is unequal": ({}, {"x-max-priority": 0}),
        "a maximum length that is missing is unequal": ({"x-max-length": 5}, {}),
        "a maximum length in bytes that was not there is unequal": ({}, {"x-max-length-bytes": 5}),
        "a routing key for dead letters that is missing is unequal": (
            {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k"},
            {"x-dead-letter-exchange": "a"},
        ),
        "a routing key for dead letters that was not there is unequal": (
            {"x-dead-letter-exchange": "a"},
            {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k"},
        ),
        "an empty exchange for dead letters is not the same as none": ({"x-dead-letter-exchange": ""}, {}),
    }
)
def unequal(s: Session, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Declare a queue, and declare it again with what is not the same."""
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments=first)
    ch.refused("queue.declare", queue="q", arguments=second)


@script("integers of every width are accepted as arguments")
def _(s: Session) -> None:
    ch = s.channel()
    for kind in "bBsuIil":
        ch.call("queue.declare", queue=f"q-{kind}", arguments={"x-max-length": Typed(kind, 100)})


@script("zero is a limit")
def _(s: Session) -> None:
    ch = s.channel()
    arguments = {"x-message-ttl": 0, "x-max-length": 0, "x-max-length-bytes": 0}
    ch.call("queue.declare", queue="q", arguments=arguments)


@script("all words of x-overflow are accepted")
def _(s: Session) -> None:
    ch = s.channel()
    for word in ("drop-head", "reject-publish", "reject-publish-dlx"):
        ch.call("queue.declare", queue=f"q-{word}", arguments={"x-overflow": word})


@script("lazy mode, version and locator are accepted")
def _(s: Session) -> None:
    ch = s.channel()
    arguments = {"x-queue-mode": "lazy", "x-queue-version": 2, "x-queue-master-locator": "min-masters"}
    ch.call("queue.declare", queue="q", arguments=arguments)
    ch.call("queue.declare", queue="q2", arguments={"x-queue-mode": "default", "x-queue-version": 1})


@script("unknown arguments are accepted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-colour": "red", "size": 3, "nothing": None})


@script("unknown arguments are not compared")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-colour": "red"})
    ch.call("queue.declare", queue="q", arguments={"x-colour": "blue"})
    ch.call("queue.declare", queue="q")


@script("the type classic is the same as none")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q1", arguments={"x-queue-type": "classic"})
    ch.call("queue.declare", queue="q1")
    ch.call("queue.declare", queue="q2")
    ch.call("queue.declare", queue="q2", arguments={"x-queue-type": "classic"})


@script("the same integer in another width is the same")
def _(s: Session) -> None:
    ch = s.channel()
    for kind in "bBsuIil":
        ch.call("queue.declare", queue="q", arguments={"x-max-length": Typed(kind, 100)})


@script("a quorum queue must be durable")
def _(s: Session) -> None:
    s.channel().refused("queue.declare", queue="q", arguments={"x-queue-type": "quorum"})


@script("a quorum queue must not be exclusive")
def _(s: Session) -> None:
    arguments = {"x-queue-type": "quorum"}
    s.channel().refused("queue.declare", queue="q", durable=True, exclusive=True, arguments=arguments)


@script("flags are compared before arguments")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-message-ttl": 60000})
    ch.refused("queue.declare", queue="q", durable=True, arguments={"x-message-ttl": 1})


@script("arguments are not checked in a passive declare")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.declare", queue="q", passive=True, arguments={"x-message-ttl": "soon"})


@script("x-dead-letter-routing-key of other types is refused by the name of the type")
def _(s: Session) -> None:
    wire = s.connect()
    values: list[Any] = [Typed("l", 1), 1.0, b"x", {}, [], None, True]
    for number, value in enumerate(values, 1):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": value}
        wire.channel(number).refused("queue.declare", queue=f"q{number}", arguments=arguments)


@script("an expiration beyond ten years is refused")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("fine", "q", properties={"expiration": str(TEN_YEARS_MS)})
    ch.publish("too far", "q", properties={"expiration": str(TEN_YEARS_MS + 1)})
    ch.expect_close()


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


@script("a string that comes back as bytes is the same")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments={"x-dead-letter-exchange": "a"})
    ch.call("queue.declare", queue="q", arguments={"x-dead-letter-exchange": b"a"})


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
