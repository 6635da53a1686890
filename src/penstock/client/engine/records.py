"""Messages as the engine writes and reads them: properties and headers for what AMQP has no word for.

A message that was put is persistent, carries a message id of its own, which is the API's id, and headers that say when
it became ready and when it expires: those that sessions over amqp:// use (client/amqp/envelope). A message of another
client has none of that, and is read all the same.

    x-penstock-reserved-at, x-penstock-finalized-at    milliseconds since the epoch, in the history
    x-penstock-reserved-by, x-penstock-finalized-number   who had it, and how many were finalized, in the history
    x-delivery-count                                   how often it was handed out, of a message that waits for its next
                                                       try: a server gives it the same meaning
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.broker.features.held_messages import COUNT_HEADER
from penstock.client.amqp.envelope import DELIVERIES, EXPIRES_AT, NOTE, READY_AT, cut_note
from penstock.client.message import Message
from penstock.client.properties import plain_properties
from penstock.errors import AmqpError
from penstock.fields import Field, Table
from penstock.limits import EXPIRATION_MS_MAX
from penstock.message import Envelope, body_bytes, wire_address
from penstock.wire.properties import Properties, decode_properties, encode_properties

RESERVED_AT: Final = "x-penstock-reserved-at"
RESERVED_BY: Final = "x-penstock-reserved-by"
FINALIZED_AT: Final = "x-penstock-finalized-at"
FINALIZED_NUMBER: Final = "x-penstock-finalized-number"
OWN_HEADERS: Final = (
    *(READY_AT, EXPIRES_AT, RESERVED_AT, RESERVED_BY, FINALIZED_AT, NOTE),
    *(DELIVERIES, COUNT_HEADER, FINALIZED_NUMBER),
)
PERSISTENT: Final = 2
# A header table is bounded; a note is for people.
NOTE_BYTES_MAX: Final = 64 * 1024

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Handed:
    """What is known of a message while it is handed out, beside what stands in it."""

    deliveries: int
    note: str | None
    reserved_ms: int
    # When the lease ends; None = it has none.
    until_ms: int | None
    reserved_by: str


@dataclass(slots=True)
class Finalized:
    """What is added to a message when it is finalized."""

    handed: Handed
    at_ms: int
    note: str | None


def new_envelopes(queue: str, ids: Sequence[str], ready_ms: int, now_ms: int, ttl_s: float | None) -> list[Envelope]:
    """For messages that are put together. All ids have the same length."""
    headers: Table = {READY_AT: ("l", ready_ms)}
    properties = Properties(headers=headers, delivery_mode=PERSISTENT, message_id=ids[0], timestamp=now_ms // 1000)
    expiration_ms = -1
    if ttl_s is not None:
        expiration_ms = min(max(0, round(ttl_s * 1000)), EXPIRATION_MS_MAX)
        headers[EXPIRES_AT] = ("l", ready_ms + expiration_ms)
        properties.expiration = str(expiration_ms)
    raw = encode_properties(properties)
    # They differ in their ids only, so the others need not be encoded.
    first_id = ids[0].encode()
    at = raw.rindex(first_id)
    head, tail = raw[:at], raw[at + len(first_id) :]
    address = wire_address("", queue)
    return [
        Envelope("", queue, head + message_id.encode() + tail, True, 0, expiration_ms, address) for message_id in ids
    ]


def returning_envelope(envelope: Envelope, due_ms: int, expires_ms: int, handed: Handed) -> Envelope:
    """A message that comes back later. Its time to live goes on from where it was; `expires_ms` -1 = it has none."""
    properties = properties_of(envelope)
    headers = _headers_of(properties)
    headers[READY_AT] = ("l", due_ms)
    headers[COUNT_HEADER] = ("l", handed.deliveries)
    _set_note(headers, handed.note)
    expiration_ms = -1 if expires_ms < 0 else min(max(0, expires_ms - due_ms), EXPIRATION_MS_MAX)
    return _rewritten(envelope, properties, headers, expiration_ms)


def buried_envelope(envelope: Envelope, handed: Handed) -> Envelope:
    """Return a message that is put aside. It does not expire there, nor when it is kicked."""
    properties = properties_of(envelope)
    headers = _headers_of(properties)
    headers.pop(EXPIRES_AT, None)
    headers[DELIVERIES] = ("l", handed.deliveries)
    _set_note(headers, handed.note)
    return _rewritten(envelope, properties, headers, -1)


def kicked_envelope(envelope: Envelope, now_ms: int) -> Envelope:
    """Return a message that was put aside, ready again."""
    properties = properties_of(envelope)
    headers: Table = dict(properties.headers or {})
    headers[READY_AT] = ("l", now_ms)
    return _rewritten(envelope, properties, headers, -1)


def history_envelope(envelope: Envelope, finalized: Finalized, number: int) -> Envelope:
    """Return the message as it stands in the history, as the so-manieth."""
    handed = finalized.handed
    properties = properties_of(envelope)
    headers = _headers_of(properties)
    headers[DELIVERIES] = ("l", handed.deliveries)
    headers[RESERVED_AT] = ("l", handed.reserved_ms)
    headers[RESERVED_BY] = ("S", handed.reserved_by.encode())
    headers[FINALIZED_AT] = ("l", finalized.at_ms)
    headers[FINALIZED_NUMBER] = ("l", number)
    _set_note(headers, finalized.note)
    return _rewritten(envelope, properties, headers, -1)


def _rewritten(envelope: Envelope, properties: Properties, headers: Table, expiration_ms: int) -> Envelope:
    properties.headers = headers
    properties.expiration = None if expiration_ms < 0 else str(expiration_ms)
    # What a client published as transient is kept like everything else that a session has touched.
    properties.delivery_mode = PERSISTENT
    try:
        raw = encode_properties(properties)
    except AmqpError:
        # A client has filled its headers to the brim: it loses them, where otherwise the message could go nowhere.
        properties.headers = {name: headers[name] for name in OWN_HEADERS if name in headers}
        raw = encode_properties(properties)
    return Envelope(
        envelope.exchange,
        envelope.routing_key,
        raw,
        True,
        envelope.priority,
        expiration_ms,
        envelope.address,
    )


def _headers_of(properties: Properties) -> Table:
    """Return those of a message that was handed out, without what they say about how often: that is known better."""
    return {name: field for name, field in (properties.headers or {}).items() if name not in (DELIVERIES, COUNT_HEADER)}


def _set_note(headers: Table, note: str | None) -> None:
    if note is None:
        headers.pop(NOTE, None)
    else:
        headers[NOTE] = ("S", cut_note(note, NOTE_BYTES_MAX))


# --- reading ------------------------------------------------------------------------------------------


def properties_of(envelope: Envelope) -> Properties:
    """Return the properties; none where a client has sent octets that mean nothing."""
    try:
        return decode_properties(envelope.properties)
    except AmqpError:
        return Properties()


def count_of(properties: Properties, redelivered: bool) -> int:
    """Return how often the message was handed out before, as sessions over amqp:// count."""
    headers = properties.headers or {}
    here = 1 if redelivered else 0
    if redelivered:
        # Written by a queue when the message came back. On one that did not, a client may have written it.
        here = max(1, _number(headers.get(COUNT_HEADER)) or 0)
    return here + max(0, _number(headers.get(DELIVERIES)) or 0)


