"""One message, edited: another body, other properties, other headers; and for a held message another due time.

A message never changes where it stands: the edited one is a new message with a new number. In an ordinary queue it goes
to the tail, past the gates (it was let in once), and its time to live begins anew. In a companion queue it stays held.
Both are one turn, hence one batch of the journal. In PostgreSQL the old one goes when the new one is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from penstock.backing.backing_queue import DOUBTFUL, NOT_DELIVERED
from penstock.broker.definitions.field_json import field_from_json
from penstock.broker.features.envelope_view import PROPERTIES
from penstock.broker.operations.call_errors import BadRequest, find_changeable
from penstock.broker.operations.messages.message_moves import Outcome, note_others, read_ready, sync_soon
from penstock.errors import AmqpError
from penstock.fields import Field, Table
from penstock.limits import MESSAGE_BYTES_MAX, SHORT_STRING_BYTES_MAX
from penstock.message import FRAME_END, ConfirmToken, Envelope, Incoming
from penstock.queues.delayed.held_selection import HeldSelection, due_of
from penstock.queues.delayed.timetable import DUE_MS_MAX
from penstock.queues.queue import Queue
from penstock.queues.taking import drop_taken, take
from penstock.wire.content import read_content
from penstock.wire.properties import Properties, decode_properties, encode_properties

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost

# Properties that are numbers, with the highest; all others are texts.
NUMBERS: Final = {"delivery_mode": 2, "priority": 255, "timestamp": (1 << 63) - 1}


@dataclass(slots=True)
class Changes:
    """What is to be different; what is not named stays."""

    body: bytes | None = None
    # By name, without the headers; None takes a property off.
    properties: dict[str, str | int | None] = field(default_factory=dict)
    # By name: a text, a number, a truth, octets, or [type, value] as views show it; None takes a header off.
    headers: dict[str, Any] = field(default_factory=dict)
    # For held messages: milliseconds since 1970.
    due_ms: int | None = None


@dataclass(slots=True)
class Edited:
    """What became of an edit."""

    # edited, editing (PostgreSQL has not answered yet), or why not: busy, out_of_reach, unknown.
    outcome: str
    # Of the edited message; None when it was not kept, because its time was over at once.
    new_seq_id: int | None
    explanation: str


def edit(vhost: VHost, queue_name: str, seq_id: int, changes: Changes) -> Edited:
    queue = find_changeable(vhost, queue_name)
    is_held = isinstance(queue.selection, HeldSelection)
    if changes.due_ms is not None and not is_held:
        raise BadRequest(f"a due time is for held messages; '{queue_name}' is an ordinary queue")
    if changes.due_ms is not None and not 0 <= changes.due_ms <= DUE_MS_MAX:
        raise BadRequest(f"a due time of {changes.due_ms}; give milliseconds since 1970")
    if changes.body is not None and len(changes.body) > MESSAGE_BYTES_MAX:
        raise BadRequest(f"a body of {len(changes.body)} bytes; at most {MESSAGE_BYTES_MAX} are allowed")
    found = read_ready(queue, [seq_id])
    # Before it is taken: changes that cannot be made leave it as it is.
    envelope = _changed(found[0][1][0], changes) if found else None
    taken = take(queue, [seq_id])
    if not taken or envelope is None:
        queue.leaving.give_back(taken)
        return _not_edited(queue, seq_id)
    _, body, props = found[0][1]
    if changes.body is not None:
        body = changes.body + FRAME_END
    delivered = DOUBTFUL if queue.backing.doubtful(taken) else NOT_DELIVERED
    if is_held:
        due_ms = due_of(props) if changes.due_ms is None else changes.due_ms
        new_seq_id = queue.hold(Incoming(envelope, [body]), None, due_ms, delivered)
        explanation = "it is still held, under a new number"
    elif queue.backing.IS_REMOTE:
        queue.enter(Incoming(envelope, [body]), _Replacing(queue, taken), delivered)
        return Edited("editing", None, "it is at the tail when PostgreSQL has it; until then the old one is kept")
    else:
        new_seq_id = queue.enter(Incoming(envelope, [body]), None, delivered)
        explanation = "it is at the tail of the queue now, under a new number, and its time to live begins anew"
    drop_taken(queue, taken)
    sync_soon(vhost)
    return Edited("edited", None if new_seq_id < 0 else new_seq_id, explanation)


@final
class _Replacing(ConfirmToken):
    """Waits for an edited message, to take the old one off."""

    __slots__ = ("_queue", "_seq_ids")

    def __init__(self, queue: Queue, seq_ids: list[int]) -> None:
        super().__init__(1)
        self._queue = queue
        self._seq_ids = seq_ids

    def complete(self) -> None:
        drop_taken(self._queue, self._seq_ids)

    def refuse(self) -> None:
        self._queue.leaving.give_back(self._seq_ids)


def _not_edited(queue: Queue, seq_id: int) -> Edited:
    outcome = Outcome()
    note_others(queue, [seq_id], outcome)
    if outcome.busy:
        return Edited("busy", None, "it is with a consumer; try again when that has acknowledged it or given it back")
    if outcome.out_of_reach:
        return Edited("out_of_reach", None, "it is ready, and could not be taken now; try again")
    return Edited("unknown", None, "the queue has no such message, or no longer")


def _changed(envelope: Envelope, changes: Changes) -> Envelope:
    """Return the message with other properties and headers. What publishers may not send is refused here too."""
    if not changes.properties and not changes.headers:
        return envelope
    try:
        properties = decode_properties(envelope.properties)
        for name, value in changes.properties.items():
            _set_property(properties, name, value)
        headers: Table = {} if properties.headers is None else dict(properties.headers)
        for name, value in changes.headers.items():
            if len(name.encode("utf-8", "surrogateescape")) > SHORT_STRING_BYTES_MAX:
                raise BadRequest(f"the name of a header has at most {SHORT_STRING_BYTES_MAX} bytes")
            if value is None:
                headers.pop(name, None)
            else:
                headers[name] = header_field(name, value)
        if changes.headers:
            properties.headers = headers
        return read_content(envelope.exchange, envelope.routing_key, encode_properties(properties)).envelope
    except (AmqpError, ValueError, OverflowError) as error:
        raise BadRequest(f"the message cannot be changed so: {error}") from error


def header_field(name: str, value: object) -> Field:
    """Return a field from what a person or a program gave."""
    if isinstance(value, bool):
        return "t", value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise BadRequest(f"header '{name}': {value} has more than 64 bits")
        return "l", value
    if isinstance(value, float):
        return "d", value
    if isinstance(value, bytes):
        return "x", value
    if isinstance(value, str):
        return "S", value.encode("utf-8", "surrogateescape")
    try:
        return field_from_json(value)
    except ValueError as error:
        raise BadRequest(f"header '{name}': {error}. Give a text, a number, true or false, or [type, value]") from error


def _set_property(properties: Properties, name: str, value: str | int | None) -> None:
    if name not in PROPERTIES:
        raise BadRequest(f"there is no property '{name}'; there are {', '.join(PROPERTIES)}; headers are given apart")
    if value is not None and name in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBERS[name]:
            raise BadRequest(f"property '{name}': expected a number from 0 to {NUMBERS[name]}, got {value!r}")
    elif value is not None:
        if not isinstance(value, str):
            raise BadRequest(f"property '{name}': expected a text, got {value!r}")
        if len(value.encode("utf-8", "surrogateescape")) > SHORT_STRING_BYTES_MAX:
            raise BadRequest(f"property '{name}': a text of at most {SHORT_STRING_BYTES_MAX} bytes")
    setattr(properties, name, value)
