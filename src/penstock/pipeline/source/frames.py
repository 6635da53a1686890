"""Events and runs of a log as a DataFrame, by the shortest way that Spark has for rows made in Python.

`spark.read.format("penstock")` is found by Spark itself and needs no import, but Spark copies each row of a source in
Python once more than it has to: it cannot know that they are in its own layout already. Here the source hands out
ranges of the log (view `ranges`), one row for each task, and the events are decoded in `mapInArrow`, whose rows Spark
takes as they are. The rows, the options, the tasks and the offsets are those of the source; `python -m benches.pipeline
--only scans` measures both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.pipeline.decode.ranges import TARGET_BYTES, TARGET_BYTES_WITH_BODIES
from penstock.pipeline.source.log_read import LogTask, decoded
from penstock.pipeline.source.options import EVENTS, RANGES, RUNS, OptionError, read_options
from penstock.pipeline.source.shape import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Of the events, and not of the ranges.
OF_EVENTS: Final = ("bodies", "view")


def read_log(spark: SparkSession, options: Mapping[str, object], columns: Sequence[str] = ()) -> DataFrame:
    """A batch. `options` are those of the format `penstock`, `columns` some of the view's; OptionError for others."""
    task, schema = _task(options, columns)
    ranges = spark.read.format("penstock").options(**_range_options(options, task)).load()
    return ranges.mapInArrow(partial(_rows, task), schema)


def stream_log(spark: SparkSession, options: Mapping[str, object], columns: Sequence[str] = ()) -> DataFrame:
    """Return a stream of the same."""
    task, schema = _task(options, columns)
    ranges = spark.readStream.format("penstock").options(**_range_options(options, task)).load()
    return ranges.mapInArrow(partial(_rows, task), schema)


def _task(options: Mapping[str, object], columns: Sequence[str]) -> tuple[LogTask, StructType]:
    from pyspark.sql.types import StructType

    checked = read_options(_texts(options))
    if checked.view not in (EVENTS, RUNS):
        raise OptionError(f"the view {checked.view} is no log: read it with spark.read.format('penstock')")
    if checked.push_filters:
        raise OptionError(
            "pushFilters is for spark.read.format('penstock'): here queue, vhost, kinds and offsets filter"
        )
    whole = spark_schema(checked.view)
    unknown = [name for name in columns if name not in whole.names]
    if unknown:
        raise OptionError(f"the view {checked.view} has no column {unknown[0]!r}; it has {', '.join(whole.names)}")
    schema = StructType([whole[name] for name in columns or whole.names])
    return LogTask(checked, schema), schema


def _range_options(options: Mapping[str, object], task: LogTask) -> dict[str, str]:
    given = {name: value for name, value in _texts(options).items() if name not in OF_EVENTS}
    # The planner of ranges does not know what will be read of them.
    fitting = TARGET_BYTES_WITH_BODIES if task.request.wants_bodies else TARGET_BYTES
    return {"partitionbytes": str(fitting), **given, "view": RANGES}


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options as Spark would hand them over."""
    return {
        name.lower(): str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }


def _rows(task: LogTask, ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for some in ranges:
        yield from decoded(task, some)
