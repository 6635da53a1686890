"""The arguments of a queue that ask for a feature, read and checked.

RabbitMQ's own arguments are checked in its words by `arguments`; these are penstock's, with the names that Qpid,
LavinMQ and later RabbitMQs use where there is such a name. What does not fit together is refused at the declaration,
with what would help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.errors import precondition_failed
from penstock.fields import TYPE_NAMES, Table
from penstock.limits import DEDUP_KEYS_MAX, EXPIRATION_MS_MAX, SHORT_STRING_BYTES_MAX
from penstock.queues.leaving.returns import RETRY_ALL, RETRY_DISABLED, RETRY_FAILED, RETRY_RETURNED

INTEGER_TYPES: Final = frozenset("bBsuIil")
# Arguments of companion queues, which clients cannot declare.
RESERVED_PREFIX: Final = "x-penstock-"
DELIVERY_LIMIT_MAX: Final = 1_000_000
INTEGERS: Final[dict[str, tuple[int, int]]] = {
    "x-delivery-limit": (0, DELIVERY_LIMIT_MAX),
    "x-delayed-retry-min": (1, EXPIRATION_MS_MAX),
    "x-delayed-retry-max": (1, EXPIRATION_MS_MAX),
    "x-cache-size": (1, DEDUP_KEYS_MAX),
    "x-cache-ttl": (1, EXPIRATION_MS_MAX),
}
BOOLEANS: Final = ("x-expire-anywhere", "x-hold-on-publish", "x-message-deduplication")
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "x-dead-letter-strategy": ("at-most-once", "at-least-once"),
    "x-delayed-retry-type": (RETRY_DISABLED, RETRY_ALL, RETRY_FAILED, RETRY_RETURNED),
    "x-group-type": ("shared", "standard"),
}
NAMES: Final = ("x-group-header", "x-last-value-header", "x-sort-header", "x-deduplication-header")
# Each gives the queue an order of its own: one of them at most.
ORDERS: Final = ("x-group-header", "x-last-value-header", "x-sort-header", "x-max-priority")
FEATURE_ARGUMENTS: Final = (*INTEGERS, *BOOLEANS, *WORDS, *NAMES)
DEDUPLICATION_HEADER: Final = "x-deduplication-header"


@dataclass(frozen=True, slots=True)
class Features:
    """What the arguments of one queue ask for; -1 and "" where they do not."""

    message_ttl_ms: int
    expires_ms: int
    length_max: int
    length_bytes_max: int
    overflow: str
    dead_letter_exchange: str | None
    dead_letter_routing_key: str | None
    at_least_once: bool
    single_active: bool
    delivery_limit: int
    retry_min_ms: int
    retry_max_ms: int
    retry_type: str
    expire_anywhere: bool
    hold_on_publish: bool
    group_header: str
    group_type: str
    last_value_header: str
    sort_header: str
    deduplication_header: str
    cache_size: int
    cache_ttl_ms: int


def check_feature_arguments(arguments: Table, described: str) -> None:
    """Raise 406 for a value that cannot be used, and for features that do not go together."""
    for name, (kind, value) in arguments.items():
        fault = ""
        if name.startswith(RESERVED_PREFIX):
            fault = "names that begin with x-penstock- are the broker's own; leave it out"
        elif name in INTEGERS:
            least, most = INTEGERS[name]
            if kind not in INTEGER_TYPES or not isinstance(value, int):
                fault = f"expected an integer, got {TYPE_NAMES[kind]}"
            elif not least <= value <= most:
                fault = f"{value} is not between {least} and {most}"
        elif name in BOOLEANS and kind != "t":
            fault = f"expected true or false, got {TYPE_NAMES[kind]}"
        elif name in WORDS and _text(arguments, name) not in WORDS[name]:
            fault = f"expected one of {', '.join(WORDS[name])}"
        elif name in NAMES and (kind != "S" or not _text(arguments, name)):
            fault = "expected the name of a header"
        if fault:
            raise precondition_failed(f"invalid arg '{name}' for {described}: {fault}")
    if len(_text(arguments, "x-dead-letter-routing-key").encode("utf-8", "surrogateescape")) > SHORT_STRING_BYTES_MAX:
        # RabbitMQ takes it, and fails later, when such a dead letter is delivered.
        raise precondition_failed(
            f"invalid arg 'x-dead-letter-routing-key' for {described}: it has more than {SHORT_STRING_BYTES_MAX} octets"
        )
    _check_together(arguments, described)


def _check_together(arguments: Table, described: str) -> None:
    orders = [name for name in ORDERS if name in arguments]
    if len(orders) > 1:
        raise precondition_failed(
            f"invalid arg '{orders[1]}' for {described}: it cannot be combined with '{orders[0]}', both order the queue"
        )
    for name, needed in (
        ("x-dead-letter-strategy", "x-dead-letter-exchange"),
        ("x-group-type", "x-group-header"),
        ("x-delayed-retry-max", "x-delayed-retry-min"),
        ("x-delayed-retry-type", "x-delayed-retry-min"),
        ("x-cache-size", "x-message-deduplication"),
        ("x-cache-ttl", "x-message-deduplication"),
        (DEDUPLICATION_HEADER, "x-message-deduplication"),
    ):
        if name in arguments and needed not in arguments:
            raise precondition_failed(f"invalid arg '{name}' for {described}: it has no effect without '{needed}'")
    least, most = _integer(arguments, "x-delayed-retry-min"), _integer(arguments, "x-delayed-retry-max")
    if 0 <= most < least:
        raise precondition_failed(f"invalid arg 'x-delayed-retry-max' for {described}: it is below x-delayed-retry-min")
    if _flag(arguments, "x-message-deduplication") and "x-cache-size" not in arguments:
        raise precondition_failed(
            f"invalid arg 'x-message-deduplication' for {described}: 'x-cache-size' must say how many keys to remember"
        )


def read_features(arguments: Table) -> Features:
    """What arguments that were checked ask for."""
    retry_min_ms = _integer(arguments, "x-delayed-retry-min")
    dead_letter_exchange = arguments.get("x-dead-letter-exchange")
    return Features(
        message_ttl_ms=_integer(arguments, "x-message-ttl"),
        expires_ms=_integer(arguments, "x-expires"),
        length_max=_integer(arguments, "x-max-length"),
        length_bytes_max=_integer(arguments, "x-max-length-bytes"),
        overflow=_text(arguments, "x-overflow") or "drop-head",
        dead_letter_exchange=None if dead_letter_exchange is None else _text(arguments, "x-dead-letter-exchange"),
        dead_letter_routing_key=(
            _text(arguments, "x-dead-letter-routing-key") if "x-dead-letter-routing-key" in arguments else None
        ),
        at_least_once=_text(arguments, "x-dead-letter-strategy") == "at-least-once",
        single_active=_flag(arguments, "x-single-active-consumer"),
        delivery_limit=_integer(arguments, "x-delivery-limit"),
        retry_min_ms=retry_min_ms,
        retry_max_ms=max(_integer(arguments, "x-delayed-retry-max"), retry_min_ms),
        retry_type=_text(arguments, "x-delayed-retry-type") or RETRY_ALL,
        expire_anywhere=_flag(arguments, "x-expire-anywhere"),
        hold_on_publish=_flag(arguments, "x-hold-on-publish"),
        group_header=_text(arguments, "x-group-header"),
        group_type=_text(arguments, "x-group-type") or "shared",
        last_value_header=_text(arguments, "x-last-value-header"),
        sort_header=_text(arguments, "x-sort-header"),
        deduplication_header=(
            (_text(arguments, DEDUPLICATION_HEADER) or DEDUPLICATION_HEADER)
            if _flag(arguments, "x-message-deduplication")
            else ""
        ),
        cache_size=_integer(arguments, "x-cache-size"),
        cache_ttl_ms=_integer(arguments, "x-cache-ttl"),
    )


def _integer(arguments: Table, name: str) -> int:
    value = arguments.get(name, ("V", None))[1]
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _flag(arguments: Table, name: str) -> bool:
    return arguments.get(name) == ("t", True)


def _text(arguments: Table, name: str) -> str:
    value = arguments.get(name, ("V", None))[1]
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else ""
