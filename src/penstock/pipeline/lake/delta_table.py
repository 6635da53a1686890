"""A Delta table, written through `deltalake`: no jars, no JVM.

Executors have written the files; a transaction moves them out of `_pending` and names them in the table's log, together
with (application, version). The log entry is one file that is created once, so a transaction is there or is not. It is
synced afterwards, which `deltalake` does not do, so that the caller may forget the rows.

`deltalake` lets two writers remove the same file, and would then have the rows of both. So a transaction that removes
files also counts up the version of an application of its own, `penstock-rewrites`: two that counted from the same
number are in conflict, and the second is refused.

There are no deletion vectors and no renamed columns: the files that the log names are the table. A crash leaves files
that were moved but not named. `vacuum` removes them.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from penstock.pipeline.lake import durable
from penstock.pipeline.lake.statistics import as_statistic
from penstock.pipeline.lake.table import Change, LakeTable, Snapshot, conflict, relative
from penstock.pipeline.lake.table_file import LakeError, NewFile, TableFile

_REWRITES: Final = "penstock-rewrites"
_CONFIGURATION: Final = {
    # Opening a table reads the log since the last checkpoint.
    "delta.checkpointInterval": "50",
    # A stream makes an entry for each batch: kept for the default of 30 days they would be hundreds of thousands.
    "delta.logRetentionDuration": "interval 2 days",
}


class DeltaTable(LakeTable):
    """A table whose list of files is a Delta log."""

    def exists(self) -> bool:
        return self._open() is not None

    def version_of(self, application: str) -> int:
        table = self._open()
        return -1 if table is None else _version(table, application)

    def snapshot(self) -> Snapshot:
        table = self._open()
        if table is None:
            return Snapshot((), -1)
        rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return Snapshot(tuple(self._file(row) for row in rows), _version(table, _REWRITES))

    def unused(self, older_than_hours: float) -> list[Path]:
        table = self._open()
        if table is None:
            return self._old_pending(older_than_hours)
        # The log names what was removed long after it is gone.
        named = table.vacuum(math.ceil(older_than_hours), dry_run=True, enforce_retention_duration=False, full=True)
        there = [self._folder / name for name in sorted(set(named)) if (self._folder / name).exists()]
        return [*self._old_pending(older_than_hours), *there]

    def _commit(self, change: Change) -> bool:
        opened = self._open()
        known = -1 if opened is None else opened.version()
        table = opened or self._create(change)
        marks = []
        if change.application is not None:
            if _version(table, change.application) >= change.version:
                return False
            marks.append(Transaction(change.application, change.version))
        if change.removes:
            if _version(table, _REWRITES) != change.rewrites:
                raise conflict(self.folder)
            marks.append(Transaction(_REWRITES, change.rewrites + 1))
        self._expect_pending(change.adds)
        table = self._with_new_columns(table)
        rows_change = change.application is not None or not change.adds
        actions: list[AddAction | RemoveAction] = [self._add(file, rows_change) for file in change.adds]
        now = int(time.time() * 1000)
        actions += [
            RemoveAction(relative(file.path, self._folder), rows_change, now, file.bytes, {}) for file in change.removes
        ]
        self._write(table, actions, marks)
        self._sync_log(known)
        return True

    def _write(
        self, table: deltalake.DeltaTable, actions: list[AddAction | RemoveAction], marks: list[Transaction]
    ) -> None:
        properties = CommitProperties(app_transactions=marks)
        try:
            table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
        except CommitFailedError as error:
            raise conflict(self.folder) from error
        except DeltaError as error:
            raise LakeError(f"the Delta table {self.folder} refuses a transaction: {error}") from error

    def _sync_log(self, known: int) -> None:
        """What came into the log behind the version that was known is on disk."""
        log = self._folder / "_delta_log"
        version = known + 1
        while (log / f"{version:020d}.json").exists():
            for made in (log / f"{version:020d}.json", log / f"{version:020d}.checkpoint.parquet"):
                if made.exists():
                    durable.sync_file(made)
            version += 1
        if (log / "_last_checkpoint").exists():
            durable.sync_file(log / "_last_checkpoint")
        durable.sync_folder(log)

    def _add(self, file: NewFile, rows_change: bool) -> AddAction:
        """Move the file to its place. Readers do not see it before the log names it."""
        name = file.path.rsplit("/", 1)[-1].removesuffix(".pending") + ".parquet"
        durable.move(self._folder / file.path, self._folder / name)
        statistics = {
            "numRecords": file.rows,
            "minValues": dict(file.minimums),
            "maxValues": dict(file.maximums),
            "nullCount": dict.fromkeys(file.minimums, 0),
        }
        return AddAction(name, file.bytes, {}, int(time.time() * 1000), rows_change, json.dumps(statistics))

    def _file(self, row: dict[str, Any]) -> TableFile:
        minimums = {
            key[4:]: as_statistic(value) for key, value in row.items() if key[:4] == "min." and value is not None
        }
        maximums = {
            key[4:]: as_statistic(value) for key, value in row.items() if key[:4] == "max." and value is not None
        }
        return TableFile(str(self._folder / row["path"]), row["num_records"], row["size_bytes"], minimums, maximums)

    def _open(self) -> deltalake.DeltaTable | None:
        try:
            return deltalake.DeltaTable(self.folder)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise LakeError(f"the Delta table {self.folder} cannot be read: {error}") from error

    def _with_new_columns(self, table: deltalake.DeltaTable) -> deltalake.DeltaTable:
        """Columns that came with a later version of penstock are null in older files; the log has to know them."""
        known = {column.name for column in table.schema().fields}
        new = [column for column in self._schema or () if column.name not in known]
        if not new:
            return table
        table.alter.add_columns(deltalake.Schema.from_arrow(pa.schema(new)).fields)
        return deltalake.DeltaTable(self.folder)

    def _create(self, change: Change) -> deltalake.DeltaTable:
        schema = self._schema
        if schema is None:
            if not change.adds:
                raise LakeError(f"{self.folder} has no columns yet: the first transaction must have rows")
            schema = pq.read_schema(self._folder / change.adds[0].path).remove_metadata()
        durable.make_folder(self._folder)
        try:
            return deltalake.DeltaTable.create(self.folder, schema, mode="ignore", configuration=_CONFIGURATION)
        except CommitFailedError:
            # Another process made it at the same moment.
            return deltalake.DeltaTable(self.folder)


def _version(table: deltalake.DeltaTable, application: str) -> int:
    version = table.transaction_version(application)
    return -1 if version is None else int(version)
