"""Batches of events and runs: the same rows as the decoder's, whatever is pushed down, left out or cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan

from penstock.history.log import HistoryError, SegmentGone
from penstock.pipeline.decode.ranges import BehindRetention
from penstock.pipeline.source.log_batch import FilteringLogReader
from tests.pipeline.source.log_scenes import (
    EVENTS_OF_A_MINUTE,
    MINUTES,
    batch_reader,
    decoded,
    lsns,
    minute,
    rows_of,
    state_of,
    table_of,
    write_log,
)

ALL = EVENTS_OF_A_MINUTE * MINUTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_log(tmp_path / "data").journal.close()
    return tmp_path / "data"


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests on Spark, which change nothing."""
    folder = tmp_path_factory.mktemp("log") / "data"
    write_log(folder).journal.close()
    return folder


def pushed(reader: FilteringLogReader, *filters: Filter) -> tuple[FilteringLogReader, int]:
    """With these filters, and how many of them are left to Spark."""
    return reader, len(list(reader.pushFilters(list(filters))))


# --- without Spark --------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["events", "runs"])
def test_a_batch_is_what_the_decoder_reads(folder: Path, view: str) -> None:
    reader = batch_reader(folder, view=view)
    assert rows_of(reader, reader.partitions()) == decoded(folder, view)


def test_a_log_without_events_is_an_empty_batch(tmp_path: Path) -> None:
    write_log(tmp_path / "data", minutes=0).close()
    reader = batch_reader(tmp_path / "data")
    assert rows_of(reader, reader.partitions()) == []


def test_a_batch_has_a_beginning_and_an_end(folder: Path) -> None:
    whole = [row["lsn"] for row in decoded(folder)]

    def between(low: int, high: int) -> list[int]:
        return [lsn for lsn in whole if low <= lsn < high]

    end = state_of(folder).end_lsn
    assert lsns(batch_reader(folder, startingOffsets="earliest", endingOffsets="latest")) == whole
    assert lsns(batch_reader(folder, startingOffsets="latest")) == []
    assert lsns(batch_reader(folder, endingOffsets="earliest")) == []
    assert lsns(batch_reader(folder, startingOffsets="5", endingOffsets="40")) == between(5, 40)
    assert lsns(batch_reader(folder, startingOffsets="40", endingOffsets="5")) == []
    assert lsns(batch_reader(folder, startingOffsets=str(end))) == []
    assert lsns(batch_reader(folder, endingOffsets=str(end))) == whole
    second = state_of(folder).segments[1].first_lsn
    assert lsns(batch_reader(folder, startingOffsets=minute(1).isoformat())) == between(second, end)
    assert lsns(batch_reader(folder, endingOffsets=minute(1).isoformat())) == between(0, second)
    assert lsns(batch_reader(folder, startingOffsets=minute(99).isoformat())) == []


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_behind_the_end_of_the_log_is_an_error(folder: Path, option: str) -> None:
    end = state_of(folder).end_lsn
    with pytest.raises(HistoryError, match=rf"{option} is {end + 1}, but the log .* has events 0 to {end - 1} only"):
        batch_reader(folder, **{option: str(end + 1)}).partitions()


def test_what_a_filter_leaves_out_is_not_even_opened(folder: Path) -> None:
    whole = decoded(folder)
    assert len(batch_reader(folder).partitions()) == MINUTES
    reader, left = pushed(
        batch_reader(folder), GreaterThanOrEqual(("time",), minute(1)), LessThan(("time",), minute(3))
    )
    assert (left, len(reader.partitions())) == (0, 2)
    assert lsns(reader) == [row["lsn"] for row in whole if minute(1) <= row["time"] < minute(3)]
    third = state_of(folder).segments[2].first_lsn
    reader, left = pushed(batch_reader(folder), LessThan(("lsn",), third - 1))
    assert (left, len(reader.partitions())) == (0, 2)
    assert lsns(reader) == [row["lsn"] for row in whole if row["lsn"] < third - 1]
    reader, left = pushed(batch_reader(folder), GreaterThanOrEqual(("lsn",), third + 1))
    assert (left, len(reader.partitions())) == (0, 2)
    assert lsns(reader) == [row["lsn"] for row in whole if row["lsn"] > third]
    reader, left = pushed(batch_reader(folder), EqualTo(("queue",), "nobody's"))
    assert (left, list(reader.partitions())) == (0, [])


