"""Arguments of declarations: are they acceptable, and do they equal those of what exists.

Texts follow RabbitMQ's, because clients show and match them.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.definitions.feature_arguments import FEATURE_ARGUMENTS, check_feature_arguments
from penstock.errors import ChannelException, precondition_failed
from penstock.fields import TYPE_NAMES, Field, Table
from penstock.limits import EXPIRATION_MS_MAX

# Types that count as one when arguments are compared.
INTEGER_TYPES: Final = frozenset("bBsuIil")
TEXT_TYPES: Final = frozenset("Sx")

NON_NEGATIVE: Final = frozenset(
    ("x-max-length", "x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes")
)
OVERFLOW_POLICIES: Final = (
    *("drop-head", "reject-publish", "reject-publish-dlx"),
    *("ring", "producer-flow-control", "flow-to-disk"),
)
# Arguments with a choice of words: how the complaint names them, and the words.
CHOICES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "x-queue-mode": ("mode", ("default", "lazy")),
    "x-queue-type": ("type", ("classic", "quorum")),
}
QUEUE_VERSIONS: Final = (1, 2)
CLASSIC: Final[Field] = ("S", b"classic")
# x-queue-mode of a queue that keeps as little as possible in RAM.
LAZY: Final[Field] = ("S", b"lazy")

# Known in RabbitMQ, for queues of other types only. Some more are, which penstock gives to every queue.
NOT_OF_CLASSIC_QUEUES: Final = (
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-initial-cluster-size",
    "x-quorum-initial-group-size",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
)

# In the order in which RabbitMQ looks at them: of two that are wrong, it names the first.
CHECKED_QUEUE_ARGUMENTS: Final = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    "x-queue-type",
    "x-consumer-timeout",
)

# Arguments that are compared when a queue is declared again; others may differ.
COMPARED_QUEUE_ARGUMENTS: Final = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-queue-master-locator",
    "x-single-active-consumer",
    "x-queue-type",
    "x-consumer-timeout",
    *FEATURE_ARGUMENTS,
)
COMPARED_EXCHANGE_ARGUMENTS: Final = ("alternate-exchange", "x-delayed-type")

# Accepted, and served in a way of our own, which is said in the log.
NOTED_ARGUMENTS: Final = {
    "x-queue-type": "served as a classic queue",
    "x-queue-mode": "has an effect only in a broker with a data folder",
    "x-queue-version": "accepted, has no effect",
    "x-queue-master-locator": "accepted, has no effect: there is one node",
    "x-queue-leader-locator": "accepted, has no effect: there is one node",
}
# Of these, what a broker with a data folder serves as it was meant.
NOTED_WITHOUT_DISK: Final = ("x-queue-mode",)


def check_exchange_arguments(arguments: Table, described: str) -> None:
    """Raise 406 when the alternate exchange is not named by a string."""
    field = arguments.get("alternate-exchange")
    if field is not None and field[0] != "S":
        raise precondition_failed(f"invalid type '{TYPE_NAMES[field[0]]}' for arg 'alternate-exchange' in {described}")


def check_queue_arguments(arguments: Table, described: str) -> None:
    """Raise 406 for a known argument with an unusable value; unknown ones are accepted."""
    if not arguments:
        return
    dead_letter_exchange = arguments.get("x-dead-letter-exchange")
    if dead_letter_exchange is not None and dead_letter_exchange[0] != "S":
        kind = TYPE_NAMES[dead_letter_exchange[0]]
        raise precondition_failed(f"invalid type '{kind}' for arg 'x-dead-letter-exchange' in {described}")
    if arguments.get("x-queue-type", CLASSIC) == CLASSIC:
        for name in NOT_OF_CLASSIC_QUEUES:
            if name in arguments:
                raise precondition_failed(f"invalid arg '{name}' for {described} of queue type rabbit_classic_queue")
    for name in CHECKED_QUEUE_ARGUMENTS:
        field = arguments.get(name)
        reason = "" if field is None else _queue_argument_fault(name, field, arguments)
        if reason:
            raise _invalid(name, described, reason)
    check_feature_arguments(arguments, described)


def _invalid(name: str, described: str, reason: str) -> ChannelException:
    return precondition_failed(f"invalid arg '{name}' for {described}: {reason}")


def _queue_argument_fault(name: str, field: Field, arguments: Table) -> str:
    kind, value = field
    if name in NON_NEGATIVE:
        return _integer_fault(kind, value, 0)
    if name == "x-message-ttl":
        return _integer_fault(kind, value, 0, EXPIRATION_MS_MAX)
    if name == "x-expires":
        return _integer_fault(kind, value, 1, EXPIRATION_MS_MAX)
    if name == "x-max-priority":
        fault = _integer_fault(kind, value, 0)
        return fault or (f"{{max_value_exceeded,{value}}}" if isinstance(value, int) and value > 255 else "")
    if name == "x-dead-letter-routing-key":
        missing = "" if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"
        return _type_fault(kind, "S") or missing
    if name == "x-overflow":
        return _type_fault(kind, "S") or ("" if _text(value) in OVERFLOW_POLICIES else "invalid_overflow")
    if name in CHOICES:
        what, choices = CHOICES[name]
        return _type_fault(kind, "S") or (
            "" if _text(value) in choices else f"\"unsupported queue {what} '{_text(value)}'\""
        )
    if name == "x-queue-version":
        fault = _integer_fault(kind, value, 0)
        return fault or ("" if value in QUEUE_VERSIONS else f"\"unsupported queue version '{value!s}'\"")
    if name == "x-single-active-consumer":
        return _type_fault(kind, "t")
    if name == "x-consumer-timeout":
        return timeout_fault(field)
    return ""


def timeout_fault(field: Field) -> str:
    """What is wrong with the x-consumer-timeout of a queue or of a consumer; "" when nothing is."""
    return _integer_fault(field[0], field[1], 1, EXPIRATION_MS_MAX)


def _integer_fault(kind: str, value: object, least: int, most: int | None = None) -> str:
    if kind not in INTEGER_TYPES or not isinstance(value, int):
        return f'"expected integer, got {TYPE_NAMES[kind]}"'
    if value < 0:
        return f"{{value_negative,{value}}}"
    if value < least:
        return "{value_zero,0}"
    if most is not None and value > most:
        return f"{{value_too_large,{value}}}"
    return ""


def _type_fault(kind: str, wanted: str) -> str:
    return "" if kind == wanted else f"{{unacceptable_type,{TYPE_NAMES[kind]}}}"


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def check_quorum_properties(
    arguments: Table, durable: bool, auto_delete: bool, exclusive: bool, described: str
) -> None:
    """A quorum queue is durable, shared and stays, also where it is served as a classic one."""
    if arguments.get("x-queue-type") != ("S", b"quorum"):
        return
    if auto_delete:
        raise precondition_failed(f"invalid property 'auto-delete' for {described}")
    if not durable:
        raise precondition_failed(f"invalid property 'non-durable' for {described}")
    if exclusive:
        raise precondition_failed(f"invalid property 'exclusive-owner' for {described}")


def queue_notes(arguments: Table, has_disk: bool = False) -> list[str]:
    """What the broker accepts in a declaration but serves in its own way; for the log and for views."""
    notes: list[str] = []
    for name, note in NOTED_ARGUMENTS.items():
        field = arguments.get(name)
        if field is not None and field != CLASSIC and not (has_disk and name in NOTED_WITHOUT_DISK):
            notes.append(f"{name}={_value_text(field)} {note}")
    return notes


def check_equal(attribute: str, described: str, received: object, current: object) -> None:
    """Raise 406 when an attribute of a second declaration differs from the first."""
    if received != current:
        raise _inequivalent(attribute, described, f"'{_plain(received)}'", f"'{_plain(current)}'")


def check_equal_arguments(names: tuple[str, ...], described: str, received: Table, current: Table) -> None:
    """Raise 406 when one of the named arguments differs, in RabbitMQ's words."""
    for name in names:
        new, old = received.get(name), current.get(name)
        if new == old or (name == "x-queue-type" and (new or CLASSIC) == (old or CLASSIC)):
            continue
        if new is None or old is None:
            raise _inequivalent(name, described, _typed(new), _typed(old))
        alike = new[0] == old[0] or any(new[0] in types and old[0] in types for types in (INTEGER_TYPES, TEXT_TYPES))
        if not alike or new[1] != old[1]:
            raise _inequivalent(name, described, _quoted(new), _quoted(old))


def _inequivalent(name: str, described: str, received: str, current: str) -> ChannelException:
    return precondition_failed(
        f"inequivalent arg '{name}' for {described}: received {received} but current is {current}"
    )


def _quoted(field: Field) -> str:
    return "none" if field[0] == "V" else f"'{_value_text(field)}'"


def _typed(field: Field | None) -> str:
    if field is None:
        return "none"
    return f"the value '{_value_text(field)}' of type '{TYPE_NAMES[field[0]]}'"


def _value_text(field: Field) -> str:
    value = field[1]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return _plain(value)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
