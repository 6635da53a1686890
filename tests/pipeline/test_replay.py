"""Messages of the past back into queues, with a real broker and Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.pipeline.publishing.replay import ReplayOptions, ReplayProgress, replay
from penstock.pipeline.publishing.replayed import Destination
from penstock.pipeline.publishing.selection import Selection, SelectionError, published_in_log
from penstock.pipeline.sink.options import SinkError
from penstock.testing import Broker
from tests.pipeline.past_messages import send, wait_for_events
from tests.pipeline.sink.queues import bodies, channel_to, declare, declare_dedup, take_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def options(broker: Broker, data_dir: Path, **given: Any) -> ReplayOptions:
    return ReplayOptions(**{"broker": broker.url, "source": str(data_dir), **given})


def numbered(count: int) -> list[bytes]:
    return [f"order {number}".encode() for number in range(count)]


def test_messages_that_were_consumed_are_back_in_their_queue(
    spark: SparkSession, broker: Broker, data_dir: Path
) -> None:
    declare(broker.url, "orders")
    declare(broker.url, "other")
    send(
        broker, "orders", numbered(20), content_type="text/plain", headers={"tenant": "blue", "count": 3}, type="order"
    )
    send(broker, "other", [b"no"])
    assert len(bodies(broker.url, "orders")) == 20
    wait_for_events(str(data_dir), 21)
    result = replay(spark, options(broker, data_dir, name="again", selection=Selection(queue="orders"), ordered=True))
    assert (result.published, result.skipped, result.by_queue) == (20, 0, {"orders": 20})
    found = take_all(broker.url, "orders")
    assert [body for _, _, body in found] == numbered(20)
    _, properties, _ = found[0]
    lsn = properties.headers["x-penstock-replayed-lsn"]
    assert properties.headers == {
        "tenant": "blue",
        "count": 3,
        "x-penstock-replayed": "again",
        "x-penstock-replayed-lsn": lsn,
        "x-penstock-replayed-queue": "orders",
        "x-deduplication-header": f"replay/again/{lsn}",
    }
    assert (properties.content_type, properties.type, properties.delivery_mode) == ("text/plain", "order", 2)
    assert bodies(broker.url, "other") == [b"no"]


def test_a_dry_run_counts_and_publishes_nothing(spark: SparkSession, broker: Broker, data_dir: Path) -> None:
    declare(broker.url, "orders")
    send(broker, "orders", [b"first\n\x00", b"x" * 200])
    wait_for_events(str(data_dir), 2)
    result = replay(spark, options(broker, data_dir, dry_run=True))
    assert (result.dry_run, result.published, result.by_queue) == (True, 0, {"orders": 2})
    [planned] = result.by_key
    assert (planned.queue, planned.exchange, planned.routing_key, planned.rows) == ("orders", "", "orders", 2)
    assert [row["body"] for row in result.sample] == ["first\\n\\x00", "x" * 80 + "…"]
    assert broker.queue_depth("orders") == 2


def test_the_same_name_publishes_nothing_twice(spark: SparkSession, broker: Broker, data_dir: Path) -> None:
    declare_dedup(broker.url, "again")
    declare(broker.url, "orders")
    send(broker, "orders", numbered(30))
    wait_for_events(str(data_dir), 30)
    progress: list[ReplayProgress] = []
    to_again = Destination(queue="again")
    chosen = options(
        broker, data_dir, name="n", destination=to_again, slice_rows=10, selection=Selection(queue="orders")
    )
    replay(spark, chosen, progress.append)
    assert [one.published for one in progress] == [10, 20, 30]
    assert {one.total for one in progress} == {30}
    replay(spark, chosen)
    assert sorted(bodies(broker.url, "again")) == sorted(numbered(30))


def test_what_a_replay_has_published_is_not_replayed_by_its_next_run(
    spark: SparkSession, broker: Broker, data_dir: Path
) -> None:
    declare_dedup(broker.url, "orders")
    send(broker, "orders", [*numbered(5), b"no"])
    wait_for_events(str(data_dir), 6)
    # Words about bodies are understood before any are published.
    chosen = options(broker, data_dir, name="n", selection=Selection(queue="orders", where="length(body) > 2"))
    assert replay(spark, chosen).published == 5
    wait_for_events(str(data_dir), 16)
    assert replay(spark, chosen).published == 5
    assert broker.queue_depth("orders") == 11


CHOICES = [
    (Selection(routing_key="order.paid"), [b"paid"]),
    (Selection(headers=(("tenant", "blue"), ("size", "7"))), [b"blue"]),
    (Selection(no_headers=("tenant",), no_content_type=True, exchange=""), [b"large"]),
    (Selection(content_type="text/csv"), [b"csv"]),
    (Selection(where="length(body) > 4"), [b"large"]),
    (Selection(queue="orders' or '1'='1"), []),
    (Selection(vhost="elsewhere"), []),
    (Selection(exchange="amq.topic", where="routing_key = 'order.paid'"), [b"paid"]),
    (Selection(until=datetime(2020, 1, 1, tzinfo=UTC)), []),
    (Selection(since=datetime(2020, 1, 1, tzinfo=UTC), content_type="text/csv"), [b"csv"]),
]


def test_filters_choose(spark: SparkSession, broker: Broker, data_dir: Path) -> None:
    # Its keys are in a companion queue, which nobody chooses.
    declare_dedup(broker.url, "orders")
    with channel_to(broker.url) as channel:
        channel.queue_bind("orders", "amq.topic", "order.*")
    send(broker, "order.paid", [b"paid"], "amq.topic", headers={"x-deduplication-header": "key"})
    send(broker, "orders", [b"blue"], headers={"tenant": "blue", "size": 7})
    send(broker, "orders", [b"red"], headers={"tenant": "red", "size": 7})
    send(broker, "orders", [b"csv"], content_type="text/csv")
    send(broker, "orders", [b"large"])
    wait_for_events(str(data_dir), 6)
    for selection, expected in CHOICES:
        rows = published_in_log(spark, str(data_dir), selection, bodies=True).select("body").collect()
        assert [bytes(row["body"]) for row in rows] == expected, selection
    everything = published_in_log(spark, str(data_dir), Selection(), bodies=False).select("queue").collect()
    assert [row["queue"] for row in everything] == ["orders"] * 5


def test_a_large_body_that_has_left_the_disk_is_counted_and_named(
    spark: SparkSession, broker: Broker, data_dir: Path
) -> None:
    declare(broker.url, "orders")
    declare(broker.url, "target")
    send(broker, "orders", [b"small", b"L" * 50_000, b"small too"])
    assert len(bodies(broker.url, "orders")) == 3
    broker.stop()
    # What the broker does sooner or later: nothing needs these bodies any more.
    stores = [file for file in data_dir.glob("vhosts/*/shared/persistent/*") if file.is_file()]
    assert stores
    for file in stores:
        file.unlink()
    broker.start()
    chosen = options(broker, data_dir, selection=Selection(queue="orders"), destination=Destination(queue="target"))
    for result in (replay(spark, replace(chosen, dry_run=True)), replay(spark, chosen)):
        assert (result.skipped, result.by_queue) == (1, {"orders": 2})
        [skipped] = result.skipped_messages
        assert (skipped.queue, skipped.why) == ("orders", "its body had left the disk")
    assert result.published == 2
    assert bodies(broker.url, "target") == [b"small", b"small too"]


def test_messages_go_to_an_exchange_with_their_key_or_another(
    spark: SparkSession, broker: Broker, data_dir: Path
) -> None:
    declare(broker.url, "orders")
    declare(broker.url, "target")
    with channel_to(broker.url) as channel:
        channel.queue_bind("target", "amq.direct", "orders")
        channel.queue_bind("target", "amq.direct", "special")
    send(
        broker,
        "orders",
        [b"one"],
        reply_to="here",
        headers={"CC": ["orders"], "x-death": "mine"},
        expiration="99999999",
    )
    wait_for_events(str(data_dir), 1)
    chosen = options(
        broker, data_dir, destination=Destination(exchange="amq.direct"), selection=Selection(queue="orders")
    )
    replay(spark, chosen)
    other = Destination(exchange="amq.direct", routing_key="special")
    replay(
        spark, options(broker, data_dir, destination=other, selection=Selection(queue="orders", routing_key="orders"))
    )
    [(first, properties, _), (second, _, _)] = take_all(broker.url, "target")[:2]
    assert (first.exchange, first.routing_key, second.routing_key) == ("amq.direct", "orders", "special")
    assert properties.reply_to == "here"
    assert properties.expiration is None
    assert not {"CC", "x-death"} & set(properties.headers)


def test_copies_of_one_publish_are_not_published_to_their_exchange_again(
    spark: SparkSession, broker: Broker, data_dir: Path
) -> None:
    for queue in ("left", "right"):
        declare(broker.url, queue)
        with channel_to(broker.url) as channel:
            channel.queue_bind(queue, "amq.fanout")
    send(broker, "key", [b"one"], "amq.fanout")
    wait_for_events(str(data_dir), 2)
    original = Destination(original=True)
    with pytest.raises(SelectionError, match=r"messages of 2 queues came by exchange 'amq\.fanout'"):
        replay(spark, options(broker, data_dir, destination=original))
    replay(spark, options(broker, data_dir, destination=original, selection=Selection(queue="left")))
    assert (broker.queue_depth("left"), broker.queue_depth("right")) == (2, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lake": "somewhere"}, "from --lake or from --source: give one"),
        ({"lake": "nowhere", "source": None}, "nowhere is no lake"),
        ({"rate_limit": 0.0}, "a rate is more than 0"),
        ({"name": "n" * 129}, "1 to 128 printable characters"),
        ({"broker": "http://x"}, "starts with amqp://"),
        ({"selection": Selection(outcomes=("dead",))}, "no outcome 'dead'; there are acked"),
        ({"selection": Selection(outcomes=("acked",))}, "known in a lake: give --lake"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_words(
    spark: SparkSession, broker: Broker, data_dir: Path, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(SelectionError, match=words):
        replay(spark, replace(options(broker, data_dir), **given))


def test_a_destination_that_is_not_there_is_said_in_the_words_of_the_sink(
    spark: SparkSession, broker: Broker, data_dir: Path
) -> None:
    declare(broker.url, "orders")
    send(broker, "orders", [b"1"])
    wait_for_events(str(data_dir), 1)
    with pytest.raises(SinkError, match=r"^no queue takes a message .* 'nowhere'.* Started again with the name 'n'"):
        replay(spark, options(broker, data_dir, name="n", destination=Destination(queue="nowhere")))
