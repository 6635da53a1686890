"""The view `postgres`: finished messages of queues in PostgreSQL, in batches and as a stream.

The offset is {"xid": n}: rows of all transactions below n have been read. A transaction that is still running holds the
end back, so what it commits later is not missed; a stream waits for it. A trigger's limit is in rows, and holds as far
as transactions allow: none is cut in two.

Nothing is kept for a reader: finished messages go with their day (`settings.history_days`), read or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.history.log import HistoryError
from penstock.pipeline.source.glance import Glance
from penstock.pipeline.source.options import (
    EARLIEST,
    POSTGRES,
    Position,
    SourceOptions,
    refuse_batch_options,
    refuse_stream_options,
)
from penstock.pipeline.source.postgres_database import Database
from penstock.pipeline.source.shape import arrow_schema, projection, shaped

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Offset = dict[str, Any]

# The database is asked this often whether there is more.
ASK_DATABASE_S: Final = 1.0


@dataclass
class HistoryPartition(InputPartition):
    """One of `parts` parts of the rows between two transactions, of one queue or of all."""

    from_xid: int
    to_xid: int
    part: int
    parts: int
    queue_id: int


class HistoryTask:
    """Reads parts. Goes to the workers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.database = Database(options)
        self._columns = projection(POSTGRES, schema)
        self._target = arrow_schema(schema)

    def xid_of(self, position: Position) -> int:
        """Return the transaction that a position stands for now."""
        if position.name == EARLIEST:
            return 0
        if position.number is not None:
            return position.number
        return self.database.readable_xid()

    def parts(self, from_xid: int, to_xid: int) -> list[InputPartition]:
        queue_id = self.database.queue_id(self.options.queue)
        if from_xid >= to_xid or queue_id is None:
            return []
        count = self.options.partitions
        return [HistoryPartition(from_xid, to_xid, part, count, queue_id) for part in range(count)]

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own where there is none.
        if not isinstance(partition, HistoryPartition):
            return
        bounds, part = (partition.from_xid, partition.to_xid), (partition.part, partition.parts)
        for batch in self.database.rows(bounds, part, partition.queue_id, self._columns):
            yield self._without_bodies(shaped(batch, self._target))

    def _without_bodies(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch.schema.get_field_index("body")
        if self.options.bodies or at < 0:
            return batch
        return batch.set_column(at, batch.schema.field(at), pa.nulls(batch.num_rows, pa.binary()))


class PostgresReader(DataSourceReader):
    """`spark.read` of the view."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        refuse_stream_options(options)
        self._task = HistoryTask(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        task = self._task
        with closing(task.database) as database:
            from_xid = task.xid_of(task.options.starting or Position(EARLIEST))
            # Above that, rows may still be missing.
            to_xid = min(task.xid_of(task.options.ending), database.readable_xid())
            return task.parts(from_xid, to_xid)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._task.batches(partition)


class PostgresStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream` of the view."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        refuse_batch_options(options)
        self._task = HistoryTask(options, schema)
        self._target_xid: int | None = None
        self._readable: Glance[int] | None = None
        # (from, to): there is nothing between them.
        self._nothing = (-1, -1)

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {"xid": self._task.xid_of(self._task.options.starting or Position(EARLIEST))}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        records_max = self._task.options.records_max
        return ReadAllAvailable() if records_max is None else ReadMaxRows(records_max)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        database = self._task.database
        from_xid = xid_in(start)
        to_xid = self._glance().latest() if self._target_xid is None else self._target_xid
        if from_xid >= to_xid or self._nothing == (from_xid, to_xid):
            return start
        queue_id = database.queue_id(self._task.options.queue)
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end_xid = from_xid if queue_id is None else database.limited_xid(from_xid, to_xid, queue_id, records_max)
        if end_xid == from_xid:
            # The offset stands still: transactions that finish no message make no batch.
            self._nothing = (from_xid, to_xid)
            return start
        return {"xid": end_xid}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        return {"xid": self._glance().latest()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target_xid = self._glance().now()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self._task.parts(xid_in(start), xid_in(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._task.batches(partition)

    def stop(self) -> None:
        self._task.database.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readable": None}

    def _glance(self) -> Glance[int]:
        if self._readable is None:
            self._readable = Glance(self._task.database.readable_xid, ASK_DATABASE_S)
        return self._readable


def xid_in(offset: Offset) -> int:
    xid = offset.get("xid")
    if not isinstance(xid, int):
        raise HistoryError(f"the checkpoint has {offset!r} where a transaction id should be: it is another source's")
    return xid
