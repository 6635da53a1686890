"""Makes exchanges by the name of their type, and names those that every vhost has from the start."""

from __future__ import annotations

from typing import Final

from penstock import errors
from penstock.fields import Table
from penstock.routing.default import DefaultExchange
from penstock.routing.delayed import DelayedExchange
from penstock.routing.direct import DirectExchange
from penstock.routing.exchange import Exchange
from penstock.routing.fanout import FanoutExchange
from penstock.routing.headers import HeadersExchange
from penstock.routing.topic import TopicExchange

TOPIC_TYPE: Final = "topic"
DELAYED_TYPE: Final = "x-delayed-message"
DELAYED_TYPE_ARGUMENT: Final = "x-delayed-type"
EXCHANGE_TYPES: Final = ("direct", "fanout", "headers", TOPIC_TYPE, DELAYED_TYPE)
# Types that a delayed exchange may route by.
INNER_TYPES: Final = ("direct", "fanout", "headers", "topic")

PREDECLARED: Final[tuple[tuple[str, str, bool], ...]] = (
    ("", "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)


def make_exchange(
    type_name: str, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table
) -> Exchange:
    """Return a new exchange without bindings. An unknown type closes the connection, as in RabbitMQ."""
    assert name, "the default exchange is not declared"
    if type_name == "direct":
        return DirectExchange(name, durable, auto_delete, internal, arguments)
    if type_name == "fanout":
        return FanoutExchange(name, durable, auto_delete, internal, arguments)
    if type_name == "topic":
        return TopicExchange(name, durable, auto_delete, internal, arguments)
    if type_name == "headers":
        return HeadersExchange(name, durable, auto_delete, internal, arguments)
    if type_name == DELAYED_TYPE:
        inner = _inner_type(arguments)
        return DelayedExchange(make_exchange(inner, name, durable, auto_delete, internal, arguments))
    raise errors.command_invalid(f"{'unknown' if type_name else 'invalid'} exchange type '{type_name}'")


def _inner_type(arguments: Table) -> str:
    value = arguments.get(DELAYED_TYPE_ARGUMENT, ("V", None))[1]
    name = value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
    if name not in INNER_TYPES:
        raise errors.precondition_failed(
            f"invalid arg '{DELAYED_TYPE_ARGUMENT}' for an exchange of type '{DELAYED_TYPE}': it must be one of"
            f" {', '.join(INNER_TYPES)}"
        )
    return name


def make_predeclared() -> dict[str, Exchange]:
    """Return the exchanges of a new vhost, by name."""
    exchanges: dict[str, Exchange] = {}
    for name, type_name, internal in PREDECLARED:
        if name:
            exchanges[name] = make_exchange(type_name, name, True, False, internal, {})
        else:
            exchanges[name] = DefaultExchange()
    return exchanges
