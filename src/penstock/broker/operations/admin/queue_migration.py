"""Changing the arguments of a queue that is in use."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.migration.migration import Migration, redefine
from penstock.broker.migration.redefinition import plan
from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import BadRequest, CallError, find_queue
from penstock.broker.operations.later import Later
from penstock.broker.operations.operation import Operation
from penstock.broker.vhost.companions import companion_kind

QUEUE_MIGRATED: Final = "queue.migrated"
NOTHING: Final[list[str]] = []
NO_CHANGES: Final[dict[str, Any]] = {}


def migrate_queue(
    call: Call,
    *,
    vhost: str = "/",
    name: str,
    set: dict[str, Any] = NO_CHANGES,
    unset: list[str] = NOTHING,
    dry_run: bool = False,
) -> Any:
    """Change arguments of a queue in place; its messages, bindings and consumers stay."""
    call.actor.require_policymaker(vhost)
    found = call.vhost(vhost)
    queue = find_queue(found, name)
    if companion_kind(queue.arguments):
        raise BadRequest(f"'{name}' belongs to another queue or exchange, and changes with that")
    if not set and not unset:
        raise BadRequest("nothing is to be changed: name arguments to set or to unset")
    wanted = plan(found, queue, set, unset)
    result = {
        "vhost": vhost,
        "queue": name,
        "changes": [{"name": each, "before": before, "after": after} for each, before, after in wanted.changes],
        "messages_ready": queue.ready_count(),
        "messages_unacknowledged": max(0, queue.backing.depth() - queue.ready_count()),
        "moves_messages": wanted.moves,
        "done": not dry_run,
    }
    if dry_run or not wanted.changes:
        return result
    call.note(QUEUE_MIGRATED, vhost=vhost, name=name, changed=[each for each, _, _ in wanted.changes])
    if not wanted.moves:
        redefine(found, queue, wanted)
        return result
    later = Later()

    def ended(error: CallError | None) -> None:
        if error is None:
            later.finish(result)
        else:
            later.fail(error)

    Migration(found, queue, wanted, call.broker.expiries, ended)
    return later


OPERATIONS: Final = (Operation(migrate_queue),)