def test_small_partitions_have_the_same_rows(tmp_path: Path) -> None:
    journal = write_log(tmp_path / "data", minutes=1)
    for number in range(40):
        journal.publish("orders", b"x" * 60_000, b"%d" % number)
        journal.commit()
    journal.close()
    few = batch_reader(tmp_path / "data", partitionBytes=str(2**20))
    many = batch_reader(tmp_path / "data", partitionBytes="1024")
    assert len(many.partitions()) >= len(few.partitions()) > 1
    assert lsns(many) == lsns(few) == [row["lsn"] for row in decoded(tmp_path / "data")]


def test_only_the_columns_of_the_schema_are_read(folder: Path) -> None:
    reader = batch_reader(folder, ["queue", "lsn"])
    rows = rows_of(reader, reader.partitions())
    assert [list(row) for row in rows] == [["queue", "lsn"]] * ALL
    assert rows == [{"queue": row["queue"], "lsn": row["lsn"]} for row in decoded(folder)]


def test_options_filter_too(folder: Path) -> None:
    whole = decoded(folder)

    def kept(**options: str) -> list[int]:
        return lsns(batch_reader(folder, **options))

    assert kept(queue="orders") == [row["lsn"] for row in whole if row["queue"] == "orders"]
    assert kept(queue="orders", vhost="other") == [row["lsn"] for row in whole if row["vhost"] == "other"]
    assert kept(kinds="acked,requeued") == [row["lsn"] for row in whole if row["kind"] in ("acked", "requeued")]
    reader = batch_reader(folder, bodies="false")
    assert [row["body"] for row in rows_of(reader, reader.partitions())] == [None] * ALL


def test_a_segment_that_goes_while_it_is_read_is_an_error_or_a_counted_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = write_log(tmp_path / "data")
    second = state_of(tmp_path / "data").segments[1].first_lsn
    careful, careless = batch_reader(tmp_path / "data"), batch_reader(tmp_path / "data", failOnDataLoss="false")
    whole, parts = lsns(careful), careful.partitions()
    journal.remove_segment(1)
    with pytest.raises(SegmentGone):
        rows_of(careful, parts)
    rows = rows_of(careless, parts)
    assert [row["lsn"] for row in rows] == [lsn for lsn in whole if lsn >= second]
    assert f"segment 1 was removed while it was read: what was left of events 0 to {second - 1} is lost" in caplog.text
    journal.close()


def test_a_beginning_that_was_removed_is_an_error_or_left_out(tmp_path: Path) -> None:
    journal = write_log(tmp_path / "data")
    kept = [
        lsn for lsn in lsns(batch_reader(tmp_path / "data")) if lsn >= state_of(tmp_path / "data").segments[1].first_lsn
    ]
    journal.remove_segment(1)
    first = state_of(tmp_path / "data").first_lsn
    with pytest.raises(BehindRetention, match=rf"events 3 to {first - 1} are no longer in the log"):
        batch_reader(tmp_path / "data", startingOffsets="3").partitions()
    assert lsns(batch_reader(tmp_path / "data", startingOffsets="3", failOnDataLoss="false")) == kept
    assert lsns(batch_reader(tmp_path / "data")) == kept
    journal.close()


# --- on Spark -------------------------------------------------------------------------------------------


