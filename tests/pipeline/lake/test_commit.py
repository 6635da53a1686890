"""What the lake's sink does on the driver: no batch is taken for another one, and what is committed is on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.pipeline.archive import end_of
from penstock.pipeline.lake import durable, half_batch
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.reading import largest
from penstock.pipeline.lake.sink import SinkOptions, Written, commit_rows
from penstock.pipeline.lake.staging import file_as_text
from penstock.pipeline.lake.table import LakeTable, older_files
from penstock.pipeline.lake.table_file import LakeError
from tests.pipeline.lake.tables import lsns_read_without_penstock, pending, pyarrow_of_files


@pytest.fixture(params=["delta", "parquet"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", request.param)


def commit(lake: Lake, version: int, bronze: range, poison: range = range(0)) -> None:
    written = Written(staged(lake.table("bronze"), bronze), staged(lake.table("poison"), poison), "query")
    commit_rows(SinkOptions(str(lake.path), None, None), [written], "query", version)


def staged(table: LakeTable, lsns: range) -> list[str]:
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


class Killed(BaseException):
    """The process ends here."""


def kill_at_fsync(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """End at the beginning of the nth sync of a file or a folder from now on, as a kill would."""
    left = [number]
    sync = os.fsync

    def counted(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        sync(handle)

    monkeypatch.setattr(os, "fsync", counted)


def is_killed(commit_now: Callable[[], None], number: int) -> bool:
    with pytest.MonkeyPatch.context() as monkeypatch:
        kill_at_fsync(monkeypatch, number)
        try:
            commit_now()
        except Killed:
            return True
    return False


def all_lsns(lake: Lake) -> list[int]:
    return sorted(pyarrow_of_files(lake.table("bronze")) + pyarrow_of_files(lake.table("poison")))


@pytest.mark.slow
@pytest.mark.parametrize("poison", [range(14, 17), range(18, 20)], ids=["middle", "last"])
def test_a_kill_between_the_tables_loses_nothing_even_if_the_checkpoint_goes_too(
    tmp_path: Path, lake: Lake, poison: range
) -> None:
    """What is below the last event of bronze is in one of the two tables, and a new checkpoint begins behind that."""
    kills = 0
    while True:
        mine = Lake(tmp_path / f"lake-{kills}", lake.format)
        commit(mine, 0, range(10))
        bronze = [part for part in (range(10, poison.start), range(poison.stop, 20)) if part]
        written = Written(
            [text for part in bronze for text in staged(mine.table("bronze"), part)],
            staged(mine.table("poison"), poison),
            "query",
        )
        options = SinkOptions(str(mine.path), None, None)
        if not is_killed(lambda: commit_rows(options, [written], "query", 1), kills):  # noqa: B023 (called at once)
            break
        kills += 1
        end = largest(mine.table("bronze"), "lsn")
        assert [lsn for lsn in range(end) if lsn not in all_lsns(mine)] == []
        # The folder of the checkpoint is lost as well. The next job begins a new one behind the last event.
        half_batch.undo(mine)
        begin = end_of(mine)
        assert begin is not None
        again = [lsn for lsn in range(begin, 20) if lsn not in poison]
        files = [text for lsn in again for text in staged(mine.table("bronze"), range(lsn, lsn + 1))]
        left = range(max(begin, poison.start), poison.stop)
        commit_rows(options, [Written(files, staged(mine.table("poison"), left) if left else [], "new")], "new", 0)
        assert all_lsns(mine) == list(range(20))
    assert kills > 2
