"""The archive job on real journals: everything once, the cursor behind it, and progress that can be read."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.history.opening import open_log
from penstock.pipeline.archive import (
    ArchiveOptions,
    ArchiveProgress,
    StreamFailed,
    archive,
    check_checkpoint,
    checkpoint_of,
    committed_lsn,
    end_of,
    only_one,
    progress_of,
    reason_in,
    starting_lsn,
)
from penstock.pipeline.jobs.archive import archive as command
from penstock.pipeline.jobs.archive import options_of
from penstock.pipeline.lake import half_batch
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.publishing.replay import ReplayOptions
from tests.pipeline.archived import EVENTS_OF_A_LIFE, cursor_of, end_lsn, lsns_of, more, written
from tests.pipeline.lake.tables import lsns_read_without_penstock, pending

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_committed_position_is_that_of_the_last_batch_that_is_done(tmp_path: Path) -> None:
    assert committed_lsn(tmp_path) is None
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for batch, lsn in ((9, 90), (10, 100), (11, 110)):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{"conf": {{}}}}\n{{"log_id": "x", "lsn": {lsn}}}')
    assert committed_lsn(tmp_path) is None
    for batch in (9, 10):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
        (tmp_path / "commits" / f".{batch}.crc").write_text("")
    assert committed_lsn(tmp_path) == 100


def test_a_checkpoint_begins_where_it_began_whatever_the_lake_has_by_now(tmp_path: Path) -> None:
    journal = written(tmp_path / "data", 3)
    lake = Lake(tmp_path / "lake")
    table = lake.table("poison")
    with closing(open_log(str(tmp_path / "data"))) as log:
        assert starting_lsn(log, lake) == 0
        # A part of the first batch is there, and the process ends.
        table.append(pending(table, range(5)), "query", 0)
        assert starting_lsn(log, lake) == 0
        checkpoint_of(lake).rename(tmp_path / "lost")
        assert starting_lsn(log, lake) == 5
    journal.close()


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_new_checkpoint_reads_a_batch_again_of_which_the_lake_has_a_half(tmp_path: Path, format: str) -> None:
    journal = written(tmp_path / "data", 3)
    lake = Lake(tmp_path / "lake", format)
    bronze, poison = lake.table("bronze"), lake.table("poison")
    poison.append(pending(poison, range(3, 4)), "query", 0)
    bronze.append(pending(bronze, range(3)), "query", 0)
    files = pending(poison, range(7, 8))
    half_batch.note(lake, "query", 1, [*files, *pending(bronze, range(4, 7))])
    poison.append(files, "query", 1)
    # The process ends here, and somebody removes the checkpoint.
    with closing(open_log(str(tmp_path / "data"))) as log:
        assert starting_lsn(log, lake) == 4
    assert lsns_read_without_penstock(poison, format) == [3]
    assert lsns_read_without_penstock(bronze, format) == [0, 1, 2]
    journal.close()


def test_a_batch_that_is_whole_is_not_read_again(tmp_path: Path) -> None:
    journal = written(tmp_path / "data", 3)
    lake = Lake(tmp_path / "lake")
    bronze, poison = lake.table("bronze"), lake.table("poison")
    files = pending(poison, range(7, 8))
    half_batch.note(lake, "query", 0, files)
    poison.append(files, "query", 0)
    bronze.append(pending(bronze, range(7)), "query", 0)
    with closing(open_log(str(tmp_path / "data"))) as log:
        assert starting_lsn(log, lake) == 8
    assert lsns_read_without_penstock(poison, "delta") == [7]
    journal.close()


def checkpoint_with(lake: Lake, start: int, offsets: dict[int, str]) -> None:
    folder = checkpoint_of(lake) / "offsets"
    folder.mkdir(parents=True)
    (checkpoint_of(lake) / "start.json").write_text(json.dumps({"lsn": start}))
    for batch, text in offsets.items():
        (folder / str(batch)).write_text(text)


def test_a_checkpoint_that_is_older_than_the_lake_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    table = lake.table("bronze")
    table.append(pending(table, range(20)), "query", 3)
    check_checkpoint(lake)
    checkpoint_with(lake, 0, {2: 'v1\n{}\n{"log_id": "x", "lsn": 15}'})
    with pytest.raises(LakeError, match=r"events up to 19, and its checkpoint .* knows those below 15 alone"):
        check_checkpoint(lake)
    # It was begun, and the lake has it though Spark has not noted that it is done.
    (checkpoint_of(lake) / "offsets" / "3").write_text('v1\n{}\n{"log_id": "x", "lsn": 21}')
    check_checkpoint(lake)


def test_a_checkpoint_that_a_power_cut_has_emptied_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    table = lake.table("bronze")
    table.append(pending(table, range(20)), "query", 3)
    checkpoint_with(lake, 0, {3: ""})
    with pytest.raises(LakeError, match=r"offsets/3 is missing or damaged.* Remove the folder"):
        check_checkpoint(lake)
    (checkpoint_of(lake) / "commits").mkdir()
    (checkpoint_of(lake) / "commits" / "4").write_text("")
    with pytest.raises(LakeError, match="offsets/4 is missing"):
        committed_lsn(checkpoint_of(lake))


def test_the_command_has_the_options_of_the_job() -> None:
    def given(text: str) -> ArchiveOptions:
        return options_of(command.make_context("archive", text.split()).params)

    assert given("--source data --lake lake") == ArchiveOptions("data", "lake")
    chosen = given("--source data --lake lake --once --no-bodies --max-records 5 --allow-data-loss --format parquet")
    assert (chosen.once, chosen.bodies, chosen.max_records, chosen.fail_on_data_loss) == (True, False, 5, False)
    assert chosen.format == "parquet"
    often = given("--source data --lake lake --every 0.5 --max-bytes 9 --reader other --user ada")
    assert (often.every_s, often.max_bytes, often.reader, often.user) == (0.5, 9, "other", "ada")


def test_the_password_of_a_broker_is_not_shown() -> None:
    assert "secret" not in repr(ReplayOptions("amqp://ada:secret@localhost"))


def test_the_reason_is_the_line_that_is_ours() -> None:
    report = "Query failed\nTraceback:\npenstock.pipeline.lake.table.LakeError: do this\n SQLSTATE: 38000\n\tat org"
    assert reason_in(report) == "do this"
    assert reason_in("\n[STREAM_FAILED] the disk is full\n\tat org.apache") == "[STREAM_FAILED] the disk is full"


def test_there_is_one_archive_job_for_a_lake(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with only_one(lake), pytest.raises(LakeError, match="another archive job"), only_one(Lake(tmp_path)):
        pass
    with only_one(lake):
        pass


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_everything_is_archived_once_and_the_cursor_follows(spark: SparkSession, tmp_path: Path, format: str) -> None:
    source, folder = tmp_path / "data", tmp_path / "lake"
    journal = written(source)
    options = ArchiveOptions(str(source), str(folder), format=format, once=True, max_records=60)
    told: list[ArchiveProgress] = []
    first = archive(spark, options, told.append)
    lake = Lake(folder)
    end = end_lsn(source)
    assert lsns_read_without_penstock(lake.table("bronze"), format) == lsns_of(source)
    assert len(lsns_of(source)) == 30 * EVENTS_OF_A_LIFE
    assert cursor_of(source) == first.lsn == end == committed_lsn(checkpoint_of(lake))
    assert end_of(lake) == lsns_of(source)[-1] + 1
    assert (first.events, first.lag_events, first.lag_s, first.running) == (end, 0, 0.0, False)
    assert first.batches == -(-end // 60)
    assert all(each.running for each in told)
    assert progress_of(lake) == json.loads(json.dumps(asdict(first)))

    nothing = archive(spark, options)
    assert (nothing.events, nothing.lsn) == (0, end)

    more(journal, 5)
    second = archive(spark, options)
    assert second.lsn == end_lsn(source) == cursor_of(source)
    assert second.events == second.lsn - end
    assert lsns_read_without_penstock(lake.table("bronze"), format) == lsns_of(source)
    journal.close()


def test_a_lake_whose_checkpoint_is_lost_goes_on_behind_what_it_has(spark: SparkSession, tmp_path: Path) -> None:
    source, folder = tmp_path / "data", tmp_path / "lake"
    journal = written(source)
    options = ArchiveOptions(str(source), str(folder), once=True)
    archive(spark, options)
    checkpoint_of(Lake(folder)).rename(tmp_path / "lost")
    more(journal, 5)
    archive(spark, options)
    assert lsns_read_without_penstock(Lake(folder).table("bronze"), "delta") == lsns_of(source)
    journal.close()


def test_a_stream_archives_what_comes_until_it_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    source, folder = tmp_path / "data", tmp_path / "lake"
    journal = written(source, 3)
    seen: list[ArchiveProgress] = []

    def on_progress(progress: ArchiveProgress) -> None:
        if not seen:
            more(journal, 4)
        seen.append(progress)

    def stop() -> bool:
        return bool(seen) and committed_lsn(checkpoint_of(Lake(folder))) == end_lsn(source)

    options = ArchiveOptions(str(source), str(folder), every_s=0.1, bodies=False)
    result = archive(spark, options, on_progress, stop)
    assert result.lsn == end_lsn(source) == cursor_of(source)
    assert result.batches >= 2
    table = Lake(folder).table("bronze")
    assert lsns_read_without_penstock(table, "delta") == lsns_of(source)
    journal.close()


def test_the_reason_of_a_stream_that_failed_is_said_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    journal = written(tmp_path / "data", 3)
    journal.roll()
    more(journal, 3)
    journal.remove_segment(1)
    journal.close()
    # The lake has the first two positions, and goes on behind them; but the log begins later by now.
    lake = Lake(tmp_path / "lake")
    table = lake.table("bronze")
    table.append(pending(table, range(2)), "an earlier archive", 0)
    with pytest.raises(StreamFailed, match="no longer in the log") as failed:
        archive(spark, ArchiveOptions(str(tmp_path / "data"), str(tmp_path / "lake"), once=True))
    assert "\n" not in str(failed.value)
    allowed = ArchiveOptions(str(tmp_path / "data"), str(tmp_path / "lake"), once=True, fail_on_data_loss=False)
    with closing(open_log(str(tmp_path / "data"))) as log:
        first_lsn = log.state().first_lsn
    assert archive(spark, allowed).lost_events == first_lsn - 2 > 0
    assert lsns_read_without_penstock(table, "delta") == [0, 1, *lsns_of(tmp_path / "data")]


def test_another_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "data").close()
    Lake(tmp_path / "lake").bind("of-another-folder")
    with pytest.raises(LakeError, match="another data folder"):
        archive(spark, ArchiveOptions(str(tmp_path / "data"), str(tmp_path / "lake"), once=True))
