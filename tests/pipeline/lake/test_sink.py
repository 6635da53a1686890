"""The sink `penstock_lake`, driven by Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.reading import largest, read_table
from penstock.pipeline.lake.sink import split
from tests.pipeline.lake.tables import event, lsns_read_without_penstock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write_events(path: Path, lsns: Sequence[int], poisoned: Sequence[int] = ()) -> None:
    rows = [event(lsn, problem="no properties" if lsn in poisoned else None) for lsn in lsns]
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=EVENTS), path)


def streamed(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.readStream.schema(from_arrow_schema(EVENTS)).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(frame: DataFrame, lake: Path, checkpoint: Path, format: str = "delta") -> None:
    writer = frame.writeStream.format("penstock_lake").option("lake", str(lake)).option("format", format)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert not query.isActive


def test_a_batch_is_split_by_its_problems() -> None:
    batch = pa.RecordBatch.from_pylist([event(1), event(2, problem="torn"), event(3)], schema=EVENTS)
    whole, broken = split(batch)
    assert (whole["lsn"].to_pylist(), broken["lsn"].to_pylist()) == ([1, 3], [2])
    whole, broken = split(whole)
    assert (whole.num_rows, broken.num_rows) == (2, 0)


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_stream_reaches_both_tables_once(spark: SparkSession, tmp_path: Path, format: str) -> None:
    write_events(tmp_path / "in" / "1.parquet", range(10), poisoned=[3])
    write_events(tmp_path / "in" / "2.parquet", range(10, 20))
    run(streamed(spark, tmp_path / "in"), tmp_path / "lake", tmp_path / "checkpoint", format)
    write_events(tmp_path / "in" / "3.parquet", range(20, 30), poisoned=[20, 29])
    run(streamed(spark, tmp_path / "in"), tmp_path / "lake", tmp_path / "checkpoint", format)
    lake = Lake(tmp_path / "lake")
    assert lake.format == format
    poisoned = [3, 20, 29]
    assert lsns_read_without_penstock(lake.table("poison"), format) == poisoned
    expected = [lsn for lsn in range(30) if lsn not in poisoned]
    assert lsns_read_without_penstock(lake.table("bronze"), format) == expected
    assert largest(lake.table("poison"), "lsn") == 29


def test_a_batch_that_spark_repeats_is_not_written_again(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        write_events(
            tmp_path / "in" / f"{number}.parquet", range(number * 10, number * 10 + 10), poisoned=[number * 10]
        )
    run(streamed(spark, tmp_path / "in"), tmp_path / "lake", tmp_path / "checkpoint")
    # As if the process had ended before Spark noted that the last batch was done.
    done = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))[-1]
    done.unlink()
    done.with_name(f".{done.name}.crc").unlink()
    run(streamed(spark, tmp_path / "in"), tmp_path / "lake", tmp_path / "checkpoint")
    assert done.exists()
    lake = Lake(tmp_path / "lake")
    assert lsns_read_without_penstock(lake.table("poison"), "delta") == [0, 10, 20]
    assert len(lsns_read_without_penstock(lake.table("bronze"), "delta")) == 27
    # Its files were written again, and named by nobody.
    assert lake.table("bronze").vacuum(0) == 1


def test_a_batch_is_appended_and_read_back_with_pruning(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path / "in" / "1.parquet", range(10))
    write_events(tmp_path / "in" / "2.parquet", range(10, 20))
    for name in ("1", "2"):
        rows = spark.read.parquet(str(tmp_path / "in" / f"{name}.parquet"))
        rows.write.format("penstock_lake").mode("append").option("lake", str(tmp_path / "lake")).save()
    table = Lake(tmp_path / "lake").table("bronze")
    events = read_table(spark, table, EVENTS)
    assert events.columns == EVENTS.names
    assert {row.lsn: bytes(row.body) for row in events.collect()} == {lsn: b"body %d" % lsn for lsn in range(20)}
    some = read_table(spark, table, EVENTS, ["seq"], at_least={"lsn": 12}, below={"lsn": 15})
    assert sorted(row.seq for row in some.collect()) == [12, 13, 14]
    assert len(some.inputFiles()) == 1
    assert read_table(spark, table, EVENTS, at_least={"lsn": 99}).count() == 0
    assert read_table(spark, Lake(tmp_path / "lake").table("poison"), EVENTS).count() == 0


def test_the_sink_says_what_is_wrong_with_options_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path / "in" / "1.parquet", range(3))
    rows = spark.read.parquet(str(tmp_path / "in"))
    wrong = [
        (rows.write.format("penstock_lake").mode("append"), "option lake is missing"),
        (rows.write.format("penstock_lake").mode("append").option("lake", "x").option("lak", "x"), "no option 'lak'"),
        (rows.write.format("penstock_lake").mode("overwrite").option("lake", "x"), "a lake only grows"),
        (rows.drop("lsn").write.format("penstock_lake").mode("append").option("lake", "x"), "lack the column lsn"),
    ]
    for writer, text in wrong:
        with pytest.raises(Exception, match=re.escape(text)):
            writer.save()
