"""Events of a log, read the slow way: every batch of every segment, from its index on. What the tests compare with."""

from __future__ import annotations

from zlib import crc32

from penstock.disk.files import Files
from penstock.history.log import Log
from penstock.journal.format.layout import HEADER_BYTES, HEADER_MAGIC, ROW, ROW_BYTES, decode_header, salt_seed
from penstock.journal.format.rows import ROW_COUNT, ROW_KIND, ROW_QUEUE, ROW_SEQ
from penstock.journal.reading.batch import BatchView
from penstock.journal.reading.replay import replay

# lsn, queue number, kind, seq
Event = tuple[int, int, int, int]


def events_of(log: Log) -> list[Event]:
    """All events that the log shows."""
    return [event for info in log.state().segments for event in segment_events(log, info.number)]


def segment_events(log: Log, number: int) -> list[Event]:
    index = log.index(number)
    if not index.marks:
        return []
    data = log.read(number, 0, index.end_pos)
    assert len(data) == index.end_pos, "what the index speaks of is there"
    events: list[Event] = []
    pos = index.marks[0].pos
    while pos < index.end_pos:
        header = decode_header(data[pos : pos + HEADER_BYTES], 0, number, pos)
        if header is None:
            # Damaged: on to the next thing that is a batch.
            pos = data.find(HEADER_MAGIC, pos + 1)
            if pos < 0:
                break
            continue
        if crc32(data[header.meta_at : header.heap_at], salt_seed(header.salt)) == header.meta_crc:
            rows = list(ROW.iter_unpack(data[header.meta_at : header.meta_at + header.rows * ROW_BYTES]))
            events += written_out(header.first_lsn, rows)
        pos = header.end
    return events


def written_out(lsn: int, rows: list[tuple[int, ...]]) -> list[Event]:
    events: list[Event] = []
    for row in rows:
        for step in range(row[ROW_COUNT]):
            events.append((lsn, row[ROW_QUEUE], row[ROW_KIND], row[ROW_SEQ] + step))
            lsn += 1
    return events


def recovered_events(files: Files) -> list[Event]:
    """What a recovery would find in the journal."""
    found: list[Event] = []

    def visit(view: BatchView) -> None:
        found.extend(written_out(view.first_lsn, view.rows))

    replay(files, "journal", 1, 0, visit)
    return found
