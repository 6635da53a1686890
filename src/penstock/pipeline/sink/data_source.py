"""The writers of the format `penstock`: `df.write` and `df.writeStream`.

A task publishes its rows and ends when the broker has confirmed them all. There is nothing to commit or to take back
afterwards: a batch that is made again publishes the same keys, and queues with deduplication take each once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.fields import Table
from penstock.pipeline.sink.options import DEDUP_HEADER, SinkError, SinkOptions, read_options
from penstock.pipeline.sink.pace import Pace
from penstock.pipeline.sink.publisher import Publisher
from penstock.pipeline.sink.rows import RowKeys, RowReader, check_schema

# Local properties that Spark sets on the tasks of a stream.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class Published(WriterCommitMessage):
    """What a task has done."""

    rows: int


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """For `df.write.format("penstock").mode("append")`."""
    return BatchWriter(_prepared(options, schema, overwrite))


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """For `df.writeStream.format("penstock")`."""
    return StreamWriter(_prepared(options, schema, overwrite))


def _prepared(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise SinkError("messages are published, and none are taken back: use mode('append'), outputMode('append')")
    read = read_options(options)
    check_schema(schema)
    if read.declare_queue is not None:
        arguments: Table = {"x-message-deduplication": ("t", True), "x-cache-size": ("I", read.cache_size)}
        if read.dedup_header not in (None, DEDUP_HEADER):
            # Left out where it is the default: a queue that was declared without it is the same queue.
            arguments["x-deduplication-header"] = ("S", str(read.dedup_header).encode())
        with Publisher(read.address) as publisher:
            publisher.declare(read.declare_queue, arguments)
    return read


def publish(batches: Iterator[pa.RecordBatch], options: SinkOptions, keys: RowKeys) -> Published:
    """Publish the rows of one task, and return when all are confirmed."""
    reader = RowReader(options, keys)
    with Publisher(options.address, reconnect_s=options.reconnect_s) as publisher:
        pace = None if options.rate_limit is None else Pace(options.rate_limit, publisher.push)
        for batch in batches:
            for message in reader.messages(batch):
                if pace is not None:
                    pace.wait()
                publisher.publish(message)
        publisher.flush()
        return Published(publisher.confirmed)


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("rows are published by tasks of Spark, and this is none")
    return context


class BatchWriter(DataSourceArrowWriter):
    """Made on the driver, used by each task in a copy."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish(iterator, self._options, RowKeys(self._options.write_id, "0", _task().partitionId()))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Everything is there already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What is published stays; the next try knows it again."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Made on the driver, used by each task in a copy."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise SinkError("Spark does not say which batch this is; a stream needs that to be exactly once")
        return publish(iterator, self._options, RowKeys(query, batch, context.partitionId()))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Everything is there already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What is published stays; the batch is made again, with the same keys."""
