"""What a reader of the journal wants: a view, some of its columns, some of its rows.

Lower bounds are in, upper bounds are out: min_us <= time < max_us, min_seq <= seq < max_seq. A bound that is None holds
nothing back. Filters mean what they mean in SQL: a row whose queue is null has no queue that matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.pipeline.columns import EVENTS, RUNS

EVENTS_VIEW: Final = "events"
RUNS_VIEW: Final = "runs"
SCHEMAS: Final = {EVENTS_VIEW: EVENTS, RUNS_VIEW: RUNS}

# Arrow batches of this size were the fastest to make and to hand over.
BATCH_ROWS: Final = 40_000
# With names of at most 1 KiB a column of them stays below 2 GiB, which is what Arrow's offsets reach.
BATCH_ROWS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Request:
    """A projection and filters; made once, sent to every task."""

    view: str = EVENTS_VIEW
    # In the order in which they are wanted; nothing: all of the view.
    columns: tuple[str, ...] = ()
    # Whether the column `body` is filled. Without it no body is read.
    bodies: bool = True
    vhost: str | None = None
    queues: frozenset[str] | None = None
    # Texts of `columns.KINDS`, and "unknown".
    kinds: frozenset[str] | None = None
    min_us: int | None = None
    max_us: int | None = None
    min_seq: int | None = None
    max_seq: int | None = None
    # Rows of an Arrow batch, about.
    batch_rows: int = BATCH_ROWS

    def __post_init__(self) -> None:
        if self.view not in SCHEMAS:
            raise ValueError(f"there is no view {self.view!r} in a journal: events or runs")
        unknown = [name for name in self.columns if name not in SCHEMAS[self.view].names]
        if unknown:
            raise ValueError(f"the view {self.view} has no column {', '.join(unknown)}")
        if not 1 <= self.batch_rows <= BATCH_ROWS_MAX:
            raise ValueError(f"batch_rows is at least 1 and at most {BATCH_ROWS_MAX}")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in their order."""
        return self.columns or tuple(SCHEMAS[self.view].names)

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        whole = SCHEMAS[self.view]
        return pa.schema([whole.field(name) for name in self.names])

    def wants(self, *names: str) -> bool:
        """Return whether one of these columns is asked for."""
        return any(name in self.names for name in names)

    @property
    def wants_bodies(self) -> bool:
        return self.bodies and self.wants("body")
