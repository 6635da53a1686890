"""Where batches of the journal end: the points that a folder can be restored to.

Only headers are read. They carry checksums of their own; what is damaged between two good ones is passed over, as a
start passes over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.disk.files import Files
from penstock.journal.format.layout import FIRST_BATCH_AT
from penstock.journal.reading.segment_reader import SegmentReader
from penstock.store.recovery.recovery import JOURNAL_FOLDER


@dataclass(frozen=True, slots=True)
class BatchEnd:
    segment: int
    # Position behind the batch.
    pos: int
    # LSN behind its last event.
    lsn: int
    wall_us: int
    # A commit mark has none.
    events: int


def batch_ends(files: Files, number: int) -> Iterator[BatchEnd]:
    """Give the ends of the batches of one segment, in order."""
    reader = SegmentReader(files, JOURNAL_FOLDER, number)
    try:
        if reader.head is None:
            return
        pos, lsn = FIRST_BATCH_AT, max(0, reader.head.first_lsn)
        while pos < reader.size:
            header = reader.header_at(pos) or reader.find_header(pos, lsn)
            if header is None:
                return
            pos, lsn = header.end, header.first_lsn + header.events
            yield BatchEnd(number, pos, lsn, header.wall_us, header.events)
    finally:
        reader.close()


def first_lsn_of(files: Files, number: int) -> int:
    """Return the LSN that a segment begins with; -1 when its head is unreadable."""
    reader = SegmentReader(files, JOURNAL_FOLDER, number)
    reader.close()
    return -1 if reader.head is None else reader.head.first_lsn
