"""Rows of a DataFrame into files of a table that no transaction names yet.

Tasks write the files and answer with what they have written; the driver gets a few rows, never the data. The files of
tasks that fail or are repeated are in nobody's answer, so they are never named.

What it does not do: commit. `LakeTable.append` does, with what comes back from here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.pipeline.lake.table import LakeTable, NewFile
from penstock.pipeline.lake.writing import ROWS_MAX, write_batches
from penstock.pipeline.warm_worker import task_begins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stage(
    frame: DataFrame, table: LakeTable, schema: pa.Schema, prefix: str, rows_max: int = ROWS_MAX
) -> list[NewFile]:
    """Write the rows, a file or more for each partition that has some."""
    folder = table.folder

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task_begins()
        files = [file_as_text(file) for file in write_batches(folder, batches, schema, prefix, rows_max)]
        yield pa.RecordBatch.from_pydict({"file": pa.array(files, pa.string())})

    return [file_of_text(row[0]) for row in frame.mapInArrow(write, "file string").collect()]


def file_as_text(file: NewFile) -> str:
    return json.dumps(asdict(file))


def file_of_text(text: str) -> NewFile:
    return NewFile(**json.loads(text))
