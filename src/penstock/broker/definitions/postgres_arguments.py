"""Queues whose messages are in PostgreSQL: which ones, under what name, and what they cannot have.

A queue is one of them when its declaration says `x-backing: postgres`, or when its name matches a pattern that the node
was started with and the declaration does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import quote

from penstock.errors import precondition_failed
from penstock.fields import Field, Table

BACKING: Final = "x-backing"
POSTGRES: Final[Field] = ("S", b"postgres")
# In this node's own store, whatever patterns there are.
LOCAL: Final[Field] = ("S", b"local")
# A name that begins like this, in the database, has its vhost in it.
VHOST_MARK: Final = "//"

# They count, order or remember by what this one node knows of the queue; others would not hold to it.
NEED_LOCAL_NUMBERS: Final = (
    "x-max-priority",
    "x-group-header",
    "x-last-value-header",
    "x-sort-header",
    "x-single-active-consumer",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-expires",
    "x-expire-anywhere",
    "x-delivery-limit",
    "x-delayed-retry-min",
    "x-hold-on-publish",
    "x-message-deduplication",
)


def is_in_postgres(arguments: Table) -> bool:
    return arguments.get(BACKING) == POSTGRES


def postgres_name(vhost: str, queue: str) -> str:
    """Return the queue's name in the database. No two queues of all vhosts have the same one."""
    if vhost == "/" and not queue.startswith(VHOST_MARK):
        return queue
    return f"{VHOST_MARK}{quote(vhost, safe='')}/{queue}"


def with_backing(
    name: str, durable: bool, auto_delete: bool, exclusive: bool, arguments: Table, patterns: Sequence[str]
) -> Table:
    """Return the arguments, with the backing that a pattern gives to such a queue."""
    if BACKING in arguments or not durable or auto_delete or exclusive:
        return arguments
    if any(fnmatchcase(name, pattern) for pattern in patterns):
        return {**arguments, BACKING: POSTGRES}
    return arguments


def check_backing(
    name: str, durable: bool, auto_delete: bool, exclusive: bool, arguments: Table, has_postgres: bool, described: str
) -> None:
    """Raise 406 when such a queue cannot be had, with what would help."""
    field = arguments.get(BACKING)
    if field is None or field == LOCAL:
        return
    reason = ""
    if field != POSTGRES:
        reason = "expected 'postgres' or 'local'"
    elif not has_postgres:
        reason = "this broker has no PostgreSQL; start it with --postgres URL"
    elif not durable:
        reason = "a queue in PostgreSQL outlives the broker; declare it durable"
    elif exclusive:
        reason = "a queue in PostgreSQL is shared between nodes; it cannot be exclusive"
    elif auto_delete:
        reason = "other nodes may use a queue in PostgreSQL; it cannot be auto-delete"
    elif arguments.get("x-queue-type") == ("S", b"quorum"):
        reason = "it cannot be combined with 'x-queue-type' quorum"
    elif not _is_text(name):
        reason = "PostgreSQL cannot hold this name; use one of UTF-8 without NUL"
    else:
        for other in NEED_LOCAL_NUMBERS:
            if other in arguments:
                reason = (
                    f"it cannot be combined with '{other}', which needs a queue that one node has to itself; leave one"
                    " of them out"
                )
                break
    if reason:
        raise precondition_failed(f"invalid arg '{BACKING}' for {described}: {reason}")


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\x00" not in name
