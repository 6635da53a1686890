"""Streams on Spark: each event once over triggers and restarts, lag that shows, losses that are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.history.opening import open_log
from tests.pipeline.source.log_scenes import decoded, state_of, write_log, write_minute
from tests.postgres_server import wait_until

COLUMNS = "lsn long, queue string, kind string, body binary"
SECONDS = 240


class Seen:
    """What a stream has read, by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = frame.collect()

    def lsns(self) -> list[int]:
        return [row.lsn for number in sorted(self.batches) for row in sorted(self.batches[number], key=lambda r: r.lsn)]


def start(
    spark: SparkSession, source: Path, checkpoint: Path, seen: Seen, now: bool = True, **options: Any
) -> StreamingQuery:
    """A stream into `seen`; with `now` it ends when it has read what was there."""
    stream = spark.readStream.format("penstock").options(**options).schema(COLUMNS).load(str(source))
    writer = stream.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if now else writer.trigger(processingTime="50 milliseconds")).start()


def finish(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(SECONDS)
    return query


def cursor(folder: Path, name: str) -> int:
    log = open_log(str(folder))
    found = {reader.name: reader.lsn for reader in log.readers()}
    log.close()
    return found[name]


def test_a_stream_over_many_triggers_and_restarts_is_the_log(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint, seen = tmp_path / "data", tmp_path / "checkpoint", Seen()
    journal = write_log(folder, minutes=2)
    query = finish(start(spark, folder, checkpoint, seen, maxRecordsPerTrigger=15, reader="archive"))
    assert len(seen.batches) == 3
    assert cursor(folder, "archive") == state_of(folder).end_lsn
    write_minute(journal)
    journal.mark()
    query = finish(start(spark, folder, checkpoint, seen, reader="archive"))
    assert len(seen.batches) == 4
    rows = decoded(folder)
    assert seen.lsns() == [row["lsn"] for row in rows]
    by_lsn = {row.lsn: row for batch in seen.batches.values() for row in batch}
    assert all(by_lsn[row["lsn"]].body == row["body"] and by_lsn[row["lsn"]].kind == row["kind"] for row in rows)
    # Nothing is new: no batch, and the same offset.
    end = json.loads(query.lastProgress.sources[0].endOffset)  # type: ignore[union-attr]
    assert end == {"log_id": state_of(folder).log_id, "lsn": state_of(folder).end_lsn}
    finish(start(spark, folder, checkpoint, seen, reader="archive"))
    assert len(seen.batches) == 4
    journal.close()


def test_a_running_stream_takes_what_comes_and_shows_its_lag(spark: SparkSession, tmp_path: Path) -> None:
    folder, seen = tmp_path / "data", Seen()
    journal = write_log(folder, minutes=1)
    query = start(spark, folder, tmp_path / "checkpoint", seen, now=False, maxRecordsPerTrigger=9, reader="live")
    for _ in range(2):
        wait_until(lambda: seen.lsns() == [row["lsn"] for row in decoded(folder)], SECONDS)
        write_minute(journal)
        journal.mark()
    wait_until(lambda: seen.lsns() == [row["lsn"] for row in decoded(folder)], SECONDS)
    # An idle stream has told the broker all that it has read.
    wait_until(lambda: cursor(folder, "live") == state_of(folder).end_lsn, SECONDS)
    query.stop()
    lags = []
    for progress in query.recentProgress:
        if progress.numInputRows:
            source = progress.sources[0]
            lags.append(json.loads(source.latestOffset)["lsn"] - json.loads(source.endOffset)["lsn"])
    assert lags[-1] == 0 < lags[0]
    assert query.exception() is None
    journal.close()


def test_a_stream_of_some_queues_and_kinds(spark: SparkSession, tmp_path: Path) -> None:
    seen = Seen()
    write_log(tmp_path / "data").close()
    finish(start(spark, tmp_path / "data", tmp_path / "c", seen, queue="orders", vhost="/", kinds="acked,published"))
    expected = [
        row["lsn"]
        for row in decoded(tmp_path / "data")
        if (row["vhost"], row["queue"]) == ("/", "orders") and row["kind"] in ("acked", "published")
    ]
    assert seen.lsns() == expected


def test_a_stream_behind_retention_fails_or_goes_on_as_it_was_told(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint, seen = tmp_path / "data", tmp_path / "checkpoint", Seen()
    journal = write_log(folder, minutes=1)
    finish(start(spark, folder, checkpoint, seen))
    before = seen.lsns()
    for _ in range(2):
        journal.roll()
        write_minute(journal)
    journal.mark()
    lost = state_of(folder).segments[2].first_lsn
    journal.remove_segment(1)
    journal.remove_segment(2)
    with pytest.raises(
        StreamingQueryException, match=f"events {max(before) + 1} to {lost - 1} are no longer in the log"
    ):
        finish(start(spark, folder, checkpoint, seen))
    assert seen.lsns() == before
    finish(start(spark, folder, checkpoint, seen, failOnDataLoss="false"))
    assert seen.lsns() == before + [row["lsn"] for row in decoded(folder) if row["lsn"] >= lost]
    journal.close()


def test_a_stream_refuses_what_a_stream_cannot_do(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "data", minutes=1).close()
    with pytest.raises(StreamingQueryException, match="endingOffsets is for batches"):
        finish(start(spark, tmp_path / "data", tmp_path / "checkpoint", Seen(), endingOffsets="5"))
