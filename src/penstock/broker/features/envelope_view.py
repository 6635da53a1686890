"""A message as a selector sees it. Properties are decoded when a selector first asks for one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.errors import AmqpError
from penstock.message import Envelope
from penstock.selectors.field_values import plain_value
from penstock.selectors.values import Value, View
from penstock.wire.properties import Properties, decode_properties


def properties_of(envelope: Envelope) -> Properties:
    """Return the properties; none where they cannot be read: they were accepted without a look at every octet."""
    try:
        return decode_properties(envelope.properties)
    except AmqpError:
        return Properties()


class EnvelopeView(View):
    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._decoded: Properties | None = None

    def _properties(self) -> Properties:
        if self._decoded is None:
            self._decoded = properties_of(self._envelope)
        return self._decoded

    def header(self, name: str) -> Value:
        headers = self._properties().headers
        field = None if headers is None else headers.get(name)
        return None if field is None else plain_value(field)

    def prop(self, name: str) -> Value:
        if name == "exchange":
            return self._envelope.exchange
        if name == "routing_key":
            return self._envelope.routing_key
        return PROPERTIES[name](self._properties())


# All but the headers. By hand and not by `getattr`: what is misspelt is found by the type checker.
PROPERTIES: Final[dict[str, Callable[[Properties], str | int | None]]] = {
    "app_id": lambda properties: properties.app_id,
    "content_encoding": lambda properties: properties.content_encoding,
    "content_type": lambda properties: properties.content_type,
    "correlation_id": lambda properties: properties.correlation_id,
    "delivery_mode": lambda properties: properties.delivery_mode,
    "expiration": lambda properties: properties.expiration,
    "message_id": lambda properties: properties.message_id,
    "priority": lambda properties: properties.priority,
    "reply_to": lambda properties: properties.reply_to,
    "timestamp": lambda properties: properties.timestamp,
    "type": lambda properties: properties.type,
    "user_id": lambda properties: properties.user_id,
}
