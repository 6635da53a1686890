"""Headers of messages that are on their way: read one by one, and changed where the broker itself changes a message.

Owns: the way from an envelope to its headers, and from an envelope and other headers to a new envelope. What the
headers mean is the business of those who ask: groups, last-value keys, dead letters, edits by hand.

A table is decoded on demand and is not kept, except by a `HeaderReader`. That belongs
to one queue, which asks for the same header of each of its messages, and forgets the oldest table for a new one.

Invariants
1. An envelope is never changed. Each edit makes a new one, or hands back the old one when there is nothing to change.
2. Properties that an edit is not about keep their octets, and headers their order and wire types.
3. What an envelope says beside its properties (persistent, priority, expiration_ms) agrees with them after each edit.
4. A reader holds at most HEADER_TABLES_MAX tables, none from properties of more than REMEMBERED_PROPERTIES_BYTES_MAX.

Properties are not validated here: they were read once, when the message was published. Of two headers with the same
name only the last one survives an edit, as in `wire/tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from penstock.fields import Field, Table
from penstock.limits import REMEMBERED_PROPERTIES_BYTES_MAX
from penstock.message import Envelope
from penstock.wire.octets import malformed
from penstock.wire.properties import Properties, decode_properties, encode_properties
from penstock.wire.tables import decode_table

# How many tables a reader keeps. Messages of one publisher often share their properties; more kinds at a time are rare.
HEADER_TABLES_MAX: Final = 256

# The delivery mode of messages that are to survive.
PERSISTENT: Final = 2

# In the first octet of the property flags: what may stand before the headers, and the headers themselves.
_CONTENT_TYPE: Final = 0x80
_CONTENT_ENCODING: Final = 0x40
_HEADERS: Final = 0x20
# Two octets of flags and an empty table.
_HEADERS_BYTES_MIN: Final = 6


def headers_of(envelope: Envelope) -> Table:
    """The headers, empty when there are none. The table is new: the caller may change it, but not the fields in it."""
    return _decode_headers(envelope.properties)


def header_of(envelope: Envelope, name: str) -> Field | None:
    """Return one header of one message. For many messages there is `HeaderReader`."""
    return _decode_headers(envelope.properties).get(name)


def _decode_headers(raw: bytes) -> Table:
    """Only the headers: what stands before them is stepped over, and what follows is not looked at."""
    if len(raw) < _HEADERS_BYTES_MIN or not raw[0] & _HEADERS:
        return {}
    pos = 2
    try:
        if raw[0] & _CONTENT_TYPE:
            pos += 1 + raw[pos]
        if raw[0] & _CONTENT_ENCODING:
            pos += 1 + raw[pos]
        return decode_table(raw, pos, len(raw))[0]
    except IndexError:
        raise malformed("the properties of a message") from None


@final
class HeaderReader:
    """Reads headers of message after message; decodes the table once for all that have the same properties."""

    __slots__ = ("_tables", "_tables_max")

    def __init__(self, tables_max: int = HEADER_TABLES_MAX) -> None:
        assert tables_max > 0
        self._tables_max = tables_max
        # By property octets, oldest first.
        self._tables: dict[bytes, Table] = {}

    def __len__(self) -> int:
        """How many tables are remembered."""
        return len(self._tables)

    def header(self, envelope: Envelope, name: str) -> Field | None:
        raw = envelope.properties
        if len(raw) < _HEADERS_BYTES_MIN or not raw[0] & _HEADERS:
            return None
        table = self._tables.get(raw)
        if table is None:
            table = self._decode(raw)
        return table.get(name)

    def _decode(self, raw: bytes) -> Table:
        table = _decode_headers(raw)
        if len(raw) <= REMEMBERED_PROPERTIES_BYTES_MAX:
            if len(self._tables) >= self._tables_max:
                del self._tables[next(iter(self._tables))]
            self._tables[raw] = table
        return table


def with_properties(
    envelope: Envelope, properties: Properties, exchange: str | None = None, routing_key: str | None = None
) -> Envelope:
    """Return the message with these properties in place of its own, and on another route if one is given.

    The expiration may have been taken off; it may not be another one, since judging it is the channel's business.
    ConnectionException when the headers are larger than a table may be; ValueError when a text is too long.
    """
    return Envelope(
        envelope.exchange if exchange is None else exchange,
        envelope.routing_key if routing_key is None else routing_key,
        encode_properties(properties),
        properties.delivery_mode == PERSISTENT,
        properties.priority or 0,
        -1 if properties.expiration is None else envelope.expiration_ms,
        # Envelopes of one route share the object.
        envelope.address if exchange is None and routing_key is None else b"",
    )


def with_headers(
    envelope: Envelope,
    headers: Table,
    *,
    exchange: str | None = None,
    routing_key: str | None = None,
    drop_expiration: bool = False,
) -> Envelope:
    """Return the message with these headers in place of its own, and on another route if one is given.

    An empty table stays in the properties as one: RabbitMQ tells it from no headers too.
    """
    properties = decode_properties(envelope.properties)
    properties.headers = headers
    if drop_expiration:
        properties.expiration = None
    return with_properties(envelope, properties, exchange, routing_key)


def with_header(envelope: Envelope, name: str, field: Field) -> Envelope:
    """Return the message with this header: in the place of the old one of that name, or behind all others."""
    headers = headers_of(envelope)
    headers[name] = field
    return with_headers(envelope, headers)


def without_headers(envelope: Envelope, names: Sequence[str]) -> Envelope:
    """Return the message without these headers; the envelope itself when it has none of them."""
    headers = headers_of(envelope)
    found = [name for name in names if name in headers]
    if not found:
        return envelope
    kept = {name: field for name, field in headers.items() if name not in found}
    return with_headers(envelope, kept)
