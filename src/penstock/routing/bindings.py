"""Bindings, and sets of destinations that several bindings may lead to.

Invariants
1. A binding never changes after it was made.
2. Two bindings are the same when source, destination, routing key and arguments are equal; the order of the
   arguments does not matter, their types and values do. `key` is equal for the same bindings and only for them.
3. A destination counts the bindings that lead to it and is gone with the last: two bindings that differ in
   their arguments only are one destination, and it stays when one of them goes.
"""

from __future__ import annotations

from typing import Final, final

from penstock.fields import Frozen, Table, freeze_table

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"

# The kind, QUEUE or EXCHANGE, and the name.
Destination = tuple[str, str]
# Destinations in the order of their first binding, with the number of bindings that lead there.
Destinations = dict[Destination, int]
BindingKey = tuple[str, Destination, str, Frozen]


@final
class Binding:
    """From the exchange `source` to `destination`, for messages that match the routing key and arguments."""

    __slots__ = ("arguments", "destination", "key", "routing_key", "source")

    def __init__(self, source: str, destination: Destination, routing_key: str, arguments: Table) -> None:
        assert destination[0] in (QUEUE, EXCHANGE)
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments
        self.key: BindingKey = (source, destination, routing_key, freeze_table(arguments))


def add_destination(destinations: Destinations, destination: Destination) -> None:
    """One more binding leads to `destination`."""
    destinations[destination] = destinations.get(destination, 0) + 1


def drop_destination(destinations: Destinations, destination: Destination) -> None:
    """One binding less leads to `destination`."""
    left = destinations[destination] - 1
    if left:
        destinations[destination] = left
    else:
        del destinations[destination]
