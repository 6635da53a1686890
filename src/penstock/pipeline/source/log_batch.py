"""The batch reader of events and runs: what is in the log between two positions, when the first query is planned.

Spark keeps the plan with the DataFrame, so all its queries see the same events.

A batch moves no reader's cursor: it has no checkpoint that could say how far it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.pipeline.source.filters import Narrowed, narrow
from penstock.pipeline.source.log_read import LogPartition, LogTask, open_source, planned
from penstock.pipeline.source.options import EARLIEST, Position, SourceOptions, refuse_stream_options
from penstock.pipeline.source.positions import lsn_of


class LogReader(DataSourceReader):
    """`spark.read` of the views events and runs, and of the ranges in which they are."""

    def __init__(self, options: SourceOptions, task: LogTask) -> None:
        refuse_stream_options(options)
        self._options = options
        self._task = task
        self._narrowed = Narrowed(self._task.request)

    def partitions(self) -> Sequence[InputPartition]:
        options, narrowed = self._options, self._narrowed
        with closing(open_source(options)) as log:
            from_lsn = lsn_of(log, options.starting or Position(EARLIEST), "startingOffsets")
            to_lsn = lsn_of(log, options.ending, "endingOffsets")
            from_lsn = max(from_lsn, narrowed.min_lsn)
            if narrowed.max_lsn is not None:
                to_lsn = min(to_lsn, narrowed.max_lsn)
            if from_lsn >= to_lsn:
                return []
            parts, _ = planned(log, from_lsn, to_lsn, options, narrowed.request)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own where there is none.
        if isinstance(partition, LogPartition):
            yield from self._task.batches(partition)


class FilteringLogReader(LogReader):
    """The same, and it does filters by itself: for DataFrames that serve one query (see `filters`)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        left = []
        for filter_ in filters:
            self._narrowed, is_done = narrow(self._narrowed, filter_)
            if not is_done:
                left.append(filter_)
        self._task.request = self._narrowed.request
        return left
