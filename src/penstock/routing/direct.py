"""The direct exchange: a message goes where its routing key is bound, letter for letter."""

from __future__ import annotations

from typing import ClassVar, final

from penstock.fields import Table
from penstock.routing.bindings import Binding, Destination, Destinations, add_destination, drop_destination
from penstock.routing.exchange import Exchange


@final
class DirectExchange(Exchange):
    __slots__ = ("_routes",)

    type_name: ClassVar[str] = "direct"

    def __init__(self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table) -> None:
        super().__init__(name, durable, auto_delete, internal, arguments)
        self._routes: dict[str, Destinations] = {}

    def matches(self, routing_key: str, headers: Table | None) -> list[Destination]:
        destinations = self._routes.get(routing_key)
        return [] if destinations is None else list(destinations)

    def _add(self, binding: Binding) -> None:
        destinations = self._routes.get(binding.routing_key)
        if destinations is None:
            destinations = {}
            self._routes[binding.routing_key] = destinations
        add_destination(destinations, binding.destination)

    def _remove(self, binding: Binding) -> None:
        destinations = self._routes[binding.routing_key]
        drop_destination(destinations, binding.destination)
        if not destinations:
            del self._routes[binding.routing_key]
