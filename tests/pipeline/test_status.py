"""What status says of a lake: how far the jobs are behind, and what somebody should look at. Needs no Spark."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("deltalake", reason="needs the lake: pip install 'penstock[pipeline]'")

from penstock.cli.main import main
from penstock.history.opening import open_log
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import FORMATS, Lake
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.lake.writing import write_batches
from penstock.pipeline.reconcile.reconcile import note
from penstock.pipeline.reconcile.result import BROKER, POSTGRES, Difference, Reconciliation
from penstock.pipeline.refine import progress
from penstock.pipeline.status import status
from tests.pipeline.archived import end_lsn, written
from tests.pipeline.refine.lives_plain import event, table_of

Row = dict[str, Any]


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", request.param)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A log of 10 lives."""
    written(tmp_path / "data", 10).close()
    return tmp_path / "data"


def put(lake: Lake, table: str, rows: list[Row], version: int = 0) -> None:
    target = lake.table(table)
    schema = table_of(rows).schema
    target.append(write_batches(target.folder, iter(table_of(rows).to_batches()), schema, "part"), "archive", version)


def told(lake: Lake, source: Path, lsn: int) -> None:
    """What the archive job leaves behind."""
    facts = {"source": str(source), "reader": "archive", "lsn": lsn, "lag_events": 1, "lag_s": 9.0, "running": True}
    durable.replace_json(lake.own / "progress" / "archive.json", {**facts, "updated_us": 1_700_000_000_000_000})


def test_the_lag_is_that_of_the_log_as_it_is_now(lake: Lake, source: Path) -> None:
    told(lake, source, 12)
    log = open_log(str(source))
    log.set_cursor("archive", 12)
    log.close()
    put(lake, "bronze", [event(number, "published", seq=number, at=0.0) for number in range(12)])
    progress.finish(lake, progress.Refined(5, 1, "1", ()))
    found = status(str(lake.path))
    end = end_lsn(source)
    assert (found.end_lsn, found.archived_lsn, found.archive_lag_events) == (end, 12, end - 12)
    assert (found.refined_lsn, found.refine_lag_events) == (5, 7)
    assert (found.format, found.archive_running, found.alarms) == (lake.format, True, ())
    assert {table.table: table.rows for table in found.tables} == {"bronze": 12, "poison": 0, "silver": 0, "gold": 0}


def test_a_log_that_is_gone_is_an_alarm_and_what_the_job_said_stays(lake: Lake, tmp_path: Path) -> None:
    told(lake, tmp_path / "nowhere", 12)
    found = status(str(lake.path))
    assert (found.end_lsn, found.archive_lag_events, found.archive_lag_s) == (None, 1, 9.0)
    [alarm] = found.alarms
    assert "the log cannot be asked" in alarm


def test_rows_in_poison_are_an_alarm(lake: Lake) -> None:
    put(lake, "poison", [{**event(0, "published", seq=0, at=0.0), "problem": "torn"}])
    found = status(str(lake.path))
    assert found.poison_rows == 1
    assert found.alarms == ("1 rows could not be read whole; the table poison says which, and why",)


def test_counters_that_differ_are_an_alarm_until_they_are_right(lake: Lake) -> None:
    wrong = Difference(BROKER, "/", "q", "persistent_count", 1, 2)
    repaired = Difference(POSTGRES, None, "q", "ready", 1, 2)
    note(lake, Reconciliation(1, 1, 7, (wrong, repaired), repaired=True))
    [alarm] = status(str(lake.path)).alarms
    assert alarm.startswith("1 counters differ")
    note(lake, Reconciliation(1, 1, 7))
    assert status(str(lake.path)).alarms == ()


def test_the_command_answers_people_and_programs_and_its_code_is_the_alarm(lake: Lake, source: Path) -> None:
    told(lake, source, 12)
    given = ["pipeline", "status", "--lake", str(lake.path)]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0
    assert "archive   12, behind by 1 events" in result.stdout
    assert "running at 2023-11-14 22:13:20 UTC" in result.stdout
    put(lake, "poison", [{**event(0, "published", seq=0, at=0.0), "problem": "torn"}])
    result = CliRunner().invoke(main, [*given, "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout) == json.loads(json.dumps(asdict(status(str(lake.path)))))
    assert "ALARM     1 rows" in CliRunner().invoke(main, given).stdout


def test_looking_at_a_lake_that_is_not_there_does_not_make_one(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is no lake"):
        status(str(tmp_path / "lake"))
    assert list(tmp_path.iterdir()) == []
