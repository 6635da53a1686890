"""What the session's words become in AMQP, and back: properties of a put, of a copy, and the `Message` of a delivery.

AMQP has no place for some of them, so they travel in headers:

    x-penstock-deliveries   how often the message was handed out before this copy of it was made
    x-penstock-note         why it came back or was buried
    x-penstock-ready-at     when it was to be ready, in milliseconds since 1970
    x-penstock-expires-at   when it expires, likewise; for messages that waited, as a broker forgets the `expiration`
                            of a message that it dead-letters
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from penstock.client.amqp import delays
from penstock.client.amqp.delivery import Delivery
from penstock.client.message import Message
from penstock.fields import Field, Table
from penstock.limits import EXPIRATION_MS_MAX
from penstock.wire import methods
from penstock.wire.properties import Properties
from penstock.wire.tables import table_to_python

DELIVERIES: Final = "x-penstock-deliveries"
NOTE: Final = "x-penstock-note"
READY_AT: Final = "x-penstock-ready-at"
EXPIRES_AT: Final = "x-penstock-expires-at"
OURS: Final = ("x-penstock-", delays.BIT_PREFIX)
# Written by brokers about the way that a message has come; a copy is on a way of its own.
DEATHS: Final = ("x-death", "x-first-death-", "x-last-death-")
BROKERS: Final = (*DEATHS, "x-delivery-count", "x-acquired-count")
# A note travels in the frame of the properties, with everything else that is in them.
NOTE_BYTES_MAX: Final = 16 * 1024
PERSISTENT: Final = 2
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
COUNT_MAX: Final = 2**31 - 1


class Outgoing(NamedTuple):
    """A message to be published."""

    queue: str
    properties: Properties
    body: bytes
    # How long it has to wait: steps of the ladder in `delays`.
    steps: int = 0


def ms_since_epoch(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def put_properties(message_id: str, now: datetime, delay_s: float, ttl_s: float | None) -> Properties:
    """Of a new message. The time to live starts when the message is ready."""
    headers: Table = {}
    expiration = None
    ttl_ms = None if ttl_s is None else min(max(1, round(ttl_s * 1000)), EXPIRATION_MS_MAX)
    steps = delays.steps_of(delay_s)
    ready_ms = ms_since_epoch(now) + (round(delay_s * 1000) if steps else 0)
    if ttl_ms is not None:
        headers[EXPIRES_AT] = ("l", ready_ms + ttl_ms)
    if steps:
        headers[READY_AT] = ("l", ready_ms)
        headers.update(delays.bits_of(steps))
    elif ttl_ms is not None:
        expiration = str(ttl_ms)
    return Properties(
        headers=headers or None,
        delivery_mode=PERSISTENT,
        expiration=expiration,
        message_id=message_id,
        timestamp=ms_since_epoch(now) // 1000,
    )


def copy_properties(
    delivery: Delivery, now: datetime, deliveries: int, note: str | None, steps: int, note_bytes_max: int
) -> Properties:
    """Return the properties of a copy that takes the place of a message. The user-id is left out: brokers want it to
    be ours."""
    old = delivery.properties
    headers: Table = {
        name: field for name, field in (old.headers or {}).items() if not name.startswith((delays.BIT_PREFIX, *BROKERS))
    }
    headers[DELIVERIES] = ("I", min(deliveries, COUNT_MAX))
    if note is not None:
        headers[NOTE] = ("S", cut_note(note, min(NOTE_BYTES_MAX, note_bytes_max)))
    expiration = old.expiration
    expires_ms = _integer(headers.get(EXPIRES_AT))
    if steps:
        # On the ladder it would be a shorter wait.
        expiration = None
        headers[READY_AT] = ("l", ms_since_epoch(now) + steps * delays.STEP_MS)
        headers.update(delays.bits_of(steps))
    elif expires_ms is not None:
        expiration = str(min(max(0, expires_ms - ms_since_epoch(now)), EXPIRATION_MS_MAX))
    return Properties(
        old.content_type,
        old.content_encoding,
        headers,
        PERSISTENT,
        old.priority,
        old.correlation_id,
        old.reply_to,
        expiration,
        old.message_id,
        old.timestamp,
        old.type,
        None,
        old.app_id,
        old.cluster_id,
    )


def without_expiry(properties: Properties) -> Properties:
    """A buried message does not expire, neither there nor when it is kicked."""
    properties.expiration = None
    if properties.headers is not None:
        properties.headers.pop(EXPIRES_AT, None)
    return properties


def cut_note(note: str, bytes_max: int) -> bytes:
    """At most so many bytes of UTF-8, in whole characters."""
    raw = note.encode("utf-8", "backslashreplace")
    return raw if len(raw) <= bytes_max else raw[:bytes_max].decode("utf-8", "ignore").encode()


def has_expired(delivery: Delivery, now: datetime) -> bool:
    """Return whether the message has expired. What the broker itself lets expire is left to the broker."""
    headers = delivery.properties.headers
    if headers is None or delivery.properties.expiration is not None:
        return False
    expires_ms = _integer(headers.get(EXPIRES_AT))
    return expires_ms is not None and expires_ms <= ms_since_epoch(now)


def deliveries_of(delivery: Delivery) -> int:
    """Return how often the message was handed out, this time included, as far as it was counted."""
    headers = delivery.properties.headers or {}
    counted = _integer(headers.get("x-delivery-count"))
    if counted is None:
        counted = 1 if delivery.is_redelivered else 0
    return max(0, _integer(headers.get(DELIVERIES)) or 0) + max(0, counted) + 1


def deliveries_before(delivery: Delivery) -> int:
    """Return how often it was handed out before this copy was made."""
    return max(0, _integer((delivery.properties.headers or {}).get(DELIVERIES)) or 0)


def message_of(delivery: Delivery, message_id: str, queue: str, now: datetime) -> Message:
    """What the application sees."""
    method = delivery.method
    headers = delivery.properties.headers or {}
    ready_ms = _integer(headers.get(READY_AT))
    if ready_ms is None and delivery.properties.timestamp is not None:
        ready_ms = delivery.properties.timestamp * 1000
    assert not isinstance(method, methods.BasicReturn)
    return Message(
        id=message_id,
        queue=queue,
        payload=delivery.body,
        state="reserved",
        deliveries=deliveries_of(delivery),
        ready_at=_moment(ready_ms),
        reserved_at=now,
        note=_text(headers.get(NOTE)),
        exchange=method.exchange,
        routing_key=method.routing_key,
        properties=_by_name(delivery.properties),
    )


def _by_name(properties: Properties) -> dict[str, Any]:
    """Return the properties that are there; headers without our own."""
    values: dict[str, Any] = {
        "content_type": properties.content_type,
        "content_encoding": properties.content_encoding,
        "delivery_mode": properties.delivery_mode,
        "priority": properties.priority,
        "correlation_id": properties.correlation_id,
        "reply_to": properties.reply_to,
        "expiration": properties.expiration,
        "message_id": properties.message_id,
        "timestamp": properties.timestamp,
        "type": properties.type,
        "user_id": properties.user_id,
        "app_id": properties.app_id,
        "cluster_id": properties.cluster_id,
    }
    named = {name: value for name, value in values.items() if value is not None}
    headers = properties.headers or {}
    # A message that waited on our delay levels has died on each of them, which is not shown.
    has_waited = (_text(headers.get("x-first-death-queue")) or "").startswith(delays.NAME_PREFIX)
    ours = (*OURS, *DEATHS) if has_waited else OURS
    theirs = {name: field for name, field in headers.items() if not name.startswith(ours)}
    if theirs:
        named["headers"] = table_to_python(theirs)
    return named


def _integer(field: Field | None) -> int | None:
    if field is None or isinstance(field[1], bool) or not isinstance(field[1], int):
        return None
    return field[1]


def _text(field: Field | None) -> str | None:
    if field is None or not isinstance(field[1], bytes):
        return None
    return field[1].decode("utf-8", "replace")


def _moment(ms: int | None) -> datetime | None:
    """None for what no calendar has."""
    if ms is None:
        return None
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None
