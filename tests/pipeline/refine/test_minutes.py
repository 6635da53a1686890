"""Minutes on Spark: they count what happened, wherever the log is cut between two refinements."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.pipeline.refine.life_columns import LIVES, OPEN_LIVES
from penstock.pipeline.refine.minute_columns import EVENT_COUNTS, MINUTES, OUTCOME_COUNTS
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
from tests.pipeline.refine.test_lives import cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

# Follow from the other columns, and are checked apart.
NOT_COUNTED = {
    *(f"{name}_{what}" for name in ("wait", "service") for what in ("p50_us", "p95_us", "p99_us", "sketch")),
    "consumers_sketch",
}


def fold_on_spark(spark: SparkSession, chunks: Sequence[Sequence[Row]]) -> pa.Table:
    """Gold, when the log is refined in these chunks."""
    from penstock.pipeline.refine.lives import fold_lives
    from penstock.pipeline.refine.minutes import fold_minutes

    gold = MINUTES.empty_table()
    still_open = OPEN_LIVES.empty_table()
    for chunk in filter(None, chunks):
        events = spark.createDataFrame(table_of(chunk))
        lives = fold_lives(events, spark.createDataFrame(still_open) if still_open.num_rows else None).toArrow()
        is_ended = pa.compute.is_valid(lives["outcome"])
        ended = lives.filter(is_ended).select(LIVES.names).cast(LIVES)
        still_open = lives.filter(pa.compute.invert(is_ended)).select(OPEN_LIVES.names).cast(OPEN_LIVES)
        first = min(row["time"] for row in chunk).replace(second=0, microsecond=0)
        is_touched = pa.compute.greater_equal(gold["minute"], pa.scalar(first))
        before = gold.filter(is_touched)
        rows = fold_minutes(
            events,
            frame_of(spark, ended),
            frame_of(spark, before) if before.num_rows else None,
            frame_of(spark, still_open),
        ).toArrow()
        gold = pa.concat_tables([gold.filter(pa.compute.invert(is_touched)), rows.cast(MINUTES)])
    return gold


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    # Spark makes no DataFrame of an Arrow table without rows.
    return (
        spark.createDataFrame(table) if table.num_rows else spark.createDataFrame([], from_arrow_schema(table.schema))
    )


def minutes_plain(log: Sequence[Row]) -> dict[tuple[str, Any], Row]:
    ended, _ = fold_plain(log)
    rows: dict[tuple[str, Any], Row] = defaultdict(empty_row)
    consumers: dict[tuple[str, Any], set[Any]] = defaultdict(set)
    for row in log:
        if row["kind"] in EVENT_COUNTS:
            rows[place(row, "time")][EVENT_COUNTS[row["kind"]]] += 1
        if row["kind"] == "published":
            rows[place(row, "time")]["published_bytes"] += row["size"]
        if row["kind"] in ("delivered", "fetched") and row["consumer"]:
            consumers[place(row, "time")].add(row["consumer"])
    for life in ended:
        row = rows[place(life, "settled")]
        row[OUTCOME_COUNTS[life["outcome"]]] += 1
        row["ended"] += 1
        row["ended_partial"] += life["partial"]
        row["busy_us"] += max(0, life["service_us"] or 0)
        for name in ("wait", "service"):
            if life[f"{name}_us"] is not None:
                row[f"{name}_buckets"][bucket(max(0, life[f"{name}_us"]))] += 1
        if life["outcome"] == "dead-lettered":
            row["dead_letter_causes"][life["reason"]] += 1
        if life["consumer"]:
            consumers[place(life, "settled")].add(life["consumer"])
    depth: Counter[str] = Counter()
    for key in sorted(rows, key=lambda key: key[1]):
        row = rows[key]
        depth[key[0]] += row["published"] - row["ended"] + row["ended_partial"]
        row["consumers"] = count = len(consumers[key])
        row.update(depth=depth[key[0]], in_rate=row["published"] / 60, out_rate=row["ended"] / 60)
        row["redelivery_rate"] = row["requeued"] / row["delivered"] if row["delivered"] else None
        row["utilisation"] = min(1.0, row["busy_us"] / (count * 60_000_000)) if count else None
    return rows


def empty_row() -> Row:
    numbers = [name for name in MINUTES.names if pa.types.is_int64(MINUTES.field(name).type)]
    return {
        **dict.fromkeys(numbers, 0),
        **{name: Counter() for name in ("wait_buckets", "service_buckets", "dead_letter_causes")},
    }


def place(row: Row, time: str) -> tuple[str, Any]:
    return f"q{row['queue_no']}", row[time].replace(second=0, microsecond=0)


def bucket(us: int) -> int:
    return math.floor(math.log2(us) * 8) if us >= 1 else -1


def by_place(gold: pa.Table) -> dict[tuple[str, Any], Row]:
    rows = gold.to_pylist(maps_as_pydicts="strict")
    found = {(row["queue"], row["minute"]): row for row in rows}
    assert len(found) == len(rows), "a queue has two rows for one minute"
    return found


@given(
    log=logs(40),
    places=st.lists(st.integers(0, 10_000), min_size=1, max_size=2),
)
# Each example is many histories in one run of Spark; to shrink them would take hours.
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_minutes_count_what_happened_wherever_the_log_is_cut(
    spark: SparkSession, log: RandomLog, places: list[int]
) -> None:
    expected = minutes_plain(log)
    found = by_place(fold_on_spark(spark, cut(log, places)))
    assert found.keys() == expected.keys()
    for key, row in found.items():
        wanted = {name: value for name, value in expected[key].items() if name not in NOT_COUNTED}
        assert {name: row[name] for name in wanted} == wanted


def settled_lives(count: int) -> list[Row]:
    """Lives of one minute each whose wait and service are 1 … count ms."""
    log = []
    for number in range(1, count + 1):
        log += [
            event(3 * number, "published", seq=number, at=1.0),
            event(3 * number + 1, "delivered", seq=number, at=1.0 + number / 1000),
            event(3 * number + 2, "acked", seq=number, at=1.0 + 2 * number / 1000),
        ]
    return log


def test_percentiles_come_from_sketches_that_later_events_are_merged_into(spark: SparkSession) -> None:
    log = settled_lives(2000)
    (row,) = by_place(fold_on_spark(spark, [log[:2501], log[2501:]])).values()
    for name in ("wait", "service"):
        for quantile, exact_ms in (("p50", 1000), ("p95", 1900), ("p99", 1980)):
            # 1.65 % of rank, of 2000 values.
            assert row[f"{name}_{quantile}_us"] == pytest.approx(exact_ms * 1000, abs=40_000)


def test_a_queue_without_lives_that_ended_has_no_percentiles(spark: SparkSession) -> None:
    (row,) = by_place(fold_on_spark(spark, [[event(1, "published")]])).values()
    assert (row["wait_p50_us"], row["service_p99_us"], row["depth"], row["utilisation"]) == (None, None, 1, None)


def test_queues_without_a_name_stay_apart(spark: SparkSession) -> None:
    log = [event(number, "published", number, vhost=None, queue=None) for number in (1, 2)]
    assert {row["queue"] for row in by_place(fold_on_spark(spark, [log])).values()} == {"#1", "#2"}


def test_the_depth_counts_messages_that_came_long_before(spark: SparkSession) -> None:
    old = [event(number, "published", seq=number, at=number) for number in range(5)]
    new = [event(number + 10, "acked", seq=number, at=86_400.0) for number in range(2)]
    gold = by_place(fold_on_spark(spark, [old, new]))
    assert gold["q1", BEGIN]["depth"] == 5
    assert gold["q1", BEGIN + SECOND * 86_400]["depth"] == 3
