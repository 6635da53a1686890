"""What properties say, for messages that are rows in PostgreSQL; and properties for rows that have none."""

from __future__ import annotations

from penstock.backing.postgres.envelopes import Facts, PropertyFacts
from penstock.errors import AmqpError
from penstock.wire.content import read_content
from penstock.wire.properties import Properties, encode_properties

# A row that was put with SQL has octets of an unknown kind.
OCTETS = "application/octet-stream"
# Different properties whose facts are remembered.
REMEMBERED_MAX = 256


class WirePropertyFacts(PropertyFacts):
    """Reads AMQP's properties."""

    def __init__(self) -> None:
        # The oldest first.
        self._remembered: dict[bytes, Facts | None] = {}

    def of(self, properties: bytes) -> Facts | None:
        if properties == b"\x00\x00":
            return (False, 0, -1)
        if properties in self._remembered:
            return self._remembered[properties]
        try:
            envelope = read_content("", "", properties).envelope
            facts: Facts | None = (envelope.persistent, envelope.priority, envelope.expiration_ms)
        except (AmqpError, ValueError, IndexError):
            facts = None
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[properties] = facts
        return facts

    def of_plain_row(self, row_id: int, ready_ms: int) -> bytes:
        properties = Properties()
        properties.content_type = OCTETS
        properties.delivery_mode = 2
        properties.message_id = str(row_id)
        properties.timestamp = ready_ms // 1000
        return encode_properties(properties)
