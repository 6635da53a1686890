"""Arguments of declarations: are they acceptable, and do they equal those of what exists.

Texts follow RabbitMQ's, because clients show and match them.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import ChannelException, precondition_failed
from penstock.fields import TYPE_NAMES, Field, Table

# Types that count as one when arguments are compared.
INTEGER_TYPES: Final = frozenset("bBsuIil")

NON_NEGATIVE: Final = frozenset(
    ("x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes")
)
OVERFLOW_POLICIES: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_MODES: Final = ("default", "lazy")
QUEUE_TYPES: Final = ("classic", "quorum")

# Arguments that are compared when a queue is declared again; others may differ.
COMPARED_QUEUE_ARGUMENTS: Final = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
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
    "x-quorum-initial-group-size",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-initial-cluster-size",
    "x-queue-leader-locator",
)
COMPARED_EXCHANGE_ARGUMENTS: Final = ("alternate-exchange",)

# Served as classic queues in memory; the declaration is accepted, and said to be so.
NOTED_ARGUMENTS: Final = {
    "x-queue-type": "served as a classic queue",
    "x-queue-mode": "accepted, has no effect yet",
    "x-queue-version": "accepted, has no effect",
    "x-queue-master-locator": "accepted, has no effect: there is one node",
    "x-queue-leader-locator": "accepted, has no effect: there is one node",
}


def check_exchange_arguments(arguments: Table, described: str) -> None:
    """Raise 406 when the alternate exchange is not named by a string."""
    field = arguments.get("alternate-exchange")
    if field is not None and field[0] != "S":
        raise precondition_failed(f"invalid type '{TYPE_NAMES[field[0]]}' for arg 'alternate-exchange' in {described}")


def check_queue_arguments(arguments: Table, described: str) -> None:
    """Raise 406 for a known argument with an unusable value; unknown ones are accepted."""
    for name, field in arguments.items():
        reason = _queue_argument_fault(name, field, arguments)
        if reason:
            raise _invalid(name, described, reason)


def _invalid(name: str, described: str, reason: str) -> ChannelException:
    return precondition_failed(f"invalid arg '{name}' for {described}: {reason}")


def _queue_argument_fault(name: str, field: Field, arguments: Table) -> str:
    kind, value = field
    if name in NON_NEGATIVE:
        return _integer_fault(kind, value, 0)
    if name == "x-expires":
        return _integer_fault(kind, value, 1)
    if name == "x-max-priority":
        return _priority_fault(kind, value)
    if name == "x-dead-letter-exchange":
        return _string_fault(kind)
    if name == "x-dead-letter-routing-key":
        if "x-dead-letter-exchange" not in arguments:
            return "routing_key_but_no_dlx_defined"
        return _string_fault(kind)
    if name == "x-overflow":
        return _choice_fault(kind, value, OVERFLOW_POLICIES, "invalid_overflow")
    if name == "x-queue-mode":
        return _choice_fault(kind, value, QUEUE_MODES, "invalid_queue_mode")
    if name == "x-queue-type":
        return _choice_fault(kind, value, QUEUE_TYPES, "invalid_queue_type")
    if name == "x-queue-version":
        return _integer_fault(kind, value, 1)
    if name == "x-single-active-consumer" and kind != "t":
        return f"{{unacceptable_type,{TYPE_NAMES[kind]}}}"
    return ""


def _integer_fault(kind: str, value: object, least: int) -> str:
    if kind not in INTEGER_TYPES or not isinstance(value, int):
        return f"{{unacceptable_type,{TYPE_NAMES[kind]}}}"
    if value < 0:
        return f"{{value_negative,{value}}}"
    if value < least:
        return "{value_zero,0}"
    return ""


def _priority_fault(kind: str, value: object) -> str:
    fault = _integer_fault(kind, value, 0)
    if not fault and isinstance(value, int) and value > 255:
        return f"{{max_value_exceeded,{value}}}"
    return fault


def _string_fault(kind: str) -> str:
    return "" if kind == "S" else f"{{unacceptable_type,{TYPE_NAMES[kind]}}}"


def _choice_fault(kind: str, value: object, choices: tuple[str, ...], complaint: str) -> str:
    if kind != "S" or not isinstance(value, bytes):
        return f"{{unacceptable_type,{TYPE_NAMES[kind]}}}"
    text = value.decode("utf-8", "replace")
    return "" if text in choices else f'{{{complaint},<<"{text}">>}}'


def queue_notes(arguments: Table) -> list[str]:
    """What the broker accepts in a declaration but serves in its own way; for the log and for views."""
    notes: list[str] = []
    for name, note in NOTED_ARGUMENTS.items():
        field = arguments.get(name)
        if field is not None and field != ("S", b"classic"):
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
        if new == old:
            continue
        if new is None or old is None:
            raise _inequivalent(name, described, _typed(new), _typed(old))
        same_class = new[0] == old[0] or (new[0] in INTEGER_TYPES and old[0] in INTEGER_TYPES)
        if not same_class or new[1] != old[1]:
            raise _inequivalent(name, described, f"'{_value_text(new)}'", f"'{_value_text(old)}'")


def _inequivalent(name: str, described: str, received: str, current: str) -> ChannelException:
    return precondition_failed(
        f"inequivalent arg '{name}' for {described}: received {received} but current is {current}"
    )


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
