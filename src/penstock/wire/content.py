"""Content: runs of equal publishes, envelopes from properties, what the broker must read in them.

Property bytes go out as they came. They are decoded once per envelope, not per message, because a broken headers table
must be refused here and not by an innocent consumer.

Invariants
  1. A body found by `scan_run` was preceded by the exact prefix and is followed by FRAME-END.
  2. An envelope's properties are valid: `decode_properties` accepted them.
"""

from __future__ import annotations

from typing import final

from penstock.errors import precondition_failed
from penstock.fields import TYPE_NAMES, Field, Table
from penstock.limits import EXPIRATION_MS_MAX, SHORT_STRING_BYTES_MAX
from penstock.message import Envelope
from penstock.wire import frames
from penstock.wire.properties import Properties, decode_properties, encode_properties


def scan_run(data: bytes, pos: int, prefix: bytes, body_size: int, bodies: list[bytes]) -> int:
    """Append to `bodies` as long as `prefix` and a body of `body_size` follow each other; return where it ends.

    `prefix` is everything before the body's first byte: the publish method frame, the header frame and the head of the
    body frame. Messages of one publisher are often equal up to there, and then one comparison replaces three.
    """
    start = len(prefix)
    stride = start + body_size + 1
    end = len(data)
    append = bodies.append
    startswith = data.startswith
    stop = pos + stride
    while stop <= end and startswith(prefix, pos) and data[stop - 1] == frames.END:
        append(data[pos + start : stop])
        pos = stop
        stop += stride
    return pos


@final
class ContentInfo:
    """An envelope and what only the publishing side needs from the properties."""

    __slots__ = ("bcc", "cc", "envelope", "headers", "reply_to", "user_id")

    def __init__(
        self,
        envelope: Envelope,
        headers: Table | None,
        user_id: str | None,
        reply_to: str | None,
        cc: list[str],
        bcc: list[str],
    ) -> None:
        self.envelope = envelope
        self.headers = headers
        self.user_id = user_id
        self.reply_to = reply_to
        # Extra routing keys from the CC and BCC headers.
        self.cc = cc
        self.bcc = bcc


def read_content(exchange: str, routing_key: str, raw: bytes) -> ContentInfo:
    """Decode properties into an envelope; raises 502 for broken ones and 406 for bad values."""
    if raw == b"\x00\x00":
        return ContentInfo(Envelope(exchange, routing_key, raw), None, None, None, [], [])
    properties = decode_properties(raw)
    headers = properties.headers
    cc: list[str] = []
    bcc: list[str] = []
    if headers is not None:
        cc = _routing_keys(headers, "CC")
        bcc = _routing_keys(headers, "BCC")
        if "BCC" in headers:
            raw = strip_bcc(properties)
            headers = properties.headers
    envelope = Envelope(
        exchange,
        routing_key,
        raw,
        properties.delivery_mode == 2,
        properties.priority or 0,
        _expiration_ms(properties.expiration),
    )
    return ContentInfo(envelope, headers, properties.user_id, properties.reply_to, cc, bcc)


def strip_bcc(properties: Properties) -> bytes:
    """Return the properties without the BCC header: no receiver may see it."""
    assert properties.headers is not None
    kept = properties.headers.copy()
    kept.pop("BCC", None)
    properties.headers = kept
    return encode_properties(properties)


def replace_reply_to(raw: bytes, reply_to: str) -> bytes:
    """Return the properties with another reply-to, as direct reply-to needs it."""
    properties = decode_properties(raw)
    properties.reply_to = reply_to
    return encode_properties(properties)


def _routing_keys(headers: Table, name: str) -> list[str]:
    field: Field | None = headers.get(name)
    if field is None:
        return []
    kind, value = field
    if kind != "A" or not isinstance(value, list):
        raise precondition_failed(f'invalid message: {{unacceptable_type_in_header,"{name}",{TYPE_NAMES[kind]}}}')
    keys: list[str] = []
    for item_kind, item in value:
        if item_kind == "S" and isinstance(item, bytes):
            if len(item) > SHORT_STRING_BYTES_MAX:
                raise precondition_failed(
                    f'invalid message: a routing key of {len(item)} octets in header "{name}";'
                    f" at most {SHORT_STRING_BYTES_MAX} are allowed"
                )
            keys.append(item.decode("utf-8", "surrogateescape"))
    return keys


def _expiration_ms(expiration: str | None) -> int:
    if expiration is None:
        return -1
    digits = expiration[1:] if expiration[:1] in ("+", "-") else expiration
    leading = len(digits) - len(digits.lstrip("0123456789"))
    if leading == 0:
        raise precondition_failed(f"invalid expiration '{expiration}': no_integer")
    if leading < len(digits):
        raise precondition_failed(f"invalid expiration '{expiration}': {{leftover_string,\"{digits[leading:]}\"}}")
    # A short string has at most 255 digits, which int() takes in its stride.
    value = int(expiration)
    if value < 0:
        raise precondition_failed(f"invalid expiration '{expiration}': {{value_negative,{value}}}")
    if value > EXPIRATION_MS_MAX:
        raise precondition_failed(f"invalid expiration '{expiration}': {{value_too_large,{value}}}")
    return value
