"""The counters of a real broker beside the fold of its log: whatever messages have been through, they agree."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
from click.testing import CliRunner, Result
from pika.adapters.blocking_connection import BlockingChannel

from penstock.cli.main import main
from penstock.errors import StartupError
from penstock.history.opening import open_log
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import plan
from penstock.pipeline.decode.request import Request
from penstock.pipeline.jobs import reconcile as reconcile_job
from penstock.server.sync import open_store
from penstock.testing import Broker
from tests.history.small_broker import PERSISTENT, channel_of, http_broker, http_port, publish, small_options
from tests.interop.deadline import wait_until
from tests.pipeline.reconcile.altered_counters import altered_counters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.reconcile.result import Reconciliation

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

# In the shared store.
LARGE = b"x" * 9000


@pytest.fixture
def broker(data_dir: Path) -> Iterator[Broker]:
    """One that serves its history."""
    with http_broker(data_dir) as running:
        yield running


def url_of(broker: Broker) -> str:
    return f"http://127.0.0.1:{http_port(broker)}"


def reconciled(spark: SparkSession, source: str, lake: Path | None = None) -> Reconciliation:
    from penstock.pipeline.reconcile.reconcile import ReconcileOptions, reconcile

    return reconcile(lambda: spark, ReconcileOptions(source, None if lake is None else str(lake)))


def get(channel: BlockingChannel, queue: str, count: int) -> list[int]:
    """Delivery tags of so many messages."""
    return [channel.basic_get(queue)[0].delivery_tag for _ in range(count)]  # type: ignore[union-attr]


def declare(channel: BlockingChannel, queue: str, **arguments: Any) -> None:
    given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments=given)


def depth(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def live(channel: BlockingChannel) -> None:
    """Messages begin and end in every way there is; some of each stay."""
    publish(channel, "plain", [b"%d" % number * (number + 1) for number in range(12)])
    tags = get(channel, "plain", 8)
    channel.basic_ack(tags[1])
    channel.basic_ack(tags[4], multiple=True)
    channel.basic_nack(tags[5], requeue=True)
    channel.basic_reject(tags[6], requeue=False)
    channel.basic_get("plain", auto_ack=True)

    publish(channel, "purged", [b"one", b"two two", b"three"])
    channel.basic_ack(get(channel, "purged", 1)[0])
    channel.queue_purge("purged")
    publish(channel, "purged", [b"later"])

    publish(channel, "purged with pending", [b"a", b"bb", b"ccc", b"dddd"])
    kept = get(channel, "purged with pending", 2)
    channel.queue_purge("purged with pending")
    channel.basic_ack(kept[1])

    publish(channel, "dead", [b"died"])
    publish(channel, "short lived", [b"expires", b"expires, too"])
    wait_until(lambda: depth(channel, "dead") == 3, "they have expired and come to the other queue")

    publish(channel, "two at most", [b"1", b"22", b"333", b"4444"])
    for number in range(9):
        properties = pika.BasicProperties(delivery_mode=2, priority=number % 4)
        channel.basic_publish("", "levels", b"p" * number, properties)
    channel.basic_ack(get(channel, "levels", 2)[1])
    publish(channel, "levels of old", [b"of no priority"])
    channel.queue_purge("levels of old")

    publish(channel, "large", [LARGE, b"small", LARGE + LARGE, LARGE])
    channel.basic_ack(get(channel, "large", 3)[2])

    # Of neither kind is there history.
    channel.basic_publish("", "plain", b"transient")
    publish(channel, "not durable", [b"persistent"])
    publish(channel, "deleted", [b"gone with its queue"] * 3)
    channel.queue_delete("deleted")


@contextmanager
def lively(broker: Broker) -> Iterator[BlockingChannel]:
    with channel_of(broker) as channel:
        for name in ("plain", "purged", "purged with pending", "dead", "large", "deleted"):
            declare(channel, name)
        channel.queue_declare("not durable")
        dead = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
        declare(channel, "short lived", message_ttl=1, **dead)
        declare(channel, "two at most", max_length=2)
        declare(channel, "levels", max_priority=3)
        declare(channel, "levels of old", max_priority=2)
        yield channel


def test_counters_agree_whatever_messages_have_been_through(spark: SparkSession, broker: Broker) -> None:
    with lively(broker) as channel:
        live(channel)
        found = reconciled(spark, url_of(broker))
        assert found.differences == ()
        # One of them has used four levels, another one a single one; "deleted" and "not durable" are not among them.
        assert found.queues == 7 + 4 + 1
        assert found.counters == 2 * found.queues
        live_again(channel)
    # Unacknowledged messages are back in their queues now; and after a restart in a new segment.
    assert reconciled(spark, url_of(broker)).differences == ()


def live_again(channel: BlockingChannel) -> None:
    declare(channel, "deleted")
    publish(channel, "deleted", [b"the same name, another queue"])
    channel.queue_purge("large")
    channel.queue_purge("plain")


def add_one(counters: dict[str, Any]) -> None:
    queue = next(queue for queue in counters["queues"] if queue["queue"] == "plain")
    queue["persistent_count"] += 1
    queue["persistent_bytes"] -= 2


def forget_one(counters: dict[str, Any]) -> None:
    counters["queues"] = [queue for queue in counters["queues"] if queue["queue"] != "other"]


def invoke(monkeypatch: pytest.MonkeyPatch, spark: SparkSession, *arguments: str) -> Result:
    """The command, with the session of the tests: that has to stay."""

    @contextmanager
    def shared(job: str, master: str, driver_memory: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(reconcile_job, "spark_for", shared)
    return CliRunner().invoke(main, ["pipeline", "reconcile", *arguments])


def test_a_counter_that_is_wrong_is_named_and_is_an_exit_code(
    spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with channel_of(broker) as channel:
        for name in ("plain", "other"):
            declare(channel, name)
            publish(channel, name, [b"abc", b"defg"])
    result = invoke(monkeypatch, spark, "--source", url_of(broker))
    assert (result.exit_code, result.stdout) == (0, "4 counters of 2 queues compared, 0 differ\n")

    with altered_counters(http_port(broker), add_one) as url:
        result = invoke(monkeypatch, spark, "--source", url)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "DIFFERS   broker: plain (vhost /): persistent_count is reported as 3, and counted 2",
        "DIFFERS   broker: plain (vhost /): persistent_bytes is reported as 5, and counted 7",
        "4 counters of 2 queues compared, 2 differ",
    ]

    with altered_counters(http_port(broker), forget_one) as url:
        result = invoke(monkeypatch, spark, "--source", url, "--json")
    assert result.exit_code == 1
    [difference] = json.loads(result.stdout)["differences"]
    assert (difference["queue"], difference["reported"], difference["counted"]) == ("other", None, 2)


def acked_run(broker: Broker) -> dict[str, Any] | None:
    """The run of the view `runs` that acknowledges several messages, once it is durable; read without Spark."""
    request = Request(view="runs", bodies=False)
    with closing(open_log(url_of(broker))) as log:
        parts = plan(log, 0, log.state().end_lsn, 2**40, request)
        rows = [row for part in parts for batch in read_range(log, part, request) for row in batch.to_pylist()]
    return next((row for row in rows if row["kind"] == "acked"), None)


def test_counters_that_were_taken_in_the_middle_of_a_run_agree(spark: SparkSession, broker: Broker) -> None:
    """The journal goes on with a run in which the counters were taken: its bytes are those of the whole run."""
    sizes = [1, 2, 4, 8, 16]
    with channel_of(broker) as channel:
        declare(channel, "plain")
        publish(channel, "plain", [b"x" * size for size in sizes])
        channel.basic_ack(get(channel, "plain", len(sizes))[-1], multiple=True)
        run = wait_until(lambda: acked_run(broker), "the acknowledgement is durable")
    assert (run["count"], run["bytes"]) == (len(sizes), sum(sizes))

    def two_earlier(counters: dict[str, Any]) -> None:
        counters["lsn"] = run["lsn"] + len(sizes) - 2
        counters["queues"][0].update(persistent_count=2, persistent_bytes=sum(sizes[-2:]))

    with altered_counters(http_port(broker), two_earlier) as url:
        assert reconciled(spark, url).differences == ()


def test_counters_agree_while_the_broker_works(spark: SparkSession, broker: Broker) -> None:
    stop = threading.Event()
    done = 0

    def work() -> None:
        nonlocal done
        with channel_of(broker) as channel:
            declare(channel, "busy")
            for number in range(200):
                channel.basic_publish("", "busy", b"x" * (number % 50), PERSISTENT)
            while not stop.is_set():
                tags = get(channel, "busy", 7)
                for tag in tags:
                    channel.basic_ack(tag)
                for number in range(7):
                    channel.basic_publish("", "busy", b"x" * (done * number % 61), PERSISTENT)
                done += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        wait_until(lambda: done > 3, "it works")
        for _ in range(3):
            before = done
            found = reconciled(spark, url_of(broker))
            assert found.differences == ()
            assert done > before
    finally:
        stop.set()
        worker.join()


def test_a_history_that_does_not_reach_back_needs_a_lake_that_does(
    spark: SparkSession, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.pipeline.archive import ArchiveOptions, archive
    from penstock.pipeline.lake.opening import Lake
    from penstock.pipeline.refine.refine import refine

    monkeypatch.setattr(open_store, "StoreOptions", small_options)
    lake = tmp_path / "lake"
    with http_broker(data_dir, history_bytes_max=0, history_hours_max=0) as broker, lively(broker) as channel:
        publish(channel, "plain", [b"stays for long", b"goes later"])
        archive(spark, ArchiveOptions(url_of(broker), str(lake), once=True))
        live(channel)
        bring_forward(channel, broker, spark, lake)
        with pytest.raises(StartupError, match=r"history begins at LSN \d+, .*; give --lake"):
            reconciled(spark, url_of(broker))
        with pytest.raises(StartupError, match=r"refined up to LSN 0, .* run `penstock pipeline archive --once`"):
            reconciled(spark, url_of(broker), lake)
        refine(spark, Lake(lake))
        channel.queue_purge("plain")
        publish(channel, "plain", [b"newest"])
        found = reconciled(spark, url_of(broker), lake)
        assert found.differences == ()
        # A lake whose lives are not those of the log is found out.
        other = Lake(tmp_path / "other")
        with pytest.raises(StartupError, match="the events of another log"):
            reconciled(spark, url_of(broker), other.path)


def bring_forward(channel: BlockingChannel, broker: Broker, spark: SparkSession, lake: Path) -> None:
    """Archive, and work until the broker has removed the first segment."""
    from penstock.pipeline.archive import ArchiveOptions, archive

    archive(spark, ArchiveOptions(url_of(broker), str(lake), once=True))
    declare(channel, "busy")

    def step() -> None:
        publish(channel, "busy", [b"y" * 2000] * 4)
        channel.queue_purge("busy")

    with closing(open_log(url_of(broker))) as log:
        wait_until(lambda: log.state().first_lsn > 0, "the first segment is gone", step)


def test_a_folder_has_no_counters_and_a_broker_that_is_gone_is_told(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.history.log import HistoryError

    with Broker(data_dir=tmp_path / "data"):
        pass
    with pytest.raises(StartupError, match="give --source http://HOST:PORT"):
        reconciled(spark, str(tmp_path / "data"))
    with pytest.raises(HistoryError):
        reconciled(spark, "http://127.0.0.1:1")
