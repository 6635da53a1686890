"""The sink `penstock_lake`: events into bronze, rows with a problem into poison, each batch once.

Tasks write files, the driver commits: both tables, each in one transaction with (application, version). The version of
a stream is Spark's number of the batch; Spark repeats a batch that it has not noted as done, with the same rows, and a
table that has it already leaves it. So a crash between the two commits is harmless: poison says that it knows the
batch, bronze takes it. A batch that has the number of another one, and more rows, is refused: Spark's checkpoint is not
that of this lake any more.

A batch that fails leaves files that no transaction names; `vacuum` removes them.

Options: `lake` (its folder), `format` (of a lake that is not there yet), `application` (the query's id unless given).
Rows may be ranges of a log, too (the source's view `ranges`): with `source`, and `user`, `password`, `bodies` and
`failOnDataLoss` as the source knows them, tasks decode them here, and no event passes through the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.pipeline.columns import EVENTS, RANGES
from penstock.pipeline.lake import half_batch
from penstock.pipeline.lake.opening import Lake, lake_folder
from penstock.pipeline.lake.reading import largest
from penstock.pipeline.lake.staging import file_as_text, file_of_text
from penstock.pipeline.lake.table_file import LakeError, NewFile
from penstock.pipeline.lake.writing import PendingRows
from penstock.pipeline.source.log_read import LogTask, decoded
from penstock.pipeline.source.options import read_options
from penstock.pipeline.source.shape import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# The last two are Spark's own, which it hands on.
_OPTIONS: Final = ("lake", "format", "application", "path", "checkpointlocation", "queryname")
_SOURCE_OPTIONS: Final[tuple[str, ...]] = ("source", "user", "password", "bodies", "failondataloss")
# A batch in which there was nothing to do for any task has no message that could say whose it is.
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class SinkOptions:
    """Where to, and under which name."""

    lake: str
    format: str | None
    application: str | None
    # Where ranges are decoded from; None when rows are events.
    log: LogTask | None = None


@dataclass
class Written(WriterCommitMessage):
    """The files of one task, as JSON texts, and the query that it belonged to."""

    bronze: list[str]
    poison: list[str]
    query_id: str | None


def sink_options(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Check them, and the columns. LakeError for what is unknown or missing."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in (*_OPTIONS, *_SOURCE_OPTIONS):
            raise LakeError(f"the sink penstock_lake has no option {name!r}; its options are lake, format, application")
    lake = options.get("lake") or options.get("path")
    if not lake:
        raise LakeError("the option lake is missing: the folder of the lake")
    folder, own = str(lake_folder(lake)), (options.get("format"), options.get("application"))
    if schema.names == RANGES.names:
        given_on = {name: options[name] for name in _SOURCE_OPTIONS if name in options}
        return SinkOptions(folder, *own, LogTask(read_options(given_on), spark_schema("events")))
    for column in schema.names:
        if column not in EVENTS.names:
            raise LakeError(f"the lake's events have no column {column!r}; they have {', '.join(EVENTS.names)}")
    for field in EVENTS:
        if not field.nullable and field.name not in schema.names:
            raise LakeError(f"rows for the lake lack the column {field.name}")
    return SinkOptions(folder, *own)


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """In a task: the files of both tables."""
    context = TaskContext.get()
    prefix = f"part-{context.partitionId():05d}" if context is not None else "part"
    with (
        PendingRows(f"{options.lake}/bronze", EVENTS, prefix) as bronze,
        PendingRows(f"{options.lake}/poison", EVENTS, prefix) as poison,
    ):
        for batch in events_in(options, batches):
            whole, broken = split(batch)
            bronze.add(whole)
            poison.add(broken)
        return Written(
            [file_as_text(file) for file in bronze.finish()],
            [file_as_text(file) for file in poison.finish()],
            context.getLocalProperty(_QUERY_ID) if context is not None else None,
        )


def events_in(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if options.log is None:
            yield batch
        else:
            yield from decoded(options.log, batch)


def split(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return rows without a problem, and rows with one."""
    place = batch.schema.get_field_index("problem")
    if place < 0 or batch.column(place).null_count == batch.num_rows:
        return batch, batch.slice(0, 0)
    is_whole = pc.is_null(batch.column(place))
    return batch.filter(is_whole), batch.filter(pc.invert(is_whole))


def commit_rows(options: SinkOptions, written: Sequence[Written], application: str, version: int) -> None:
    """On the driver, when all tasks are done."""
    lake = Lake(options.lake, options.format)
    bronze = [file_of_text(text) for message in written for text in message.bronze]
    poison = [file_of_text(text) for message in written for text in message.poison]
    # Poison first: what is below the last event of bronze is then in one of the two, at any time.
    # A table that nothing was ever wrong with does not have to remember each batch in which nothing was wrong.
    if poison:
        half_batch.note(lake, application, version, [*bronze, *poison])
        _append(lake, "poison", poison, application, version)
    _append(lake, "bronze", bronze, application, version)


def _append(lake: Lake, name: str, files: Sequence[NewFile], application: str, version: int) -> None:
    """Into the table, unless it has the batch. LakeError when it has another one by that number."""
    table = lake.table(name)
    if table.append(files, application, version) or not files:
        return
    last, known = max(int(file.maximums["lsn"]) for file in files), largest(table, "lsn")
    if known is None or last > int(known):
        # Spark has read further than the first time: it has forgotten what it had done, and its rows would be lost.
        raise LakeError(
            f"{table.folder} has batch {version} of this stream already, and without event {last}: the checkpoint is"
            f" older than the lake. Remove it (that of the archive job is {lake.own / 'checkpoints' / 'archive'});"
            " a new one begins behind the last event of the lake"
        )


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """`writeStream.format("penstock_lake")`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        written = [message for message in messages if isinstance(message, Written)]
        application = self._options.application or next((each.query_id for each in written if each.query_id), None)
        if application is None:
            if written:
                raise LakeError("Spark does not say which query this is: give the option application")
            return
        commit_rows(self._options, written, application, batchId)


class LakeBatchWriter(DataSourceArrowWriter):
    """`write.format("penstock_lake").mode("append")`."""

    def __init__(self, options: SinkOptions, run_id: str) -> None:
        self._options = options
        self._run_id = run_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        commit_rows(self._options, written, self._options.application or self._run_id, 0)
