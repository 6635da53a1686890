"""Which reader stands behind which view; `pyspark_penstock` hands the options and the schema to these functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.pipeline.source.options import MESSAGES, POSTGRES, RANGES, read_options
from penstock.pipeline.source.shape import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


def view_schema(options: Mapping[str, str]) -> StructType:
    """Return all columns of the view that the options name."""
    return spark_schema(read_options(options).view)


def make_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """For `spark.read`."""
    chosen = read_options(options)
    # Each view imports what it needs when it is used: a worker that reads PostgreSQL has no need of journals.
    if chosen.view == POSTGRES:
        from penstock.pipeline.source.postgres import PostgresReader

        return PostgresReader(chosen, schema)
    if chosen.view == MESSAGES:
        from penstock.pipeline.source.messages import MessagesReader

        return MessagesReader(chosen, schema)
    from penstock.pipeline.source.log_batch import FilteringLogReader, LogReader
    from penstock.pipeline.source.log_read import LogTask, RangeTask

    if chosen.view == RANGES:
        return LogReader(chosen, RangeTask(chosen, schema))
    task = LogTask(chosen, schema)
    return FilteringLogReader(chosen, task) if chosen.push_filters else LogReader(chosen, task)


def make_stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """For `spark.readStream`."""
    chosen = read_options(options)
    if chosen.view == POSTGRES:
        from penstock.pipeline.source.postgres import PostgresStreamReader

        return PostgresStreamReader(chosen, schema)
    from penstock.pipeline.source.log_read import LogTask, RangeTask
    from penstock.pipeline.source.log_stream import LogStreamReader

    if chosen.view == RANGES:
        return LogStreamReader(chosen, RangeTask(chosen, schema))

    if chosen.view == MESSAGES:
        from penstock.pipeline.source.messages import PublishedTask

        return LogStreamReader(chosen, PublishedTask(chosen, schema))
    return LogStreamReader(chosen, LogTask(chosen, schema))
