"""Schemas as projections, and batches in exactly the shape that Spark compares them with."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.pipeline.columns import VIEWS
from penstock.pipeline.source.options import OptionError
from penstock.pipeline.source.shape import arrow_schema, projection, shaped, spark_schema


@pytest.mark.parametrize("view", VIEWS)
def test_all_columns_of_a_view_fit_spark(view: str) -> None:
    schema = spark_schema(view)
    assert projection(view, schema) == tuple(VIEWS[view].names)
    empty = pa.RecordBatch.from_pylist([], schema=VIEWS[view])
    # The comparison that Spark makes with the first batch of a task.
    assert arrow_schema(schema).equals(shaped(empty, arrow_schema(schema)).schema)
    assert [column.nullable for column in schema] == [column.nullable for column in VIEWS[view]]


def test_headers_survive_the_change_of_shape() -> None:
    schema = StructType([spark_schema("events")["headers"]])
    rows = [{"headers": [("a", "1"), ("b", None)]}, {"headers": None}, {"headers": []}]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([VIEWS["events"].field("headers")]))
    assert shaped(batch, arrow_schema(schema)).to_pylist() == rows


def test_columns_come_in_the_order_of_the_schema() -> None:
    schema = StructType([StructField("queue", StringType()), StructField("lsn", LongType())])
    assert projection("events", schema) == ("queue", "lsn")
    whole = pa.schema([VIEWS["events"].field(name) for name in ("lsn", "queue")])
    batch = pa.RecordBatch.from_pylist([{"lsn": 1, "queue": "a"}], schema=whole)
    assert shaped(batch, arrow_schema(schema)).to_pylist() == [{"queue": "a", "lsn": 1}]


def test_a_null_where_there_can_be_none_is_an_error() -> None:
    schema = pa.schema([VIEWS["events"].field("lsn")])
    batch = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int64())], names=["lsn"])
    with pytest.raises(ValueError, match="column 'lsn' has nulls"):
        shaped(batch, schema)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([], "has no columns; those of the view runs are lsn, time"),
        ([StructField("body", StringType())], "the view runs has no column 'body'; it has lsn, time"),
        ([StructField("LSN", LongType())], "has no column 'LSN'"),
        ([StructField("lsn", StringType())], "'lsn' of the view runs is bigint, not string"),
        ([StructField("queue", StringType(), nullable=False)], "can be null"),
        ([StructField("lsn", LongType()), StructField("lsn", LongType())], "a column twice: lsn, lsn"),
    ],
)
def test_a_schema_that_the_view_does_not_have_is_refused(fields: list[StructField], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        projection("runs", StructType(fields))
