"""The terms of a priority queue: those of its levels, one after the other.

What it owns: the names of levels and a format. One octet says the version of the format; then follow, for each level,
its number (one octet), whether it was left cleanly (one octet), the length of its terms (four octets, little endian)
and the terms themselves, which only the inner backing understands.

Life of the data: written by `terminate`, or joined from the recoveries of the levels at a start; read when the queue is
opened again. A level that is not named was never opened.

Invariants
  1. Decoding gives what was encoded; terms with no level in them are not the same as no terms.

After a crash there are no terms (b""), and nothing is known about the levels. It does not keep terms: the inner backing
does, per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.backing.backing_queue import Recovery

VERSION: Final = b"\x01"


def inner_id(queue_id: str, level: int) -> str:
    """What a level of a queue is called by the inner backing."""
    return f"{queue_id}-{level:03d}"


def encode_terms(levels: Sequence[tuple[int, bool, bytes]]) -> bytes:
    """From (level, clean, terms) of each level that is known."""
    pieces = [VERSION]
    for level, clean, terms in levels:
        pieces.append(bytes((level, clean)))
        pieces.append(len(terms).to_bytes(4, "little"))
        pieces.append(terms)
    return b"".join(pieces)


def decode_terms(data: bytes) -> dict[int, Recovery] | None:
    """The recovery of each level that is named; None when nothing is known."""
    if not data:
        return None
    assert data[:1] == VERSION
    levels: dict[int, Recovery] = {}
    pos = 1
    while pos < len(data):
        end = pos + 6 + int.from_bytes(data[pos + 2 : pos + 6], "little")
        assert end <= len(data)
        levels[data[pos]] = Recovery(data[pos + 1] != 0, data[pos + 6 : end])
        pos = end
    return levels
