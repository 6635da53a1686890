"""An exchange: the contract of all types, and what they have in common.

Each type adds an index of its own, which answers `matches` without looking at bindings that cannot match.

Invariants
1. A binding is there once, however often it is bound; `bind` and `unbind` say whether they changed anything.
2. The type's index knows the same bindings as `bindings()`, no others.
3. `matches` changes nothing and remembers nothing: equal bindings and equal messages give equal answers, in the order
   in which the bindings were made or the index is walked. A cache of answers is cleared when a binding or an exchange
   comes or goes.
4. The answer of `matches` has each destination once, and belongs to the caller.
5. `matches` takes at most about ROUTING_STEPS_MAX steps, and leaves in `cost` how many it took. If it has taken more,
   it has given up, and its answer does not count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from penstock.fields import Table
from penstock.routing.bindings import EXCHANGE, Binding, BindingKey, Destination


class Exchange(ABC):
    """Where messages are published to. `matches` says where they go from here."""

    __slots__ = (
        "_bindings",
        "_targets",
        "alternate",
        "arguments",
        "auto_delete",
        "cost",
        "durable",
        "internal",
        "name",
    )

    # As exchange.declare names it.
    type_name: ClassVar[str] = ""
    # Whether `matches` looks at the headers; otherwise None may be passed.
    needs_headers: ClassVar[bool] = False
    # Whether `matches` looks at the routing key; otherwise one call does for all keys of a message.
    needs_routing_key: ClassVar[bool] = True

    def __init__(self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table) -> None:
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        # Where messages go that match nothing here; None = nowhere. A policy may set it later.
        self.alternate: str | None = alternate_of(arguments)
        # Steps that the last call of `matches` took beyond a look-up or two.
        self.cost = 0
        self._bindings: dict[BindingKey, Binding] = {}
        # Exchanges bound to this one, with the number of their bindings.
        self._targets: dict[str, int] = {}

    def bind(self, binding: Binding) -> bool:
        """Add a binding; False when it was there already. Refuses what `validate_binding` refuses."""
        self.validate_binding(binding)
        if binding.key in self._bindings:
            return False
        self._bindings[binding.key] = binding
        kind, name = binding.destination
        if kind == EXCHANGE:
            self._targets[name] = self._targets.get(name, 0) + 1
        self._add(binding)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; False when it was not there, which AMQP takes for success."""
        assert binding.source == self.name
        known = self._bindings.pop(binding.key, None)
        if known is None:
            return False
        kind, name = known.destination
        if kind == EXCHANGE:
            left = self._targets[name] - 1
            if left:
                self._targets[name] = left
            else:
                del self._targets[name]
        self._remove(known)
        return True

    def bindings(self) -> list[Binding]:
        """Return all bindings, oldest first."""
        return list(self._bindings.values())

    @property
    def has_bindings(self) -> bool:
        return bool(self._bindings)

    def exchange_targets(self) -> list[str]:
        """Return names of the exchanges that some binding of this one leads to."""
        return list(self._targets)

    def validate_binding(self, binding: Binding) -> None:
        """Raise PRECONDITION_FAILED when this type has no use for the binding's key or arguments."""
        assert binding.source == self.name

    @abstractmethod
    def matches(self, routing_key: str, headers: Table | None) -> list[Destination]:
        """Where a message goes from here; each destination once."""

    @abstractmethod
    def _add(self, binding: Binding) -> None:
        """A binding came: tell the index."""

    @abstractmethod
    def _remove(self, binding: Binding) -> None:
        """A binding went: tell the index."""


def alternate_of(arguments: Table) -> str | None:
    """Return the alternate exchange that arguments name; None when they name none."""
    field = arguments.get("alternate-exchange")
    if field is None:
        return None
    code, value = field
    # The broker refuses other types at the declaration, with the vhost in its text.
    if code != "S" or not isinstance(value, bytes):
        return None
    # RabbitMQ reaches the default exchange from no other one, not as an alternate either: "" leads nowhere.
    # A name that is not UTF-8 stays a name that does not exist.
    return value.decode("utf-8", "surrogateescape") or None
