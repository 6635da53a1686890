"""What the lake's sink does on the driver: no batch is taken for another one, and what is committed is on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pipeline.lake import durable
from penstock.pipeline.lake.file_table import FileTable, older_files
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.sink import SinkOptions, Written, commit_rows
from penstock.pipeline.lake.staging import file_as_text
from penstock.pipeline.lake.table import LakeError
from tests.pipeline.lake.tables import lsns_read_without_penstock, pending


@pytest.fixture(params=["delta", "parquet"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", request.param)


def commit(lake: Lake, version: int, bronze: range, poison: range = range(0)) -> None:
    written = Written(staged(lake.table("bronze"), bronze), staged(lake.table("poison"), poison), "query")
    commit_rows(SinkOptions(str(lake.path), None, None), [written], "query", version)


def staged(table: FileTable, lsns: range) -> list[str]:
    return [file_as_text(file) for file in pending(table, lsns)]


def test_a_batch_that_is_repeated_changes_nothing(lake: Lake) -> None:
    commit(lake, 0, range(10), range(10, 12))
    commit(lake, 1, range(12, 20))
    commit(lake, 0, range(10), range(10, 12))
    commit(lake, 1, range(12, 20))
    assert lsns_read_without_penstock(lake.table("bronze"), lake.format) == [*range(10), *range(12, 20)]
    assert lsns_read_without_penstock(lake.table("poison"), lake.format) == [10, 11]


def test_a_batch_with_the_number_of_another_one_is_refused_and_not_lost(lake: Lake) -> None:
    commit(lake, 0, range(10))
    commit(lake, 1, range(10, 20))
    # The checkpoint is older than the lake: Spark counts on from there, and reads further than it did then.
    with pytest.raises(LakeError, match="has batch 1 of this stream already, and without event 29"):
        commit(lake, 1, range(10, 30))
    with pytest.raises(LakeError, match="begins behind the last event"):
        commit(lake, 0, range(30, 40))
    assert lsns_read_without_penstock(lake.table("bronze"), lake.format) == list(range(20))


def test_rows_with_a_problem_are_not_lost_either(lake: Lake) -> None:
    commit(lake, 0, range(10), range(10, 12))
    with pytest.raises(LakeError, match="without event 13"):
        commit(lake, 0, range(10), range(10, 14))


def test_what_is_committed_is_on_disk(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()

    def sync(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))

    monkeypatch.setattr(os, "fsync", sync)
    commit(lake, 0, range(10))
    folder = Path(lake.table("bronze").folder)
    # A power cut takes back what was not synced; Spark's note that the batch is done may be there all the same.
    assert str(lake.path) in synced
    assert str(folder) in synced
    if lake.format == "delta":
        log = folder / "_delta_log"
        assert {str(log), *(str(entry) for entry in log.glob("*.json"))} <= synced


def test_every_folder_that_is_made_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync_folder", synced.append)
    durable.make_folder(tmp_path / "one" / "two" / "three")
    assert synced == [tmp_path, tmp_path / "one", tmp_path / "one" / "two"]


def test_a_file_that_goes_while_old_ones_are_looked_for_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).touch()
    listed = Path.iterdir

    def moved_afterwards(folder: Path) -> Iterator[Path]:
        for path in sorted(listed(folder)):
            if path.name == "one":
                path.unlink()
            yield path

    monkeypatch.setattr(Path, "iterdir", moved_afterwards)
    assert older_files(tmp_path, 0) == [tmp_path / "two"]


def test_a_compaction_whose_files_went_is_told_to_try_again(tmp_path: Path) -> None:
    table = Lake(tmp_path / "lake", "parquet").table("silver")
    table.append(pending(table, range(20), rows_max=10), "refine", 0)
    for file in table.files():
        Path(file.path).unlink()
    with pytest.raises(LakeError, match="try again"):
        table.compact(10_000_000)
