"""What the journal is told of a purge: a row for each run of messages, or one for all when there are very many.

A row counts its messages in 31 bits. What is left of a queue may lie further apart than that, or be more.
"""

from __future__ import annotations

from typing import Final

from penstock.journal.format import rows
from penstock.journal.journal import ROW_COUNT_MAX, Journal
from penstock.store.queue.live_map import LiveMap

# With more runs than this a purge is one row, if its numbers are no further apart than that.
PURGED_RUNS_MAX: Final = 1024
PURGED_SPAN_MAX: Final = 1 << 24
# As many as a row can count.
PURGED_ROW_MAX: Final = ROW_COUNT_MAX


def note_purged(journal: Journal, queue_no: int, live: LiveMap, low: int, length: int, size_bytes: int) -> None:
    """Write that everything in low..low+length-1 is gone, which has so many persistent bytes."""
    runs = live.live_runs(low, low + length)
    if len(runs) > PURGED_RUNS_MAX and length <= PURGED_SPAN_MAX:
        runs = [(low, length)]
    for first, count in runs:
        end = first + count
        while first < end:
            part = min(end - first, PURGED_ROW_MAX)
            journal.settle(rows.PURGED, queue_no, first, part, size_bytes)
            first += part
            size_bytes = 0
