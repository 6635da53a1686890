"""What a backup asks of a running broker; the command copies the files itself (docs/backup.md).

`begin_backup` makes a checkpoint and keeps every file that it names from being removed, as long as `renew_backup` comes
in time; that one also says how far the journal is durable. `end_backup` tells whether the files were kept all the time.
"""

from __future__ import annotations

from typing import Any, Final

import penstock
from penstock import limits
from penstock.backing.postgres.postgres import PgBackingQueue
from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import BadRequest, CallError
from penstock.broker.operations.later import Later
from penstock.broker.operations.operation import Operation
from penstock.store.node.node_store import NodeStore
from penstock.store.retention.reader_cursors import log_id

BACKUP_BEGUN: Final = "backup.begun"
BACKUP_ENDED: Final = "backup.ended"


def begin_backup(call: Call) -> Later:
    """Make a checkpoint, and keep the files of the broker until the backup has copied them."""
    call.actor.require_administrator()
    node = _node(call)
    if node.retention.disk_is_low:
        raise CallError("the disk of the broker is nearly full, so it cannot keep files for a backup: make room first")
    lease = node.removals.take()
    if lease is None:
        raise CallError(
            f"{limits.BACKUPS_MAX} backups are under way already: wait for one of them; one that was killed is"
            f" forgotten after {limits.BACKUP_LEASE_S:.0f} s"
        )
    later = Later()

    def checkpoint_done(failure: str) -> None:
        if failure:
            node.removals.end(lease)
            later.fail(CallError(f"the broker could not make a checkpoint: {failure}"))
            return
        call.note(BACKUP_BEGUN, backup=lease)
        later.finish(
            {
                "lease": lease,
                "lease_s": limits.BACKUP_LEASE_S,
                "version": penstock.__version__,
                "log_id": log_id(node.files),
                "checkpoint": node.checkpointer.kept[-1].number,
                "lsn": node.journal.next_lsn,
                "postgres_queues": _count_postgres(call),
            }
        )

    node.ask_checkpoint(checkpoint_done)
    return later


def renew_backup(call: Call, *, lease: str) -> Later:
    """Keep the files for some time more; return up to where the journal is durable: all that came before."""
    call.actor.require_administrator()
    node = _node(call)
    if not node.removals.renew(lease):
        raise CallError(_lost(call))
    later = Later()

    def durable(is_durable: bool) -> None:
        if is_durable:
            later.finish({"durable_lsn": node.journal.durable_lsn})
        else:
            later.fail(CallError("the broker could not write to its disk; see its log"))

    node.journal.when_durable(durable)
    return later


def end_backup(call: Call, *, lease: str) -> dict[str, Any]:
    """Let files be removed again; fails when the broker has not kept them all the time."""
    call.actor.require_administrator()
    node = _node(call)
    if not node.removals.end(lease):
        raise CallError(_lost(call))
    call.note(BACKUP_ENDED, backup=lease)
    return {"durable_lsn": node.journal.durable_lsn}


def _node(call: Call) -> NodeStore:
    node = call.broker.node
    if node is None:
        raise BadRequest("the broker keeps everything in memory (--in-memory): there is nothing to back up")
    return node


def _lost(call: Call) -> str:
    node = _node(call)
    if node.retention.disk_is_low:
        return (
            "the broker's disk is nearly full, so it no longer keeps files for the backup: make room, and run it again"
        )
    return (
        f"the broker no longer keeps files for this backup: it has not heard of it for {limits.BACKUP_LEASE_S:.0f} s."
        " Run it again"
    )


def _count_postgres(call: Call) -> int:
    queues = [queue for vhost in call.broker.vhosts.values() for queue in vhost.queues.values()]
    return sum(isinstance(queue.backing, PgBackingQueue) for queue in queues)


OPERATIONS: Final = (
    Operation(begin_backup),
    Operation(renew_backup, changes=False),
    Operation(end_backup, changes=False),
)
