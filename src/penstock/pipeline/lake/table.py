"""A table in the lake: a list of files, and which of them a change adds and takes away.

A table is a folder that Spark, DuckDB and pandas read without penstock. It is written in transactions, each with the
name of an application and a version that only grows: a transaction that is there already is not written again. That is
what makes a repeated batch harmless.

Files come into being elsewhere: executors write Parquet into the table's folder under names that are new
(`writing.write_file`), and readers do not see them until a transaction names them.

Two implementations: `delta_table.DeltaTable` (the default) and `parquet_table.ParquetTable`, whose readers need not
know anything but the folder. Both pass `tests/pipeline/lake/test_any_table.py`.

A table is a list of files. Each change is one transaction that adds some and removes others; `_commit` of the
implementation makes it so in one step. Rows are only read and written here, never changed: compaction writes the rows
of several files into one, `replace_where` those that stay with those that come.

Two who rewrite at the same time would each take away the same files, and rows would be there twice. So a transaction
that removes files is refused when another one that removed files was made after its list of files was read; the second
one gets a `LakeError` and tries again later. Appending is never refused by that.

A crash leaves the table as before the transaction or as after it; and files that no transaction names, which `vacuum`
removes.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from penstock.pipeline.lake.statistics import as_statistic
from penstock.pipeline.lake.table_file import LakeError, NewFile, TableFile
from penstock.pipeline.lake.writing import PENDING, write_batches

_READ_ROWS: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a table at one moment, and how the implementation knows that moment again."""

    files: tuple[TableFile, ...]
    # How many transactions had removed files.
    rewrites: int


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction."""

    adds: Sequence[NewFile] = ()
    removes: Sequence[TableFile] = ()
    # None for those that change no rows and may be made again: maintenance.
    application: str | None = None
    version: int = -1
    # Of the snapshot from which `removes` were chosen.
    rewrites: int | None = None


class LakeTable(ABC):
    def __init__(self, folder: str, schema: pa.Schema | None = None) -> None:
        self._folder = Path(folder)
        self._schema = schema

    @property
    def folder(self) -> str:
        """Where it is; executors write their files there, into the sub-folder that `writing` chooses."""
        return str(self._folder)

    @abstractmethod
    def exists(self) -> bool:
        """Return whether anything was ever written."""

    @abstractmethod
    def version_of(self, application: str) -> int:
        """Return the last version that the application has written; -1 for none."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the files now."""

    @abstractmethod
    def _commit(self, change: Change) -> bool:
        """Make the change, in one transaction; False when the application's version was written before."""

    def files(self) -> list[TableFile]:
        """Return the files that make up the table now."""
        return list(self.snapshot().files)

    def append(self, files: Sequence[NewFile], application: str, version: int) -> bool:
        """Add the files in one transaction; False, and nothing done, when the version was written before.

        Without files the version is remembered all the same.
        """
        return self._commit(Change(adds=files, application=application, version=version))

    def replace_where(self, column: str, at_least: Any, rows: pa.Table, application: str, version: int) -> bool:
        """In one transaction: rows whose column is `at_least` or more go, `rows` come. False as with `append`.

        For small tables (gold): rows are those of this process, and all files that are concerned are written anew.
        """
        if self.version_of(application) >= version:
            return False
        snapshot = self.snapshot()
        limit = as_statistic(at_least)
        concerned = [file for file in snapshot.files if column not in file.maximums or file.maximums[column] >= limit]
        schema = self._schema_of(concerned) if concerned else self._schema or rows.schema
        value = pa.scalar(at_least, type=schema.field(column).type)
        stays = (pc.field(column) < value) | pc.field(column).is_null()
        batches = _rows_of(concerned, schema, stays)
        made = write_batches(self.folder, _one_after_the_other(batches, iter(rows.to_batches())), schema, "replace")
        return self._commit(Change(made, concerned, application, version, snapshot.rewrites))

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Make few files of many small ones, the rows unchanged; (files before, files after)."""
        before = len(self.files())
        while True:
            snapshot = self.snapshot()
            groups = groups_to_compact(snapshot.files, target_bytes)
            if not groups:
                return before, len(snapshot.files)
            schema = self._schema_of(groups[0])
            rows = _rows_of(groups[0], schema, None)
            # One file, however many rows: two files out of two would never come to an end.
            made = write_batches(self.folder, rows, schema, "compact", rows_max=sum(file.rows for file in groups[0]))
            self._commit(Change(made, groups[0], rewrites=snapshot.rewrites))

    def delete_files(self, goes: Callable[[TableFile], bool]) -> int:
        """Retention: take away the files of which this is true, with their rows; how many.

        Rows are never rewritten, so this is cheap.
        """
        snapshot = self.snapshot()
        old = [file for file in snapshot.files if goes(file)]
        if old:
            self._commit(Change((), old, rewrites=snapshot.rewrites))
        return len(old)

    def vacuum(self, older_than_hours: float) -> int:
        """Remove files that belong to no version that could still be read; how many."""
        there = [path for path in self.unused(older_than_hours) if path.exists()]
        for path in there:
            path.unlink(missing_ok=True)
        return len(there)

    @abstractmethod
    def unused(self, older_than_hours: float) -> list[Path]:
        """Return files that belong to no version that could still be read, and have not since so long."""

    def _schema_of(self, files: Sequence[TableFile]) -> pa.Schema:
        """Of the table; without one, that of the newest of its files."""
        if self._schema is not None:
            return self._schema
        try:
            return pq.read_schema(files[-1].path).remove_metadata()
        except FileNotFoundError as error:
            raise conflict(self.folder) from error

    def _expect_pending(self, files: Sequence[NewFile]) -> None:
        """Each file is where `writing` left it: one that is not may be in the table already."""
        for file in files:
            if not (self._folder / file.path).exists():
                raise LakeError(f"{file.path} is not in {self.folder}: it was vacuumed, or committed before")

    def _old_pending(self, older_than_hours: float) -> list[Path]:
        """Return files of tasks that failed or were killed."""
        return older_files(self._folder / PENDING, older_than_hours)


def groups_to_compact(files: Sequence[TableFile], target_bytes: int) -> list[list[TableFile]]:
    """Return neighbours that are small, in groups of about the target; a file that stays alone is in no group.

    Neighbours by position, or else by time: so the files that come out are as easy to prune as before.
    """
    small = [file for file in files if file.bytes < target_bytes]
    column = _order_of(small)
    known = [file for file in small if column in file.minimums]
    known.sort(key=lambda file: (file.minimums[column], file.path))
    groups: list[list[TableFile]] = []
    room = 0
    for file in known + [file for file in small if column not in file.minimums]:
        if not groups or file.bytes > room:
            groups.append([])
            room = target_bytes
        groups[-1].append(file)
        room -= file.bytes
    return [group for group in groups if len(group) > 1]


def older_files(folder: Path, older_than_hours: float) -> list[Path]:
    """Return the files of a folder that were last written, or moved there, so long ago."""
    if not folder.is_dir():
        return []
    limit = time.time() - older_than_hours * 3600
    old = []
    for path in folder.iterdir():
        # A job that runs beside may move it away now.
        with suppress(FileNotFoundError):
            stat = path.stat()
            if S_ISREG(stat.st_mode) and max(stat.st_mtime, stat.st_ctime) <= limit:
                old.append(path)
    return old


def conflict(folder: str) -> LakeError:
    """What the second of two rewriters is told."""
    return LakeError(
        f"another process changed the files of {folder} at the same time, and was first. Nothing was done: try again"
    )


def relative(path: str, folder: Path) -> str:
    """Of an absolute path of a file of the table."""
    return os.path.relpath(path, folder)


def _order_of(files: Sequence[TableFile]) -> str:
    """The column by which files are neighbours: the position, the first time there is; empty when there is neither."""
    for file in files:
        if "lsn" in file.minimums:
            return "lsn"
        times = sorted(name for name, value in file.minimums.items() if isinstance(value, str))
        if times:
            return times[0]
    return ""


def _rows_of(files: Sequence[TableFile], schema: pa.Schema, where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
    """Rows of the files in their order, a few at a time; a column that an older file lacks is null."""
    if not files:
        return
    try:
        rows = ds.dataset([file.path for file in files], schema=schema, format="parquet")
        yield from rows.to_batches(
            filter=where, batch_size=_READ_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
        )
    except FileNotFoundError as error:
        raise conflict(os.path.dirname(files[0].path)) from error


def _one_after_the_other(*parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from part
