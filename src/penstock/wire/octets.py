"""Strings and flags as AMQP writes them, for the generated modules.

Invariants
1. A short string is at most 255 octets. A longer one is refused, never cut: it is our own mistake.
2. It is UTF-8, but for properties that came with other octets: those are kept as surrogates and leave as they came.

Reading is not here: the generated decoders have it inline, because a call costs more than the read.
"""

from __future__ import annotations

from penstock import errors
from penstock.limits import SHORT_STRING_BYTES_MAX


def encode_shortstr(text: str) -> bytes:
    """One length octet and the text. ValueError when it does not fit."""
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > SHORT_STRING_BYTES_MAX:
        raise ValueError(f"short string of {len(raw)} bytes: at most {SHORT_STRING_BYTES_MAX} fit")
    return b"%c%b" % (len(raw), raw)


def encode_longstr(raw: bytes) -> bytes:
    """Four length octets and the bytes."""
    return len(raw).to_bytes(4, "big") + raw


def malformed(what: str) -> errors.ConnectionException:
    """Arguments or properties that are cut short, too long, or not UTF-8 where they must be."""
    return errors.syntax_error(f"cannot decode {what}")
