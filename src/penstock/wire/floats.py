"""Floating point fields of tables: the one place that packs IEEE 754.

Only finite numbers pass in either direction. RabbitMQ cannot read the others either, and a value that is not equal to
itself would make two equal declarations of a queue differ.
"""

from __future__ import annotations

import struct
from math import isfinite

from penstock import errors


def decode_float(raw: bytes) -> float:
    """Four octets, or eight."""
    value: float = struct.unpack(">f" if len(raw) == 4 else ">d", raw)[0]
    if not isfinite(value):
        raise errors.syntax_error("a floating point field of a table is not a finite number")
    return value


def encode_float32(value: float) -> bytes:
    assert isfinite(value)
    return struct.pack(">f", value)


def encode_float64(value: float) -> bytes:
    assert isfinite(value)
    return struct.pack(">d", value)
