"""Tables as DataFrames: Spark reads the files itself, at its own speed.

Limits on columns with statistics leave out files before Spark sees them; rows of the files that stay are filtered by
Spark. So a job that goes on where it stopped opens the newest files only.

Nothing keeps files for a reader. A compaction of a Parquet table removes files under a job that is reading them; the
job fails and can be run again. Files of a Delta table stay until `vacuum`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.pipeline.lake.statistics import may_hold
from penstock.pipeline.lake.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Limits = Mapping[str, int | datetime]


def read_table(
    spark: SparkSession,
    table: LakeTable,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    at_least: Limits | None = None,
    below: Limits | None = None,
) -> DataFrame:
    """The rows with `at_least` <= column < `below`, with these columns or all. A table without files has no rows."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    at_least, below = at_least or {}, below or {}
    needed = set(columns or schema.names) | set(at_least) | set(below)
    shape = from_arrow_schema(pa.schema([field.with_nullable(True) for field in schema if field.name in needed]))
    paths = [file.path for file in table.files() if may_hold(file.minimums, file.maximums, at_least, below)]
    frame = spark.read.schema(shape).parquet(*paths) if paths else spark.createDataFrame([], shape)
    for column, limit in at_least.items():
        frame = frame.where(f.col(column) >= f.lit(limit))
    for column, limit in below.items():
        frame = frame.where(f.col(column) < f.lit(limit))
    return frame.select(*columns) if columns is not None else frame


def largest(table: LakeTable, column: str) -> Any:
    """Return the largest value of a column with statistics, without reading rows; None when no file knows one."""
    return max((file.maximums[column] for file in table.files() if column in file.maximums), default=None)
