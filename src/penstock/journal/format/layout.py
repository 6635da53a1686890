"""The bytes of a journal segment: sizes, structs and checksums. docs/formats/journal.md says it byte by byte.

A segment is a head (written twice, 4096 bytes apart, so that no single sector takes both) and batches behind it. A
batch is header, rows, lengths of properties, lengths of bodies, block checksums, heap, zeros up to a multiple of 8.
The heap is all properties followed by all bodies.

Invariants
  1. Each size is one constant here, and every reader and writer uses it.
  2. A header is valid only where it stands: it carries the salt of its segment, the segment's number and its own
     position, all under its checksum. So no bytes that a client sent can pass for a batch, nor can a copied one.
  3. Every checksum but that of a head starts from the salt.
  4. block_crc[i] = crc32(block i, block_crc[i - 1]): one call checks the heap, and each block can be checked alone.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final, final

from penstock.disk.checksum import crc32

VERSION: Final = 1
BLOCK_BYTES: Final = 4096
ALIGN_BYTES: Final = 8
HEAP_BYTES_MAX: Final = 2**31 - 1
EVENTS_MAX: Final = 2**32 - 1

# Magic, version, 0, salt, segment, first LSN, wall µs, 20 zeros, checksum.
HEAD: Final = struct.Struct("<4sHHQqqq20xI")
HEAD_MAGIC: Final = b"PNJS"
HEAD_BYTES: Final = HEAD.size
HEAD_COPY_AT: Final = 4096
FIRST_BATCH_AT: Final = HEAD_COPY_AT + HEAD_BYTES

# Magic, version, flags, salt, pos, first LSN, durable LSN, wall µs, checksum of the header before, events, rows,
# entries, props bytes, body bytes, blocks, meta checksum, heap checksum, segment, 0; then the header's own checksum.
HEADER: Final = struct.Struct("<4sHHQqqqqIIIIIIIIIII")
HEADER_CRC: Final = struct.Struct("<I")
HEADER_MAGIC: Final = b"PNJB"
# Offset of the salt in a header.
SALT_AT: Final = 8
HEADER_BYTES: Final = HEADER.size + HEADER_CRC.size

# seq, queue, actor, count, route, entry, kind, flags, arg, number.
ROW: Final = struct.Struct("<qiiiiiBBhq")
ROW_BYTES: Final = ROW.size
LENGTH_BYTES: Final = 4
CRC_BYTES: Final = 4
# Body of an entry whose row is a REFERENCE: address, payload bytes.
REFERENCE_BODY: Final = struct.Struct("<qi")

COMMIT_MARK: Final = 1

PADDING: Final = (b"", b"\0", b"\0" * 2, b"\0" * 3, b"\0" * 4, b"\0" * 5, b"\0" * 6, b"\0" * 7)
SUFFIX: Final = ".pnj"


def segment_path(folder: str, number: int) -> str:
    return f"{folder}/{number:08d}{SUFFIX}"


def segment_number(name: str) -> int:
    """Return the number of a segment by its file name; -1 for other files."""
    digits = name.removesuffix(SUFFIX)
    if digits == name or len(digits) < 8 or not (digits.isascii() and digits.isdigit()):
        return -1
    return int(digits)


def salt_seed(salt: int) -> int:
    """Where the checksums of a segment start."""
    return crc32(salt.to_bytes(8, "little"))


def block_crcs(heap: bytes, seed: int) -> array[int]:
    crcs = array("I")
    crc = seed
    for at in range(0, len(heap), BLOCK_BYTES):
        crc = crc32(heap[at : at + BLOCK_BYTES], crc)
        crcs.append(crc)
    return crcs


@final
class SegmentHead:
    """What the beginning of a segment says."""

    __slots__ = ("first_lsn", "salt", "seed", "wall_us")

    def __init__(self, salt: int, first_lsn: int, wall_us: int) -> None:
        self.salt = salt
        self.seed = salt_seed(salt)
        # Of the first batch; -1 when the head was unreadable and the salt is that of the first batch.
        self.first_lsn = first_lsn
        self.wall_us = wall_us


def encode_head(salt: int, segment: int, first_lsn: int, wall_us: int) -> bytes:
    """Return both copies and the zeros between them: everything before the first batch."""
    bare = HEAD.pack(HEAD_MAGIC, VERSION, 0, salt, segment, first_lsn, wall_us, 0)
    head = bare[:-CRC_BYTES] + HEADER_CRC.pack(crc32(bare[:-CRC_BYTES]))
    return head + bytes(HEAD_COPY_AT - HEAD_BYTES) + head


def decode_head(data: bytes, segment: int) -> SegmentHead | None:
    """One copy of a head; None unless it is whole and that of this segment."""
    if len(data) < HEAD_BYTES:
        return None
    magic, version, _, salt, number, first_lsn, wall_us, crc = HEAD.unpack_from(data)
    if magic != HEAD_MAGIC or version != VERSION or number != segment:
        return None
    if crc32(data[: HEAD_BYTES - CRC_BYTES]) != crc:
        return None
    return SegmentHead(salt, first_lsn, wall_us)


def other_version(data: bytes) -> int:
    """Return the version of a head that is whole and that this penstock does not read; 0 for any other head.

    Magic, version and the place of the checksum stay where they are in all versions.
    """
    if len(data) < HEAD_BYTES or data[:4] != HEAD_MAGIC:
        return 0
    version = int.from_bytes(data[4:6], "little")
    whole = crc32(data[: HEAD_BYTES - CRC_BYTES]) == HEADER_CRC.unpack_from(data, HEAD_BYTES - CRC_BYTES)[0]
    return version if whole and version != VERSION else 0


@final
class BatchHeader:
    """The fields of a valid header, and where the parts of its batch are."""

    __slots__ = (
        "blocks",
        "body_bytes",
        "crc",
        "durable_lsn",
        "end",
        "entries",
        "events",
        "first_lsn",
        "flags",
        "heap_at",
        "heap_crc",
        "meta_at",
        "meta_crc",
        "pos",
        "prev_crc",
        "props_bytes",
        "rows",
        "salt",
        "segment",
        "wall_us",
    )

    def __init__(self, fields: tuple[int, ...], crc: int) -> None:
        (
            self.flags,
            self.salt,
            self.pos,
            self.first_lsn,
            self.durable_lsn,
            self.wall_us,
            self.prev_crc,
            self.events,
            self.rows,
            self.entries,
            self.props_bytes,
            self.body_bytes,
            self.blocks,
            self.meta_crc,
            self.heap_crc,
            self.segment,
        ) = fields
        self.crc = crc
        self.meta_at = self.pos + HEADER_BYTES
        self.heap_at = self.meta_at + self.rows * ROW_BYTES + self.entries * 2 * LENGTH_BYTES + self.blocks * CRC_BYTES
        heap_end = self.heap_at + self.props_bytes + self.body_bytes
        # Where the next batch stands.
        self.end = heap_end + -heap_end % ALIGN_BYTES


def decode_header(data: bytes, offset: int, segment: int, pos: int) -> BatchHeader | None:
    """Return a header that stands at `pos`; None unless it is whole. The caller compares the salt."""
    if len(data) - offset < HEADER_BYTES:
        return None
    fields = HEADER.unpack_from(data, offset)
    if fields[0] != HEADER_MAGIC or fields[1] != VERSION or fields[4] != pos or fields[17] != segment:
        return None
    crc: int = HEADER_CRC.unpack_from(data, offset + HEADER.size)[0]
    if crc32(data[offset : offset + HEADER.size], salt_seed(fields[3])) != crc:
        return None
    return BatchHeader(fields[2:18], crc)
