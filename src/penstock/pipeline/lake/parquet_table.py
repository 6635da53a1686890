"""A table of plain Parquet files, which every program that reads a folder of Parquet can read.

    <table>/part-<transaction>-<index>.parquet      the rows
    <table>/_pending/                               files that no transaction names
    <table>/_penstock/manifest.json                 the files with their statistics, and versions by application
    <table>/_penstock/intent.json                   the transaction that is being made
    <table>/_penstock/removed/                      files that were taken away, until `vacuum`

A transaction is decided when its intent is on disk. What follows is the same each time it is done: files that go are
moved to `removed`, files that come are moved to names made of the transaction's number, the manifest is replaced, the
intent is removed. After a crash the next opening of the table finishes what the intent says.

Invariants
  1. Without an intent, the `*.parquet` in the folder are exactly those that the manifest names.
  2. A transaction's number is one more than that of the manifest; an intent whose number the manifest has is done.
  3. No row is in two files of the folder at any moment: files that go are moved away before others come.

A reader who lists the folder in the middle of a transaction sees a part of it; in the middle of a compaction, for a
moment, not the rows that are being moved. Delta has no such moment. Writers wait for each other by a lock on
`_penstock/lock`, which the system lets go when a process ends.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.pipeline.lake import durable
from penstock.pipeline.lake.table import Change, LakeTable, Snapshot, conflict, older_files, relative
from penstock.pipeline.lake.table_file import LakeError, TableFile

_FORMAT: Final = 1


class ParquetTable(LakeTable):
    """A table whose list of files is a manifest, and at the same time the folder itself."""

    def exists(self) -> bool:
        return (self._own / "manifest.json").exists()

    def version_of(self, application: str) -> int:
        return int(self._settled()["versions"].get(application, -1))

    def snapshot(self) -> Snapshot:
        manifest = self._settled()
        return Snapshot(tuple(self._file(entry) for entry in manifest["files"]), manifest["rewrites"])

    def unused(self, older_than_hours: float) -> list[Path]:
        removed = older_files(self._own / "removed", older_than_hours)
        return [*self._old_pending(older_than_hours), *removed]

    @property
    def _own(self) -> Path:
        return self._folder / "_penstock"

    def _commit(self, change: Change) -> bool:
        with self._locked():
            manifest = self._finish_intent()
            if change.application is not None:
                if manifest["versions"].get(change.application, -1) >= change.version:
                    return False
                manifest["versions"][change.application] = change.version
            if change.removes:
                if manifest["rewrites"] != change.rewrites:
                    raise conflict(self.folder)
                manifest["rewrites"] += 1
            manifest["sequence"] += 1
            gone = {relative(file.path, self._folder) for file in change.removes}
            names = [f"part-{manifest['sequence']:012d}-{index:05d}.parquet" for index in range(len(change.adds))]
            manifest["files"] = [entry for entry in manifest["files"] if entry["path"] not in gone] + [
                {
                    "path": name,
                    "rows": file.rows,
                    "bytes": file.bytes,
                    "minimums": dict(file.minimums),
                    "maximums": dict(file.maximums),
                }
                for name, file in zip(names, change.adds, strict=True)
            ]
            intent = {
                "removes": sorted(gone),
                "moves": [[file.path, name] for name, file in zip(names, change.adds, strict=True)],
                "manifest": manifest,
            }
            self._expect_pending(change.adds)
            durable.replace_json(self._own / "intent.json", intent)
            self._finish_intent()
            return True

    def _finish_intent(self) -> dict[str, Any]:
        """Make what the intent says, from wherever it was left; the manifest afterwards."""
        manifest = self._manifest()
        intent = durable.read_json(self._own / "intent.json")
        if intent is None:
            return manifest
        wanted: dict[str, Any] = intent["manifest"]
        if manifest["sequence"] < wanted["sequence"]:
            durable.make_folder(self._own / "removed")
            for name in intent["removes"]:
                durable.move(self._folder / name, self._own / "removed" / f"{name}.removed")
            for pending, name in intent["moves"]:
                durable.move(self._folder / pending, self._folder / name)
            durable.replace_json(self._own / "manifest.json", wanted)
        durable.remove(self._own / "intent.json")
        return self._manifest()

    def _settled(self) -> dict[str, Any]:
        """Return the manifest, after whatever a crash had left was finished."""
        if not (self._own / "intent.json").exists():
            return self._manifest()
        with self._locked():
            return self._finish_intent()

    def _manifest(self) -> dict[str, Any]:
        found = durable.read_json(self._own / "manifest.json")
        if found is None:
            return {"format": _FORMAT, "sequence": 0, "rewrites": 0, "versions": {}, "files": []}
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise LakeError(f"{self._own / 'manifest.json'} is of another version of penstock")
        return found

    def _file(self, entry: dict[str, Any]) -> TableFile:
        path = str(self._folder / entry["path"])
        return TableFile(path, entry["rows"], entry["bytes"], entry["minimums"], entry["maximums"])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        durable.make_folder(self._own)
        with open(self._own / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
