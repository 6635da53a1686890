"""What the client of a connection did, told to the audit and to `amq.rabbitmq.event`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.audit.event import Event, EventValue
from penstock.broker.operations.actor import Actor

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection

AMQP = "amqp"


def note(connection: Connection, name: str, /, **properties: EventValue) -> None:
    """Tell of an act in the vhost of an open connection."""
    user = connection.user
    actor = Actor(user.name, (), connection.peer, AMQP, lambda vhost: False)
    connection.broker.audit.note(actor, Event(name, {"vhost": connection.vhost.name, **properties}))


def note_login(connection: Connection, name: str, user_name: str, mechanism: str, reason: str = "") -> None:
    """Tell of a login, of a user that there may not be."""
    properties: dict[str, EventValue] = {"mechanism": mechanism}
    if reason:
        properties["reason"] = reason
    actor = Actor(user_name, (), connection.peer, AMQP, lambda vhost: False)
    connection.broker.audit.note(actor, Event(name, properties))
