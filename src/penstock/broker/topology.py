"""Exchanges and bindings of a virtual host, and where a message goes.

Owns the registry of exchanges and of what they lead to; `VHost` adds the queues. Names are looked up here and there and
nowhere else; every refusal has RabbitMQ's code and text. Whatever changes the topology counts `topology_version` up,
and publishers forget the routes they remember. Changes of what is durable are recorded in the same turn, where there is
a log to record them in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from penstock import limits
from penstock.broker import arguments as args
from penstock.broker.definition_log import DefinitionLog
from penstock.broker.names import default_exchange_refusal
from penstock.errors import access_refused, command_invalid, not_found, precondition_failed
from penstock.fields import Table
from penstock.queues.queue import Queue
from penstock.queues.queue_owner import QueueOwner
from penstock.routing.bindings import EXCHANGE, QUEUE, Binding, BindingKey, Destination
from penstock.routing.exchange import Exchange
from penstock.routing.factory import EXCHANGE_TYPES, make_exchange, make_predeclared
from penstock.routing.router import Router
from penstock.wire.tables import encode_table


def is_unused(exchange: Exchange) -> bool:
    """An auto-delete exchange whose last binding was just removed."""
    return exchange.auto_delete and not exchange.has_bindings


def definition_bytes(arguments: Table, *names: str) -> int:
    """About what a definition takes: arguments are objects in memory, and octets that are not text double on disk."""
    size = limits.DEFINITION_OVERHEAD_BYTES + 2 * sum(map(len, names))
    return size + 2 * len(encode_table(arguments)) if arguments else size


def binding_bytes(binding: Binding) -> int:
    return definition_bytes(binding.arguments, binding.source, binding.destination[1], binding.routing_key)


class RouteMemory(ABC):
    """Remembers what publishes mean; a connection."""

    @abstractmethod
    def forget_routes(self) -> None:
        """Queues or exchanges are gone: let go of whatever leads to them."""


class Topology(QueueOwner):
    """A virtual host without what happens to its queues."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Set when the definitions that are there have been restored: from then on changes are recorded.
        self.log: DefinitionLog | None = None
        self.exchanges: dict[str, Exchange] = make_predeclared()
        self.queues: dict[str, Queue] = {}
        # Counts every change of exchanges, queues and bindings.
        self.topology_version = 0
        # Who has remembered a route since the last time that something was deleted.
        self._route_memories: set[RouteMemory] = set()
        self._router = Router(self.exchanges)
        # Bindings by what they lead to, so that a deletion finds them.
        self._bindings_to: dict[Destination, dict[BindingKey, Binding]] = {}
        self._bindings_count = 0
        # About what names and arguments take, in memory and written down.
        self.declared_bytes = 0
        # While the definitions of the last run are made: they are there already, however large they are.
        self.is_restoring = False

    # --- looking up ---------------------------------------------------------------------------------

    def exchange(self, name: str) -> Exchange:
        found = self.exchanges.get(name)
        if found is None:
            raise not_found(f"no exchange '{name}' in vhost '{self.name}'")
        return found

    def check_publish(self, exchange_name: str) -> None:
        """Raise unless clients can publish to the exchange."""
        if self.exchange(exchange_name).internal:
            raise access_refused(f"cannot publish to internal exchange '{exchange_name}' in vhost '{self.name}'")

    def route_now(self, exchange_name: str, routing_keys: list[str], headers: Table | None) -> list[Queue]:
        """The queues for a message that does not have to wait any more; none when the exchange is gone."""
        if exchange_name not in self.exchanges:
            return []
        queues = self.queues
        found: list[Queue] = []
        for name in self._router.route(self.exchange(exchange_name), routing_keys, headers):
            queue = queues.get(name)
            if queue is not None:
                found.append(queue)
        return found

    @property
    def gave_up_routing(self) -> bool:
        """Whether the message that was routed last goes nowhere because routing it would take too long."""
        return self._router.gave_up

    def route_needs_headers(self, exchange_name: str) -> bool:
        """Whether `route` looks at the headers, so that its answer must not be remembered by routing key."""
        return self._router.needs_headers(self.exchange(exchange_name))

    def route_remembered(self, memory: RouteMemory) -> None:
        """`memory` leads to queues of this vhost from now on, and is told when some of them are gone."""
        self._route_memories.add(memory)

    def forget_memory(self, memory: RouteMemory) -> None:
        """It remembers nothing any more."""
        self._route_memories.discard(memory)

    def _forget_routes(self) -> None:
        """A route keeps its queues alive, also on a connection that never publishes again."""
        memories, self._route_memories = self._route_memories, set()
        for memory in memories:
            memory.forget_routes()

    # --- exchanges ----------------------------------------------------------------------------------

    def declare_exchange(
        self, name: str, type_name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table
    ) -> Exchange:
        """Make an exchange, or check that the one that exists is as declared."""
        if type_name not in EXCHANGE_TYPES:
            # Before all else, as in RabbitMQ: this closes the connection, whatever is wrong besides.
            raise command_invalid(f"{'unknown' if type_name else 'invalid'} exchange type '{type_name}'")
        described = f"exchange '{name}' in vhost '{self.name}'"
        existing = self.exchanges.get(name)
        if existing is not None:
            args.check_equal("type", described, type_name, existing.type_name)
            args.check_equal("durable", described, durable, existing.durable)
            args.check_equal("auto_delete", described, auto_delete, existing.auto_delete)
            args.check_equal("internal", described, internal, existing.internal)
            args.check_equal_arguments(args.COMPARED_EXCHANGE_ARGUMENTS, described, arguments, existing.arguments)
            return existing
        self.check_exchange_name(name)
        args.check_exchange_arguments(arguments, described)
        size = definition_bytes(arguments, name)
        self._check_room(described, arguments, size)
        if len(self.exchanges) >= limits.EXCHANGES_PER_VHOST_MAX and not self.is_restoring:
            raise precondition_failed(f"vhost '{self.name}' has its {limits.EXCHANGES_PER_VHOST_MAX} exchanges already")
        exchange = make_exchange(type_name, name, durable, auto_delete, internal, arguments)
        self.exchanges[name] = exchange
        self.declared_bytes += size
        self.topology_version += 1
        if durable and self.log is not None:
            self.log.exchange_declared(self.name, exchange)
        return exchange

    def check_exchange_name(self, name: str) -> None:
        """Names that begin with amq. are the broker's; those that exist may be declared again as they are."""
        if name.startswith("amq.") and name not in self.exchanges:
            raise access_refused(f"exchange name '{name}' contains reserved prefix 'amq.*'")

    def check_exchange_deletable(self, name: str) -> None:
        """The exchanges that every vhost has from the start stay."""
        if name == "":
            raise default_exchange_refusal()
        if name.startswith("amq."):
            raise access_refused(f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed")

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        """Delete an exchange and every binding from and to it; an unknown one is deleted already."""
        self.check_exchange_deletable(name)
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.has_bindings:
            raise precondition_failed(f"exchange '{name}' in vhost '{self.name}' in use")
        self._remove_exchange(exchange)

    def _remove_exchange(self, exchange: Exchange) -> None:
        """Remove an exchange, and each auto-delete exchange that loses its last binding by that. They form chains."""
        doomed = [exchange]
        while doomed:
            exchange = doomed.pop()
            if self.exchanges.pop(exchange.name, None) is None:
                continue
            self.declared_bytes -= definition_bytes(exchange.arguments, exchange.name)
            self.topology_version += 1
            self._forget_routes()
            if exchange.durable and self.log is not None:
                self.log.exchange_deleted(self.name, exchange.name)
            self._exchange_gone(exchange)
            for binding in exchange.bindings():
                exchange.unbind(binding)
                self._forget_binding(binding)
            doomed.extend(self._remove_bindings_to((EXCHANGE, exchange.name)))

    def _exchange_gone(self, exchange: Exchange) -> None:
        """An exchange was deleted: what it held goes with it."""

    # --- bindings -----------------------------------------------------------------------------------

    def bind_queue(self, source: str, queue: Queue, routing_key: str, arguments: Table) -> None:
        self.bind(Binding(source, (QUEUE, queue.name), routing_key, arguments))

    def bind_exchange(self, source: str, destination: str, routing_key: str, arguments: Table) -> None:
        self.exchange(source)
        self.exchange(destination)
        self.bind(Binding(source, (EXCHANGE, destination), routing_key, arguments))

    def is_queue_bound(self, source: str, queue_name: str, routing_key: str, arguments: Table) -> bool:
        binding = Binding(source, (QUEUE, queue_name), routing_key, arguments)
        return binding.key in self._bindings_to.get(binding.destination, {})

    def unbind_queue(self, source: str, queue_name: str, routing_key: str, arguments: Table) -> None:
        self._unbind(Binding(source, (QUEUE, queue_name), routing_key, arguments))

    def unbind_exchange(self, source: str, destination: str, routing_key: str, arguments: Table) -> None:
        self._unbind(Binding(source, (EXCHANGE, destination), routing_key, arguments))

    def bind(self, binding: Binding) -> None:
        """Bind; binding again what is bound is fine."""
        source = self.exchange(binding.source)
        known = self._bindings_to.get(binding.destination, {})
        if binding.key not in known and not self.is_restoring:
            if self._bindings_count >= limits.BINDINGS_PER_VHOST_MAX:
                raise precondition_failed(
                    f"vhost '{self.name}' has its {limits.BINDINGS_PER_VHOST_MAX} bindings already"
                )
            described = f"binding from exchange '{binding.source}' in vhost '{self.name}'"
            self._check_room(described, binding.arguments, binding_bytes(binding))
        if source.bind(binding):
            self._bindings_to.setdefault(binding.destination, {})[binding.key] = binding
            self._bindings_count += 1
            self.declared_bytes += binding_bytes(binding)
            self.topology_version += 1
            if self.log is not None and self._lasts(binding):
                self.log.bound(self.name, binding)

    def _unbind(self, binding: Binding) -> None:
        """Unbind; what was not bound is unbound already. An auto-delete exchange goes with its last binding."""
        source = self.exchanges.get(binding.source)
        if source is not None and source.unbind(binding):
            self._forget_binding(binding)
            self.topology_version += 1
            if self.log is not None and self._lasts(binding):
                self.log.unbound(self.name, binding)
            if is_unused(source):
                self._remove_exchange(source)

    def _remove_bindings_to(self, destination: Destination) -> list[Exchange]:
        """Remove the bindings to what is gone; return the auto-delete exchanges that have to go with their last one."""
        unused: list[Exchange] = []
        for binding in list(self._bindings_to.get(destination, {}).values()):
            self._forget_binding(binding)
            source = self.exchanges.get(binding.source)
            if source is not None and source.unbind(binding) and is_unused(source):
                unused.append(source)
        return unused

    def _forget_binding(self, binding: Binding) -> None:
        known = self._bindings_to.get(binding.destination)
        if known is not None and known.pop(binding.key, None) is not None:
            self._bindings_count -= 1
            self.declared_bytes -= binding_bytes(binding)
            if not known:
                del self._bindings_to[binding.destination]

    def _check_room(self, described: str, arguments: Table, size: int) -> None:
        """Refuse what is too large, or too much for the vhost together with what is there."""
        if self.is_restoring:
            return
        taken = len(encode_table(arguments)) if arguments else 0
        if taken > limits.ARGUMENTS_BYTES_MAX:
            raise precondition_failed(
                f"arguments of {described} are too large: {taken} bytes, {limits.ARGUMENTS_BYTES_MAX} are possible"
            )
        if self.declared_bytes + size > limits.DEFINITION_BYTES_PER_VHOST_MAX:
            raise precondition_failed(
                f"cannot declare {described}: the definitions of vhost '{self.name}' take"
                f" {self.declared_bytes} bytes, {limits.DEFINITION_BYTES_PER_VHOST_MAX} are possible"
            )

    def _lasts(self, binding: Binding) -> bool:
        """A binding is durable when both of its ends are."""
        kind, name = binding.destination
        source = self.exchanges.get(binding.source)
        target = self.queues.get(name) if kind == QUEUE else self.exchanges.get(name)
        return source is not None and source.durable and target is not None and target.durable

    def bindings(self) -> Iterator[Binding]:
        """Those that last, looked at one after the other. What changes meanwhile may be among them or not."""
        for bindings in list(self._bindings_to.values()):
            for binding in list(bindings.values()):
                if self._lasts(binding):
                    yield binding
