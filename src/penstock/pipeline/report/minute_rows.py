"""Rows of gold, read with pyarrow alone.

Gold is small: a row for each queue and minute in which anything happened. Only the columns that people look at are
read, and of the files only those that reach into the span.

Names of queues are text from outside. They leave here as they are; the page and the terminal escape them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.statistics import may_hold
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.publishing.selection import COMPANIONS
from penstock.pipeline.refine.minute_columns import MINUTES, OUTCOME_COUNTS

MINUTE: Final = timedelta(minutes=1)
# Sketches are for Spark; what follows from other columns is worked out anew for spans.
_COLUMNS: Final = [
    name
    for name in MINUTES.names
    if not name.endswith(("_sketch", "_us", "_rate")) and name not in ("utilisation", "ended_partial")
] + ["busy_us"]


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """One minute of a queue."""

    minute: datetime
    published: int
    published_bytes: int
    delivered: int
    requeued: int
    ended: int
    # Below 0 is shown as 0: it comes from a clock that went back.
    depth: int
    outcomes: dict[str, int]
    wait: dict[int, int]
    service: dict[int, int]
    causes: dict[str, int]
    consumers: int
    busy_us: int


@dataclass(frozen=True, slots=True)
class Span:
    """The rows from one minute to another, both included, by (vhost, queue) and time."""

    first: datetime
    last: datetime
    queues: dict[tuple[str, str], list[MinuteRow]] = field(default_factory=dict)

    @property
    def minutes(self) -> int:
        return (self.last - self.first) // MINUTE + 1


def read_span(lake: Lake, minutes: int | None, queues: Sequence[str] = (), vhost: str | None = None) -> Span:
    """Return the last `minutes` up to the newest minute of the lake, or all. Queues by patterns with * and ?.

    Without patterns it is all queues that clients see: those that the broker keeps beside them have to be asked for.
    LakeError when the lake has no minutes yet.
    """
    gold = lake.table("gold", MINUTES)
    files = gold.files() if gold.exists() else []
    if not files:
        raise LakeError(f"the lake {lake.path} has no minutes yet: run `penstock pipeline refine` first")
    last = datetime.fromisoformat(max(file.maximums["minute"] for file in files))
    first = datetime.fromisoformat(min(file.minimums["minute"] for file in files))
    if minutes is not None:
        first = max(first, last - MINUTE * (max(1, minutes) - 1))
    span = Span(first, last)
    for file in files:
        if may_hold(file.minimums, file.maximums, {"minute": first}, {}):
            _add(span, pq.read_table(file.path, columns=_COLUMNS), queues, vhost)
    for rows in span.queues.values():
        rows.sort(key=lambda row: row.minute)
    return span


def _add(span: Span, table: pa.Table, patterns: Sequence[str], vhost: str | None) -> None:
    chosen = table.filter(pc.field("minute") >= pa.scalar(span.first, MINUTES.field("minute").type))
    for row in chosen.to_pylist(maps_as_pydicts="strict"):
        if vhost is not None and row["vhost"] != vhost:
            continue
        if _is_chosen(row["queue"], patterns):
            span.queues.setdefault((row["vhost"], row["queue"]), []).append(_row(row))


def _is_chosen(queue: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(queue, pattern) for pattern in patterns) if patterns else not queue.startswith(COMPANIONS)


def _row(row: dict[str, Any]) -> MinuteRow:
    return MinuteRow(
        minute=row["minute"],
        published=row["published"],
        published_bytes=row["published_bytes"],
        delivered=row["delivered"],
        requeued=row["requeued"],
        ended=row["ended"],
        depth=max(0, row["depth"]),
        outcomes={outcome: row[column] for outcome, column in OUTCOME_COUNTS.items() if row[column]},
        wait=row["wait_buckets"],
        service=row["service_buckets"],
        causes=row["dead_letter_causes"],
        consumers=row["consumers"],
        busy_us=row["busy_us"],
    )
