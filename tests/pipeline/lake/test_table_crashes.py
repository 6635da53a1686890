"""A process that ends between any two steps of a transaction leaves the table as before or as after it.

The steps are the functions of `durable` and the commit of `deltalake`. Each test makes the same change again and again,
on a new table, and lets it end before the first step, after it, before the second, and so on, until it comes through.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.table import LakeTable
from tests.pipeline.lake.tables import batch_of, lsns_read_without_penstock, pending, pyarrow_of_files, wholly_below

STEPS = ("make_folder", "replace_json", "create_json", "move", "remove")


class ProcessEnded(BaseException):
    """Not an Exception: nothing may catch it and tidy up."""


class Steps:
    """Counts the steps, and ends the process at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen = 0
        self.end_at = -1
        # The process ends, the machine does not: nothing has to reach the disk, and there are hundreds of tables here.
        patch.setattr(os, "fsync", lambda handle: None)
        for name in STEPS:
            patch.setattr(durable, name, self._step(getattr(durable, name)))
        commit = deltalake.DeltaTable.create_write_transaction
        patch.setattr(deltalake.DeltaTable, "create_write_transaction", self._step(commit))

    def _step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            self._pass()
            answer = real(*args, **named)
            self._pass()
            return answer

        return step

    def _pass(self) -> None:
        self.seen += 1
        if self.seen == self.end_at:
            raise ProcessEnded


@pytest.fixture(params=["delta", "parquet"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def append(table: LakeTable) -> None:
    table.append(pending(table, range(20, 40), rows_max=10), "archive", 1)


def replace(table: LakeTable) -> None:
    table.replace_where("lsn", 15, pa.Table.from_batches([batch_of(range(15, 40))], EVENTS), "archive", 1)


def compact(table: LakeTable) -> None:
    table.compact(10_000_000)


def delete(table: LakeTable) -> None:
    table.delete_files(wholly_below("lsn", 10))


def vacuum(table: LakeTable) -> None:
    table.compact(10_000_000)
    table.vacuum(0)


CHANGES: dict[str, tuple[Callable[[LakeTable], None], list[int]]] = {
    "append": (append, list(range(40))),
    "replace": (replace, list(range(40))),
    "compact": (compact, list(range(20))),
    "delete": (delete, list(range(10, 20))),
    "vacuum": (vacuum, list(range(20))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_rows_are_there_once_wherever_the_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, name: str
) -> None:
    change, after = CHANGES[name]
    before = list(range(20))
    steps = Steps(monkeypatch)
    ended = 0
    while True:
        path = tmp_path / f"lake-{ended}"
        table = Lake(path, format).table("bronze")
        table.append(pending(table, range(20), rows_max=10), "archive", 0)
        steps.seen, steps.end_at = 0, ended + 1
        try:
            change(table)
            break
        except ProcessEnded:
            steps.end_at = -1
        ended += 1
        again = Lake(path).table("bronze")
        found = pyarrow_of_files(again)
        assert found in (before, after), (name, ended)
        assert lsns_read_without_penstock(again, format) == found
        # Whoever repeats the change makes it once.
        change(again)
        again.append(pending(again, range(100, 101)), "archive", 2)
        again.vacuum(0)
        assert lsns_read_without_penstock(again, format) == [*after, 100], (name, ended)
    assert ended >= 2, "the change has no steps: the test looks at the wrong functions"


@pytest.mark.parametrize("with_rows", [True, False])
def test_the_first_transaction_may_end_anywhere_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, with_rows: bool
) -> None:
    steps = Steps(monkeypatch)
    rows = range(10) if with_rows else range(0)
    ended = 0
    while True:
        path = tmp_path / f"lake-{ended}"
        steps.seen, steps.end_at = 0, ended + 1
        try:
            table = Lake(path, format).table("bronze")
            table.append(pending(table, rows), "archive", 0)
            break
        except ProcessEnded:
            steps.end_at = -1
        ended += 1
        again = Lake(path, format).table("bronze")
        assert pyarrow_of_files(again) in ([], list(rows))
        again.append(pending(again, rows), "archive", 0)
        assert pyarrow_of_files(again) == list(rows)
        assert again.version_of("archive") == 0
    assert ended >= 2, "the change has no steps: the test looks at the wrong functions"
