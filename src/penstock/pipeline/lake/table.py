"""The contract of a table in the lake.

A table is a folder that Spark, DuckDB and pandas read without penstock. It is written in transactions, each with the
name of an application and a version that only grows: a transaction that is there already is not written again. That is
what makes a repeated batch harmless.

Files come into being elsewhere: executors write Parquet into the table's folder under names that are new
(`writing.write_file`), and nobody sees them until a transaction names them.

Two implementations: `delta_table.DeltaTable` (the default) and `parquet_table.ParquetTable`, whose readers need not
know anything but the folder. Both pass `tests/pipeline/lake/test_any_table.py`.

A crash leaves the table as before the transaction or as after it; and files that no transaction names, which `vacuum`
removes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


class LakeError(Exception):
    """A table cannot be read or written. The text is for people, and says what to do next."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file in the table's folder that no transaction names yet. JSON-able: it travels from executors."""

    # Relative to the table's folder.
    path: str
    rows: int
    bytes: int
    # Of columns with an order: {"lsn": (1, 99), …}; times as ISO text.
    minimums: Mapping[str, Any] = field(default_factory=dict)
    maximums: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that is part of the table."""

    # Absolute.
    path: str
    rows: int
    bytes: int
    minimums: Mapping[str, Any]
    maximums: Mapping[str, Any]


class LakeTable(ABC):
    """One table."""

    @property
    @abstractmethod
    def folder(self) -> str:
        """Where it is; executors write their files there, into the sub-folder that `writing` chooses."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether anything was ever written."""

    @abstractmethod
    def version_of(self, application: str) -> int:
        """The last version that the application has written; -1 for none."""

    @abstractmethod
    def append(self, files: Sequence[NewFile], application: str, version: int) -> bool:
        """Add the files in one transaction; False, and nothing done, when the version was written before.

        Without files the version is remembered all the same.
        """

    @abstractmethod
    def replace_where(self, column: str, at_least: Any, rows: pa.Table, application: str, version: int) -> bool:
        """In one transaction: rows whose column is `at_least` or more go, `rows` come. False as with `append`.

        For small tables (gold): rows are those of this process, and all files that are concerned are written anew.
        """

    @abstractmethod
    def files(self) -> list[TableFile]:
        """The files that make up the table now."""

    @abstractmethod
    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Make few files of many small ones, the rows unchanged; (files before, files after)."""

    @abstractmethod
    def delete_files(self, goes: Callable[[TableFile], bool]) -> int:
        """Retention: take away the files of which this is true, with their rows; how many.

        Rows are never rewritten, so this is cheap.
        """

    @abstractmethod
    def vacuum(self, older_than_hours: float) -> int:
        """Remove files that belong to no version that could still be read; how many."""
