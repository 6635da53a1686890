"""Arguments of queue.declare: what is checked when a queue is declared, and how a redeclare is compared."""

from __future__ import annotations

from typing import Any

from ..session import Session, script
from ..wire_values import Typed


def each_refused(s: Session, name: str, *values: Any) -> None:
    """Declare a queue with each value, each on a channel of its own."""
    wire = s.connect()
    for number, value in enumerate(values, 1):
        wire.channel(number).refused("queue.declare", queue=f"q{number}", arguments={name: value})


def redeclared(s: Session, first: dict[str, Any], second: dict[str, Any]) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q", arguments=first)
    ch.refused("queue.declare", queue="q", arguments=second)


@script("x-message-ttl must be an integer that is not negative")
def _(s: Session) -> None:
    each_refused(s, "x-message-ttl", "60000", -1, 1.5, True, None, Typed("T", 5), 2**40)


@script("x-expires must be a positive integer")
def _(s: Session) -> None:
    each_refused(s, "x-expires", "60000", 0, -1, True, 2**40)


@script("x-max-length must be an integer that is not negative")
def _(s: Session) -> None:
    each_refused(s, "x-max-length", "10", -1, 1.5, False)


@script("x-max-length-bytes must be an integer that is not negative")
def _(s: Session) -> None:
    each_refused(s, "x-max-length-bytes", "10", -1, [1])


@script("x-max-priority must be an integer from 0 to 255")
def _(s: Session) -> None:
    each_refused(s, "x-max-priority", "10", -1, 256, 0, True)


@script("x-overflow must be a known word")
def _(s: Session) -> None:
    each_refused(s, "x-overflow", "nonsense", 5, True)


@script("x-dead-letter-exchange must be a string")
def _(s: Session) -> None:
    each_refused(s, "x-dead-letter-exchange", 5, True, None)


@script("x-dead-letter-routing-key wants an exchange")
def _(s: Session) -> None:
    each_refused(s, "x-dead-letter-routing-key", "k", 5)


@script("x-single-active-consumer must be a boolean")
def _(s: Session) -> None:
    each_refused(s, "x-single-active-consumer", "true", 1)


@script("x-queue-type must be a known type")
def _(s: Session) -> None:
    each_refused(s, "x-queue-type", "nonsense", 5)


@script("x-queue-mode must be a known mode")
def _(s: Session) -> None:
    each_refused(s, "x-queue-mode", "nonsense", 5)


@script("x-queue-version must be a known version")
def _(s: Session) -> None:
    each_refused(s, "x-queue-version", "2", 7)


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


@script("another integer argument is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-message-ttl": 60000}, {"x-message-ttl": 60001})


@script("an integer argument that was not there is refused")
def _(s: Session) -> None:
    redeclared(s, {}, {"x-message-ttl": 60000})


@script("an integer argument that is missing is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-expires": 60000}, {})


@script("the same integer in another width is the same")
def _(s: Session) -> None:
    ch = s.channel()
    for kind in "bBsuIil":
        ch.call("queue.declare", queue="q", arguments={"x-max-length": Typed(kind, 100)})


@script("another string argument is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-dead-letter-exchange": "a"}, {"x-dead-letter-exchange": "b"})


@script("a string argument that was not there is refused")
def _(s: Session) -> None:
    redeclared(s, {}, {"x-dead-letter-exchange": "a"})


@script("a string argument that is missing is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-dead-letter-exchange": "a"}, {})


@script("another routing key for dead letters is refused")
def _(s: Session) -> None:
    first = {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k1"}
    redeclared(s, first, {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k2"})


@script("another maximum length is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-max-length": 5}, {"x-max-length": 6})


@script("another maximum length in bytes is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-max-length-bytes": 5}, {"x-max-length-bytes": 6})


@script("another maximum priority is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-max-priority": 5}, {"x-max-priority": 6})


@script("another overflow word is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-overflow": "drop-head"}, {"x-overflow": "reject-publish"})


@script("another queue mode is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-queue-mode": "lazy"}, {"x-queue-mode": "default"})


@script("another single-active-consumer flag is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-single-active-consumer": True}, {"x-single-active-consumer": False})


@script("a missing single-active-consumer flag is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-single-active-consumer": True}, {})


@script("another queue type is refused")
def _(s: Session) -> None:
    redeclared(s, {"x-queue-type": "classic"}, {"x-queue-type": "quorum"})


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


@script("the arguments for an existing queue are compared and not checked")
def _(s: Session) -> None:
    redeclared(s, {"x-message-ttl": 60000}, {"x-message-ttl": "soon"})


@script("an invalid argument that the existing queue has not is refused as unequal")
def _(s: Session) -> None:
    redeclared(s, {}, {"x-expires": -5})


@script("arguments are not checked in a passive declare")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.call("queue.declare", queue="q", passive=True, arguments={"x-message-ttl": "soon"})
