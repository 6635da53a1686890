"""Translates messages to rows and back.

A message that came over AMQP is written as it came: names as text, properties as their octets on the wire. What the
octets say about persistence, priority and expiration is read from them again. Where that does not do (a routing key
that PostgreSQL cannot store as text, an envelope that differs from its properties) the column `properties` has the
*whole* envelope, behind two octets that no properties on the wire begin with. A row that was put with SQL has no names
and no properties: it gets its own id as its message-id.

Invariants
  1. An envelope that was written and read is equal to itself, also in persistence, priority and expiration.
  2. Properties that are not properties on the wire never reach a client.
  3. The columns `exchange` and `routing_key` are text that PostgreSQL accepts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from penstock.backing.postgres.link import PutRow, TakenRow
from penstock.message import FRAME_END, Entry, Envelope, MessageProps

# Flags that AMQP does not use, so that no property list begins like this; and the version of what follows.
WHOLE: Final = b"\x00\x02\x01"
# Behind it: persistent, priority, expiration; then the address, then the properties.
_FACTS_BYTES: Final = 10
# Persistent, priority, expiration_ms.
Facts = tuple[bool, int, int]


class PropertyFacts(ABC):
    """Reads properties as they are on the wire."""

    @abstractmethod
    def of(self, properties: bytes) -> Facts | None:
        """What they say; None when they are not properties."""

    @abstractmethod
    def of_plain_row(self, row_id: int, ready_ms: int) -> bytes:
        """Properties for a row that has none."""


@final
class PgEnvelopes:
    def __init__(self, queue_name: str, facts: PropertyFacts) -> None:
        self._queue_name = queue_name
        self._facts = facts
        # The last one written and its columns; the last one read, and what it was read from.
        self._written: Envelope | None = None
        self._columns = ("", "", b"")
        self._read: Envelope | None = None
        self._read_from: tuple[str, str, bytes] = ("", "", b"")

    def row(self, envelope: Envelope, body: bytes, props: MessageProps | None, delivered: bool) -> PutRow:
        if envelope is not self._written:
            self._columns = self._columns_of(envelope)
            self._written = envelope
        exchange, routing_key, properties = self._columns
        expiry_ms = -1 if props is None else props.expiry_ms
        return (body[:-1], exchange, routing_key, properties, expiry_ms, 1 if delivered else 0)

    def _columns_of(self, envelope: Envelope) -> tuple[str, str, bytes]:
        exchange, routing_key = _text(envelope.exchange), _text(envelope.routing_key)
        facts = (envelope.persistent, envelope.priority, envelope.expiration_ms)
        if (
            exchange == envelope.exchange
            and routing_key == envelope.routing_key
            and self._facts.of(envelope.properties) == facts
        ):
            return exchange, routing_key, envelope.properties
        whole = b"%b%c%c%b%b%b" % (
            WHOLE,
            1 if envelope.persistent else 0,
            envelope.priority,
            envelope.expiration_ms.to_bytes(8, "big", signed=True),
            envelope.address,
            envelope.properties,
        )
        return exchange, routing_key, whole

    def entry(self, row: TakenRow) -> Entry:
        row_id, _, expiry_ms, exchange, routing_key, properties, payload, ready_ms = row
        if exchange is None:
            exchange = ""
        if routing_key is None:
            routing_key = self._queue_name
        if properties is None:
            properties = self._facts.of_plain_row(row_id, ready_ms)
        read_from = (exchange, routing_key, properties)
        envelope = self._read
        if envelope is None or read_from != self._read_from:
            envelope = self._envelope_of(exchange, routing_key, properties, row_id, ready_ms)
            self._read = envelope
            self._read_from = read_from
        return (envelope, payload + FRAME_END, None if expiry_ms < 0 else MessageProps(expiry_ms))

    def _envelope_of(self, exchange: str, routing_key: str, properties: bytes, row_id: int, ready_ms: int) -> Envelope:
        if properties.startswith(WHOLE):
            whole = self._whole_envelope(properties[len(WHOLE) :])
            if whole is not None:
                return whole
        facts = self._facts.of(properties)
        if facts is None:
            # The column has something that no client would understand.
            properties = self._facts.of_plain_row(row_id, ready_ms)
            facts = self._facts.of(properties)
            assert facts is not None
        return Envelope(_short(exchange), _short(routing_key), properties, facts[0], facts[1], facts[2])

    def _whole_envelope(self, raw: bytes) -> Envelope | None:
        """Return the envelope; None when it is damaged, since SQL clients may write anything."""
        if len(raw) < _FACTS_BYTES + 2:
            return None
        pos = _FACTS_BYTES
        name = raw[pos + 1 : pos + 1 + raw[pos]]
        pos += 1 + len(name)
        if pos >= len(raw):
            return None
        key = raw[pos + 1 : pos + 1 + raw[pos]]
        end = pos + 1 + raw[pos]
        properties = raw[end:]
        if end > len(raw) or self._facts.of(properties) is None:
            return None
        return Envelope(
            name.decode("utf-8", "replace"),
            key.decode("utf-8", "surrogateescape"),
            properties,
            raw[0] == 1,
            raw[1],
            int.from_bytes(raw[2:_FACTS_BYTES], "big", signed=True),
        )


def _text(name: str) -> str:
    """Return the name as PostgreSQL takes it: without octets that are not UTF-8, and without NUL."""
    if name.isascii() and "\x00" not in name:
        return name
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\x00", "\ufffd")


def _short(text: str) -> str:
    """What fits into a short string: a name that was written with SQL may have any length."""
    raw = text.encode("utf-8", "surrogateescape")
    return text if len(raw) <= 255 else raw[:255].decode("utf-8", "ignore")
