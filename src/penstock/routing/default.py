"""The default exchange, whose name is empty: the routing key is the name of the queue.

Every queue is bound to it by its name; bindings can be neither made nor removed. It answers with a name, and the caller
drops a name that no queue has.
"""

from __future__ import annotations

from typing import ClassVar, final

from penstock import errors
from penstock.fields import Table
from penstock.routing.bindings import QUEUE, Binding, Destination
from penstock.routing.exchange import Exchange


@final
class DefaultExchange(Exchange):
    """Routes to the queue named by the routing key."""

    __slots__ = ()

    type_name: ClassVar[str] = "direct"

    def __init__(self) -> None:
        super().__init__("", durable=True, auto_delete=False, internal=False, arguments={})

    def bind(self, binding: Binding) -> bool:
        raise errors.access_refused("operation not permitted on the default exchange")

    def unbind(self, binding: Binding) -> bool:
        raise errors.access_refused("operation not permitted on the default exchange")

    def matches(self, routing_key: str, headers: Table | None) -> list[Destination]:
        return [(QUEUE, routing_key)]

    def _add(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings")

    def _remove(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings")
