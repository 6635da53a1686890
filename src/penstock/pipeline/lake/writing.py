"""Parquet files that no transaction names yet.

Executors write here: zstd, into the folder `_pending` of the table, under names that are new each time. So two attempts
at the same task never touch the same file, and readers do not see them: Spark, pyarrow and DuckDB pass over what begins
with an underscore or does not end in `.parquet`. A transaction moves them to their place (`LakeTable.append`). A crash
leaves files in `_pending`, whole or torn; `vacuum` removes them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.lake.durable import make_folder, sync_file, sync_folder
from penstock.pipeline.lake.statistics import has_statistics, statistics_of
from penstock.pipeline.lake.table_file import LakeError, NewFile

PENDING: Final = "_pending"
ROWS_MAX: Final = 4_000_000
# A row group is what a reader holds in memory at once: with bodies, bytes are the limit, without them rows.
_GROUP_ROWS: Final = 256 * 1024
_GROUP_BYTES: Final = 64 * 1024 * 1024
# Nearly every value is another one: a dictionary of them would be larger than they are.
_UNIQUE: Final = frozenset({"body", "properties", "message_id", "correlation_id"})
_PREFIX: Final = re.compile(r"[a-z0-9-]{1,64}")


def write_batches(
    folder: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema, prefix: str, rows_max: int = ROWS_MAX
) -> list[NewFile]:
    """Write the batches into files of about `rows_max` rows in the table's folder; none when there are no rows."""
    with PendingRows(folder, schema, prefix, rows_max) as rows:
        for batch in batches:
            rows.add(batch)
        return rows.finish()


class PendingRows:
    """Rows on their way into files of one table, for writing to several tables at once."""

    def __init__(self, folder: str, schema: pa.Schema, prefix: str, rows_max: int = ROWS_MAX) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise LakeError(f"{prefix!r} is no prefix of a file name: a-z, 0-9 and - are, up to 64 of them")
        self._folder = Path(folder)
        self._schema = schema
        self._prefix = prefix
        self._rows_max = rows_max
        self._made: list[NewFile] = []
        self._current: _PendingFile | None = None

    def __enter__(self) -> PendingRows:
        return self

    def __exit__(self, *_: object) -> None:
        if self._current is not None:
            self._current.give_up()

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if self._current is None:
            self._current = _PendingFile(self._folder, self._schema, self._prefix)
        self._current.add(batch)
        if self._current.rows >= self._rows_max:
            self.finish()

    def finish(self) -> list[NewFile]:
        """Return the files, on disk, of all rows so far."""
        if self._current is not None:
            self._made.append(self._current.finish())
            self._current = None
        return self._made


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns of the schema, in its order; a column that it lacks is null."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        if place >= 0:
            columns.append(batch.column(place).cast(field.type))
        elif field.nullable:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            raise LakeError(f"rows for the lake lack the column {field.name}")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _PendingFile:
    """One file that is being written."""

    def __init__(self, folder: Path, schema: pa.Schema, prefix: str) -> None:
        self.rows = 0
        self._schema = schema
        self._name = f"{PENDING}/{prefix}-{uuid.uuid4().hex}.pending"
        self._path = folder / self._name
        make_folder(self._path.parent)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._writer = pq.ParquetWriter(
            str(self._path),
            schema,
            compression="zstd",
            compression_level=3,
            use_dictionary=_dictionary_columns(schema),
            column_encoding={field.name: "DELTA_BINARY_PACKED" for field in schema if _grows(field.type)},
            write_statistics=[field.name for field in schema if field.name not in _UNIQUE],
        )

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(conform(batch, self._schema))
        self.rows += batch.num_rows
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self._write_group()

    def finish(self) -> NewFile:
        self._write_group()
        self._writer.close()
        sync_file(self._path)
        sync_folder(self._path.parent)
        minimums, maximums = statistics_of(pq.read_metadata(self._path), self._schema)
        return NewFile(self._name, self.rows, self._path.stat().st_size, minimums, maximums)

    def give_up(self) -> None:
        self._writer.close()
        self._path.unlink(missing_ok=True)

    def _write_group(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self._waiting = []
        self._waiting_rows = 0
        self._waiting_bytes = 0


def _grows(field_type: pa.DataType) -> bool:
    """Positions and times: the difference to the row before is small."""
    return has_statistics(field_type) and field_type.bit_width == 64


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    names = []
    for field in schema:
        if pa.types.is_map(field.type):
            names += [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
        elif not _grows(field.type) and field.name not in _UNIQUE and not pa.types.is_nested(field.type):
            names.append(field.name)
    return names
