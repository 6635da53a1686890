"""Which backing a queue of a vhost gets: one for all its messages, or one per priority; or rows in PostgreSQL.

Backings know ids only. A durable one is named in the journal before it is opened, so that readers of the journal know
which queue it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.backing.backing_queue import AsyncCallback, BackingQueue, BackingQueues, Recovery
from penstock.backing.postgres.queues import PgBackingQueues
from penstock.backing.priority.priority import PriorityBackingQueues, combined_recovery, inner_ids
from penstock.broker.definitions.postgres_arguments import is_in_postgres, postgres_name
from penstock.errors import precondition_failed
from penstock.fields import Table

# Whether anything was found on disk under an id.
Exists = Callable[[str], bool]
# Told the id of a durable backing that is about to be opened, and the name of its queue.
NameQueue = Callable[[str, str], None]


def max_priority(arguments: Table) -> int:
    """x-max-priority; 0 = the queue has no priorities."""
    field = arguments.get("x-max-priority")
    return field[1] if field is not None and isinstance(field[1], int) else 0


class QueueBackings:
    def __init__(
        self,
        plain: BackingQueues,
        exists: Exists | None,
        name_queue: NameQueue | None,
        vhost_name: str = "/",
        postgres: PgBackingQueues | None = None,
    ) -> None:
        self._vhost_name = vhost_name
        # None: the broker has no PostgreSQL.
        self.postgres = postgres
        self._plain = plain
        self._exists = exists
        self._name_queue = name_queue

    def start(self, queues: Sequence[tuple[str, Table]]) -> list[Recovery]:
        """Called once, with id and arguments of every durable queue; a recovery for each."""
        ids = [_ids(queue_id, arguments) for queue_id, arguments in queues]
        found = self._plain.start([one for each in ids for one in each])
        recoveries: list[Recovery] = []
        pos = 0
        for (_, arguments), each in zip(queues, ids, strict=True):
            levels = found[pos : pos + len(each)]
            pos += len(each)
            if not levels:
                recoveries.append(Recovery(True))
            else:
                recoveries.append(combined_recovery(levels) if max_priority(arguments) else levels[0])
        return recoveries

    def is_new(self, queue_id: str, durable: bool, arguments: Table, recovery: Recovery | None) -> bool:
        """Return whether nothing is known of the queue: then its backing can be opened when its first message comes.

        A durable one is prepared for that: its first publish does not find out that the disk cannot be used.
        """
        if is_in_postgres(arguments):
            return False
        if recovery is not None and self._exists is not None:
            for each in _ids(queue_id, arguments):
                if self._exists(each):
                    return False
        if durable:
            try:
                self._plain.prepare()
            except OverflowError as error:
                raise precondition_failed(str(error)) from None
        return True

    def open(
        self,
        name: str,
        queue_id: str,
        durable: bool,
        arguments: Table,
        recovery: Recovery | None,
        callback: AsyncCallback,
    ) -> BackingQueue:
        if is_in_postgres(arguments):
            return self._postgres().open_named(postgres_name(self._vhost_name, name), name, recovery is None, callback)
        plain = self._plain
        if durable and self._name_queue is not None:
            plain = NamedBackings(plain, name, self._name_queue)
        return self._for(plain, arguments).open(queue_id, durable, recovery, callback)

    def _postgres(self) -> PgBackingQueues:
        if self.postgres is None:
            raise precondition_failed("there are queues in PostgreSQL; start this broker with --postgres URL")
        return self.postgres

    def delete_crashed(self, name: str, queue_id: str, arguments: Table) -> None:
        if is_in_postgres(arguments):
            self._postgres().delete_crashed(postgres_name(self._vhost_name, name))
            return
        self._for(self._plain, arguments).delete_crashed(queue_id)

    def stop(self) -> None:
        self._plain.stop()

    def _for(self, plain: BackingQueues, arguments: Table) -> BackingQueues:
        priority = max_priority(arguments)
        return PriorityBackingQueues(plain, priority, self._exists) if priority else plain


class NamedBackings(BackingQueues):
    """Opens the backings of one queue, which may be many, each when its first message comes."""

    def __init__(self, plain: BackingQueues, name: str, name_queue: NameQueue) -> None:
        self._plain = plain
        self._name = name
        self._name_queue = name_queue

    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        return self._plain.start(queue_ids)

    def stop(self) -> None:
        self._plain.stop()

    def open(self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback) -> BackingQueue:
        self._name_queue(queue_id, self._name)
        return self._plain.open(queue_id, durable, recovery, callback)

    def delete_crashed(self, queue_id: str) -> None:
        self._plain.delete_crashed(queue_id)

    def name_actor(self, text: bytes) -> int:
        return self._plain.name_actor(text)

    def forget_actor(self, actor: int) -> None:
        self._plain.forget_actor(actor)


def _ids(queue_id: str, arguments: Table) -> list[str]:
    """What the node's own store knows it by; nothing when it is elsewhere."""
    if is_in_postgres(arguments):
        return []
    priority = max_priority(arguments)
    return inner_ids(queue_id, priority) if priority else [queue_id]
