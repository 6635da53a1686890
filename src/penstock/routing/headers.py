"""The headers exchange: a message's headers are compared with the arguments of the bindings.

A pattern is a distinct set of arguments, with the destinations of the bindings that have it. Patterns are indexed by
header and value.

The argument x-match says how a pattern matches: `all` (also when it is absent) and `any` leave out arguments
that start with "x-", `all-with-x` and `any-with-x` take them too; x-match itself is never compared. An argument
of type void asks only that the header is there. Values are equal as `fields.comparable` says.

Invariants
1. An `any` pattern is in the index under each of its items, an `all` pattern under one, preferably one that asks
   for a value: a message only meets patterns that it shares a header with.
2. An `all` pattern without items matches every message and is in `always`; an `any` pattern without items
   matches none and is nowhere.
3. Nothing is left of a pattern in the index, or of a header without patterns, when its last binding went.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from penstock import errors
from penstock.fields import TYPE_NAMES, Frozen, Table, comparable, term_text
from penstock.limits import ROUTING_STEPS_MAX
from penstock.routing.bindings import Binding, Destination, Destinations, add_destination, drop_destination
from penstock.routing.exchange import Exchange

X_MATCH: Final = "x-match"
# Any one item is enough, not all.
ANY_KINDS: Final = (b"any", b"any-with-x")
# Arguments that start with "x-" are compared too.
WITH_X_KINDS: Final = (b"all-with-x", b"any-with-x")
KINDS: Final = (b"all", b"any", b"all-with-x", b"any-with-x")

# A header's name and the value it must have; None = any value.
Item = tuple[str, Frozen]
PatternKey = tuple[bool, tuple[Item, ...]]


@final
class HeadersPattern:
    """Arguments that one or more bindings have in common."""

    __slots__ = ("any_item", "destinations", "items")

    def __init__(self, any_item: bool, items: tuple[Item, ...]) -> None:
        self.any_item = any_item
        self.items = items
        self.destinations: Destinations = {}

    def index_items(self) -> list[Item]:
        """Return the items under which the pattern is found."""
        if self.any_item:
            return list(self.items)
        for item in self.items:
            if item[1] is not None:
                return [item]
        return list(self.items[:1])

    def matches_all(self, values: dict[str, Frozen]) -> bool:
        for name, wanted in self.items:
            # No header's value is None: a void header is comparable to itself only.
            value = values.get(name)
            if value is None or (wanted is not None and value != wanted):
                return False
        return True


@final
class HeadersExchange(Exchange):
    __slots__ = ("always", "index", "patterns")

    type_name: ClassVar[str] = "headers"
    needs_headers: ClassVar[bool] = True
    needs_routing_key: ClassVar[bool] = False

    def __init__(self, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table) -> None:
        super().__init__(name, durable, auto_delete, internal, arguments)
        self.patterns: dict[PatternKey, HeadersPattern] = {}
        self.index: dict[str, dict[Frozen, dict[HeadersPattern, None]]] = {}
        self.always: Destinations = {}

    def validate_binding(self, binding: Binding) -> None:
        super().validate_binding(binding)
        field = binding.arguments.get(X_MATCH)
        if field is None:
            return
        code, value = field
        if code != "S":
            raise errors.precondition_failed(
                f"Invalid x-match field type {TYPE_NAMES[code]} (value {term_text(field)}); expected longstr"
            )
        if value not in KINDS:
            raise errors.precondition_failed(
                f"Invalid x-match field value {term_text(field)}; expected all, any, all-with-x, or any-with-x"
            )

    def matches(self, routing_key: str, headers: Table | None) -> list[Destination]:
        found: Destinations = dict(self.always)
        if not headers or not self.index:
            return list(found)
        values = {name: comparable(field) for name, field in headers.items()}
        self.cost = 0
        for name, value in values.items():
            by_value = self.index.get(name)
            if by_value is None:
                continue
            for patterns in (by_value.get(value), by_value.get(None)):
                if patterns is not None:
                    self.cost += len(patterns)
                    if self.cost > ROUTING_STEPS_MAX:
                        return []
                    _collect(patterns, values, found)
        return list(found)

    def _add(self, binding: Binding) -> None:
        key = _pattern_key(binding.arguments)
        any_item, items = key
        if not items:
            if not any_item:
                add_destination(self.always, binding.destination)
            return
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = HeadersPattern(any_item, items)
            self.patterns[key] = pattern
            for name, value in pattern.index_items():
                self.index.setdefault(name, {}).setdefault(value, {})[pattern] = None
        add_destination(pattern.destinations, binding.destination)

    def _remove(self, binding: Binding) -> None:
        key = _pattern_key(binding.arguments)
        any_item, items = key
        if not items:
            if not any_item:
                drop_destination(self.always, binding.destination)
            return
        pattern = self.patterns[key]
        drop_destination(pattern.destinations, binding.destination)
        if pattern.destinations:
            return
        del self.patterns[key]
        for name, value in pattern.index_items():
            by_value = self.index[name]
            del by_value[value][pattern]
            if not by_value[value]:
                del by_value[value]
            if not by_value:
                del self.index[name]


def _collect(patterns: dict[HeadersPattern, None], values: dict[str, Frozen], found: Destinations) -> None:
    for pattern in patterns:
        if pattern.any_item or pattern.matches_all(values):
            found.update(pattern.destinations)


def _pattern_key(arguments: Table) -> PatternKey:
    field = arguments.get(X_MATCH)
    kind = b"all" if field is None else field[1]
    with_x = kind in WITH_X_KINDS
    items: list[Item] = []
    for name in sorted(arguments):
        if name == X_MATCH or (not with_x and name.startswith("x-")):
            continue
        field = arguments[name]
        items.append((name, None if field[0] == "V" else comparable(field)))
    return kind in ANY_KINDS, tuple(items)
