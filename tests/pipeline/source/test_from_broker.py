"""A running broker as the source: over HTTP, with no folder in sight; and the messages of its queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pika
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from penstock.history.opening import open_log
from penstock.testing import Broker
from tests.history.small_broker import channel_of, http_broker, http_port, publish, wait_for_all
from tests.pipeline.source.log_scenes import decoded

COUNT = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker") / "data"


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Broker]:
    """A broker with 30 messages: 5 acked, 3 with a consumer that is still there; and one large one elsewhere."""
    with http_broker(folder) as broker, channel_of(broker) as channel:
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("large", durable=True)
        channel.queue_declare("empty", durable=True)
        publish(channel, "orders", [b"order %d" % number for number in range(COUNT - 1)])
        told = pika.BasicProperties(
            delivery_mode=2,
            message_id="m-1",
            content_type="text/plain",
            headers={"a": 1, "b": "two"},
            expiration="99000",
        )
        channel.basic_publish("", "orders", b"last", told)
        publish(channel, "large", [b"x" * 100_000])
        for _ in range(5):
            method, _, _ = channel.basic_get("orders")
            assert method is not None
            channel.basic_ack(method.delivery_tag)
        for _ in range(3):
            channel.basic_get("orders")
        with closing(open_log(str(folder))) as log:
            wait_for_all(broker, log)
        yield broker


@pytest.fixture
def url(running: Broker) -> str:
    return f"http://127.0.0.1:{http_port(running)}"


def source(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(source=url, user="guest", password="guest", **options).load()


def test_history_over_http_is_that_of_the_folder(spark: SparkSession, url: str, folder: Path) -> None:
    found = source(spark, url).orderBy("lsn").toArrow().to_pylist()
    assert found == decoded(folder)
    assert sum(row["kind"] == "published" for row in found) == COUNT + 1
    assert {len(row["body"]) for row in found if row["queue"] == "large" and row["body"]} == {100_000}


def test_messages_are_looked_at_and_stay(spark: SparkSession, url: str, running: Broker) -> None:
    rows = source(spark, url, view="messages", queue="orders").orderBy("seq").collect()
    assert [row.state for row in rows] == ["unacked"] * 3 + ["ready"] * (COUNT - 8)
    assert [bytes(row.body) for row in rows] == [b"order %d" % number for number in range(5, COUNT - 1)] + [b"last"]
    last: Row = rows[-1]
    assert (last.message_id, last.content_type, last.headers) == ("m-1", "text/plain", {"a": "1", "b": "two"})
    assert last.expires is not None
    assert rows[0].expires is None
    assert (last.vhost, last.queue, last.size, last.persistent, last.redelivered) == ("/", "orders", 4, True, False)
    assert [row.redelivered for row in rows[:4]] == [None, None, None, False]
    assert running.queue_depth("orders") == COUNT - 8


def test_messages_of_all_queues_are_a_task_for_each_that_had_some(spark: SparkSession, url: str) -> None:
    frame = spark.read.format("penstock").options(source=url, view="messages", bodies="false")
    loaded = frame.schema("queue string, body binary, seq long").load()
    assert loaded.rdd.getNumPartitions() == 2
    assert {(row["queue"], row["count"]) for row in loaded.groupBy("queue").count().collect()} == {
        ("orders", COUNT - 5),
        ("large", 1),
    }
    assert loaded.where("body IS NOT NULL").count() == 0


def test_a_stream_of_messages_has_each_as_it_was_published(
    spark: SparkSession, url: str, folder: Path, tmp_path: Path
) -> None:
    seen: list[Row] = []
    for number, place in enumerate((url, str(folder))):
        seen.clear()
        query = (
            spark.readStream.format("penstock")
            .options(source=place, view="messages", queue="orders", maxRecordsPerTrigger=40)
            .load()
            .writeStream.foreachBatch(lambda frame, _: seen.extend(frame.collect()))
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        rows = sorted(seen, key=lambda row: row.seq)
        assert [bytes(row.body) for row in rows] == [b"order %d" % number for number in range(COUNT - 1)] + [b"last"]
        assert {(row.state, row.redelivered, row.vhost, row.queue) for row in rows} == {
            ("published", False, "/", "orders")
        }
        assert rows[-1].headers == {"a": "1", "b": "two"}


def test_who_may_not_read_is_told_so(spark: SparkSession, url: str, folder: Path) -> None:
    with pytest.raises(PySparkException, match="password"):
        spark.read.format("penstock").options(source=url, user="guest", password="wrong").load().count()
    with pytest.raises(AnalysisException, match="known to a running broker alone"):
        spark.read.format("penstock").options(source=str(folder), view="messages", queue="orders").load().count()
    with pytest.raises(PySparkException, match="there is no such queue"):
        source(spark, url, view="messages", queue="nobody's").count()
