"""One call of an operation: by whom, of which broker, and what there is to tell about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.audit.event import Event, EventValue
from penstock.broker.operations.actor import Actor
from penstock.broker.operations.call_errors import NoSuchVHost
from penstock.broker.vhost.vhost import VHost

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class Call:
    def __init__(self, broker: Broker, actor: Actor) -> None:
        self.broker = broker
        self.actor = actor
        # What was done, for the audit; told when the operation has succeeded.
        self.events: list[Event] = []

    def note(self, name: str, /, **properties: EventValue) -> None:
        """Tell what was done. `name` is one of RabbitMQ's event exchange, or made like one: `user.created`."""
        self.events.append(Event(name, properties))

    def vhost(self, name: str) -> VHost:
        """Return the vhost; raises NoSuchVHost."""
        found = self.broker.vhosts.get(name)
        if found is None:
            raise NoSuchVHost(f"no vhost '{name}'; `penstockctl list_vhosts` lists them")
        return found
