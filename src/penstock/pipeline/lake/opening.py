"""A lake: the folder of the tables, what format they have, and to which log they belong.

`_penstock/lake.json` says both. The format is chosen once, when the lake is made. The log is bound by the first job
that archives it: rows of two brokers in one table could not be told apart, their positions and queue numbers are the
same numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.delta_table import DeltaTable
from penstock.pipeline.lake.parquet_table import ParquetTable
from penstock.pipeline.lake.table import LakeTable
from penstock.pipeline.lake.table_file import LakeError

LakeFormat = Literal["delta", "parquet"]
FORMATS: Final[tuple[LakeFormat, ...]] = ("delta", "parquet")
TABLES: Final = ("bronze", "poison", "silver", "gold")
_VERSION: Final = 1


def lake_folder(path: str | Path) -> Path:
    """Return the folder that is meant, wherever a process runs. LakeError for an address."""
    if "://" in str(path):
        raise LakeError(f"a lake is a folder, not {path}: mount the storage, and give the path")
    return Path(path).absolute()


class Lake:
    """A folder with tables. Opening makes it when it is not there."""

    def __init__(self, path: str | Path, format: str | None = None) -> None:
        folder = lake_folder(path)
        if format is not None and format not in FORMATS:
            raise LakeError(f"a lake's format is one of {', '.join(FORMATS)}, not {format!r}")
        self.path: Final = folder
        about = self._read()
        if about is None:
            durable.create_json(self._file, {"format": format or "delta", "version": _VERSION, "log_id": ""})
            about = self._read() or {}
        if format is not None and about["format"] != format:
            raise LakeError(
                f"the lake {self.path} has the format {about['format']}, and cannot be written as {format}:"
                " leave the format away, or begin another lake"
            )
        self.format: Final[LakeFormat] = "delta" if about["format"] == "delta" else "parquet"

    @property
    def own(self) -> Path:
        """What is not a table: checkpoints, progress, the state of jobs."""
        return self.path / "_penstock"

    @property
    def log_id(self) -> str:
        """Of the log whose events are here; empty as long as there are none."""
        return str((self._read() or {}).get("log_id", ""))

    def table(self, name: str, schema: pa.Schema | None = None) -> LakeTable:
        """A table by its name. The schema is that of a table which is not there yet; bronze and poison have theirs."""
        if name not in TABLES:
            raise LakeError(f"a lake has the tables {', '.join(TABLES)}, not {name!r}")
        columns = EVENTS if name in ("bronze", "poison") else schema
        folder = str(self.path / name)
        return DeltaTable(folder, columns) if self.format == "delta" else ParquetTable(folder, columns)

    def bind(self, log_id: str) -> None:
        """The lake belongs to this log; LakeError when it belongs to another one."""
        bound = self.log_id
        if bound == log_id:
            return
        if bound:
            raise LakeError(
                f"the lake {self.path} has the events of another data folder (log {bound}, this one is"
                f" {log_id or 'without an id'}): give each data folder a lake of its own"
            )
        durable.replace_json(self._file, {"format": self.format, "version": _VERSION, "log_id": log_id})

    @property
    def _file(self) -> Path:
        return self.own / "lake.json"

    def _read(self) -> dict[str, Any] | None:
        found = durable.read_json(self._file)
        if found is None:
            return None
        if not isinstance(found, dict) or found.get("version") != _VERSION or found.get("format") not in FORMATS:
            raise LakeError(f"{self._file} is of another version of penstock, or damaged")
        return found


def open_lake(path: str | Path) -> Lake:
    """Return a lake that is there: only `archive` makes one."""
    if not (lake_folder(path) / "_penstock" / "lake.json").is_file():
        raise LakeError(f"{path} is no lake: `penstock pipeline archive` makes one")
    return Lake(path)
