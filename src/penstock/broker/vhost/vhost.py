"""A virtual host: its exchanges, queues and bindings, and where a message goes.

Names are looked up here and nowhere else; every refusal has RabbitMQ's code and text. Whatever changes the topology
counts `topology_version` up, and publishers forget the routes they remember. Changes of what is durable are recorded in
the same turn, where there is a log to record them in.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, Protocol

from penstock import limits
from penstock.backing.backing_queue import BackingQueue, Recovery
from penstock.backing.nothing_yet import NOTHING_YET
from penstock.broker.access.access_limits import MAX_QUEUES, limit_of
from penstock.broker.definitions import arguments as args
from penstock.broker.definitions.definition_log import DefinitionLog
from penstock.broker.definitions.definition_size import binding_bytes, definition_bytes
from penstock.broker.definitions.definitions import QueueDefinition
from penstock.broker.definitions.names import default_exchange_refusal
from penstock.broker.definitions.postgres_arguments import BACKING, check_backing, with_backing
from penstock.broker.features.held_messages import DELAY_HEADER, delay_ms_of
from penstock.broker.features.queue_features import equip, equip_companion
from penstock.broker.memory.memory_ledger import MemoryLedger
from penstock.broker.policies.policies import Policies
from penstock.broker.vhost.callbacks import AsyncCallbackTo, Post, run_now
from penstock.broker.vhost.companions import DEDUP, HELD_FOR_EXCHANGE, HELD_FOR_QUEUE, Companions, companion_kind
from penstock.broker.vhost.handovers import Handovers
from penstock.broker.vhost.moves import Moves
from penstock.broker.vhost.queue_backings import QueueBackings
from penstock.broker.vhost.route_memory import RouteMemory
from penstock.call_all import call_all
from penstock.clock import Clock
from penstock.errors import (
    ChannelException,
    access_refused,
    command_invalid,
    not_found,
    precondition_failed,
    resource_locked,
)
from penstock.fields import Table
from penstock.message import ConfirmToken
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.queue import Queue
from penstock.queues.queue_owner import QueueOwner
from penstock.routing.bindings import EXCHANGE, QUEUE, Binding, BindingKey, Destination
from penstock.routing.delayed import DelayedExchange
from penstock.routing.exchange import Exchange
from penstock.routing.factory import DELAYED_TYPE, EXCHANGE_TYPES, TOPIC_TYPE, make_exchange, make_predeclared
from penstock.routing.router import Router
from penstock.routing.topic import TopicExchange
from penstock.wire.tables import encode_table

# Events of the broker, in its first vhost; see `broker.audit.event_exchange`.
EVENT_EXCHANGE: Final = "amq.rabbitmq.event"

# Called with kind (queue or exchange), name and reason when something goes that no client has deleted.
Vanished = Callable[[str, str, str], None]


class Migrating(Protocol):
    """What a vhost knows of a queue's change of its backing (`broker.migration`)."""

    def give_up(self) -> None:
        """Leave the queue as it was: the broker stops."""


