"""What a queue is to be, beside what it is; and what of that cannot be changed in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.backing.nothing_yet import NOTHING_YET
from penstock.broker.definitions.postgres_arguments import BACKING
from penstock.broker.operations.call_errors import BadRequest
from penstock.broker.policies.octets import is_name, octet_count
from penstock.broker.vhost.queue_backings import max_priority
from penstock.fields import Field, Table
from penstock.limits import SHORT_STRING_BYTES_MAX

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost
    from penstock.queues.queue import Queue

AUTO_DELETE: Final = "auto_delete"
INTEGER_MAX: Final = (1 << 63) - 1
# Said in one line each, with what to do instead.
CANNOT: Final = {
    "name": "a queue keeps its name: declare another one and move the messages",
    "durable": "durable cannot be changed in place: declare another queue and move the messages",
    "exclusive": "exclusive cannot be changed in place: it belongs to the connection that declared the queue",
    BACKING: "x-backing cannot be changed in place: declare a queue with the other backing and move the messages",
}


@dataclass(frozen=True, slots=True)
class Redefinition:
    arguments: Table
    auto_delete: bool
    # Name, what it is and what it is to be; None where there is nothing.
    changes: list[tuple[str, Any, Any]]
    # Whether the messages have to be moved into another backing.
    moves: bool


def plan(vhost: VHost, queue: Queue, set_to: Mapping[str, Any], unset: Sequence[str]) -> Redefinition:
    """Return the redefinition; raises BadRequest or AMQP's 406 for one that cannot be."""
    for name in (*set_to, *unset):
        if name in CANNOT:
            raise BadRequest(CANNOT[name])
    both = [name for name in unset if name in set_to]
    if both:
        raise BadRequest(f"'{both[0]}' is to be set and unset at once: name it once")
    arguments: Table = {name: value for name, value in queue.arguments.items() if name not in unset}
    auto_delete = queue.auto_delete
    for name, value in set_to.items():
        if name == AUTO_DELETE:
            if not isinstance(value, bool):
                raise BadRequest("auto_delete must be true or false")
            auto_delete = value
        else:
            arguments[name] = _field(name, value)
    vhost.check_redefinition(queue, auto_delete, arguments)
    if arguments.get("x-single-active-consumer") == ("t", True) and queue.in_exclusive_use:
        raise BadRequest("x-single-active-consumer cannot be set while an exclusive consumer is there: cancel it first")
    moves = max_priority(arguments) != max_priority(queue.arguments) and queue.backing is not NOTHING_YET
    return Redefinition(arguments, auto_delete, _changes(queue, arguments, auto_delete), moves)


def _changes(queue: Queue, arguments: Table, auto_delete: bool) -> list[tuple[str, Any, Any]]:
    changes: list[tuple[str, Any, Any]] = []
    for name in sorted({*queue.arguments, *arguments}):
        before, after = _shown(queue.arguments.get(name)), _shown(arguments.get(name))
        if before != after:
            changes.append((name, before, after))
    if auto_delete != queue.auto_delete:
        changes.append((AUTO_DELETE, queue.auto_delete, auto_delete))
    return changes


def _field(name: str, value: Any) -> Field:
    if not is_name(name, SHORT_STRING_BYTES_MAX):
        raise BadRequest(f"the name of an argument has 1 to {SHORT_STRING_BYTES_MAX} bytes")
    if isinstance(value, bool):
        return ("t", value)
    if isinstance(value, int) and abs(value) <= INTEGER_MAX:
        return ("l", value)
    if isinstance(value, str) and octet_count(value) >= 0:
        return ("S", value.encode("utf-8", "surrogateescape"))
    raise BadRequest(f"{name!a} must be a text, a whole number, true or false")


def _shown(field: Field | None) -> Any:
    if field is None:
        return None
    value = field[1]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, bool | int | float) else str(value)
