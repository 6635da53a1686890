"""`read_log` and `stream_log`: the rows of the source, by another way through Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.history.opening import open_log
from penstock.pipeline.source.frames import read_log, stream_log
from penstock.pipeline.source.options import OptionError
from penstock.pipeline.source.shape import spark_schema
from tests.pipeline.source.log_scenes import decoded, state_of, table_of, write_log, write_minute

SECONDS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests that change nothing."""
    path = tmp_path_factory.mktemp("log") / "data"
    write_log(path).journal.close()
    return path


def lsns(frame: DataFrame) -> list[int]:
    return sorted(row.lsn for row in frame.collect())


@pytest.mark.parametrize("view", ["events", "runs"])
def test_the_rows_and_their_types_are_those_of_the_decoder(spark: SparkSession, folder: Path, view: str) -> None:
    frame = read_log(spark, {"source": folder, "view": view, "partitionBytes": 1024})
    assert frame.schema == spark_schema(view)
    found = frame.toArrow().sort_by("lsn")
    expected = table_of(decoded(folder, view), view)
    assert found.num_rows == expected.num_rows > 0
    assert found.to_pylist() == expected.to_pylist()


def test_a_frame_is_cut_into_the_tasks_of_the_source(spark: SparkSession, folder: Path) -> None:
    given = {"source": str(folder), "partitionBytes": "1024"}
    plain = spark.read.format("penstock").options(**given).load()
    assert read_log(spark, given).rdd.getNumPartitions() == plain.rdd.getNumPartitions() > 1


def test_options_choose_what_is_read_and_columns_what_is_shown(spark: SparkSession, folder: Path) -> None:
    whole = decoded(folder)
    end = state_of(folder).end_lsn
    frame = read_log(spark, {"Source": folder, "KINDS": "acked"}, ("kind", "lsn"))
    assert frame.columns == ["kind", "lsn"]
    assert lsns(frame) == [row["lsn"] for row in whole if row["kind"] == "acked"] != []
    between = {"source": folder, "startingOffsets": 5, "endingOffsets": end - 5}
    assert lsns(read_log(spark, between)) == [row["lsn"] for row in whole if 5 <= row["lsn"] < end - 5]
    queue = whole[0]["queue"]
    assert lsns(read_log(spark, {"source": folder, "queue": queue})) == [
        row["lsn"] for row in whole if row["queue"] == queue
    ]
    assert lsns(read_log(spark, {"source": folder, "queue": "nowhere"})) == []
    bodies = read_log(spark, {"source": folder, "bodies": False, "kinds": "published"}, ("body",)).collect()
    assert bodies
    assert all(row.body is None for row in bodies)


def test_a_stream_over_restarts_has_each_event_once_and_moves_its_cursor(spark: SparkSession, tmp_path: Path) -> None:
    data, seen = tmp_path / "data", list[int]()
    journal = write_log(data, minutes=2)
    given = {"source": data, "reader": "frames", "maxRecordsPerTrigger": 15}

    def note(frame: DataFrame, number: int) -> None:
        seen.extend(lsns(frame))

    def run() -> None:
        writer = stream_log(spark, given, ("lsn", "kind")).writeStream.foreachBatch(note)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS)

    run()
    write_minute(journal)
    journal.mark()
    run()
    assert seen == [row["lsn"] for row in decoded(data)]
    log = open_log(str(data))
    assert {reader.name: reader.lsn for reader in log.readers()} == {"frames": state_of(data).end_lsn}
    log.close()


@pytest.mark.parametrize(
    ("options", "columns", "text"),
    [
        ({"sorce": "x"}, (), "no option 'sorce'"),
        ({}, ("bodies",), "no column 'bodies'"),
        ({"pushFilters": True}, (), "pushFilters"),
        ({"view": "ranges"}, (), "no log"),
        ({"view": "messages", "queue": "orders"}, (), "no log"),
    ],
)
def test_what_is_asked_for_wrongly_is_said_before_anything_is_read(
    spark: SparkSession, folder: Path, options: dict[str, Any], columns: tuple[str, ...], text: str
) -> None:
    for read in (read_log, stream_log):
        with pytest.raises(OptionError, match=text):
            read(spark, {"source": folder, **options}, columns)


def test_a_reader_is_for_streams(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(PySparkException, match="reader is for streams"):
        read_log(spark, {"source": folder, "reader": "x"}).count()
