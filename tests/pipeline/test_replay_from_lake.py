"""Replays from a lake: by the outcome of lives, and killed in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.pipeline.archive import ArchiveOptions, archive
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.publishing.replay import ReplayOptions, replay
from penstock.pipeline.publishing.replayed import Destination
from penstock.pipeline.publishing.selection import Selection, SelectionError
from penstock.pipeline.refine.refine import refine
from penstock.testing import Broker
from tests.pipeline import spark_process
from tests.pipeline.past_messages import send, wait_for_events
from tests.pipeline.sink.queues import bodies, channel_to, declare, declare_dedup
from tests.postgres_server import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 2_000


@pytest.fixture
def archived(spark: SparkSession, data_dir: Path, tmp_path: Path) -> Callable[[int], str]:
    """Brings what is in the journal, once it has so many events, into a lake, and refines it; the lake's folder."""

    def make(events: int) -> str:
        wait_for_events(str(data_dir), events)
        folder = str(tmp_path / "lake")
        archive(spark, ArchiveOptions(str(data_dir), folder, once=True))
        refine(spark, Lake(folder))
        return folder

    return make


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_only_messages_with_that_outcome_come_back(
    spark: SparkSession, broker: Broker, archived: Callable[[int], str]
) -> None:
    declare(broker.url, "orders", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    declare(broker.url, "dead")
    send(broker, "orders", [b"good", b"bad", b"still there"])
    with channel_to(broker.url) as channel:
        first, _, _ = channel.basic_get("orders")
        channel.basic_ack(first.delivery_tag)
        second, _, _ = channel.basic_get("orders")
        channel.basic_reject(second.delivery_tag, requeue=False)
        wait_until(lambda: broker.queue_depth("dead") == 1)
    # Three published, two delivered, an ack, a death, and the dead letter.
    lake = archived(8)
    died = Selection(outcomes=("dead-lettered",), reasons=("rejected",))
    target = Destination(queue="target")
    declare(broker.url, "target")
    result = replay(spark, ReplayOptions(broker.url, lake, selection=died, destination=target, name="fix"))
    assert (result.published, result.by_queue, result.already_done) == (1, {"orders": 1}, False)
    assert bodies(broker.url, "target") == [b"bad"]
    done = replay(spark, ReplayOptions(broker.url, lake, selection=died, destination=target, name="fix"))
    assert (done.published, done.already_done) == (0, True)
    with pytest.raises(SelectionError, match="'fix' has published something else"):
        replay(spark, ReplayOptions(broker.url, lake, selection=died, name="fix"))


def test_a_replay_that_is_killed_in_the_middle_and_started_again_leaves_each_message_once(
    spark: SparkSession, broker: Broker, archived: Callable[[int], str], tmp_path: Path
) -> None:
    declare(broker.url, "orders")
    send(broker, "orders", numbered(MESSAGES))
    lake = archived(MESSAGES)
    declare_dedup(broker.url, "target")
    log = tmp_path / "log.txt"
    chosen = ["--broker", broker.url, "--lake", lake, "--name", "n", "--queue", "orders", "--to-queue", "target"]
    slowly = ["--rate-limit", "400", "--slice-rows", "300", "--master", "local[2]"]
    process = spark_process.start("penstock.pipeline.jobs.replay", [*chosen, *slowly], log)
    try:
        wait_until(lambda: broker.queue_depth("target") > 700 or process.poll() is not None, 240)
        assert process.poll() is None, log.read_text()[-5000:]
    finally:
        spark_process.kill(process)
    had = broker.queue_depth("target")
    assert 700 < had < MESSAGES
    again = ReplayOptions(
        broker.url, lake, selection=Selection(queue="orders"), destination=Destination(queue="target"), name="n"
    )
    result = replay(spark, again)
    # Two slices were over, and are not looked at again.
    assert MESSAGES - had <= result.published <= MESSAGES - 600
    assert sorted(map(int, bodies(broker.url, "target"))) == list(range(MESSAGES))


def test_a_replay_that_is_killed_is_of_what_was_there_when_it_began(
    spark: SparkSession, broker: Broker, archived: Callable[[int], str]
) -> None:
    declare(broker.url, "orders")
    declare_dedup(broker.url, "target")
    send(broker, "orders", numbered(20))
    lake = archived(20)
    options = ReplayOptions(
        broker.url, lake, selection=Selection(queue="orders"), destination=Destination(queue="target"), name="n"
    )
    replay_is_killed_after_its_first_slice(spark, options)
    assert broker.queue_depth("target") == 7
    send(broker, "orders", [b"999"])
    archived(21 + 2 * 7)
    assert replay(spark, options).published == 13
    assert sorted(map(int, bodies(broker.url, "target"))) == list(range(20))


def replay_is_killed_after_its_first_slice(spark: SparkSession, options: ReplayOptions) -> None:
    from dataclasses import replace

    class Killed(Exception):
        pass

    def stop(_: object) -> None:
        raise Killed

    with pytest.raises(Killed):
        replay(spark, replace(options, slice_rows=7), stop)
