"""The fanout exchange: a message goes to every destination."""

from __future__ import annotations

from typing import ClassVar, final

from penstock.fields import Table
from penstock.routing.bindings import Binding, Destination, Destinations, add_destination, drop_destination
from penstock.routing.exchange import Exchange


@final
class FanoutExchange(Exchange):
    __slots__ = ("_destinations",)

    type_name: ClassVar[str] = "fanout"
    needs_routing_key: ClassVar[bool] = False

    def __init__(self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table) -> None:
        super().__init__(name, durable, auto_delete, internal, arguments)
        self._destinations: Destinations = {}

    def matches(self, routing_key: str, headers: Table | None) -> list[Destination]:
        return list(self._destinations)

    def _add(self, binding: Binding) -> None:
        add_destination(self._destinations, binding.destination)

    def _remove(self, binding: Binding) -> None:
        drop_destination(self._destinations, binding.destination)
