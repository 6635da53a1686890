"""Names of queues in a folder: those of the API, and those of the queues that stand beside them.

A folder is one that a server may open too, so every name here is one that AMQP can say: at most 255 bytes, without line
ends. Others are kept under another name, and the queue's arguments say what it is called.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from penstock.client.amqp.names import buried, on_broker
from penstock.client.errors import ClientError, NotSupported
from penstock.fields import Table
from penstock.limits import SHORT_STRING_BYTES_MAX

# Finalized messages with their notes, and those that were put aside, which are where sessions over amqp:// have them.
HISTORY_SUFFIX: Final = ".history"
BURIED_SUFFIX: Final = ".buried"
# What begins so is not a queue of the API: see client/amqp/names and client/amqp/delays.
BESIDE_PREFIXES: Final = ("penstock.buried.", "penstock.history.", "penstock.delay.")
# The last slot of each schedule, one message each.
SCHEDULES: Final = "penstock.schedules"
# The name of a queue whose name AMQP cannot say.
NAME_ARGUMENT: Final = "x-session-queue"
# What a history keeps: older ones make room.
HISTORY_MESSAGES_MAX: Final = 100_000
HISTORY_BYTES_MAX: Final = 256 << 20
HISTORY_ARGUMENTS: Final[Table] = {
    "x-max-length": ("l", HISTORY_MESSAGES_MAX),
    "x-max-length-bytes": ("l", HISTORY_BYTES_MAX),
}


def fitted(name: str) -> str:
    """Return the name under which a queue is kept: as sessions over amqp:// have it, where those can."""
    try:
        return on_broker(name)
    except NotSupported:
        return f"penstock.{sha256(name.encode('utf-8')).hexdigest()}"


def arguments_of(name: str) -> Table:
    """What a new queue of this name is declared with. A plain one has none, as an AMQP client would declare it."""
    return {} if fitted(name) == name else {NAME_ARGUMENT: ("S", name.encode("utf-8"))}


def whole_name(kept_name: str, arguments: Table) -> str:
    """What the API calls the queue."""
    value = arguments.get(NAME_ARGUMENT, ("V", None))[1]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else kept_name


def history_of(name: str) -> str:
    """Return the queue of the finalized messages, as it is kept."""
    kept = fitted(name) + HISTORY_SUFFIX
    if len(kept.encode("utf-8")) <= SHORT_STRING_BYTES_MAX:
        return kept
    return f"penstock.history.{sha256(name.encode('utf-8')).hexdigest()}"


def buried_of(name: str) -> str:
    """Return the queue of those that were put aside, as it is kept."""
    return buried(fitted(name))


def is_beside(kept_name: str) -> bool:
    """Return whether this is a queue that stands beside another, or beside all of them."""
    return (
        kept_name == SCHEDULES
        or kept_name.endswith((HISTORY_SUFFIX, BURIED_SUFFIX))
        or kept_name.startswith(BESIDE_PREFIXES)
    )


def check_name(name: str) -> None:
    """Refuse what would be mixed up with the queues beside others."""
    if is_beside(name):
        raise ClientError(
            f"a session over file:// cannot use a queue named {name!r}: names that end with {HISTORY_SUFFIX} or"
            f" {BURIED_SUFFIX}, and some that begin with penstock., are those of what is kept beside queues."
            " Choose another name"
        )
