"""The broker without its sockets: vhosts, users, the expiry schedule, alarms; and with a store, what lasts of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from penstock.backing.backing_queue import TIMEOUT_IDLE, BackingQueue
from penstock.backing.postgres.queues import PgBackingQueues
from penstock.backing.variable.variable_queues import VariableBackingQueues
from penstock.backing.volatile import VolatileBackingQueues
from penstock.broker.access.access_limits import VHOST_LIMITS, read_limits
from penstock.broker.access.access_records import whole_access
from penstock.broker.access.users import Users, without_limit
from penstock.broker.arrival_ticks import ArrivalTicks
from penstock.broker.audit.audit_log import AuditLog
from penstock.broker.audit.event import EXCHANGE_DELETED, QUEUE_DELETED, Event
from penstock.broker.audit.event_exchange import EventExchange
from penstock.broker.definitions.definition_log import DefinitionLog
from penstock.broker.definitions.definitions import encode_all
from penstock.broker.definitions.restore import read_definitions, restore_vhost, whole_vhost
from penstock.broker.deprecated_features import DeprecatedFeatures
from penstock.broker.memory.alarms import Alarm, DiskAlarm, MemoryAlarm
from penstock.broker.memory.memory_ledger import MemoryLedger
from penstock.broker.memory.memory_monitor import MemoryMonitor
from penstock.broker.operations.actor import broker_itself
from penstock.broker.policies.global_parameters import GlobalParameters
from penstock.broker.vhost.callbacks import Post, run_now
from penstock.broker.vhost.direct_reply import DirectReplies
from penstock.broker.vhost.queue_backings import QueueBackings
from penstock.broker.vhost.vhost import VHost
from penstock.clock import Clock, SteadyClock, SystemClock
from penstock.config import Config
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.queue import Queue
from penstock.store.node.node_store import NodeStore

# Queues that share the memory out when it gets scarce; the others hold less than these.
LARGE_QUEUES_MAX: Final = 500


class Broker:
    """Everything that all connections share."""

    def __init__(
        self,
        config: Config,
        clock: Clock | None = None,
        node: NodeStore | None = None,
        post: Post = run_now,
        postgres: PgBackingQueues | None = None,
    ) -> None:
        """With a store that is not open yet it is opened, and what it holds is restored; raises StartupError."""
        self.config = config
        self.clock: Clock = SteadyClock(clock or SystemClock())
        self.started_ms = self.clock.wall_ms()
        self.audit = AuditLog(self.clock, None if node is None else node.files)
        self.deprecated = DeprecatedFeatures(config, self.clock)
        self.expiries = ExpirySchedule()
        self.users = Users()
        self.global_parameters = GlobalParameters()
        self.vhosts: dict[str, VHost] = {}
        self.direct_replies = DirectReplies()
        # Runs what would hold the loop up, and hands over its result; the server has threads for that.
        self.elsewhere: Callable[[Callable[[], Any], Callable[[Any], None]], None] = _here
        # Called with the name of a vhost that is about to be deleted.
        self.vhost_deleted: Callable[[str], None] = _unheard
        # What is counted as memory: queues that have held something, and connections.
        self.memory = MemoryLedger()
        self.memory_alarm = MemoryAlarm(config.memory_bytes_max, self.used_bytes)
        self.alarms: list[Alarm] = [self.memory_alarm]
        self.disk_alarm: DiskAlarm | None = None
        self._memory_monitor = MemoryMonitor(config.memory_bytes_max, self._large_backings, self.used_bytes)
        self._arrival_ticks = ArrivalTicks(self._queues_in_use)
        # None: everything is in memory.
        self.node = node
        self.log: DefinitionLog | None = None
        # What the last run left damaged or unfinished, for people.
        self.recovery_report: list[str] = []
        self._post = post
        # None: no queue can be in PostgreSQL.
        self.postgres = postgres
        if node is not None:
            self._recover(node)
        for name in config.vhosts:
            if name not in self.vhosts:
                self.add_vhost(name)
        for user in config.users:
            self.users.configure(user.name, user.password, user.is_default)
        self.audit.exchange = EventExchange(self.vhosts[config.vhosts[0]])

    def _recover(self, node: NodeStore) -> None:
        recovered = node.open()
        # The store goes on to report while queues are opened.
        self.recovery_report = recovered.report
        definitions = read_definitions(recovered.definitions, recovered.changes, self.recovery_report)
        node.remove_unknown_vhosts([wanted.vhost_id for wanted in definitions.vhosts.values()])
        self.log = DefinitionLog(node)
        self.users = Users(definitions.access)
        self.users.log = self.log
        for wanted in definitions.vhosts.values():
            vhost = self._make_vhost(wanted.name, wanted.vhost_id)
            restore_vhost(vhost, wanted)
            vhost.log = self.log
            vhost.record_new_companions(wanted.queues)
        self.global_parameters.values.update(definitions.global_parameters)
        self.global_parameters.log = self.log
        node.definitions_source = self.definitions
        self.disk_alarm = DiskAlarm(node.files.free_bytes, self.config.disk_bytes_min)
        self.alarms.append(self.disk_alarm)

    def add_vhost(self, name: str, description: str = "", tags: tuple[str, ...] = ()) -> VHost:
        vhost = self._make_vhost(name, secrets.token_hex(16))
        vhost.description, vhost.tags = description, tags
        vhost.restore_queues([])
        if self.log is not None:
            self.log.vhost_declared(name, vhost.vhost_id, vhost.about())
            vhost.log = self.log
        return vhost

    def delete_vhost(self, name: str) -> None:
        """Delete a vhost with its queues and the permissions in it. Its connections are closed by who listens."""
        vhost = self.vhosts[name]
        self.vhost_deleted(name)
        vhost.delete()
        del self.vhosts[name]
        self.users.vhost_deleted(name)
        node = self.node
        if self.log is None or node is None:
            return
        self.log.vhost_deleted(name, vhost.vhost_id)

        def remove_folder(is_durable: bool) -> None:
            # After a crash before this, the next start removes it.
            if is_durable:
                node.remove_vhost(vhost.vhost_id)

        self.log.when_durable(remove_folder)

    def set_vhost_limits(self, vhost: VHost, given: object) -> None:
        """Set limits by name; those that are not named stay as they are."""
        vhost.set_limits({**vhost.limits, **read_limits(given, VHOST_LIMITS)})

    def clear_vhost_limits(self, vhost: VHost, which: str = "all") -> None:
        vhost.set_limits(without_limit(vhost.limits, which, VHOST_LIMITS))

    def _make_vhost(self, name: str, vhost_id: str) -> VHost:
        vhost = VHost(name, self._backings(name, vhost_id), self.clock, self.expiries, vhost_id, self._post)
        vhost.postgres_patterns = self.config.postgres_queues
        vhost.queues_max = self.config.queues_per_vhost_max
        vhost.exchanges_max = self.config.exchanges_per_vhost_max
        vhost.bindings_max = self.config.bindings_per_vhost_max
        vhost.memory = self.memory
        vhost.vanished = partial(self._vanished, name)
        if name == self.config.vhosts[0]:
            vhost.add_event_exchange()
        self.vhosts[name] = vhost
        return vhost

    def _vanished(self, vhost: str, kind: str, name: str, reason: str) -> None:
        event = QUEUE_DELETED if kind == "queue" else EXCHANGE_DELETED
        self.audit.note(broker_itself(), Event(event, {"vhost": vhost, "name": name, "reason": reason}))

    def _backings(self, vhost_name: str, vhost_id: str) -> QueueBackings:
        node = self.node
        if node is None:
            return QueueBackings(VolatileBackingQueues(), None, None, vhost_name, self.postgres)

        def exists(queue_id: str) -> bool:
            return node.queue_state(queue_id) is not None

        def name_queue(queue_id: str, name: str) -> None:
            label = json.dumps({"vhost": vhost_name, "queue": name}, ensure_ascii=False)
            node.queue_number(vhost_id, queue_id, label.encode("utf-8", "replace"))

        plain = VariableBackingQueues(node, vhost_id, self.clock)
        return QueueBackings(plain, exists, name_queue, vhost_name, self.postgres)

    def definitions(self) -> Iterator[bytes]:
        """Return everything that lasts, written down, in pieces. See `definitions` for changes that come meanwhile."""
        vhosts = [whole_vhost(vhost) for vhost in self.vhosts.values()]
        sections = [*whole_access(self.users.kept), *self.global_parameters.sections()]
        return encode_all(vhosts, sections)

    def stop(self) -> None:
        """Leave everything that lasts on disk, and mark it as left cleanly."""
        if self.node is not None or self.postgres is not None:
            for vhost in self.vhosts.values():
                vhost.stop()
        self.audit.close()
        if self.node is not None:
            self.node.stop()

    def _queues_in_use(self) -> list[Queue]:
        """Return the queues that have, or had, messages, and have not failed."""
        return [queue for queue in self.memory.holders() if isinstance(queue, Queue) and not queue.crashed]

    def _large_backings(self) -> list[BackingQueue]:
        """Return the backings of the queues that take most memory."""
        largest = self.memory.largest(LARGE_QUEUES_MAX)
        return [queue.backing for queue in largest if isinstance(queue, Queue) and not queue.crashed]

    def reload(self, config: Config) -> None:
        """Take over the settings that can change while it runs. The caller has copied them into `self.config`."""
        self.memory_alarm.bytes_max = self._memory_monitor.bytes_max = config.memory_bytes_max
        if self.disk_alarm is not None and config.disk_bytes_min > 0:
            self.disk_alarm.bytes_min = config.disk_bytes_min
        if self.node is not None:
            self.node.options.retention_bytes = config.history_bytes_max
            self.node.options.retention_s = config.history_hours_max * 3600

    def tend_memory(self, arrived_bytes: int | None = None) -> None:
        """Called some times a second: share the memory out, and let queues go on that have paged out in part.

        `arrived_bytes` is what has come from clients since the last call.
        """
        disk_is_low = self.disk_alarm is not None and self.disk_alarm.active
        self._memory_monitor.check(self.clock.monotonic_s(), disk_is_low)
        self._arrival_ticks.check(self.clock.monotonic_s(), self.clock.wall_ms())
        looked = self.memory.look(arrived_bytes)
        if self.node is not None:
            self.node.set_disk_is_low(disk_is_low)
            for queue in looked:
                if isinstance(queue, Queue) and not queue.crashed:
                    self._memory_monitor.relieve(queue.backing)
                    if queue.backing.needs_timeout() == TIMEOUT_IDLE:
                        queue.backing.timeout()

    @property
    def is_alarmed(self) -> bool:
        return any(alarm.active for alarm in self.alarms)

    def ram_bytes(self) -> int:
        """What queues and connections hold, as far as one look tells."""
        self.memory.look()
        return self.memory.total_bytes

    def used_bytes(self) -> int:
        """Return all that clients have made grow, definitions and what waits for the disk included.

        Queues and connections count with what `tend_memory` has seen of them.
        """
        used_bytes = self.memory.total_bytes + (0 if self.node is None else self.node.gathered_bytes)
        for vhost in self.vhosts.values():
            used_bytes += vhost.definition_bytes()
        return used_bytes

    def connection_closed(self, owner: object) -> None:
        """A connection is gone: its exclusive queues go too."""
        for vhost in self.vhosts.values():
            vhost.connection_closed(owner)


def _here(work: Callable[[], Any], done: Callable[[Any], None]) -> None:
    done(work())


def _unheard(name: str) -> None:
    return None
