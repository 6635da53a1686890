"""A message as people are shown it, and the way from results of calls to JSON."""

from __future__ import annotations

import base64
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from penstock.broker.definitions.field_json import table_to_json
from penstock.broker.features.envelope_view import PROPERTIES, properties_of
from penstock.broker.operations.messages.message_walk import HELD, Seen
from penstock.message import Entry
from penstock.queues import arrivals
from penstock.queues.queue import Queue

BODY_BYTES_SHOWN: Final = 1024


@dataclass(slots=True)
class MessageView:
    """One message of a queue. Times are milliseconds since 1970; None: there is none, or it is not known."""

    seq_id: int
    # ready, unacked or held.
    state: str
    due_ms: int | None
    # When it expires, unless a consumer gets it before.
    expires_ms: int | None
    # When it came, to a second or a hundredth of its age.
    arrived_ms: int | None
    redelivered: bool | None
    exchange: str
    routing_key: str
    properties: dict[str, str | int]
    # Names to [type, value], as in the definitions.
    headers: dict[str, Any]
    body_size: int
    body: bytes


def view(queue: Queue, seen: Seen, body_bytes_max: int = BODY_BYTES_SHOWN) -> MessageView:
    envelope, body, props = seen.entry
    time_ms = None if props is None or props.expiry_ms < 0 else props.expiry_ms
    is_held = seen.state == HELD
    properties = properties_of(envelope)
    given = {name: read(properties) for name, read in PROPERTIES.items()}
    return MessageView(
        seen.seq_id,
        seen.state,
        time_ms if is_held else None,
        None if is_held else time_ms,
        arrived_ms(queue, seen.seq_id, seen.entry),
        seen.redelivered,
        envelope.exchange,
        envelope.routing_key,
        {name: value for name, value in given.items() if value is not None},
        table_to_json(properties.headers or {}),
        len(body) - 1,
        body[: min(len(body) - 1, body_bytes_max)],
    )


def arrived_ms(queue: Queue, seq_id: int, entry: Entry) -> int | None:
    """When the message came; from before the broker's start, what its timestamp says, if it has one."""
    known_ms = arrivals.arrived_ms(queue, seq_id)
    if known_ms >= 0:
        return known_ms
    timestamp_s = properties_of(entry[0]).timestamp
    return None if timestamp_s is None else timestamp_s * 1000


def to_json(result: Any) -> Any:
    """Return the result of a call as JSON has it. Octets are a text where they are UTF-8, else {"base64": …}."""
    if is_dataclass(result) and not isinstance(result, type):
        return {field.name: to_json(getattr(result, field.name)) for field in fields(result)}
    if isinstance(result, list):
        return [to_json(item) for item in result]
    if isinstance(result, dict):
        return {str(name): to_json(item) for name, item in result.items()}
    if isinstance(result, bytes):
        try:
            return result.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(result).decode()}
    if isinstance(result, str):
        # Names that are not UTF-8 are kept as they came; JSON has no such characters.
        return result.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return result
