"""The keys that a policy's definition may have: what they are checked for, and what becomes of them.

A key says the same as the argument with `x-` before it. Where a queue has both, the smaller number counts for limits,
and the argument for everything else (RabbitMQ's rules). Where a policy and an operator policy have one key, the smaller
number counts for limits, and the operator's value for everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.broker.definitions.arguments import OVERFLOW_POLICIES
from penstock.broker.definitions.feature_arguments import BOOLEANS, INTEGERS, NAMES, WORDS
from penstock.broker.policies.octets import octet_count
from penstock.limits import EXPIRATION_MS_MAX, SHORT_STRING_BYTES_MAX

# What an effective number is at most: above it, it means the same, and does not fit into a field.
NUMBER_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """One key. `complaint` is what RabbitMQ says behind a value that `accepts` refuses."""

    accepts: Callable[[object], bool]
    complaint: str
    # The smaller of two values counts.
    is_limit: bool = False
    # An operator policy may have it.
    is_of_operators: bool = False
    # The argument that it stands for; "" where it is accepted and has no effect here.
    argument: str = ""
    most: int = NUMBER_MAX


def _from(least: int) -> Callable[[object], bool]:
    return lambda value: _is_integer(value) and isinstance(value, int) and value >= least


def _between(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: _is_integer(value) and isinstance(value, int) and least <= value <= most


def _one_of(words: tuple[object, ...]) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, bool) and value in words


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and octet_count(value) >= 0


def _is_routing_key(value: object) -> bool:
    # RabbitMQ takes a longer one, and fails later, when such a dead letter is delivered.
    return isinstance(value, str) and 0 <= octet_count(value) <= SHORT_STRING_BYTES_MAX


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and octet_count(value) > 0


def _is_age(value: object) -> bool:
    """A number and a unit: 7D."""
    return isinstance(value, str) and value[:-1].isdigit() and value[-1:] in tuple("YMDhms")


def _is_anything(value: object) -> bool:
    return value is not None


_LIMITS: Final[dict[str, PolicyKey]] = {
    name: PolicyKey(_from(least), complaint, True, True, argument, most)
    for name, least, complaint, argument, most in (
        ("message-ttl", 0, "is not a valid message TTL", "x-message-ttl", EXPIRATION_MS_MAX),
        ("expires", 1, "is not a valid queue expiry", "x-expires", EXPIRATION_MS_MAX),
        ("max-length", 0, "is not a valid maximum length", "x-max-length", NUMBER_MAX),
        ("max-length-bytes", 0, "is not a valid maximum length in bytes", "x-max-length-bytes", NUMBER_MAX),
        ("max-in-memory-length", 0, "is not a valid maximum memory in bytes", "", NUMBER_MAX),
        ("max-in-memory-bytes", 0, "is not a valid maximum memory in bytes", "", NUMBER_MAX),
        ("delivery-limit", 0, "is not a valid delivery limit", "x-delivery-limit", INTEGERS["x-delivery-limit"][1]),
    )
}
_OF_RABBITMQ: Final[dict[str, PolicyKey]] = {
    "alternate-exchange": PolicyKey(_is_text, "is not a valid alternate exchange name", argument="alternate-exchange"),
    "dead-letter-exchange": PolicyKey(
        _is_text, "is not a valid dead letter exchange name", argument="x-dead-letter-exchange"
    ),
    "dead-letter-routing-key": PolicyKey(
        _is_routing_key, "is not a valid dead letter routing key", argument="x-dead-letter-routing-key"
    ),
    "dead-letter-strategy": PolicyKey(
        _one_of(WORDS["x-dead-letter-strategy"]),
        "is not a valid dead letter strategy",
        argument="x-dead-letter-strategy",
    ),
    "queue-mode": PolicyKey(_one_of(("default", "lazy")), "is not a valid queue-mode value", argument="x-queue-mode"),
    # Later RabbitMQs let operators set it.
    "overflow": PolicyKey(
        _one_of(OVERFLOW_POLICIES), "is not a valid overflow value", is_of_operators=True, argument="x-overflow"
    ),
    "consumer-timeout": PolicyKey(
        _between(1, EXPIRATION_MS_MAX), "is not a valid consumer timeout", argument="x-consumer-timeout"
    ),
}
# Accepted, so that what works with RabbitMQ works here; there is one node, and there are no streams.
_WITHOUT_EFFECT: Final[dict[str, PolicyKey]] = {
    "queue-version": PolicyKey(_one_of((1, 2)), "is not a valid queue-version value"),
    "queue-master-locator": PolicyKey(
        _one_of(("min-masters", "client-local", "random")), "invalid queue-master-locator value"
    ),
    "queue-leader-locator": PolicyKey(
        _one_of(("client-local", "balanced", "random", "least-leaders")),
        "is not a valid queue leader locator value",
    ),
    "initial-cluster-size": PolicyKey(_from(0), "is not a valid cluster size"),
    "target-group-size": PolicyKey(_from(1), "is not a valid target count", is_of_operators=True),
    "max-age": PolicyKey(_is_age, "is not a valid max age"),
    "stream-max-segment-size-bytes": PolicyKey(_between(0, 3_000_000_000), "is not a valid segment size"),
    "ha-mode": PolicyKey(_one_of(("all", "exactly", "nodes")), "is not a valid ha-mode value"),
    "ha-params": PolicyKey(_is_anything, "is not a valid ha-params value"),
    "ha-sync-mode": PolicyKey(_one_of(("automatic", "manual")), "is not a valid ha-sync-mode value"),
    "ha-sync-batch-size": PolicyKey(_from(1), "is not a valid ha-sync-batch-size value"),
    "ha-promote-on-shutdown": PolicyKey(
        _one_of(("always", "when-synced")), "is not a valid ha-promote-on-shutdown value"
    ),
    "ha-promote-on-failure": PolicyKey(
        _one_of(("always", "when-synced")), "is not a valid ha-promote-on-failure value"
    ),
}


def _own_keys() -> dict[str, PolicyKey]:
    """What penstock's queues can do besides, under the names of their arguments without the x-."""
    keys: dict[str, PolicyKey] = {}
    for argument, (least, most) in INTEGERS.items():
        keys[argument[2:]] = PolicyKey(
            _between(least, most), f"is not an integer between {least} and {most}", argument=argument
        )
    for argument in BOOLEANS:
        keys[argument[2:]] = PolicyKey(_is_flag, "is neither true nor false", argument=argument)
    for argument, words in WORDS.items():
        keys[argument[2:]] = PolicyKey(_one_of(words), f"is not one of {', '.join(words)}", argument=argument)
    for argument in NAMES:
        keys[argument[2:]] = PolicyKey(_is_name, "is not the name of a header", argument=argument)
    return keys


# RabbitMQ's words win where both know a key.
KEYS: Final[dict[str, PolicyKey]] = {**_own_keys(), **_LIMITS, **_OF_RABBITMQ, **_WITHOUT_EFFECT}
# A RabbitMQ refuses a policy that has one of these.
OWN_KEYS: Final = frozenset(_own_keys()) - {*_LIMITS, *_OF_RABBITMQ, *_WITHOUT_EFFECT}

# A policy that has one of these does not match a queue of the type at all, as in RabbitMQ: it is meant for others.
NOT_FOR_CLASSIC: Final = frozenset(
    ("max-age", "stream-max-segment-size-bytes", "queue-leader-locator", "initial-cluster-size")
)
NOT_FOR_QUORUM: Final = frozenset(
    (
        "queue-mode",
        "ha-mode",
        "ha-params",
        "ha-sync-mode",
        "ha-promote-on-shutdown",
        "ha-promote-on-failure",
        "queue-master-locator",
        "max-age",
        "stream-max-segment-size-bytes",
        "initial-cluster-size",
    )
)
