"""Columns of a view as Spark knows them, and Arrow batches in exactly the shape that Spark was promised.

`.schema(…)` is the projection: Spark does not tell a Python source which columns a query uses, so a query for few of
them says so, and only those are decoded. Names and types have to be those of the view: nothing is converted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.pipeline.columns import VIEWS
from penstock.pipeline.source.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_schema(view: str) -> StructType:
    """Return all columns of a view."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(VIEWS[view])


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects batches of this schema to look like, to the letter."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def projection(view: str, schema: StructType) -> tuple[str, ...]:
    """Return the names of the columns that the schema asks for. OptionError when the view does not have them so."""
    whole = spark_schema(view)
    if not schema.fields:
        raise OptionError(f"the schema has no columns; those of the view {view} are {', '.join(whole.names)}")
    if len(set(schema.names)) != len(schema.names):
        raise OptionError(f"the schema has a column twice: {', '.join(schema.names)}")
    for column in schema.fields:
        if column.name not in whole.names:
            raise OptionError(f"the view {view} has no column {column.name!r}; it has {', '.join(whole.names)}")
        found = whole[column.name]
        if column.dataType.simpleString() != found.dataType.simpleString():
            raise OptionError(
                f"column {column.name!r} of the view {view} is {found.dataType.simpleString()},"
                f" not {column.dataType.simpleString()}: read it so, and cast it afterwards"
            )
        if found.nullable and not column.nullable:
            raise OptionError(f"column {column.name!r} of the view {view} can be null; the schema must not deny it")
    return tuple(schema.names)


def shaped(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return the same values, in the order of `target` and as it names them; no bytes are copied."""
    columns = []
    for wanted in target:
        column = batch.column(wanted.name)
        # Spark would fail on it in some other place, or take what lies there for a value.
        if column.null_count and not wanted.nullable:
            raise ValueError(f"column {wanted.name!r} has nulls where there are none")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=target)
