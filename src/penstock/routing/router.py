"""From an exchange to queues: follows bindings between exchanges, and alternate exchanges.

Invariants
1. A queue is in the answer at most once, however many ways lead to it.
2. An exchange is visited at most once per message, so cycles end.
3. The alternate of an exchange is visited when the exchange itself matched nothing for any of the routing
   keys. That the exchanges it matched led nowhere does not count: as in RabbitMQ, a match is a match.
4. Names of exchanges that do not exist lead nowhere.
5. A message takes at most about ROUTING_STEPS_MAX steps. One that needs more goes nowhere, and `gave_up` says so.
6. The order of the answer is that of a breadth-first walk: the same for the same bindings and message.
"""

from __future__ import annotations

from typing import final

from penstock.fields import Table
from penstock.limits import ROUTING_STEPS_MAX
from penstock.routing.bindings import QUEUE, Destination
from penstock.routing.exchange import Exchange


@final
class Router:
    __slots__ = ("_exchanges", "_steps", "gave_up")

    def __init__(self, exchanges: dict[str, Exchange]) -> None:
        # The registry itself, not a copy: it changes under us.
        self._exchanges = exchanges
        # Of the message that is being routed.
        self._steps = 0
        # Whether the last message would have taken too many steps.
        self.gave_up = False

    def route(self, exchange: Exchange, routing_keys: list[str], headers: Table | None) -> list[str]:
        """Return names of the queues that a message with these routing keys goes to.

        `headers` may be None where `needs_headers(exchange)` is False, and is where the message has none.
        """
        self._steps = 0
        self.gave_up = False
        found = self._matches(exchange, routing_keys, headers)
        if not found:
            if exchange.alternate is None or self.gave_up:
                return []
            return self._route_on(exchange, found, routing_keys, headers)
        queues: list[str] = []
        for kind, name in found:
            if kind != QUEUE:
                return self._route_on(exchange, found, routing_keys, headers)
            queues.append(name)
        return queues

    def needs_headers(self, exchange: Exchange) -> bool:
        """Return whether an answer of `route` may depend on the headers; if not, it can be remembered by routing key.

        That holds until a binding or an exchange of the vhost comes or goes.
        """
        if exchange.needs_headers:
            return True
        seen = {exchange.name}
        waiting = [exchange]
        while waiting:
            exchange = waiting.pop()
            names = exchange.exchange_targets()
            if exchange.alternate is not None:
                names.append(exchange.alternate)
            for name in names:
                if name in seen:
                    continue
                seen.add(name)
                target = self._exchanges.get(name)
                if target is None:
                    continue
                if target.needs_headers:
                    return True
                waiting.append(target)
        return False

    def _route_on(
        self, exchange: Exchange, found: list[Destination], routing_keys: list[str], headers: Table | None
    ) -> list[str]:
        """Return the walk, when `found` has more than queues in it or nothing: it is what `exchange` matched."""
        queues: dict[str, None] = {}
        seen = {exchange.name}
        waiting: list[Exchange] = []
        position = 0
        while True:
            exchange_names: list[str] = []
            for kind, name in found:
                if kind == QUEUE:
                    queues[name] = None
                else:
                    exchange_names.append(name)
            if not found and exchange.alternate is not None:
                exchange_names.append(exchange.alternate)
            for name in exchange_names:
                target = self._exchanges.get(name)
                if target is not None and name not in seen:
                    seen.add(name)
                    waiting.append(target)
            if position == len(waiting):
                return list(queues)
            exchange = waiting[position]
            position += 1
            found = self._matches(exchange, routing_keys, headers)
            if self.gave_up:
                return []

    def _matches(self, exchange: Exchange, routing_keys: list[str], headers: Table | None) -> list[Destination]:
        """What an exchange matches for any of the keys (a message has more than one with CC or BCC)."""
        if len(routing_keys) == 1 or not exchange.needs_routing_key:
            matched = exchange.matches(routing_keys[0], headers)
            return [] if self._is_too_much(exchange.cost + 1) else matched
        found: dict[Destination, None] = {}
        for routing_key in routing_keys:
            for destination in exchange.matches(routing_key, headers):
                found[destination] = None
            if self._is_too_much(exchange.cost + 1):
                return []
        return list(found)

    def _is_too_much(self, steps: int) -> bool:
        self._steps += steps
        self.gave_up = self._steps > ROUTING_STEPS_MAX
        return self.gave_up
