"""What every table of the lake does, whatever its format."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as PlainDeltaTable

from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.table import LakeTable
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.lake.writing import write_batches
from tests.pipeline.lake.tables import (
    batch_of,
    lsns_read_without_penstock,
    pending,
    pyarrow_of_files,
    time_of,
    wholly_below,
)


@pytest.fixture(params=["delta", "parquet"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(tmp_path: Path, format: str) -> LakeTable:
    return Lake(tmp_path / "lake", format).table("bronze")


def table_of(*ranges: range) -> pa.Table:
    return pa.Table.from_batches([batch_of(lsns) for lsns in ranges], EVENTS)


def test_a_table_that_was_never_written_is_empty(table: LakeTable) -> None:
    assert not table.exists()
    assert table.files() == []
    assert table.version_of("archive") == -1
    assert table.compact(1000) == (0, 0)
    assert table.delete_files(wholly_below("lsn", 10)) == 0
    assert table.vacuum(0) == 0


def test_appended_rows_are_read_without_penstock(table: LakeTable, format: str) -> None:
    assert table.append(pending(table, range(25)), "archive", 0)
    assert table.append(pending(table, range(25, 40)), "archive", 1)
    assert table.exists()
    assert table.version_of("archive") == 1
    assert lsns_read_without_penstock(table, format) == list(range(40))
    assert pyarrow_of_files(table) == list(range(40))


def test_files_carry_rows_bytes_and_limits_of_positions_and_times(table: LakeTable) -> None:
    table.append(pending(table, range(5, 25), rows_max=10), "archive", 0)
    first, second = sorted(table.files(), key=lambda file: file.minimums["lsn"])
    assert (first.rows, second.rows) == (10, 10)
    assert first.bytes == Path(first.path).stat().st_size
    assert (first.minimums["lsn"], first.maximums["lsn"], second.maximums["lsn"]) == (5, 14, 24)
    assert first.minimums["time"] == "2026-03-01T00:00:05.000000Z"
    # A column with nulls has no limits: they would say that there is a value in each row.
    assert "size" not in first.minimums


def test_a_version_that_was_written_is_not_written_again(table: LakeTable, format: str) -> None:
    assert table.append(pending(table, range(10)), "archive", 7)
    assert not table.append(pending(table, range(10)), "archive", 7)
    assert not table.append(pending(table, range(10)), "archive", 6)
    assert table.append(pending(table, range(10, 20)), "another", 0)
    assert lsns_read_without_penstock(table, format) == list(range(20))


def test_a_version_without_rows_is_remembered(table: LakeTable, format: str) -> None:
    assert table.append([], "archive", 0)
    assert not table.append(pending(table, range(10)), "archive", 0)
    assert table.version_of("archive") == 0
    assert table.files() == []
    assert table.append(pending(table, range(10)), "archive", 1)
    assert lsns_read_without_penstock(table, format) == list(range(10))


def test_a_version_is_remembered_however_many_others_follow(table: LakeTable) -> None:
    table.append([], "long ago", 7)
    # More than lie between two checkpoints of a Delta log.
    for version in range(60):
        table.append([], "archive", version)
    assert (table.version_of("long ago"), table.version_of("archive")) == (7, 59)
    assert not table.append(pending(table, range(10)), "long ago", 7)


def test_files_that_no_transaction_names_are_seen_by_nobody(table: LakeTable, format: str) -> None:
    table.append(pending(table, range(10)), "archive", 0)
    orphans = pending(table, range(100, 120), rows_max=10)
    assert lsns_read_without_penstock(table, format) == list(range(10))
    assert table.vacuum(0) == len(orphans) == 2
    assert lsns_read_without_penstock(table, format) == list(range(10))


def test_young_orphans_are_left_to_their_writer(table: LakeTable) -> None:
    files = pending(table, range(10))
    assert table.vacuum(1) == 0
    assert table.append(files, "archive", 0)


def test_rows_from_a_limit_on_are_replaced_in_one_transaction(table: LakeTable, format: str) -> None:
    table.append(pending(table, range(30), rows_max=10), "refine", 0)
    assert table.replace_where("lsn", 15, table_of(range(15, 18)), "refine", 1)
    assert lsns_read_without_penstock(table, format) == list(range(18))
    assert not table.replace_where("lsn", 0, table_of(range(99, 100)), "refine", 1)
    assert lsns_read_without_penstock(table, format) == list(range(18))


def test_rows_are_replaced_by_time_too(table: LakeTable, format: str) -> None:
    table.append(pending(table, range(30), rows_max=10), "refine", 0)
    untouched = {file.path for file in table.files() if file.maximums["lsn"] < 10}
    assert table.replace_where("time", time_of(12), table_of(range(50, 52)), "refine", 1)
    assert lsns_read_without_penstock(table, format) == [*range(12), 50, 51]
    assert untouched < {file.path for file in table.files()}


def test_replacing_in_an_empty_table_adds(table: LakeTable, format: str) -> None:
    assert table.replace_where("lsn", 0, table_of(range(3)), "refine", 0)
    assert lsns_read_without_penstock(table, format) == [0, 1, 2]


def test_compaction_keeps_the_rows_and_makes_few_files(table: LakeTable, format: str) -> None:
    for version in range(6):
        table.append(pending(table, range(version * 10, version * 10 + 10)), "archive", version)
    rows = pa.concat_tables([pa.parquet.read_table(file.path) for file in table.files()]).sort_by("lsn")
    assert table.compact(10_000_000) == (6, 1)
    assert lsns_read_without_penstock(table, format) == list(range(60))
    assert pa.parquet.read_table(table.files()[0].path).sort_by("lsn").equals(rows)
    assert table.version_of("archive") == 5
    assert table.compact(10_000_000) == (1, 1)


def test_compaction_leaves_files_that_are_large_enough(table: LakeTable) -> None:
    table.append(pending(table, range(40), rows_max=10), "archive", 0)
    smallest = min(file.bytes for file in table.files())
    assert table.compact(smallest) == (4, 4)
    largest = max(file.bytes for file in table.files())
    assert table.compact(2 * largest) == (4, 2)
    spans = sorted((file.minimums["lsn"], file.maximums["lsn"]) for file in table.files())
    # Neighbours were put together.
    assert spans == [(0, 19), (20, 39)]


def test_retention_removes_whole_files_only(table: LakeTable, format: str) -> None:
    table.append(pending(table, range(30), rows_max=10), "archive", 0)
    assert table.delete_files(wholly_below("lsn", 9)) == 0
    assert table.delete_files(wholly_below("lsn", 10)) == 1
    assert lsns_read_without_penstock(table, format) == list(range(10, 30))
    assert table.delete_files(wholly_below("time", time_of(25))) == 1
    assert lsns_read_without_penstock(table, format) == list(range(20, 30))
    assert table.version_of("archive") == 0


def test_vacuum_removes_what_was_replaced_once_it_is_old(table: LakeTable, format: str) -> None:
    table.append(pending(table, range(30), rows_max=10), "archive", 0)
    table.compact(10_000_000)
    assert table.vacuum(1) == 0
    assert table.vacuum(0) == 3
    assert table.vacuum(0) == 0
    assert lsns_read_without_penstock(table, format) == list(range(30))
    files = [path for path in Path(table.folder).rglob("*") if path.is_file() and "_delta_log" not in path.parts]
    assert len([path for path in files if path.stat().st_size > 0 and path.suffix != ".json"]) == 1


def test_a_second_opening_sees_what_the_first_wrote(tmp_path: Path, table: LakeTable, format: str) -> None:
    table.append(pending(table, range(10)), "archive", 3)
    again = Lake(tmp_path / "lake").table("bronze")
    assert again.version_of("archive") == 3
    assert not again.append(pending(again, range(10)), "archive", 3)
    assert again.append(pending(again, range(10, 20)), "archive", 4)
    assert table.version_of("archive") == 4
    assert lsns_read_without_penstock(table, format) == list(range(20))


def test_two_rewriters_do_not_both_keep_the_rows(tmp_path: Path, table: LakeTable, format: str) -> None:
    table.append(pending(table, range(20), rows_max=10), "archive", 0)

    class Slow(type(table)):  # type: ignore[misc]
        """Another process compacts the table between its look at the files and its commit."""

        def snapshot(self) -> object:
            seen = super().snapshot()
            if seen.rewrites == before:
                assert table.compact(10_000_000) == (2, 1)
            return seen

    before = table.snapshot().rewrites
    slow = Slow(table.folder, EVENTS)
    with pytest.raises(LakeError, match="another process"):
        slow.replace_where("lsn", 10, table_of(range(10, 12)), "refine", 0)
    assert lsns_read_without_penstock(table, format) == list(range(20))
    assert table.replace_where("lsn", 10, table_of(range(10, 12)), "refine", 0)
    assert lsns_read_without_penstock(table, format) == list(range(12))


def test_appending_goes_on_while_others_compact(table: LakeTable, format: str) -> None:
    table.append(pending(table, range(20), rows_max=10), "archive", 0)
    files = pending(table, range(20, 30))
    table.compact(10_000_000)
    assert table.append(files, "archive", 1)
    assert lsns_read_without_penstock(table, format) == list(range(30))


def test_a_table_of_an_older_version_takes_columns_that_came_later(table: LakeTable, format: str) -> None:
    older = type(table)(table.folder, pa.schema([field for field in EVENTS if field.name != "problem"]))
    rows = batch_of(range(5)).drop_columns(["problem"])
    older.append(write_batches(older.folder, iter([rows]), rows.schema, "test"), "archive", 0)
    table.append(pending(table, range(5, 10)), "archive", 1)
    assert lsns_read_without_penstock(table, format) == list(range(10))
    assert table.compact(10_000_000) == (2, 1)
    assert pa.parquet.read_table(table.files()[0].path).schema.names == EVENTS.names
    if format == "delta":
        assert PlainDeltaTable(table.folder).to_pyarrow_table().column_names == EVENTS.names


def test_files_are_not_committed_twice_under_two_names(table: LakeTable) -> None:
    files = pending(table, range(10))
    table.append(files, "archive", 0)
    with pytest.raises(LakeError):
        table.append(files, "another", 0)
    assert pyarrow_of_files(table) == list(range(10))
