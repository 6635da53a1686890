"""A virtual host: its queues, beside the exchanges and bindings of `Topology`.

Queues are opened, found, deleted and given their features here. Companions, which remember things for queues and
exchanges, are opened like queues and go with whom they belong to.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from penstock import limits
from penstock.backing.backing_queue import BackingQueue, Recovery
from penstock.backing.nothing_yet import NOTHING_YET
from penstock.broker import arguments as args
from penstock.broker.callbacks import AsyncCallbackTo, Post, run_now
from penstock.broker.companions import DEDUP, HELD_FOR_EXCHANGE, HELD_FOR_QUEUE, Companions, companion_kind
from penstock.broker.definitions import QueueDefinition
from penstock.broker.handovers import Handovers
from penstock.broker.held_messages import DELAY_HEADER, delay_ms_of
from penstock.broker.memory_ledger import MemoryLedger
from penstock.broker.moves import Moves
from penstock.broker.postgres_arguments import BACKING, check_backing, with_backing
from penstock.broker.queue_backings import QueueBackings
from penstock.broker.queue_features import equip, equip_companion
from penstock.broker.topology import Topology, definition_bytes
from penstock.clock import Clock
from penstock.errors import ChannelException, access_refused, not_found, precondition_failed, resource_locked
from penstock.fields import Table
from penstock.message import ConfirmToken
from penstock.queues.expiry import ExpirySchedule
from penstock.queues.queue import Queue
from penstock.routing.bindings import QUEUE
from penstock.routing.exchange import Exchange
from penstock.routing.factory import DELAYED_TYPE


class VHost(Topology):
    """One virtual host."""

    def __init__(
        self,
        name: str,
        backings: QueueBackings,
        clock: Clock,
        expiries: ExpirySchedule,
        vhost_id: str = "",
        post: Post = run_now,
    ) -> None:
        super().__init__(name)
        # Names its folder on disk.
        self.vhost_id = vhost_id
        self._backings = backings
        self.clock = clock
        self.moves = Moves(expiries, clock)
        # Knows the queues that hold, or have held, something. The broker's own takes its place.
        self.memory = MemoryLedger()
        self.handovers = Handovers(clock)
        # Queues that remember for others; clients do not see them.
        self.companions = Companions(self._make_companion, self._drop_queue)
        self._expiries = expiries
        self._post = post
        # Names of queues that are in PostgreSQL without having said so.
        self.postgres_patterns: Sequence[str] = ()
        # Exclusive queues by the connection that owns them.
        self._exclusive: dict[object, dict[str, Queue]] = {}

    # --- looking up ---------------------------------------------------------------------------------

    def queue(self, name: str, user_of: object, even_crashed: bool = False) -> Queue:
        """The queue, if it exists and this connection may use it."""
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
        """The queues that a message goes to; where it has to wait, the one in which it waits."""
        exchange = self.exchange(exchange_name)
        if exchange.type_name == DELAYED_TYPE and headers is not None and delay_ms_of(headers.get(DELAY_HEADER)) > 0:
            return [self.companions.get(HELD_FOR_EXCHANGE, exchange_name, exchange.durable)]
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
        """A name that nobody has."""
        return f"amq.gen-{secrets.token_urlsafe(16)}"

    def declare_server_named_queue(
        self, name: str, durable: bool, auto_delete: bool, owner: object | None, arguments: Table
    ) -> Queue:
        """A new queue under a name of ours."""
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
        if len(self.queues) >= limits.QUEUES_PER_VHOST_MAX:
            raise precondition_failed(f"vhost '{self.name}' has its {limits.QUEUES_PER_VHOST_MAX} queues already")
        self._check_room(described, arguments, definition_bytes(arguments, name))
        queue = self._open_queue(name, secrets.token_hex(16), durable, auto_delete, owner, arguments, None)
        self._add_queue(queue)
        if owner is not None:
            self._exclusive.setdefault(owner, {})[name] = queue
        if durable and self.log is not None:
            self.log.queue_declared(self.name, queue)
        return queue

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
        assert isinstance(queue, Queue)
        callback = AsyncCallbackTo(self._post)
        callback.lead_to(queue)
        backing = self._backings.open(queue.name, queue.queue_id, queue.durable, queue.arguments, None, callback)
        set_mode(backing, queue.arguments)
        self.memory.add(queue)
        return backing

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
            # Whoever does not care gets the queue that is there.
            args.check_equal_arguments((BACKING,), described, arguments, queue.arguments)
        args.check_equal_arguments(args.COMPARED_QUEUE_ARGUMENTS, described, arguments, queue.arguments)

    def check_deletable(self, queue: Queue, if_unused: bool, if_empty: bool) -> None:
        """Raise 406 when the queue is not as whoever wants to delete it expects."""
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
        self.declared_bytes -= definition_bytes(queue.arguments, queue.name)
        self.topology_version += 1
        self._forget_routes()
        if queue.exclusive_owner is not None:
            owned = self._exclusive.get(queue.exclusive_owner)
            if owned is not None:
                owned.pop(queue.name, None)
        for exchange in self._remove_bindings_to((QUEUE, queue.name)):
            self._remove_exchange(exchange)
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

    def _exchange_gone(self, exchange: Exchange) -> None:
        self.companions.drop(HELD_FOR_EXCHANGE, exchange.name)

    def queue_expired(self, queue: Queue) -> None:
        """Nobody has used it for as long as its x-expires says."""
        if not queue.deleted:
            self._remove_queue(queue)

    def last_consumer_gone(self, queue: Queue) -> None:
        if queue.auto_delete and not queue.deleted:
            self._remove_queue(queue)

    def connection_closed(self, owner: object) -> None:
        """Delete the exclusive queues of a connection."""
        for queue in list(self._exclusive.pop(owner, {}).values()):
            if not queue.deleted:
                self._remove_queue(queue)

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

    def stop(self) -> None:
        """Leave what lasts for the next start."""
        for queue in self.all_queues():
            queue.terminate()
        self._backings.stop()

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
