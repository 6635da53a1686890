"""What a queue orders its messages by: the value of a header."""

from __future__ import annotations

from hashlib import sha256

from penstock.limits import SHELF_KEY_CHARS_MAX
from penstock.message import Envelope
from penstock.selectors.field_values import plain_value
from penstock.wire.property_edits import HeaderReader


def header_key(reader: HeaderReader, envelope: Envelope) -> str | int | float | None:
    """Return the group, last value or sort key of a message; None when it has none."""
    field = reader.read(envelope)
    value = None if field is None else plain_value(field)
    if isinstance(value, str) and len(value) > SHELF_KEY_CHARS_MAX:
        # The key stays in memory when the message does not. Sorted, it still stands where its beginning belongs.
        digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{value[: SHELF_KEY_CHARS_MAX - len(digest)]}{digest}"
    return value
