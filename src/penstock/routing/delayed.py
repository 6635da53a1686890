"""The x-delayed-message exchange: an exchange of another type whose messages may be held back before they are routed.

`x-delayed-type` names the type of the inner exchange, which has the bindings and does the matching. The headers are
always needed: they say whether a message waits. Messages that wait are in a companion queue.
"""

from __future__ import annotations

from typing import ClassVar, final

from penstock.fields import Table
from penstock.routing.bindings import Binding, Destination
from penstock.routing.exchange import Exchange


@final
class DelayedExchange(Exchange):
    """Routes what is due as its inner exchange does."""

    __slots__ = ("inner",)

    type_name: ClassVar[str] = "x-delayed-message"
    needs_headers: ClassVar[bool] = True

    def __init__(self, inner: Exchange) -> None:
        super().__init__(inner.name, inner.durable, inner.auto_delete, inner.internal, inner.arguments)
        # Routes what is due.
        self.inner = inner

    def validate_binding(self, binding: Binding) -> None:
        self.inner.validate_binding(binding)

    def matches(self, routing_key: str, headers: Table | None) -> list[Destination]:
        found = self.inner.matches(routing_key, headers)
        self.cost = self.inner.cost
        return found

    def _add(self, binding: Binding) -> None:
        self.inner.bind(binding)

    def _remove(self, binding: Binding) -> None:
        self.inner.unbind(binding)
