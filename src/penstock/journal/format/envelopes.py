"""Makes envelopes from what is on disk: address, properties, and the two facts that a row repeats.

An envelope equals what was published, field by field. Its octets passed their checksum, but they need not be well
formed.
"""

from __future__ import annotations

from typing import Final

from penstock.message import Envelope

# Goes with the texts of NAME and DEFINE rows, which are no messages.
NO_ENVELOPE: Final = Envelope("", "", b"")

# Property flags of what may stand before the expiration, in order.
_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000
_HEADERS: Final = 0x2000
_DELIVERY_MODE: Final = 0x1000
_PRIORITY: Final = 0x0800
_CORRELATION_ID: Final = 0x0400
_REPLY_TO: Final = 0x0200
_EXPIRATION: Final = 0x0100


def decode_envelope(address: bytes, properties: bytes, persistent: bool, priority: int) -> Envelope:
    name_end = 1 + address[0]
    exchange = address[1:name_end].decode()
    routing_key = address[name_end + 1 :].decode("utf-8", "surrogateescape")
    return Envelope(exchange, routing_key, properties, persistent, priority, expiration_ms(properties), address)


def expiration_ms(properties: bytes) -> int:
    """Return the expiration property; -1 when absent, or when the octets are no properties at all."""
    if len(properties) < 2 or not properties[0] & (_EXPIRATION >> 8):
        return -1
    try:
        return _read_expiration(properties)
    except (IndexError, ValueError):
        return -1


def _read_expiration(properties: bytes) -> int:
    flags = properties[0] << 8
    at = 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            at += 1 + properties[at]
    if flags & _HEADERS:
        at += 4 + int.from_bytes(properties[at : at + 4], "big")
    for flag in (_DELIVERY_MODE, _PRIORITY):
        if flags & flag:
            at += 1
    for flag in (_CORRELATION_ID, _REPLY_TO):
        if flags & flag:
            at += 1 + properties[at]
    return int(properties[at + 1 : at + 1 + properties[at]])
