"""Rows for the tests of tables, and readers that know nothing of penstock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable as PlainDeltaTable

from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake.statistics import as_statistic
from penstock.pipeline.lake.table import LakeTable
from penstock.pipeline.lake.table_file import NewFile, TableFile
from penstock.pipeline.lake.writing import write_batches

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
Reader = Callable[[Path], list[int]]


def time_of(lsn: int) -> datetime:
    return BEGIN + timedelta(seconds=lsn)


def event(lsn: int, **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(EVENTS.names)
    row.update(
        lsn=lsn,
        time=time_of(lsn),
        vhost="/",
        queue="orders",
        queue_no=1,
        seq=lsn,
        kind="published",
        kind_no=1,
        headers=[("tenant", "a")],
        body=b"body %d" % lsn,
    )
    row.update(values)
    return row


def batch_of(lsns: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([event(lsn) for lsn in lsns], schema=EVENTS)


def pending(table: LakeTable, lsns: range, rows_max: int = 1_000_000) -> list[NewFile]:
    """Files of events, not yet in the table; a batch of ten rows at a time."""
    pieces: Iterator[pa.RecordBatch] = (batch_of(lsns[at : at + 10]) for at in range(0, len(lsns), 10))
    return write_batches(table.folder, pieces, EVENTS, "test", rows_max)


def wholly_below(column: str, value: Any) -> Callable[[TableFile], bool]:
    """Whether all values of a file are smaller."""
    limit = as_statistic(value)
    return lambda file: bool(file.maximums[column] < limit)


def pyarrow_of_files(table: LakeTable) -> list[int]:
    paths = [file.path for file in table.files()]
    if not paths:
        return []
    return sorted(ds.dataset(paths, format="parquet").to_table(columns=["lsn"])["lsn"].to_pylist())


def duckdb_glob(folder: Path) -> list[int]:
    if not list(folder.glob("*.parquet")):
        return []
    with duckdb.connect() as connection:
        rows = connection.execute("select lsn from read_parquet(?) order by lsn", [f"{folder}/*.parquet"]).fetchall()
    return [row[0] for row in rows]


def pandas_folder(folder: Path) -> list[int]:
    return sorted(pd.read_parquet(folder, columns=["lsn"])["lsn"].tolist())


def pyarrow_folder(folder: Path) -> list[int]:
    return sorted(ds.dataset(folder, format="parquet").to_table(columns=["lsn"])["lsn"].to_pylist())


def duckdb_delta(folder: Path) -> list[int]:
    events = PlainDeltaTable(folder).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("events", events)
        return [row[0] for row in connection.execute("select lsn from events order by lsn").fetchall()]


def pandas_delta(folder: Path) -> list[int]:
    return sorted(PlainDeltaTable(folder).to_pandas(columns=["lsn"])["lsn"].tolist())


def pyarrow_delta(folder: Path) -> list[int]:
    return sorted(PlainDeltaTable(folder).to_pyarrow_table(columns=["lsn"])["lsn"].to_pylist())


READERS: dict[str, tuple[Reader, ...]] = {
    "delta": (duckdb_delta, pandas_delta, pyarrow_delta),
    "parquet": (duckdb_glob, pandas_folder, pyarrow_folder),
}


def lsns_read_without_penstock(table: LakeTable, format: str) -> list[int]:
    """Every reader sees the same rows."""
    answers = [reader(Path(table.folder)) for reader in READERS[format]]
    assert all(answer == answers[0] for answer in answers), answers
    return answers[0]
