"""Ranges of positions with about so many rows each: what one job of Spark publishes at a time.

After each slice it is known how far a replay has come, for the eye and for the next start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BUCKETS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Slice:
    """The chosen rows with from_lsn <= lsn < to_lsn."""

    from_lsn: int
    to_lsn: int
    rows: int


def bucket_width(first_lsn: int, last_lsn: int) -> int:
    """Positions in a bucket, so that there are not more than BUCKETS_MAX."""
    return (last_lsn - first_lsn) // BUCKETS_MAX + 1


def slices_of(counts: Iterable[tuple[int, int]], first_lsn: int, width: int, rows_wanted: int) -> list[Slice]:
    """Slices of at most `rows_wanted` rows, or of one bucket; from (bucket, rows), in the order of positions."""
    found: list[Slice] = []
    start, rows = first_lsn, 0
    for bucket, count in sorted(counts):
        begin = first_lsn + bucket * width
        if rows and rows + count > rows_wanted:
            found.append(Slice(start, begin, rows))
            start, rows = begin, 0
        rows += count
        end = begin + width
    if rows:
        found.append(Slice(start, end, rows))
    return found
