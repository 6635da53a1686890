"""Lakes with gold made by hand: no Spark is needed to report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.writing import write_batches
from penstock.pipeline.refine.minute_columns import MINUTES

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MAPS = ("wait_buckets", "service_buckets", "dead_letter_causes")


def gold_row(minute: int, queue: str = "orders", **values: Any) -> dict[str, Any]:
    """A row of gold, `minute` minutes after BEGIN; what is not given is nothing."""
    row: dict[str, Any] = {
        field.name: None if field.nullable else 0.0 if pa.types.is_floating(field.type) else 0 for field in MINUTES
    }
    row.update({key: {} for key in MAPS})
    row.update(minute=BEGIN + timedelta(minutes=minute), vhost="/", queue=queue)
    row.update(values)
    # Arrow takes maps as lists of pairs.
    row.update({name: list(row[name].items()) for name in MAPS})
    return row


def lake_with(path: Path, rows: Sequence[dict[str, Any]], files: int = 2) -> Lake:
    """A lake whose gold has these rows, in so many files."""
    lake = Lake(path, "parquet")
    gold = lake.table("gold", MINUTES)
    ordered = sorted(rows, key=lambda row: row["minute"])
    size = -(-len(ordered) // files)
    for version in range(files):
        part = ordered[version * size : (version + 1) * size]
        if part:
            batches = iter(pa.Table.from_pylist(part, MINUTES).to_batches())
            gold.append(write_batches(gold.folder, batches, MINUTES, "part"), "refine", version)
    return lake
