"""AMQP's properties of a message as plain Python values, by name."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from penstock.errors import AmqpError
from penstock.fields import Field
from penstock.wire.properties import Properties, decode_properties


def properties_by_name(raw: bytes) -> dict[str, Any]:
    """The properties that are set; of octets that are no properties, none: a SQL client may have written the row."""
    try:
        properties = decode_properties(raw)
    except AmqpError:
        return {}
    return plain_properties(properties)


def plain_properties(properties: Properties) -> dict[str, Any]:
    """Return the properties that are set, headers as a dict of plain values."""
    found: dict[str, Any] = {}
    for name in Properties.__slots__:
        value = getattr(properties, name)
        if value is None:
            continue
        found[name] = {key: plain(field) for key, field in value.items()} if name == "headers" else value
    return found


def plain(field: Field) -> Any:
    """Return the value of a field without its type; text where the octets are UTF-8."""
    code, value = field
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        scale, number = value
        return Decimal(number).scaleb(-scale)
    if isinstance(value, bytes) and code == "S":
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value
    return value
