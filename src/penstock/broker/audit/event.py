"""Something that somebody did, by the name that RabbitMQ's event exchange has for it, with its properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EventValue = str | int | float | bool | None | list[str]

LOGIN_SUCCEEDED: Final = "user.authentication.success"
LOGIN_FAILED: Final = "user.authentication.failure"
CONNECTION_CREATED: Final = "connection.created"
CONNECTION_CLOSED: Final = "connection.closed"
QUEUE_CREATED: Final = "queue.created"
QUEUE_DELETED: Final = "queue.deleted"
# RabbitMQ has no event for a purge.
QUEUE_PURGED: Final = "queue.purged"
EXCHANGE_CREATED: Final = "exchange.created"
EXCHANGE_DELETED: Final = "exchange.deleted"
BINDING_CREATED: Final = "binding.created"
BINDING_DELETED: Final = "binding.deleted"
# Nor for an act that was refused.
ACCESS_REFUSED: Final = "access.refused"


class Event:
    __slots__ = ("name", "properties")

    def __init__(self, name: str, properties: Mapping[str, EventValue]) -> None:
        self.name = name
        self.properties = properties
