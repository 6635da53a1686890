"""Deaths by cause, and back with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.pipeline.archive import ArchiveOptions, archive
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.publishing.deaths import TriageOptions, triage
from penstock.pipeline.publishing.redrive import RedriveOptions, redrive
from penstock.pipeline.publishing.selection import Selection, SelectionError
from penstock.pipeline.refine.refine import refine
from penstock.testing import Broker
from tests.pipeline.past_messages import send, wait_for_events
from tests.pipeline.sink.queues import bodies, channel_to, declare, take_all
from tests.postgres_server import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refined(spark: SparkSession, data_dir: Path, lake: Path, events: int) -> str:
    wait_for_events(str(data_dir), events)
    archive(spark, ArchiveOptions(str(data_dir), str(lake), once=True))
    refine(spark, Lake(lake))
    return str(lake)


def reject_all(broker: Broker, queue: str, count: int) -> None:
    with channel_to(broker.url) as channel:
        for _ in range(count):
            method, _, _ = channel.basic_get(queue)
            channel.basic_reject(method.delivery_tag, requeue=False)
        wait_until(lambda: broker.queue_depth("dead") == count)


def test_deaths_are_grouped_and_a_group_comes_back(
    spark: SparkSession, broker: Broker, data_dir: Path, tmp_path: Path
) -> None:
    dead_letters: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declare(broker.url, "dead")
    declare(broker.url, "orders", **dead_letters)
    send(
        broker,
        "orders",
        [b"<b>1</b>\n", b"2"],
        headers={"tenant": "blue"},
        content_type="text/html",
        message_id="m\x1b",
    )
    send(broker, "orders", [b"3"], headers={"tenant": "red"})
    send(broker, "orders", [b"4"])
    reject_all(broker, "orders", 4)
    # Each was published, delivered, and died; and each dead letter was published.
    lake = refined(spark, data_dir, tmp_path / "lake", 16)
    options = TriageOptions(lake, header="tenant")
    result = triage(spark, options)
    assert (result.messages, result.groups_count) == (4, 3)
    largest = result.groups[0]
    assert (largest.queue, largest.outcome, largest.reason) == ("orders", "dead-lettered", "rejected")
    assert (largest.routing_key, largest.content_type, largest.header_value) == ("orders", "text/html", "blue")
    assert (largest.count, largest.whole) == (2, 2)
    assert largest.first <= largest.last
    assert [(sample.message_id, sample.body) for sample in largest.samples] == [
        ("m\\x1b", "2"),
        ("m\\x1b", "<b>1</b>\\n"),
    ]
    assert {(group.header_value, group.count) for group in result.groups[1:]} == {("red", 1), (None, 1)}
    assert triage(spark, TriageOptions(lake)).groups_count == 2

    # The group without the header is that message alone.
    nobody = next(group for group in result.groups if group.header_value is None)
    wanted = RedriveOptions(options, broker.url, (nobody.id,), dry_run=True)
    planned = redrive(spark, wanted)[nobody.id]
    assert (planned.published, planned.by_queue) == (0, {"orders": 1})
    assert broker.queue_depth("orders") == 0
    redrive(spark, replace(wanted, dry_run=False, groups=(nobody.id[:6], largest.id)))
    found = take_all(broker.url, "orders")
    assert sorted(body for _, _, body in found) == [b"2", b"4", b"<b>1</b>\n"]
    assert all("x-death" not in properties.headers for _, properties, _ in found)

    # What is back is known once the lake has heard of it.
    refined(spark, data_dir, tmp_path / "lake", 22)
    assert redrive(spark, replace(wanted, dry_run=False))[nobody.id].published == 0
    assert redrive(spark, replace(wanted, dry_run=False, again=True))[nobody.id].published == 1
    assert bodies(broker.url, "orders") == [b"4"]


def test_a_lake_that_was_not_refined_and_a_group_that_is_none_are_said(
    spark: SparkSession, broker: Broker, data_dir: Path, tmp_path: Path
) -> None:
    declare(broker.url, "orders")
    send(broker, "orders", [b"1"])
    options = TriageOptions(str(tmp_path / "lake"))
    with pytest.raises(SelectionError, match="is no lake"):
        triage(spark, options)
    Lake(options.lake)
    with pytest.raises(SelectionError, match="run `penstock pipeline refine` first"):
        triage(spark, options)
    with channel_to(broker.url) as channel:
        channel.basic_get("orders", auto_ack=True)
    refined(spark, data_dir, tmp_path / "lake", 2)
    assert triage(spark, options).groups == []
    with pytest.raises(SelectionError, match="'abc' is no group; there are none"):
        redrive(spark, RedriveOptions(options, broker.url, ("abc",)))
    with pytest.raises(SelectionError, match="no reason 'bad'; there are rejected"):
        triage(spark, replace(options, selection=Selection(reasons=("bad",))))
