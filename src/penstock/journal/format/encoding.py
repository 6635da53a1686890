"""Encodes a gathered batch as the few pieces of bytes that one write takes.

Nothing here looks at a single message: lengths, heap and checksums are made of whole lists by C code, which keeps a
message below a quarter of a microsecond.

Invariants
  1. The same rows and the same stamp give the same bytes.
  2. There are at most four pieces, whatever the number of messages.

A crash while they are written leaves any part of them, and the checksums tell.
"""

from __future__ import annotations

from array import array
from typing import final

from penstock.disk.checksum import crc32
from penstock.journal.format.layout import (
    ALIGN_BYTES,
    CRC_BYTES,
    HEADER,
    HEADER_CRC,
    HEADER_MAGIC,
    PADDING,
    VERSION,
    block_crcs,
)


@final
class Stamp:
    """Where and when a batch is written."""

    __slots__ = ("durable_lsn", "flags", "pos", "prev_crc", "salt", "seed", "segment", "wall_us")

    def __init__(
        self,
        flags: int,
        salt: int,
        seed: int,
        segment: int,
        pos: int,
        durable_lsn: int,
        wall_us: int,
        prev_crc: int,
    ) -> None:
        self.flags = flags
        self.salt = salt
        self.seed = seed
        self.segment = segment
        self.pos = pos
        self.durable_lsn = durable_lsn
        self.wall_us = wall_us
        self.prev_crc = prev_crc


def encode_batch(
    stamp: Stamp,
    first_lsn: int,
    events: int,
    rows: list[bytes],
    props: list[bytes],
    props_len: array[int],
    bodies: list[bytes],
    body_len: array[int],
) -> tuple[list[bytes], int]:
    """Return the pieces of a batch, and the checksum of its header.

    `props` are those that are not empty, `bodies` may be put together already: `body_len` has the length of each.
    """
    seed = stamp.seed
    heap = b"".join(props + bodies)
    props_bytes = sum(map(len, props))
    crcs = block_crcs(heap, seed)
    meta = b"".join([*rows, props_len.tobytes(), body_len.tobytes(), crcs.tobytes()])
    header = HEADER.pack(
        HEADER_MAGIC,
        VERSION,
        stamp.flags,
        stamp.salt,
        stamp.pos,
        first_lsn,
        stamp.durable_lsn,
        stamp.wall_us,
        stamp.prev_crc,
        events,
        len(rows),
        len(body_len),
        props_bytes,
        len(heap) - props_bytes,
        len(crcs),
        crc32(meta, seed),
        crcs[-1] if crcs else seed,
        stamp.segment,
        0,
    )
    crc = crc32(header, seed)
    tail = PADDING[-(len(header) + CRC_BYTES + len(meta) + len(heap)) % ALIGN_BYTES]
    return [header + HEADER_CRC.pack(crc), meta, heap, tail], crc
