"""Redrive: from a dead letter back to the message, and to the queue that it died in.

The newest entry of `x-death` says where a message was last. A redriven message goes back as it was before it died:

- Exchange, routing key and `CC` are those of the entry: consumers see what they saw the first time. The message should
  be put into `Origin.queue` and not published once more: the exchange would give copies to other queues too, which have
  dealt with it long ago.
- `x-death` and `x-first-death-*` are taken off. They belong to a life that is over: with them the next death would look
  like a cycle and be dropped, and consumers that give up after so many deaths would do so at once. `x-delivery-count`
  goes for the same reason. How often a message was redriven is not hidden: `x-redriven-count` (long) is raised by one.
- The original expiration is not restored. Most redriven messages are older than that, and would expire again before a
  consumer saw them. The time to live of the queue itself holds as for each message.

A dead letter whose newest entry is incomplete or could not be an address (clients can write `x-death`) has no origin:
nothing is guessed.
"""

from __future__ import annotations

from typing import Final, final

from penstock.broker.features.x_death import CC, COUNT_MAX, OUR_HEADERS, death_count, entries_of
from penstock.fields import Field, Table
from penstock.limits import SHORT_STRING_BYTES_MAX
from penstock.message import Envelope
from penstock.wire.property_edits import headers_of, with_headers

REDRIVEN_COUNT: Final = "x-redriven-count"
DELIVERY_COUNT: Final = "x-delivery-count"


@final
class Origin:
    """Where a message was when it last died, and how it had come there."""

    __slots__ = ("count", "exchange", "queue", "reason", "routing_keys")

    def __init__(self, queue: str, exchange: str, routing_keys: list[str], reason: str, count: int) -> None:
        self.queue = queue
        self.exchange = exchange
        # Its own key first, then those of CC.
        self.routing_keys = routing_keys
        self.reason = reason
        # How often it has died there for that reason.
        self.count = count


def origin(envelope: Envelope) -> Origin | None:
    """Where the message died last; None when it did not die, or does not say it properly."""
    return _origin(headers_of(envelope))


def redriven_envelope(envelope: Envelope) -> Envelope:
    """Return the message as it goes back. Only for messages that have an origin."""
    headers = headers_of(envelope)
    source = _origin(headers)
    assert source is not None, "a message without an origin cannot go back"
    count = _redriven_count(headers.get(REDRIVEN_COUNT))
    headers = {name: field for name, field in headers.items() if name not in OUR_HEADERS and name != DELIVERY_COUNT}
    if len(source.routing_keys) > 1 and CC not in headers:
        # It was taken off when the message died in a queue with a dead-letter routing key.
        headers[CC] = ("A", [("S", key.encode("utf-8", "surrogateescape")) for key in source.routing_keys[1:]])
    headers[REDRIVEN_COUNT] = ("l", min(count + 1, COUNT_MAX))
    return with_headers(envelope, headers, exchange=source.exchange, routing_key=source.routing_keys[0])


def _origin(headers: Table) -> Origin | None:
    entries = entries_of(headers)
    if not entries:
        return None
    newest = entries[0]
    queue = _name(newest.get("queue"))
    exchange = _name(newest.get("exchange"))
    reason = _name(newest.get("reason"))
    keys = _routing_keys(newest.get("routing-keys"))
    if not queue or exchange is None or reason is None or not keys:
        return None
    return Origin(queue, exchange, keys, reason, max(death_count(newest) or 1, 1))


def _name(field: Field | None) -> str | None:
    """Return a text that can be a name: UTF-8, and short."""
    value = None if field is None else field[1]
    if not isinstance(value, bytes) or len(value) > SHORT_STRING_BYTES_MAX:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _routing_keys(field: Field | None) -> list[str]:
    """Return the keys; none when the first one, which becomes the message's own, is missing or too long."""
    if field is None or not isinstance(field[1], list):
        return []
    keys = [value for _, value in field[1] if isinstance(value, bytes)]
    if not keys or len(keys[0]) > SHORT_STRING_BYTES_MAX:
        return []
    return [key.decode("utf-8", "surrogateescape") for key in keys if len(key) <= SHORT_STRING_BYTES_MAX]


def _redriven_count(field: Field | None) -> int:
    """Return how often the message was redriven before; a client may have put anything there."""
    value = None if field is None else field[1]
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
