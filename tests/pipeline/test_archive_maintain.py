"""The maintain job: fewer files, nothing too old, nothing that nobody needs; and never what is still needed."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.pipeline.jobs.maintain import maintain as command
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.maintain import MaintainOptions, Maintenance, TableMaintenance, maintain
from tests.pipeline.lake.tables import lsns_read_without_penstock, pending, time_of


@pytest.fixture(params=["delta", "parquet"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Bronze has the seconds 0 to 59 in six files, and one file that nobody has committed."""
    made = Lake(tmp_path / "lake", request.param)
    table = made.table("bronze")
    table.append(pending(table, range(60), rows_max=10), "archive", 0)
    pending(table, range(100, 110))
    return made


def options(lake: Lake, **values: object) -> MaintainOptions:
    return MaintainOptions(str(lake.path), **{"vacuum_hours": 0, **values})  # type: ignore[arg-type]


def of(result: Maintenance, table: str) -> TableMaintenance:
    return next(each for each in result.tables if each.table == table)


def test_small_files_become_one_and_orphans_go(lake: Lake) -> None:
    bronze = of(maintain(options(lake)), "bronze")
    assert (bronze.files_before, bronze.files_after) == (6, 1)
    # The orphan, and those that were compacted.
    assert bronze.vacuumed_files == 7
    assert lsns_read_without_penstock(lake.table("bronze"), lake.format) == list(range(60))
    again = of(maintain(options(lake)), "bronze")
    assert (again.files_before, again.files_after, again.vacuumed_files) == (1, 1, 0)


def test_old_rows_go_by_whole_files(lake: Lake) -> None:
    now = time_of(25) + timedelta(days=7)
    result = maintain(options(lake, keep_days={"bronze": 7}, target_bytes=1), now)
    assert of(result, "bronze").expired_files == 2
    assert lsns_read_without_penstock(lake.table("bronze"), lake.format) == list(range(20, 60))


def test_events_that_were_not_refined_are_kept_however_old_they_are(lake: Lake) -> None:
    durable.replace_json(lake.own / "refine" / "refine.json", {"lsn": 15, "version": 3, "open": "3"})
    result = maintain(options(lake, keep_days={"bronze": 0}), time_of(1000))
    assert of(result, "bronze").expired_files == 1
    assert lsns_read_without_penstock(lake.table("bronze"), lake.format) == list(range(10, 60))


def test_open_lives_of_earlier_versions_go(lake: Lake) -> None:
    state = lake.own / "refine"
    durable.replace_json(state / "refine.json", {"lsn": 15, "version": 10, "open": "10"})
    for version in (8, 9, 10, 11):
        (state / str(version)).mkdir()
        (state / str(version) / "part.parquet").write_bytes(b"rows")
    assert maintain(options(lake, dry_run=True)).refine_folders == 2
    assert maintain(options(lake)).refine_folders == 2
    # The eleventh is being made.
    assert sorted(path.name for path in state.iterdir() if path.is_dir()) == ["10", "11"]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(lake: Lake) -> None:
    def everything() -> set[Path]:
        return {path for path in lake.path.rglob("*") if path.is_file() and path.name != "lock"}

    before = everything()
    now = time_of(25) + timedelta(days=7)
    wanted = of(maintain(options(lake, keep_days={"bronze": 7}, dry_run=True), now), "bronze")
    assert everything() == before
    assert (wanted.expired_files, wanted.files_before, wanted.files_after, wanted.vacuumed_files) == (2, 4, 1, 1)
    done = of(maintain(options(lake, keep_days={"bronze": 7}), now), "bronze")
    assert (done.expired_files, done.files_before, done.files_after) == (2, 4, 1)


def test_a_young_orphan_is_left_alone(lake: Lake) -> None:
    assert of(maintain(options(lake, vacuum_hours=1)), "bronze").vacuumed_files == 0


def test_a_folder_that_is_no_lake_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is no lake"):
        maintain(MaintainOptions(str(tmp_path / "nothing")))
    assert not (tmp_path / "nothing").exists()


def test_days_for_a_table_that_does_not_exist_are_refused(lake: Lake) -> None:
    with pytest.raises(LakeError, match="the tables are"):
        maintain(options(lake, keep_days={"platinum": 3}))


def test_it_is_a_command_that_answers_in_json(lake: Lake) -> None:
    # One that is named has its own days, wherever they stand.
    arguments = ["--lake", str(lake.path), "--keep-days", "bronze=100000", "--keep-days", "3", "--vacuum-hours", "0"]
    told = CliRunner().invoke(command, [*arguments, "--json"])
    assert told.exit_code == 0
    assert json.loads(told.stdout)["tables"][0] == asdict(TableMaintenance("bronze", 0, 6, 1, 7))
    told = CliRunner().invoke(command, ["--lake", str(lake.path / "elsewhere")])
    assert (told.exit_code, "is no lake" in told.stderr) == (1, True)


@pytest.mark.parametrize("days", ["-1", "nan", "inf", "1e9", "1e308"])
def test_days_that_no_calendar_has_are_refused(lake: Lake, days: str) -> None:
    for given in (days, f"bronze={days}"):
        told = CliRunner().invoke(command, ["--lake", str(lake.path), "--keep-days", given])
        assert (told.exit_code, "days are 0 to" in told.stderr) == (1, True)
        assert len(told.stderr.splitlines()) == 1