def events(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(**options).load(str(folder))


@pytest.mark.parametrize("view", ["events", "runs"])
def test_spark_reads_what_the_decoder_reads(spark: SparkSession, shared_folder: Path, view: str) -> None:
    found = events(spark, shared_folder, view=view).orderBy("lsn").toArrow()
    assert found.to_pylist() == decoded(shared_folder, view)


FILTERS = [
    "queue = 'orders'",
    "queue IN ('bills', 'nobody''s') AND kind = 'published'",
    "queue <=> 'orders' AND vhost = 'other'",
    "vhost IN ('/', 'other') AND kind IN ('acked', 'requeued')",
    "kind_no = 2 OR kind_no = 5",
    "kind_no > 3 AND kind_no <> 7",
    "lsn = 20",
    "lsn > 20 AND lsn <= 40 AND seq >= 1 AND seq < 12",
    "lsn < 0",
    "seq = 7 AND lsn IN (31, 32, 33, 34, 35)",
    "time > timestamp'2023-11-14 22:14:20Z' AND time <= timestamp'2023-11-14 22:15:20Z'",
    "time = timestamp'2023-11-14 22:15:20Z' AND kind = 'acked'",
    "time < timestamp'2023-11-14 22:14:20Z' OR lsn > 60",
    "queue IS NULL",
    "queue LIKE 'ord%' AND routing_key = 'a.b' AND size > 6 AND body <> X'62696C6C'",
]


def test_every_pushed_filter_is_the_filter_of_spark(spark: SparkSession, shared_folder: Path) -> None:
    conditions = [f"coalesce({condition}, false) AS c{number}" for number, condition in enumerate(FILTERS)]
    beside = spark.createDataFrame(table_of(decoded(shared_folder)))
    rows = beside.selectExpr("lsn", *conditions).collect()
    for number, condition in enumerate(FILTERS):
        frame = events(spark, shared_folder, pushFilters="true").where(condition)
        expected = sorted(row.lsn for row in rows if row[f"c{number}"])
        assert sorted(row.lsn for row in frame.select("lsn").collect()) == expected, condition


def test_the_plan_has_fewer_tasks_where_ranges_are_pruned(spark: SparkSession, shared_folder: Path) -> None:
    def tasks(condition: str) -> int:
        return events(spark, shared_folder, pushFilters="true").where(condition).rdd.getNumPartitions()

    third = state_of(shared_folder).segments[2].first_lsn
    assert tasks("true") == MINUTES
    assert tasks("time < timestamp'2023-11-14 22:14:20Z'") == 1
    assert tasks(f"lsn >= {third}") == 2


def test_a_filter_of_runs_is_that_of_spark(spark: SparkSession, shared_folder: Path) -> None:
    beside = spark.createDataFrame(table_of(decoded(shared_folder, "runs"), "runs"))
    for condition in ("lsn > 3 AND seq < 9", "queue = 'orders' AND kind = 'acked' AND count > 1"):
        expected = sorted(row.lsn for row in beside.where(condition).collect())
        source = events(spark, shared_folder, view="runs", pushFilters="true")
        assert sorted(row.lsn for row in source.where(condition).collect()) == expected, condition


def check_reuse(frame: DataFrame) -> None:
    """One DataFrame, several queries, of which some have filters."""
    bills, acked = frame.where("queue = 'bills'"), frame.where("kind = 'acked'")
    assert (bills.count(), frame.count()) == (2 * MINUTES, ALL)
    assert bills.union(acked).count() == 2 * MINUTES + 3 * MINUTES


def test_a_frame_can_be_used_with_many_filters(spark: SparkSession, shared_folder: Path) -> None:
    check_reuse(events(spark, shared_folder))


@pytest.mark.xfail(reason="Spark 4.3 keeps what a Python source has planned with the filters of an earlier query")
def test_a_frame_with_pushed_filters_can_be_used_again(spark: SparkSession, shared_folder: Path) -> None:
    check_reuse(events(spark, shared_folder, pushFilters="true"))


def test_the_schema_is_the_projection(spark: SparkSession, shared_folder: Path) -> None:
    frame = spark.read.format("penstock").schema("kind string, lsn long").load(str(shared_folder))
    assert frame.columns == ["kind", "lsn"]
    expected = {(row["kind"], row["lsn"]) for row in decoded(shared_folder)}
    assert {(row.kind, row.lsn) for row in frame.collect()} == expected


def test_what_is_wrong_is_said_in_the_error(spark: SparkSession, shared_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="has no option 'sorce'; its options are view, source"):
        spark.read.format("penstock").option("sorce", "x").load()
    with pytest.raises(AnalysisException, match="has no column 'bodies'; it has lsn, time"):
        spark.read.format("penstock").schema("bodies string").load(str(shared_folder)).collect()
    with pytest.raises(PySparkException, match="there is no folder"):
        events(spark, tmp_path / "nothing").collect()
