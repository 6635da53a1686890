"""Logs for the tests of the source: small, with several queues, kinds, segments and minutes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.disk.os_files import OsFiles
from penstock.history.log import LogState
from penstock.history.opening import open_log
from penstock.pipeline.columns import VIEWS
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import plan
from penstock.pipeline.decode.request import Request
from penstock.pipeline.source.log_batch import FilteringLogReader, LogReader
from penstock.pipeline.source.log_read import LogTask
from penstock.pipeline.source.log_stream import LogStreamReader
from penstock.pipeline.source.options import read_options
from penstock.pipeline.source.shape import spark_schema
from penstock.store.retention.reader_cursors import make_log_id
from tests.pipeline.written_journal import WrittenJournal

# Where the clock of a written journal begins, in UTC; each minute has a segment of its own.
BEGIN = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
MINUTES = 4
EVENTS_OF_A_MINUTE = 17


def minute(number: int) -> datetime:
    return BEGIN + timedelta(minutes=number)


def write_minute(journal: WrittenJournal) -> None:
    """17 events in two batches: three queues, one of them in another vhost."""
    first = journal.publish("orders", *[b"order %d" % number for number in range(6)], key="a.b")
    journal.publish("bills", b"bill", b"bill" * 100)
    journal.publish("orders", b"elsewhere", vhost="other")
    journal.commit()
    journal.settle("delivered", "orders", first, 4)
    journal.settle("acked", "orders", first, 3)
    journal.settle("requeued", "orders", first + 3)
    journal.commit()


def write_log(folder: Path, minutes: int = MINUTES, log_id: int = 1) -> WrittenJournal:
    """A log of some minutes, a segment for each, all of it durable; still open."""
    folder.mkdir(exist_ok=True)
    make_log_id(OsFiles(folder), lambda _: log_id)
    journal = WrittenJournal(folder)
    for number in range(minutes):
        if number:
            journal.roll()
            journal.wait(60)
        write_minute(journal)
    journal.mark()
    return journal


def state_of(folder: Path) -> LogState:
    """Where the log and its segments begin and end. LSNs are also given to names, which no view shows."""
    log = open_log(str(folder))
    state = log.state()
    log.close()
    return state


def decoded(folder: Path, view: str = "events") -> list[dict[str, Any]]:
    """Every row of the log, by the decoder alone."""
    log = open_log(str(folder))
    state = log.state()
    request = Request(view=view)
    parts = plan(log, state.first_lsn, state.end_lsn)
    rows = [row for part in parts for batch in read_range(log, part, request) for row in batch.to_pylist()]
    log.close()
    return rows


def batch_reader(source: str | Path, columns: Iterable[str] = (), **options: str) -> FilteringLogReader:
    given = {"source": str(source), **{name.lower(): value for name, value in options.items()}}
    schema = spark_schema(given.get("view", "events"))
    if columns:
        schema = type(schema)([schema[name] for name in columns])
    checked = read_options(given)
    return FilteringLogReader(checked, LogTask(checked, schema))


def stream_reader(source: str | Path, **options: str) -> LogStreamReader:
    chosen = read_options({"source": str(source), **{name.lower(): value for name, value in options.items()}})
    return LogStreamReader(chosen, LogTask(chosen, spark_schema(chosen.view)))


def rows_of(reader: LogReader | LogStreamReader, partitions: Iterable[InputPartition]) -> list[dict[str, Any]]:
    """What tasks read of these partitions."""
    return [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]


def lsns(reader: LogReader) -> list[int]:
    """Of all rows of a batch."""
    return [row["lsn"] for row in rows_of(reader, reader.partitions())]


def table_of(rows: list[dict[str, Any]], view: str = "events") -> pa.Table:
    return pa.Table.from_pylist(rows, schema=VIEWS[view])
