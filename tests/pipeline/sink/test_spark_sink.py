"""`df.write.format("penstock")` against a real broker, read back with pika."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testing import Broker
from penstock.wire.properties import Properties, encode_properties
from tests.pipeline.sink.queues import bodies, channel_to, declare, declare_dedup, take_all
from tests.postgres_server import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL_COLUMNS = (
    "body binary, routing_key string, exchange string, headers map<string,string>, message_id string,"
    " correlation_id string, content_type string, content_encoding string, type string, reply_to string,"
    " expiration string, priority int, persistent boolean, timestamp timestamp, user_id string, app_id string"
)


@pytest.fixture
def memory_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def publish(rows: DataFrame, url: str, **options: Any) -> None:
    writer = rows.write.format("penstock").mode("append").option("broker", url)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def numbered(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as body")


def kill_when_it_has(broker: Broker, queue: str, count: int) -> None:
    wait_until(lambda: broker.queue_depth(queue) > count, 300)
    broker.kill()


def test_every_column_arrives(spark: SparkSession, memory_broker: Broker) -> None:
    url = memory_broker.url
    declare(url, "orders")
    with channel_to(url) as channel:
        channel.queue_bind("orders", "amq.topic", "order.#")
    moment = datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC)
    row = (
        b"\x00\xff", "order.new", "amq.topic", {"tenant": "blue", "note": None}, "m-1",
        "c-1", "text/plain", "gzip", "order", "answers",
        "60000", 7, False, moment, "guest", "shop",
    )  # fmt: skip
    publish(spark.createDataFrame([row], ALL_COLUMNS), url)
    [(method, properties, body)] = take_all(url, "orders")
    assert (body, method.exchange, method.routing_key) == (b"\x00\xff", "amq.topic", "order.new")
    key = properties.headers.pop("x-deduplication-header")
    assert key.endswith(("/0/0/0", "/0/1/0"))
    assert properties.headers == {"tenant": "blue", "note": None}
    found = {name: getattr(properties, name) for name in ("message_id", "correlation_id", "content_type", "type")}
    assert found == {"message_id": "m-1", "correlation_id": "c-1", "content_type": "text/plain", "type": "order"}
    assert (properties.content_encoding, properties.reply_to, properties.expiration) == ("gzip", "answers", "60000")
    assert (properties.priority, properties.delivery_mode) == (7, 1)
    assert (properties.timestamp, properties.user_id, properties.app_id) == (int(moment.timestamp()), "guest", "shop")


def test_octets_of_properties_are_kept_and_columns_stand_above_them(spark: SparkSession, memory_broker: Broker) -> None:
    url = memory_broker.url
    declare(url, "orders")
    raw = Properties(
        content_type="text/plain",
        cluster_id="old",
        headers={"count": ("I", 5), "kind": ("S", b"a"), "x-deduplication-header": ("S", b"theirs")},
    )
    rows = [(b"one", encode_properties(raw), {"kind": "b"}, "own/1"), (b"two", None, None, None)]
    schema = "body binary, properties binary, headers map<string,string>, dedup_key string"
    publish(spark.createDataFrame(rows, schema).coalesce(1), url, routingKey="orders", writeId="w")
    [(_, first, _), (_, second, _)] = take_all(url, "orders")
    assert first.headers == {"count": 5, "kind": "b", "x-deduplication-header": "own/1"}
    assert (first.content_type, first.cluster_id, first.message_id) == ("text/plain", "old", "own/1")
    assert (second.headers, second.message_id) == ({"x-deduplication-header": "w/0/0/1"}, "w/0/0/1")
    assert second.delivery_mode == 2


def test_twenty_thousand_rows_arrive_each_once_and_in_the_order_of_their_partition(
    spark: SparkSession, broker: Broker
) -> None:
    publish(numbered(spark, 20_000, partitions=3), broker.url, declareQueue="orders", writeId="big")
    found = take_all(broker.url, "orders")
    assert sorted(int(body) for _, _, body in found) == list(range(20_000))
    assert len({properties.message_id for _, properties, _ in found}) == 20_000
    for partition in range(3):
        rows = [int(body) for _, properties, body in found if properties.message_id.startswith(f"big/0/{partition}/")]
        assert rows == sorted(rows)


def test_a_write_with_the_same_id_adds_nothing_and_one_without_adds_all(
    spark: SparkSession, memory_broker: Broker
) -> None:
    url = memory_broker.url
    declare_dedup(url, "orders")
    rows = numbered(spark, 30)
    publish(rows, url, routingKey="orders", writeId="monday")
    publish(rows, url, routingKey="orders", writeId="monday")
    assert memory_broker.queue_depth("orders") == 30
    publish(rows, url, routingKey="orders")
    assert memory_broker.queue_depth("orders") == 60


def test_without_deduplication_rows_carry_no_key(spark: SparkSession, memory_broker: Broker) -> None:
    declare(memory_broker.url, "orders")
    publish(numbered(spark, 1, 1), memory_broker.url, routingKey="orders", dedup=False)
    [(_, properties, _)] = take_all(memory_broker.url, "orders")
    assert properties.headers is None


def test_a_broker_that_dies_in_the_middle_fails_the_write_and_the_next_try_makes_no_duplicates(
    spark: SparkSession, broker: Broker
) -> None:
    declare_dedup(broker.url, "orders")
    rows = numbered(spark, 3_000)
    killing = Thread(target=kill_when_it_has, args=(broker, "orders", 100))
    killing.start()
    with pytest.raises(Exception, match="messages are not confirmed, and the broker is gone"):
        publish(rows, broker.url, routingKey="orders", writeId="w", rateLimit=1000, reconnectSeconds=0)
    killing.join(60)
    broker.start()
    assert 0 < broker.queue_depth("orders") < 3_000
    publish(rows, broker.url, routingKey="orders", writeId="w")
    assert sorted(map(int, bodies(broker.url, "orders"))) == list(range(3_000))


TO_ORDERS = {"routingkey": "orders"}
REFUSED_ROWS: list[tuple[str, dict[str, str], str]] = [
    ("select 'x' as body, 'x' as colour", {}, "does not know column 'colour'; it knows body, exchange"),
    ("select 1 as body", {}, "column 'body' is int, and must be binary or string"),
    ("select 'x' as body, map('a', 1) as headers", {}, "'headers' is map<string,int>, and must be map<string,string>"),
    ("select 'x' as routing_key", {}, "rows have no column 'body'; there are routing_key"),
    ("select 'x' as body", {}, "has no routing_key: give it a column, or set option 'routingkey'"),
    ("select 'x' as body, 999 as priority", TO_ORDERS, "priority is 999, and must be from 0 to 255"),
    ("select cast(null as string) as body", TO_ORDERS, "its body is null"),
    ("select 'x' as body", {"exchnage": "x"}, "no option 'exchnage'; there are broker, exchange"),
    ("select 'x' as body, repeat('k', 256) as routing_key", {}, "row .*/0/0/0 cannot be published: .*at most 255"),
    ("select 'x' as body, 'no' as routing_key", {"exchange": "amq.direct"}, "'amq.direct', routing key 'no'"),
    ("select 'x' as body, X'ffff' as properties", TO_ORDERS, "cannot be published: .*property flags 0xffff"),
]


@pytest.mark.parametrize(("query", "options", "words"), REFUSED_ROWS, ids=[case[2][:30] for case in REFUSED_ROWS])
def test_what_cannot_be_published_is_said_in_words(
    spark: SparkSession, memory_broker: Broker, query: str, options: dict[str, str], words: str
) -> None:
    declare(memory_broker.url, "orders")
    with pytest.raises(Exception, match=words):
        publish(spark.sql(query), memory_broker.url, **options)
    assert memory_broker.queue_depth("orders") == 0


def test_a_queue_is_not_overwritten(spark: SparkSession, memory_broker: Broker) -> None:
    rows = numbered(spark, 1).write.format("penstock").option("broker", memory_broker.url)
    with pytest.raises(Exception, match=r"none are taken back: use mode\('append'\)"):
        rows.mode("overwrite").save()