class VHost(QueueOwner):
    def __init__(
        self,
        name: str,
        backings: QueueBackings,
        clock: Clock,
        expiries: ExpirySchedule,
        vhost_id: str = "",
        post: Post = run_now,
    ) -> None:
        self.name = name
        # Set when the definitions that are there have been restored: from then on changes are recorded.
        self.log: DefinitionLog | None = None
        self.exchanges: dict[str, Exchange] = make_predeclared()
        self.queues: dict[str, Queue] = {}
        # Counts every change of exchanges, queues and bindings.
        self.topology_version = 0
        # The route memories that were filled since something was last deleted.
        self._route_memories: set[RouteMemory] = set()
        self._router = Router(self.exchanges)
        # Bindings by what they lead to, so that a deletion finds them.
        self._bindings_to: dict[Destination, dict[BindingKey, Binding]] = {}
        self._bindings_count = 0
        # About what names and arguments take, in memory and written down.
        self.declared_bytes = 0
        # While the definitions of the last run are made: they are there already, however large they are.
        self.is_restoring = False
        # Names its folder on disk.
        self.vhost_id = vhost_id
        self._backings = backings
        self.clock = clock
        self.moves = Moves(expiries, clock)
        # Knows the queues that hold, or have held, something. The broker's own takes its place.
        self.memory = MemoryLedger()
        self.handovers = Handovers(clock)
        self.policies = Policies(self, expiries)
        # Queues that are on their way into another backing.
        self.migrations: dict[Queue, Migrating] = {}
        # Queues that remember for others; clients do not see them.
        self.companions = Companions(self._make_companion, self._drop_queue)
        self._expiries = expiries
        self._post = post
        # Names of queues that are in PostgreSQL without having said so.
        self.postgres_patterns: Sequence[str] = ()
        self.queues_max: int = limits.QUEUES_PER_VHOST_MAX
        self.exchanges_max: int = limits.EXCHANGES_PER_VHOST_MAX
        self.bindings_max: int = limits.BINDINGS_PER_VHOST_MAX
        # Whom to tell.
        self.vanished: Vanished | None = None
        # Set by people, see `access_limits`; and what they say about it.
        self.limits: dict[str, int] = {}
        self.description = ""
        self.tags: tuple[str, ...] = ()
        # Exclusive queues by the connection that owns them.
        self._exclusive: dict[object, dict[str, Queue]] = {}

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

    def is_topic(self, exchange_name: str) -> bool:
        """Return whether rights to single routing keys are asked for at the exchange, as at those of type topic."""
        exchange = self.exchanges.get(exchange_name)
        return exchange is not None and exchange.type_name == TOPIC_TYPE

    def route_now(self, exchange_name: str, routing_keys: list[str], headers: Table | None) -> list[Queue]:
        """Return the queues for a message that does not have to wait any more; none when the exchange is gone."""
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
        """Return whether `route` looks at the headers, so that its answer must not be remembered by routing key."""
        return self._router.needs_headers(self.exchange(exchange_name))

    def is_delayed(self, exchange_name: str) -> bool:
        """Return whether the exchange may hold messages back before it routes them."""
        return self.exchange(exchange_name).type_name == DELAYED_TYPE

    def holding_queue(self, exchange_name: str) -> Queue:
        """Return the queue in which messages of a delayed exchange wait."""
        return self.companions.get(HELD_FOR_EXCHANGE, exchange_name, self.exchange(exchange_name).durable)

    def due_needs_headers(self, exchange_name: str) -> bool:
        """Return whether `route_now` looks at the headers."""
        exchange = self.exchanges.get(exchange_name)
        return exchange is not None and self._router.needs_headers(
            exchange.inner if isinstance(exchange, DelayedExchange) else exchange
        )

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

    def queue(self, name: str, user_of: object, even_crashed: bool = False) -> Queue:
        """Return the queue, if it exists and this connection may use it."""
        found = self.queues.get(name)
        if found is None:
            raise not_found(f"no queue '{name}' in vhost '{self.name}'")
        if found.crashed and not even_crashed:
            raise not_found(f"{found.describe()} has crashed and failed to restart")
        if found.exclusive_owner is not None and found.exclusive_owner is not user_of:
            raise self._locked(found)
        return found

    def _locked(self, queue: Queue) -> ChannelException:
        return resource_locked(
            f"cannot obtain exclusive access to locked {queue.describe()}. It could be originally declared on another"
            " connection or the exclusive property value does not match that of the original declaration."
        )

    def route(self, exchange_name: str, routing_keys: list[str], headers: Table | None) -> list[Queue]:
        """Return the queues that a message goes to; where it has to wait, the one in which it waits."""
        exchange = self.exchange(exchange_name)
        if exchange.type_name == DELAYED_TYPE and headers is not None and delay_ms_of(headers.get(DELAY_HEADER)) > 0:
            return [self.holding_queue(exchange_name)]
        return self.route_now(exchange_name, routing_keys, headers)

    # --- queues -------------------------------------------------------------------------------------

    def declare_queue(
        self, name: str, durable: bool, auto_delete: bool, owner: object | None, arguments: Table
    ) -> Queue:
        """Make a queue, or check that the one that exists is as declared.

        `owner` is the connection that declares it exclusive, or None.
        """
        self.check_queue_name(name)
        existing = self.queues.get(name)
        if existing is not None:
            if existing.exclusive_owner is owner:
                self.queue(name, owner)
            self._check_declared_alike(existing, durable, auto_delete, owner, arguments)
            return existing
        return self._make_queue(name, durable, auto_delete, owner, arguments)

    def check_queue_name(self, name: str) -> None:
        """Names that begin with amq. are the broker's; not even those that it made up may be declared again."""
        if name.startswith("amq."):
            raise access_refused(f"queue name '{name}' contains reserved prefix 'amq.*'")

    def new_queue_name(self) -> str:
        """Return a name that is not in use."""
        return f"amq.gen-{secrets.token_urlsafe(16)}"

    def declare_server_named_queue(
        self, name: str, durable: bool, auto_delete: bool, owner: object | None, arguments: Table
    ) -> Queue:
        """Return a new queue under a name of ours."""
        if arguments.get("x-queue-type") == ("S", b"quorum"):
            raise precondition_failed("Cannot declare a server-named queue for type rabbit_quorum_queue")
        return self._make_queue(name, durable, auto_delete, owner, arguments)

    def _make_queue(self, name: str, durable: bool, auto_delete: bool, owner: object | None, arguments: Table) -> Queue:
        described = f"queue '{name}' in vhost '{self.name}'"
        exclusive = owner is not None
        arguments = with_backing(name, durable, auto_delete, exclusive, arguments, self.postgres_patterns)
        args.check_queue_arguments(arguments, described)
        has_postgres = self._backings.postgres is not None
        check_backing(name, durable, auto_delete, exclusive, arguments, has_postgres, described)
        args.check_quorum_properties(arguments, durable, auto_delete, owner is not None, described)
        # An exclusive queue goes with its connection: it does not count as durable, whatever the client says.
        durable = durable and owner is None
        self._check_queue_limit(name)
        if len(self.queues) >= self.queues_max:
            raise precondition_failed(f"vhost '{self.name}' has its {self.queues_max} queues already")
        self._check_room(described, arguments, definition_bytes(arguments, name))
        queue = self._open_queue(name, secrets.token_hex(16), durable, auto_delete, owner, arguments, None)
        self._add_queue(queue)
        if owner is not None:
            self._exclusive.setdefault(owner, {})[name] = queue
        if durable and self.log is not None:
            self.log.queue_declared(self.name, queue)
        return queue

    def _check_queue_limit(self, name: str) -> None:
        limit = limit_of(self.limits, MAX_QUEUES)
        if 0 <= limit <= len(self.queues):
            raise precondition_failed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({limit}) is reached"
            )

    def _open_queue(
        self,
        name: str,
        queue_id: str,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: Table,
        recovery: Recovery | None,
    ) -> Queue:
        if self._backings.is_new(queue_id, durable, arguments, recovery):
            return self._make(name, queue_id, durable, auto_delete, owner, arguments, NOTHING_YET)
        callback = AsyncCallbackTo(self._post)
        backing = self._backings.open(name, queue_id, durable, arguments, recovery, callback)
        queue = self._make(name, queue_id, durable, auto_delete, owner, arguments, backing)
        callback.lead_to(queue)
        backing.set_takers(queue.is_wanted)
        set_mode(backing, arguments)
        self.memory.add(queue)
        return queue

    def open_backing(self, queue: Queue) -> BackingQueue:
        callback = AsyncCallbackTo(self._post)
        callback.lead_to(queue)
        backing = self._backings.open(queue.name, queue.queue_id, queue.durable, queue.arguments, None, callback)
        set_mode(backing, queue.effective_arguments)
        self.memory.add(queue)
        return backing

    def open_move(self, queue: Queue, queue_id: str, arguments: Table) -> tuple[BackingQueue, AsyncCallbackTo]:
        """Return a new backing beside that of a queue which is to change it; its results lead nowhere yet."""
        callback = AsyncCallbackTo(self._post)
        return self._backings.open(queue.name, queue_id, queue.durable, arguments, None, callback), callback

    def check_redefinition(self, queue: Queue, auto_delete: bool, arguments: Table) -> None:
        """Raise 406 unless the queue could be declared like that."""
        described = queue.describe()
        exclusive = queue.exclusive_owner is not None
        args.check_queue_arguments(arguments, described)
        has_postgres = self._backings.postgres is not None
        check_backing(queue.name, queue.durable, auto_delete, exclusive, arguments, has_postgres, described)
        args.check_quorum_properties(arguments, queue.durable, auto_delete, exclusive, described)
        self._check_room(described, arguments, definition_bytes(arguments, queue.name))

    def redefined(self, queue: Queue, before: Table, has_moved: bool) -> None:
        """The queue has other arguments than `before`: record it, and have them take effect."""
        self.declared_bytes += definition_bytes(queue.arguments, queue.name) - definition_bytes(before, queue.name)
        if queue.durable and self.log is not None:
            self.log.queue_declared(self.name, queue)
        self.policies.redefined(queue, has_moved)

    def _make(
        self,
        name: str,
        queue_id: str,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: Table,
        backing: BackingQueue,
    ) -> Queue:
        return Queue(
            name,
            self.name,
            durable,
            auto_delete,
            owner,
            arguments,
            backing,
            self.clock,
            self._expiries,
            self,
            queue_id,
        )

    def _add_queue(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        self.declared_bytes += definition_bytes(queue.arguments, queue.name)
        self.topology_version += 1
        self.policies.queue_added(queue)
        if queue.effective_arguments is not queue.arguments:
            set_mode(queue.backing, queue.effective_arguments)
        equip(self, queue, self._expiries)

    def _make_companion(self, name: str, durable: bool, arguments: Table) -> Queue:
        queue = self._open_queue(name, secrets.token_hex(16), durable, False, None, arguments, None)
        equip_companion(self, queue)
        if durable and self.log is not None:
            self.log.queue_declared(self.name, queue)
        return queue

    def _check_declared_alike(
        self, queue: Queue, durable: bool, auto_delete: bool, owner: object | None, arguments: Table
    ) -> None:
        if queue.exclusive_owner is not owner:
            raise self._locked(queue)
        described = queue.describe()
        args.check_equal("durable", described, durable and owner is None, queue.durable)
        args.check_equal("auto_delete", described, auto_delete, queue.auto_delete)
        if BACKING in arguments:
            # A client that does not name a backing gets the queue that is there.
            args.check_equal_arguments((BACKING,), described, arguments, queue.arguments)
        args.check_equal_arguments(args.COMPARED_QUEUE_ARGUMENTS, described, arguments, queue.arguments)

    def check_deletable(self, queue: Queue, if_unused: bool, if_empty: bool) -> None:
        """Raise 406 when the queue has consumers or messages, and the client deletes it only without."""
        if not queue.crashed and if_empty and len(queue):
            raise precondition_failed(f"{queue.describe()} not empty")
        if if_unused and queue.consumer_count():
            raise precondition_failed(f"{queue.describe()} in use")

    def delete_queue(self, queue: Queue, if_unused: bool, if_empty: bool) -> int:
        """Delete a queue with its bindings; return how many messages were ready."""
        self.check_deletable(queue, if_unused, if_empty)
        return self._remove_queue(queue)

    def _remove_queue(self, queue: Queue) -> int:
        del self.queues[queue.name]
        self.policies.queue_removed(queue.name)
        self.declared_bytes -= definition_bytes(queue.arguments, queue.name)
        self.topology_version += 1
        self._forget_routes()
        if queue.exclusive_owner is not None:
            owned = self._exclusive.get(queue.exclusive_owner)
            if owned is not None:
                owned.pop(queue.name, None)
        for exchange in self._remove_bindings_to((QUEUE, queue.name)):
            self._remove_exchange(exchange)
            self._tell_vanished("exchange", exchange.name, "auto-delete")
        for kind in (HELD_FOR_QUEUE, DEDUP):
            self.companions.drop(kind, queue.name)
        return self._drop_queue(queue)

    def _drop_queue(self, queue: Queue) -> int:
        """Delete what the queue holds, and that it ever was."""
        self.memory.remove(queue)
        if queue.durable and self.log is not None:
            self.log.queue_deleted(self.name, queue.name)
        if queue.crashed:
            queue.deleted = True
            queue.let_go()
            self._backings.delete_crashed(queue.name, queue.queue_id, queue.arguments)
            return 0
        return queue.delete()

    def queue_expired(self, queue: Queue) -> None:
        """Delete a queue that was not used for as long as its x-expires says."""
        if not queue.deleted:
            self._remove_queue(queue)
            self._tell_vanished("queue", queue.name, "expired")

    def last_consumer_gone(self, queue: Queue) -> None:
        if queue.auto_delete and not queue.deleted:
            self._remove_queue(queue)
            self._tell_vanished("queue", queue.name, "auto-delete")

    def _tell_vanished(self, kind: str, name: str, reason: str) -> None:
        if self.vanished is not None:
            self.vanished(kind, name, reason)

    def connection_closed(self, owner: object) -> None:
        """Delete the exclusive queues of a connection."""
        for queue in list(self._exclusive.pop(owner, {}).values()):
            if not queue.deleted:
                self._remove_queue(queue)
                self._tell_vanished("queue", queue.name, "exclusive")

    # --- exchanges ----------------------------------------------------------------------------------

    def declare_exchange(
        self, name: str, type_name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table
    ) -> Exchange:
        """Make an exchange, or check that the one that exists is as declared."""
        self.check_exchange_type(type_name)
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
        if len(self.exchanges) >= self.exchanges_max and not self.is_restoring:
            raise precondition_failed(f"vhost '{self.name}' has its {self.exchanges_max} exchanges already")
        exchange = make_exchange(type_name, name, durable, auto_delete, internal, arguments)
        self.exchanges[name] = exchange
        self.policies.exchange_added(exchange)
        self.declared_bytes += size
        self.topology_version += 1
        if durable and self.log is not None:
            self.log.exchange_declared(self.name, exchange)
        return exchange

    def add_event_exchange(self) -> None:
        """Have the exchange to which the broker publishes its events. Nobody else can publish to it."""
        self.exchanges[EVENT_EXCHANGE] = TopicExchange(EVENT_EXCHANGE, True, False, True, {})

    def check_exchange_type(self, type_name: str) -> None:
        """Called before all else, as in RabbitMQ: an unknown type closes the connection, whatever is wrong besides."""
        if type_name not in EXCHANGE_TYPES:
            raise command_invalid(f"{'unknown' if type_name else 'invalid'} exchange type '{type_name}'")

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
            self.policies.exchange_removed(exchange.name)
            self.declared_bytes -= definition_bytes(exchange.arguments, exchange.name)
            self.topology_version += 1
            self._forget_routes()
            if exchange.durable and self.log is not None:
                self.log.exchange_deleted(self.name, exchange.name)
            self.companions.drop(HELD_FOR_EXCHANGE, exchange.name)
            for binding in exchange.bindings():
                exchange.unbind(binding)
                self._forget_binding(binding)
            doomed.extend(self._remove_bindings_to((EXCHANGE, exchange.name)))

    # --- bindings -----------------------------------------------------------------------------------

    def bind_queue(self, source: str, queue: Queue, routing_key: str, arguments: Table) -> None:
        self.bind(Binding(source, (QUEUE, queue.name), routing_key, arguments))

    def bind_exchange(self, source: str, destination: str, routing_key: str, arguments: Table) -> None:
        self.exchange(source)
        self.exchange(destination)
        self.bind(Binding(source, (EXCHANGE, destination), routing_key, arguments))

    def is_queue_bound(self, source: str, queue_name: str, routing_key: str, arguments: Table) -> bool:
        return self.is_bound(Binding(source, (QUEUE, queue_name), routing_key, arguments))

    def is_bound(self, binding: Binding) -> bool:
        return binding.key in self._bindings_to.get(binding.destination, {})

    def unbind_queue(self, source: str, queue_name: str, routing_key: str, arguments: Table) -> None:
        self.unbind(Binding(source, (QUEUE, queue_name), routing_key, arguments))

    def unbind_exchange(self, source: str, destination: str, routing_key: str, arguments: Table) -> None:
        self.unbind(Binding(source, (EXCHANGE, destination), routing_key, arguments))

    def bind(self, binding: Binding) -> None:
        """Bind; binding again what is bound is fine."""
        source = self.exchange(binding.source)
        known = self._bindings_to.get(binding.destination, {})
        if binding.key not in known and not self.is_restoring:
            if self._bindings_count >= self.bindings_max:
                raise precondition_failed(f"vhost '{self.name}' has its {self.bindings_max} bindings already")
            described = f"binding from exchange '{binding.source}' in vhost '{self.name}'"
            self._check_room(described, binding.arguments, binding_bytes(binding))
        if source.bind(binding):
            self._bindings_to.setdefault(binding.destination, {})[binding.key] = binding
            self._bindings_count += 1
            self.declared_bytes += binding_bytes(binding)
            self.topology_version += 1
            if self.log is not None and self._lasts(binding):
                self.log.bound(self.name, binding)

    def unbind(self, binding: Binding) -> None:
        """Unbind; what was not bound is unbound already. An auto-delete exchange goes with its last binding."""
        source = self.exchanges.get(binding.source)
        if source is not None and source.unbind(binding):
            self._forget_binding(binding)
            self.topology_version += 1
            if self.log is not None and self._lasts(binding):
                self.log.unbound(self.name, binding)
            if is_unused(source):
                self._remove_exchange(source)
                self._tell_vanished("exchange", source.name, "auto-delete")

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

    # --- the whole vhost ------------------------------------------------------------------------------

    def restore_queues(self, wanted: Sequence[QueueDefinition]) -> None:
        """Open the durable queues of the last run, before anything is declared. Called once, also for none."""
        # Companions first: queues ask for theirs.
        ordered = sorted(wanted, key=lambda each: not companion_kind(each.arguments))
        recoveries = self._backings.start([(each.queue_id, each.arguments) for each in ordered])
        for each, recovery in zip(ordered, recoveries, strict=True):
            queue = self._open_queue(each.name, each.queue_id, True, each.auto_delete, None, each.arguments, recovery)
            queue.paused = each.paused
            if companion_kind(each.arguments):
                self.companions.restored(queue)
                equip_companion(self, queue)
            else:
                self._add_queue(queue)
            if companion_kind(each.arguments) != DEDUP:
                # Keys of a window leave when the window says so.
                queue.recovered()

    def record_new_companions(self, known: Container[str]) -> None:
        """Record the companions that were made while the others were restored: a policy asked for them."""
        for name, queue in self.companions.queues.items():
            if queue.durable and name not in known and self.log is not None:
                self.log.queue_declared(self.name, queue)

    def settle_when_durable(self, token: ConfirmToken) -> None:
        """Settle a token when everything that was gathered for the disk so far is there."""
        if self.log is None:
            token.settle()
            return

        def answered(is_durable: bool) -> None:
            if is_durable:
                token.settle()
            else:
                token.refuse()

        self.log.when_durable(answered)

    def all_queues(self) -> list[Queue]:
        """With the companions."""
        return [*self.queues.values(), *self.companions.queues.values()]

    def about(self) -> dict[str, Any]:
        """What lasts of it besides what is declared in it."""
        about: dict[str, Any] = {}
        if self.limits:
            about["limits"] = self.limits
        if self.description:
            about["description"] = self.description
        if self.tags:
            about["tags"] = list(self.tags)
        return about

    def set_limits(self, limits: dict[str, int]) -> None:
        self.limits = limits
        if self.log is not None:
            self.log.vhost_limits_set(self.name, limits)

    def delete(self) -> None:
        """Delete all queues with their messages. The vhost is not used any more after that."""
        for queue in list(self.queues.values()):
            if not queue.deleted:
                self._remove_queue(queue)
        for companion in list(self.companions.queues.values()):
            self._drop_queue(companion)
        self._exclusive.clear()
        self._forget_routes()
        self._backings.stop()

    def stop(self) -> None:
        """Leave what lasts for the next start."""
        self.policies.stop()
        for migrating in list(self.migrations.values()):
            migrating.give_up()
        call_all([*[queue.terminate for queue in self.all_queues()], self._backings.stop])

    def definition_bytes(self) -> int:
        """What exchanges, queues and bindings take, whatever the queues hold."""
        return (
            len(self.queues) * limits.QUEUE_OVERHEAD_BYTES
            + len(self.exchanges) * limits.EXCHANGE_OVERHEAD_BYTES
            + self._bindings_count * limits.BINDING_OVERHEAD_BYTES
            + self.declared_bytes
        )


def set_mode(backing: BackingQueue, arguments: Table) -> None:
    if arguments.get("x-queue-mode") == args.LAZY:
        backing.set_queue_mode(True)


def is_unused(exchange: Exchange) -> bool:
    """An auto-delete exchange whose last binding was just removed."""
    return exchange.auto_delete and not exchange.has_bindings
