"""The journal of a real broker, while it runs and after it has stopped."""

from __future__ import annotations

from pathlib import Path

import pika
import pika.adapters.blocking_connection as blocking

from penstock.history.folder_log import FolderLog
from penstock.pipeline.decode.ranges import plan
from penstock.pipeline.decode.request import Request
from penstock.testing import Broker
from tests.pipeline.decode.journals import Row, read_all, runs_request
from tests.pipeline.decode.plain import read_plain

LARGE = b"L" * 20_000
PERSISTENT = 2


def properties(number: int) -> pika.BasicProperties:
    return pika.BasicProperties(
        delivery_mode=PERSISTENT,
        message_id=f"m{number}",
        correlation_id="c",
        content_type="text/plain",
        headers={"number": number, "text": "hé"},
    )


def live(channel: blocking.BlockingChannel) -> None:
    """Something of everything."""
    channel.confirm_delivery()
    channel.queue_declare("dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("work", durable=True, arguments=dead)
    channel.queue_declare("gone", durable=True)
    for number in range(6):
        channel.basic_publish("", "work", b"body %d" % number, properties(number))
    channel.basic_publish("", "work", LARGE, properties(6))
    channel.basic_publish("", "gone", b"x", properties(7))
    taken = [channel.basic_get("work")[0] for _ in range(4)]
    channel.basic_ack(taken[0].delivery_tag)
    channel.basic_reject(taken[1].delivery_tag, requeue=False)
    channel.basic_nack(taken[2].delivery_tag, requeue=True)
    for method, _, _ in channel.consume("work", auto_ack=False, consumer_tag="the consumer"):
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        break
    channel.cancel()
    channel.queue_purge("dead")
    channel.queue_delete("gone")


def of_kind(rows: list[Row], kind: str, queue: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind and row["queue"] == queue]


def check_equal(folder: Path) -> list[Row]:
    log = FolderLog(str(folder), mark_bytes=300)
    ranges = plan(log, 0, log.state().end_lsn)
    found = read_all(log, Request(), ranges)
    found_runs = read_all(log, runs_request(Request()), ranges)
    # The broker may have written more meanwhile.
    events, runs = read_plain(str(folder), log)
    assert found == events[: len(found)]
    assert found_runs == runs[: len(found_runs)]
    log.close()
    return found


def test_the_life_of_messages_in_a_real_broker(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        live(connection.channel())
        during = check_equal(tmp_path / "data")
        connection.close()
    rows = check_equal(tmp_path / "data")
    assert len(rows) >= 20
    assert rows[: len(during)] == during
    published = of_kind(rows, "published", "work")
    assert [row["message_id"] for row in published] == [f"m{number}" for number in range(7)]
    assert [row["size"] for row in published] == [6] * 6 + [len(LARGE)]
    assert {row["routing_key"] for row in published} == {"work"}
    assert published[0]["body"] == b"body 0"
    assert published[6]["body"] == LARGE
    assert published[3]["headers"] == [("number", "3"), ("text", "hé")]
    assert {row["vhost"] for row in rows} == {"/"}
    assert len(of_kind(rows, "published", "dead")) == 1
    assert len(of_kind(rows, "purged", "dead")) >= 1
    assert [row["seq"] for row in of_kind(rows, "deleted", "gone")] == [-1]
    assert [row["seq"] for row in of_kind(rows, "acked", "work")][:1] == [0]
    assert [row["problem"] for row in rows if row["problem"]] == []
