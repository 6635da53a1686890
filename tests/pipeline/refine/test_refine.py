"""The job from bronze to silver and gold: in ranges, again and again, and after a crash anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.table import LakeTable
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.lake.writing import write_batches
from penstock.pipeline.refine import progress
from penstock.pipeline.refine.life_columns import LIVES
from penstock.pipeline.refine.refine import refine
from tests.pipeline.refine.lives_plain import Row, event, fold_plain, table_of
from tests.pipeline.refine.test_lives import rows_of
from tests.pipeline.refine.test_minutes import NOT_COUNTED, by_place, minutes_plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")


class Crash(Exception):
    """The process is gone."""


def archive(lake: Lake, events: Sequence[Row], version: int, table: str = "bronze") -> None:
    """Put events into the lake as the archive job does."""
    target = lake.table(table)
    files = write_batches(target.folder, iter(table_of(events).to_batches()), EVENTS, "part")
    target.append(files, "archive", version)


def rows(lake: Lake, name: str) -> pa.Table:
    files = [pq.read_table(file.path) for file in lake.table(name).files()]
    return pa.concat_tables(files)


def check_tables(lake: Lake, log: Sequence[Row]) -> None:
    """Silver has each life once, gold counts them all, and what is open is open."""
    ended, open_keys = fold_plain(log)
    lives = rows_of(rows(lake, "silver"))
    assert [(row["settled_lsn"], row["queue_no"], row["seq"]) for row in lives] == sorted(
        (row["settled_lsn"], row["queue_no"], row["seq"]) for row in ended
    )
    wanted = {(row["queue_no"], row["seq"]): row for row in ended}
    for row in lives:
        expected = wanted[row["queue_no"], row["seq"]]
        assert {name: row[name] for name in expected} == expected
    done = progress.refined(lake)
    assert progress.count_open(lake, done) == len(open_keys)
    gold = by_place(rows(lake, "gold"))
    minutes = minutes_plain(log)
    assert gold.keys() == minutes.keys()
    for key, row in gold.items():
        counted = {name: value for name, value in minutes[key].items() if name not in NOT_COUNTED}
        assert {name: row[name] for name in counted} == counted


def busy_log(messages: int) -> list[Row]:
    """Messages that live across several minutes; every third is still there at the end."""
    log: list[Row] = []
    for number in range(messages):
        at = number * 11.0
        log.append(event(len(log), "published", seq=number, at=at))
        if number >= 3 and number % 3:
            log.append(event(len(log), "delivered", seq=number - 3, at=at + 1))
            log.append(event(len(log), "acked", seq=number - 3, at=at + 2))
    return log


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_ranges_of_any_length_make_the_same_tables(spark: SparkSession, tmp_path: Path, format: str) -> None:
    lake = Lake(tmp_path / "lake", format)
    log = busy_log(24)
    archive(lake, log[:20], 0)
    first = refine(spark, lake, step_events=13)
    assert (first.lsn, first.steps, first.events) == (20, 2, 20)
    archive(lake, log[20:], 1)
    second = refine(spark, lake, step_events=1000)
    assert (second.lsn, second.steps, second.events) == (len(log), 1, len(log) - 20)
    check_tables(lake, log)
    again = refine(spark, lake)
    assert (again.steps, again.open) == (0, second.open)


def crash_after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    whole: Callable[..., Any] = getattr(owner, name)

    def crashing(*arguments: Any, **options: Any) -> Any:
        whole(*arguments, **options)
        raise Crash(name)

    monkeypatch.setattr(owner, name, crashing)


def crash_points() -> Iterator[tuple[Any, str]]:
    from penstock.pipeline.refine import refine_step

    yield progress, "plan"
    yield refine_step, "write_lives"
    yield LakeTable, "append"
    yield progress, "keep_open_lives"
    yield LakeTable, "replace_where"
    yield progress, "finish"


def test_a_crash_between_any_two_steps_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    log = busy_log(40)
    archive(lake, log, 0)
    points = list(crash_points())
    # A range for each crash, and one that is whole.
    length = len(log) // len(points)
    for owner, name in points:
        with monkeypatch.context() as patch:
            crash_after(patch, owner, name)
            with pytest.raises(Crash, match=name):
                # Another length than the run before: what was begun is finished with its own.
                refine(spark, lake, step_events=length + (name == "plan"))
    refine(spark, lake, step_events=length)
    check_tables(lake, log)


def test_rows_with_a_problem_are_events_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    strange = event(1, "published", seq=5, problem="properties: not a table")
    damage = event(2, "unreadable", queue_no=-1, seq=-1, problem="checksum")
    archive(lake, [strange, damage], 0, "poison")
    # Between 3 and 5000000 events are lost: nobody walks through that.
    archive(lake, [event(5_000_000, "acked", seq=5, at=9.0)], 0)
    result = refine(spark, lake, step_events=10)
    (life,) = rows(lake, "silver").to_pylist()
    assert (life["published_lsn"], life["settled_lsn"], life["partial"]) == (1, 5_000_000, False)
    assert (result.lsn, result.events) == (5_000_001, 3)


def test_a_lake_without_events_is_left_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    result = refine(spark, lake)
    assert (result.steps, result.lsn, result.open) == (0, 0, 0)
    assert not lake.table("silver").exists()


def test_progress_that_was_lost_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.table("silver", LIVES).append([], progress.APPLICATION, 3)
    with pytest.raises(LakeError, match=r"refine\.json"):
        progress.refined(lake)


def test_damaged_progress_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    progress.folder_of(lake).mkdir(parents=True)
    (progress.folder_of(lake) / "refine.json").write_text(json.dumps([1]))
    with pytest.raises(LakeError, match="damaged"):
        progress.refined(lake)


def test_one_refinement_at_a_time(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with progress.only_one(lake), pytest.raises(LakeError, match="another process"), progress.only_one(lake):
        pass
