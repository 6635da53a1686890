"""Headers of messages that are on their way: read one by one, and changed where the broker itself changes a message.

Owns: the way from an envelope to its headers, and from an envelope and other headers to a new envelope. What the
headers mean is the business of those who ask: groups, last-value keys, dead letters, edits by hand.

A table is decoded on demand and is not kept. One header is found without decoding the others.

Invariants
1. An envelope is never changed. Each edit makes a new one, or hands back the old one when there is nothing to change.
2. Properties that an edit is not about keep their octets, and headers their order and wire types.
3. What an envelope says beside its properties (persistent, priority, expiration_ms) agrees with them after each edit.

Properties are not validated here: they were read once, when the message was published. Of two headers with the same
name only the last one survives an edit, as in `wire/tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.fields import Field, Table
from penstock.limits import SHORT_STRING_BYTES_MAX
from penstock.message import Envelope
from penstock.wire.octets import malformed
from penstock.wire.properties import Properties, decode_properties, encode_properties
from penstock.wire.tables import NO_FIELD, Span, decode_field, decode_table, encode_field, find_field

# The delivery mode of messages that are to survive.
PERSISTENT: Final = 2

# In the first octet of the property flags: what may stand before the headers, and the headers themselves.
_CONTENT_TYPE: Final = 0x80
_CONTENT_ENCODING: Final = 0x40
_HEADERS: Final = 0x20
_BEFORE_HEADERS: Final = _CONTENT_TYPE | _CONTENT_ENCODING
# Type codes of fields that hold others.
_CONTAINERS: Final = b"FA"
# Those of values that begin with their length, and of whole numbers.
_WITH_LENGTH: Final = b"SxFA"
_WHOLE_NUMBERS: Final = b"bBsuIilLT"
_UNSIGNED_NUMBERS: Final = b"BuiT"
# Two octets of flags and an empty table.
_HEADERS_BYTES_MIN: Final = 6


def headers_of(envelope: Envelope) -> Table:
    """The headers, empty when there are none. The table is new: the caller may change it, but not the fields in it."""
    return _decode_headers(envelope.properties)


def header_of(envelope: Envelope, name: str) -> Field | None:
    """Return one header of one message. For many messages there is `HeaderReader`."""
    return HeaderReader(name).read(envelope)


@final
class HeaderReader:
    """Reads a header of message after message, without decoding the others.

    Where the header was found is remembered: in messages that begin with the same octets it is at the same place.
    """

    __slots__ = ("_bytes_min", "_found_at", "_found_behind", "name", "start_of_field")

    def __init__(self, name: str) -> None:
        octets = name.encode("utf-8", "surrogateescape")
        self.name = name
        # How the header begins in a table; b"" when no header can have that name.
        self.start_of_field = b"" if len(octets) > SHORT_STRING_BYTES_MAX else b"%c%b" % (len(octets), octets)
        # The octets in front of the value, with all lengths that say where it ends; its span; where the table ends.
        self._found_behind = b""
        self._found_at: Span = NO_FIELD
        self._bytes_min = 0

    def find(self, raw: bytes) -> Span:
        """Return where type code and value of the header are in the octets of properties; NO_FIELD without it."""
        if self._found_behind and raw.startswith(self._found_behind):
            span = self._found_at
            # Behind it may be a second one, which is the one that counts.
            if len(raw) >= self._bytes_min and raw.find(self.start_of_field, span[1]) < 0:
                return span
        if len(raw) < _HEADERS_BYTES_MIN or not raw[0] & _HEADERS or not self.start_of_field:
            return NO_FIELD
        try:
            pos = 2 if raw[0] & _BEFORE_HEADERS == 0 else _table_pos(raw)
            span = find_field(raw, pos, len(raw), self.start_of_field)
        except IndexError:
            raise malformed("the properties of a message") from None
        if span[1]:
            start = span[0]
            self._found_behind = raw[: start + 5] if raw[start] in _WITH_LENGTH else raw[: start + 1]
            self._found_at = span
            self._bytes_min = pos + 4 + int.from_bytes(raw[pos : pos + 4], "big")
        return span

    def read_whole(self, envelope: Envelope) -> int:
        """Return the header if it is a whole number that is not negative; else -1, and `read` knows more."""
        raw = envelope.properties
        start, stop = self.find(raw)
        if stop == 0 or raw[start] not in _WHOLE_NUMBERS:
            return -1
        value = int.from_bytes(raw[start + 1 : stop], "big", signed=raw[start] not in _UNSIGNED_NUMBERS)
        return value if value >= 0 else -1

    def read(self, envelope: Envelope) -> Field | None:
        raw = envelope.properties
        span = self.find(raw)
        if span[1] == 0:
            return None
        return headers_of(envelope)[self.name] if raw[span[0]] in _CONTAINERS else decode_field(raw, span)


def _table_pos(raw: bytes) -> int:
    """Return where the headers begin in the octets of properties; 0 when there are none."""
    if len(raw) < _HEADERS_BYTES_MIN or not raw[0] & _HEADERS:
        return 0
    pos = 2
    if raw[0] & _CONTENT_TYPE:
        pos += 1 + raw[pos]
    if raw[0] & _CONTENT_ENCODING:
        pos += 1 + raw[pos]
    return pos


def _decode_headers(raw: bytes) -> Table:
    """Only the headers: what stands before them is stepped over, and what follows is not looked at."""
    try:
        pos = _table_pos(raw)
        return {} if pos == 0 else decode_table(raw, pos, len(raw))[0]
    except IndexError:
        raise malformed("the properties of a message") from None


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


def with_changed_header(envelope: Envelope, reader: HeaderReader, change: Callable[[Field], Field | None]) -> Envelope:
    """Return the message with another value of a header, if it has that header and `change` returns one for it."""
    raw = envelope.properties
    span = reader.find(raw)
    if span[1] == 0:
        return envelope
    field = change(headers_of(envelope)[reader.name] if raw[span[0]] in _CONTAINERS else decode_field(raw, span))
    if field is None:
        return envelope
    start, stop = span
    if field[0] in "FA" or raw.count(reader.start_of_field) > 1:
        headers = headers_of(envelope)
        headers[reader.name] = field
        return with_headers(envelope, headers)
    # The value alone is exchanged, and the length of the table.
    value = encode_field(field)
    pos = _table_pos(raw)
    table_bytes = int.from_bytes(raw[pos : pos + 4], "big") + len(value) - (stop - start)
    return Envelope(
        envelope.exchange,
        envelope.routing_key,
        raw[:pos] + table_bytes.to_bytes(4, "big") + raw[pos + 4 : start] + value + raw[stop:],
        envelope.persistent,
        envelope.priority,
        envelope.expiration_ms,
        envelope.address,
    )


def without_headers(envelope: Envelope, names: Sequence[str]) -> Envelope:
    """Return the message without these headers; the envelope itself when it has none of them."""
    if not any([HeaderReader(name).find(envelope.properties) != NO_FIELD for name in names]):
        return envelope
    return with_headers(envelope, {name: field for name, field in headers_of(envelope).items() if name not in names})