def note_of(properties: Properties) -> str | None:
    return _text((properties.headers or {}).get(NOTE))


def reserved_message(
    message_id: str, queue: str, envelope: Envelope, properties: Properties, body: bytes, handed: Handed
) -> Message:
    return Message(
        id=message_id,
        queue=queue,
        payload=body_bytes(body),
        state="reserved",
        deliveries=handed.deliveries,
        ready_at=_moment((properties.headers or {}).get(READY_AT)),
        reserved_at=moment(handed.reserved_ms),
        reserved_by=handed.reserved_by,
        reserved_until=None if handed.until_ms is None else moment(handed.until_ms),
        note=handed.note,
        exchange=envelope.exchange,
        routing_key=envelope.routing_key,
        properties=_theirs(properties),
    )


def finalized_message(queue: str, seq_id: int, envelope: Envelope, body: bytes) -> Message:
    """From the history."""
    properties = properties_of(envelope)
    headers = properties.headers or {}
    return Message(
        id=properties.message_id or f"#{seq_id}",
        queue=queue,
        payload=body_bytes(body),
        state="finalized",
        deliveries=max(1, _number(headers.get(DELIVERIES)) or 1),
        ready_at=_moment(headers.get(READY_AT)),
        reserved_at=_moment(headers.get(RESERVED_AT)),
        reserved_by=_text(headers.get(RESERVED_BY)),
        finalized_at=_moment(headers.get(FINALIZED_AT)),
        finalized_note=_text(headers.get(NOTE)),
        exchange=envelope.exchange,
        routing_key=envelope.routing_key,
        properties=_theirs(properties),
    )


def finalized_number(envelope: Envelope) -> int:
    """Return the so-manieth of its history."""
    return max(0, _number((properties_of(envelope).headers or {}).get(FINALIZED_NUMBER)) or 0)


def _theirs(properties: Properties) -> dict[str, Any]:
    """Return the properties by name, without the headers that are ours."""
    named = plain_properties(properties)
    headers = {name: value for name, value in named.pop("headers", {}).items() if name not in OWN_HEADERS}
    return {**named, "headers": headers} if headers else named


def _number(field: Field | None) -> int | None:
    value = None if field is None else field[1]
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(field: Field | None) -> str | None:
    value = None if field is None else field[1]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None


def _moment(field: Field | None) -> datetime | None:
    ms = _number(field)
    return None if ms is None else moment(ms)


def moment(ms: int) -> datetime | None:
    """Return milliseconds since the epoch as a time; None for what is none."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def milliseconds(when: datetime) -> int:
    """Return an aware time in milliseconds since the epoch, never too early."""
    return -((_EPOCH - when) // timedelta(milliseconds=1))
