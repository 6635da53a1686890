"""A real broker does everything that can happen to a message; the rows of silver are known by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.testing import Broker
from tests.interop.deadline import wait_until

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

TTL_MS = 30
TO_GRAVEYARD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graveyard"}
QUEUES: dict[str, dict[str, Any]] = {
    "graveyard": {},
    "plain": {},
    "short-lived": {"x-message-ttl": TTL_MS},
    "short-lived.dead": {"x-message-ttl": TTL_MS, **TO_GRAVEYARD},
    # To a queue from which it dies again.
    "hop": {"x-message-ttl": TTL_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "short-lived.dead"},
    "work": TO_GRAVEYARD,
    "limited": {"x-delivery-limit": 1, **TO_GRAVEYARD},
    "one": {"x-max-length": 1},
    "one.dead": {"x-max-length": 1, **TO_GRAVEYARD},
    "purged": {},
    "deleted": {},
    "survivor": {},
}

# message id and queue -> outcome, reason, deliveries, requeues, path of deaths (queue, reason), newest first.
LIVES = {
    ("acked", "plain"): ("acked", None, 1, 0, []),
    ("got", "plain"): ("acked", None, 1, 0, []),
    ("fetched", "plain"): ("fetched", None, 1, 0, []),
    ("requeued", "plain"): ("acked", None, 2, 1, []),
    ("rejected", "plain"): ("rejected", "rejected", 1, 0, []),
    ("expired", "short-lived"): ("expired", "expired", 0, 0, []),
    ("expired-dead", "short-lived.dead"): ("dead-lettered", "expired", 0, 0, []),
    ("expired-dead", "graveyard"): ("acked", None, 1, 0, [("short-lived.dead", "expired")]),
    ("hops", "hop"): ("dead-lettered", "expired", 0, 0, []),
    ("hops", "short-lived.dead"): ("dead-lettered", "expired", 0, 0, [("hop", "expired")]),
    ("hops", "graveyard"): ("acked", None, 1, 0, [("short-lived.dead", "expired"), ("hop", "expired")]),
    ("refused", "work"): ("dead-lettered", "rejected", 1, 0, []),
    ("refused", "graveyard"): ("acked", None, 1, 0, [("work", "rejected")]),
    ("poisonous", "limited"): ("dead-lettered", "delivery_limit", 2, 1, []),
    ("poisonous", "graveyard"): ("acked", None, 1, 0, [("limited", "delivery_limit")]),
    ("pushed-out", "one"): ("dropped", "maxlen", 0, 0, []),
    ("pushed-out-dead", "one.dead"): ("dead-lettered", "maxlen", 0, 0, []),
    ("pushed-out-dead", "graveyard"): ("acked", None, 1, 0, [("one.dead", "maxlen")]),
    ("purged-1", "purged"): ("purged", None, 0, 0, []),
    ("purged-2", "purged"): ("purged", None, 0, 0, []),
    ("deleted", "deleted"): ("deleted", None, 0, 0, []),
    # Two deliveries, and nobody gave it back: the broker was gone.
    ("survivor", "survivor"): ("acked", None, 2, 0, []),
}
# Still there at the end.
OPEN = {("stays", "one"), ("stays-dead", "one.dead"), ("witness", "survivor")}
DEAD_LETTERS = 5


@contextlib.contextmanager
def channel_to(broker: Broker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        # The broker may have been killed under it.
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


def publish(channel: BlockingChannel, queue: str, *message_ids: str) -> None:
    for message_id in message_ids:
        properties = pika.BasicProperties(delivery_mode=2, message_id=message_id)
        channel.basic_publish("", queue, b"body", properties)


def get(channel: BlockingChannel, queue: str, auto_ack: bool = False) -> int:
    method, _, _ = channel.basic_get(queue, auto_ack=auto_ack)
    assert method is not None, f"nothing in {queue}"
    return int(method.delivery_tag)


def wait_for_depth(broker: Broker, queue: str, depth: int) -> None:
    wait_until(lambda: broker.queue_depth(queue) == depth, f"{depth} messages in {queue}")


def settle_in_many_ways(channel: BlockingChannel) -> None:
    publish(channel, "plain", "got", "fetched", "requeued", "rejected", "acked")
    channel.basic_ack(get(channel, "plain"))
    get(channel, "plain", auto_ack=True)
    channel.basic_nack(get(channel, "plain"), requeue=True)
    channel.basic_ack(get(channel, "plain"))
    channel.basic_reject(get(channel, "plain"), requeue=False)
    method, _, _ = next(iter(channel.consume("plain")))
    assert method is not None
    channel.basic_ack(method.delivery_tag)
    channel.cancel()


def die_in_many_ways(channel: BlockingChannel, broker: Broker) -> None:
    publish(channel, "short-lived", "expired")
    wait_for_depth(broker, "short-lived", 0)
    publish(channel, "short-lived.dead", "expired-dead")
    wait_for_depth(broker, "graveyard", 1)
    publish(channel, "hop", "hops")
    wait_for_depth(broker, "graveyard", 2)
    publish(channel, "work", "refused")
    channel.basic_reject(get(channel, "work"), requeue=False)
    wait_for_depth(broker, "graveyard", 3)
    publish(channel, "limited", "poisonous")
    for _ in range(2):
        channel.basic_nack(get(channel, "limited"), requeue=True)
    wait_for_depth(broker, "graveyard", 4)
    publish(channel, "one", "pushed-out", "stays")
    publish(channel, "one.dead", "pushed-out-dead", "stays-dead")
    wait_for_depth(broker, "graveyard", DEAD_LETTERS)
    publish(channel, "purged", "purged-1", "purged-2")
    channel.queue_purge("purged")
    publish(channel, "deleted", "deleted")
    channel.queue_delete("deleted")


def play(broker: Broker) -> None:
    with channel_to(broker) as channel:
        for queue, arguments in QUEUES.items():
            channel.queue_declare(queue, durable=True, arguments=arguments)
        settle_in_many_ways(channel)
        die_in_many_ways(channel, broker)
        publish(channel, "survivor", "survivor")
        get(channel, "survivor")
        # Its confirm says that the delivery before it is on disk, too.
        publish(channel, "survivor", "witness")
        broker.kill()
    broker.start()
    with channel_to(broker) as channel:
        channel.basic_ack(get(channel, "survivor"))
        for _ in range(DEAD_LETTERS):
            channel.basic_ack(get(channel, "graveyard"))


def archive_folder(folder: Path, lake_folder: Path) -> Any:
    """All events of a data folder into bronze, without a stream."""
    from penstock.history.opening import open_log
    from penstock.pipeline.columns import EVENTS
    from penstock.pipeline.decode.events import read_range
    from penstock.pipeline.decode.ranges import plan
    from penstock.pipeline.decode.request import Request
    from penstock.pipeline.lake.opening import Lake
    from penstock.pipeline.lake.writing import write_batches

    lake = Lake(lake_folder)
    bronze = lake.table("bronze")
    with contextlib.closing(open_log(str(folder))) as log:
        state = log.state()
        request = Request()
        ranges = plan(log, state.first_lsn, state.end_lsn)
        batches = (batch for part in ranges for batch in read_range(log, part, request))
        bronze.append(write_batches(bronze.folder, batches, EVENTS, "part"), "archive", 0)
    return lake


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from penstock.pipeline.refine.refine import refine

    folder = tmp_path_factory.mktemp("golden")
    with Broker(data_dir=folder / "data") as broker:
        play(broker)
    made = archive_folder(folder / "data", folder / "lake")
    # Several ranges: lives that one opens another one ends.
    result = refine(spark, made, step_events=50)
    assert result.steps > 1
    return made


def rows_of(lake: Any, table: str) -> list[dict[str, Any]]:
    read = pa.concat_tables([pq.read_table(file.path) for file in lake.table(table).files()])
    return list(read.to_pylist(maps_as_pydicts="strict"))


def test_every_life_is_as_it_was(lake: Any) -> None:
    found = {
        (life["message_id"], life["queue"]): (
            *(life[name] for name in ("outcome", "reason", "deliveries", "requeues")),
            [(death["queue"], death["reason"]) for death in life["dead_letter_path"]],
        )
        for life in rows_of(lake, "silver")
    }
    assert found == LIVES
    assert len(rows_of(lake, "silver")) == len(LIVES)


def test_lives_know_who_had_the_message_and_for_how_long(lake: Any) -> None:
    lives = {(life["message_id"], life["queue"]): life for life in rows_of(lake, "silver")}
    acked, got, fetched = (lives[name, "plain"] for name in ("acked", "got", "fetched"))
    assert acked["consumer"].startswith("ctag")
    assert acked["connection"].startswith("127.0.0.1:")
    assert got["consumer"] is None
    assert got["service_us"] >= 0
    assert fetched["service_us"] is None
    survivor = lives["survivor", "survivor"]
    assert survivor["last_delivered"] > survivor["first_delivered"] >= survivor["published"]
    assert lives["expired", "short-lived"]["life_us"] >= (TTL_MS - 1) * 1000
    assert lives["hops", "graveyard"]["first_death_queue"] == "hop"
    assert all(death["count"] == 1 for death in lives["hops", "graveyard"]["dead_letter_path"])
    assert not any(life["partial"] for life in lives.values())


def test_what_is_still_there_is_open(lake: Any) -> None:
    from penstock.pipeline.refine import progress

    files = progress.open_life_files(lake, progress.refined(lake))
    still_open = pa.concat_tables([pq.read_table(path) for path in files]).to_pylist()
    assert {(life["message_id"], life["queue"]) for life in still_open} == OPEN


def test_minutes_add_up_to_the_same(lake: Any) -> None:
    gold = rows_of(lake, "gold")
    assert sum(row["published"] for row in gold) == len(LIVES) + len(OPEN)
    assert sum(row["ended"] for row in gold) == len(LIVES)
    last = {row["queue"]: row["depth"] for row in sorted(gold, key=lambda row: row["minute"])}
    assert {queue: depth for queue, depth in last.items() if depth} == {"one": 1, "one.dead": 1, "survivor": 1}
    causes: dict[str, int] = {}
    for row in gold:
        for cause, many in row["dead_letter_causes"].items():
            causes[cause] = causes.get(cause, 0) + many
    assert causes == {"expired": 3, "rejected": 1, "delivery_limit": 1, "maxlen": 1}
