"""Lives on Spark: each is the fold of its events, wherever the log is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.pipeline.refine.life_columns import LIVES, OPEN_LIVES
from tests.pipeline.refine.lives_plain import (
    BEGIN,
    SECOND,
    RandomLog,
    Row,
    event,
    fold_plain,
    logs,
    table_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")


def fold_on_spark(spark: SparkSession, chunks: Sequence[Sequence[Row]]) -> tuple[pa.Table, pa.Table]:
    """Ended and open lives, when the log is refined in these chunks."""
    from penstock.pipeline.refine.lives import fold_lives

    ended: list[pa.Table] = []
    still_open = OPEN_LIVES.empty_table()
    for chunk in filter(None, chunks):
        before = spark.createDataFrame(still_open) if still_open.num_rows else None
        lives = fold_lives(spark.createDataFrame(table_of(chunk)), before).toArrow()
        is_ended = pa.compute.is_valid(lives["outcome"])
        ended.append(lives.filter(is_ended).select(LIVES.names).cast(LIVES))
        still_open = lives.filter(pa.compute.invert(is_ended)).select(OPEN_LIVES.names).cast(OPEN_LIVES)
    return pa.concat_tables([LIVES.empty_table(), *ended]), still_open


def rows_of(lives: pa.Table) -> list[Row]:
    return sorted(lives.to_pylist(), key=lambda row: (row["settled_lsn"], row["queue_no"], row["seq"]))


def cut(log: Sequence[Row], places: Sequence[int]) -> list[Sequence[Row]]:
    ends = [*sorted(place % (len(log) + 1) for place in places), len(log)]
    return [log[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(
    log=logs(60),
    places=st.lists(st.integers(0, 10_000), min_size=1, max_size=3),
)
# Each example is many histories in one run of Spark; to shrink them would take hours.
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_a_life_is_the_fold_of_its_events_wherever_the_log_is_cut(
    spark: SparkSession, log: RandomLog, places: list[int]
) -> None:
    expected, open_keys = fold_plain(log)
    ended, still_open = fold_on_spark(spark, cut(log, places))
    for row, wanted in zip(rows_of(ended), sorted_lives(expected), strict=True):
        assert {name: row[name] for name in wanted} == wanted
    assert sorted(zip(*(still_open[name].to_pylist() for name in ("queue_no", "seq")), strict=True)) == open_keys


def sorted_lives(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["settled_lsn"], row["queue_no"], row["seq"]))


def only_life(spark: SparkSession, events: list[Row]) -> Row:
    ended, _ = fold_on_spark(spark, [events])
    (row,) = rows_of(ended)
    return row


def test_a_whole_life_has_all_its_columns(spark: SparkSession) -> None:
    death = {"queue": "work", "exchange": "x", "reason": "rejected", "count": 2, "time": 1772366400}
    older = {"queue": "first", "exchange": "", "reason": "expired", "count": 1, "time": "2026-03-01T11:00:00Z"}
    row = only_life(
        spark,
        [
            event(
                10, "published", 4, 7, x_death=[death, older], message_id="m1", priority=3, expires=BEGIN + SECOND * 90
            ),
            event(11, "delivered", 4, 7, consumer="c1", connection="k1"),
            event(13, "requeued", 4, 7),
            event(16, "delivered", 4, 7, consumer="c2", connection="k2"),
            event(20, "dead-lettered", 4, 7, reason="rejected"),
        ],
    )
    assert row == {
        "queue_no": 4,
        "seq": 7,
        "vhost": "/",
        "queue": "q4",
        "exchange": "",
        "routing_key": "q4",
        "published": BEGIN + SECOND * 10,
        "published_lsn": 10,
        "message_id": "m1",
        "size": 10,
        "persistent": True,
        "priority": 3,
        "expires": BEGIN + SECOND * 90,
        "first_delivered": BEGIN + SECOND * 11,
        "last_delivered": BEGIN + SECOND * 16,
        "deliveries": 2,
        "requeues": 1,
        "consumer": "c2",
        "connection": "k2",
        "settled": BEGIN + SECOND * 20,
        "settled_lsn": 20,
        "outcome": "dead-lettered",
        "reason": "rejected",
        "wait_us": 1_000_000,
        "service_us": 4_000_000,
        "life_us": 10_000_000,
        "partial": False,
        "dead_letter_path": [
            {**death, "time": BEGIN},
            {**older, "time": BEGIN - SECOND * 3600},
        ],
        "first_death_queue": None,
    }


@pytest.mark.parametrize(
    "x_death",
    [
        "no JSON",
        '{"queue": "not in an array"}',
        "[1, 2]",
        '[{"count": "many", "time": {"no": "time"}, "queue": ["a"]}]',
    ],
)
def test_a_death_header_that_a_publisher_made_up_does_no_harm(spark: SparkSession, x_death: str) -> None:
    published = event(1, "published", headers=[("x-death", x_death), ("x-first-death-queue", "somewhere")])
    row = only_life(spark, [published, event(2, "acked")])
    assert row["outcome"] == "acked"
    assert row["first_death_queue"] == "somewhere"
    assert all(death["time"] is None and death["count"] is None for death in row["dead_letter_path"])


def test_what_nobody_had_at_its_end_has_no_service_time(spark: SparkSession) -> None:
    given_back = [event(1, "published"), event(2, "delivered"), event(3, "requeued"), event(9, "expired")]
    fetched = [event(11, "published", seq=1), event(14, "fetched", seq=1)]
    never = [
        event(21, "published", seq=2),
        event(22, "taken", seq=2),
        event(23, "dead-lettered", seq=2, reason="maxlen"),
    ]
    ended, _ = fold_on_spark(spark, [[*given_back, *fetched, *never]])
    assert [(row["wait_us"], row["service_us"], row["deliveries"]) for row in rows_of(ended)] == [
        (1_000_000, None, 1),
        (3_000_000, None, 1),
        (None, None, 0),
    ]


def test_damage_and_kinds_of_a_newer_broker_are_no_events_of_a_message(spark: SparkSession) -> None:
    damage = event(2, "unreadable", queue_no=-1, seq=-1, problem="checksum")
    newer = event(3, "unknown", queue_no=1, seq=77)
    ended, still_open = fold_on_spark(spark, [[event(1, "published"), damage, newer]])
    assert (ended.num_rows, still_open.num_rows) == (0, 1)


def test_a_deleted_queue_ends_the_lives_of_its_own_number_alone(spark: SparkSession) -> None:
    log: list[dict[str, Any]] = [event(1, "published", 1), event(2, "published", 2), event(3, "deleted", 1, -1)]
    ended, still_open = fold_on_spark(spark, [log[:1], log[1:]])
    assert [(row["queue_no"], row["outcome"]) for row in rows_of(ended)] == [(1, "deleted")]
    assert still_open["queue_no"].to_pylist() == [2]
