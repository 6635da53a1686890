"""`df.writeStream.format("penstock")`: a batch that is made again adds nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing import Broker
from tests.pipeline.sink.queues import declare_dedup, take_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_lines(folder: Path, name: str, first: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join(f"{number}\n" for number in range(first, first + count))
    (folder / name).write_text(text)


def run_stream(spark: SparkSession, broker: Broker, source: Path, checkpoint: Path, **options: str) -> str:
    """Publish what is there; the id of the query."""
    query = (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", 1)
        .load(str(source))
        .withColumnRenamed("value", "body")
        .writeStream.format("penstock")
        .options(broker=broker.url, routingKey="numbers", checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    return str(query.id)


def test_a_batch_that_is_made_again_after_a_kill_adds_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    declare_dedup(broker.url, "numbers")
    source, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    write_lines(source, "a.txt", 0, 300)
    write_lines(source, "b.txt", 300, 300)
    query = run_stream(spark, broker, source, checkpoint)
    assert broker.queue_depth("numbers") == 600
    # What a kill leaves that came between the confirms and the commit of the second batch.
    committed = checkpoint / "commits" / "1"
    committed.unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    write_lines(source, "c.txt", 600, 300)
    assert run_stream(spark, broker, source, checkpoint) == query
    assert committed.exists()
    found = take_all(broker.url, "numbers")
    assert sorted(int(body) for _, _, body in found) == list(range(900))
    keys = {f"{query}/{batch}/0/{row}" for batch in range(3) for row in range(300)}
    assert {properties.message_id for _, properties, _ in found} == keys
    assert {properties.headers["x-deduplication-header"] for _, properties, _ in found} == keys


def test_a_stream_that_replaces_its_result_is_refused(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    write_lines(tmp_path / "lines", "a.txt", 0, 3)
    counts = spark.readStream.format("text").load(str(tmp_path / "lines")).groupBy("value").count()
    query = (
        counts.selectExpr("value as body")
        .writeStream.format("penstock")
        .outputMode("complete")
        .options(broker=broker.url, routingKey="numbers", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="none are taken back"):
        query.awaitTermination(300)
