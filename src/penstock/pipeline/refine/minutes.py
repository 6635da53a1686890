"""Minutes of queues from events and lives: aggregations of Spark SQL.

Three inputs, brought to one shape and merged: the events of a range of the log, the lives that ended in it, and the
rows of gold that there are from its first minute on. So the minute that a cut goes through is completed by the next
refinement, without reading again what was read before.

The depth is counted back from what is open at the end of the range. That is exact, however long ago those messages
came, and needs no older rows.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sql

from penstock.pipeline.refine.buckets import BELOW_ONE, PER_DOUBLING
from penstock.pipeline.refine.minute_columns import EVENT_COUNTS, MINUTES, OUTCOME_COUNTS, QUANTILES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE_US: Final = 60_000_000
GROUP: Final = ("vhost", "queue", "minute")
SPREADS: Final = ("wait", "service")
MAPS: Final = ("wait_buckets", "service_buckets", "dead_letter_causes")
# 2^10 registers: 3 % beyond about a hundred consumers.
HLL_BITS: Final = 10
EVENT_COLUMNS: Final = ("lsn", "time", "vhost", "queue", "queue_no", "kind", "size", "consumer", "connection")

_ADDED: Final = (
    *EVENT_COUNTS.values(),
    *("published_bytes", *OUTCOME_COUNTS.values(), "ended", "ended_partial", "busy_us"),
)
# What can be merged, in the order of the union.
_PARTS: Final = (*GROUP, *_ADDED, "wait_sketch", "service_sketch", "consumers_sketch", *MAPS)


def fold_minutes(events: DataFrame, lives: DataFrame, before: DataFrame | None, open_lives: DataFrame) -> DataFrame:
    """Return rows of MINUTES: of every minute that the events touch, and of all in `before`.

    `events` and `lives` are those of the same range: lives by the LSN of their ending. `before` is gold from the first
    minute of that range on, as it was, and `open_lives` is what is open at the range's end.
    """
    parts = [_of_events(events), _of_lives(lives), _maps_of_lives(lives)]
    if before is not None:
        parts.append(before.select(*_PARTS))
    merged = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
    rows = merged.groupBy(*GROUP).agg(
        *(sql.coalesce(sql.sum(name), sql.lit(0)).alias(name) for name in _ADDED),
        *(sql.kll_merge_agg_bigint(f"{name}_sketch").alias(f"{name}_sketch") for name in SPREADS),
        sql.hll_union_agg("consumers_sketch").alias("consumers_sketch"),
        *(_sum_of_maps(name) for name in MAPS),
    )
    return _derived(_with_depth(rows, open_lives))


def minute_of(time: str) -> Column:
    """Return the minute that a time is in; the same in every time zone."""
    us = sql.unix_micros(sql.col(time))
    return sql.timestamp_micros(us - sql.pmod(us, sql.lit(MINUTE_US)))


def _place() -> list[Column]:
    # A queue without a name in the journal is still one queue, and not the same as the next one without.
    unnamed = sql.concat(sql.lit("#"), sql.col("queue_no").cast("string"))
    return [sql.coalesce("vhost", sql.lit("")).alias("vhost"), sql.coalesce("queue", unnamed).alias("queue")]


def _who() -> Column:
    return sql.concat_ws("\0", sql.coalesce("connection", sql.lit("")), sql.col("consumer")).alias("who")


def _of_events(events: DataFrame) -> DataFrame:
    kind = sql.col("kind")
    counted = events.where(kind.isin(*EVENT_COUNTS, "fetched"))
    shaped = counted.select(*_place(), minute_of("time").alias("minute"), "kind", "size", "consumer", _who())
    return shaped.groupBy(*GROUP).agg(
        *(sql.count_if(kind == name).alias(column) for name, column in EVENT_COUNTS.items()),
        sql.coalesce(sql.sum(sql.when(kind == "published", sql.col("size"))), sql.lit(0)).alias("published_bytes"),
        _consumers(),
    )


def _consumers() -> Column:
    return sql.hll_sketch_agg(sql.when(sql.col("consumer").isNotNull(), sql.col("who")), HLL_BITS).alias(
        "consumers_sketch"
    )


def _of_lives(lives: DataFrame) -> DataFrame:
    outcome = sql.col("outcome")
    shaped = lives.select(
        *_place(), minute_of("settled").alias("minute"), "outcome", "partial", *_durations(), "consumer", _who()
    )
    return shaped.groupBy(*GROUP).agg(
        *(sql.count_if(outcome == name).alias(column) for name, column in OUTCOME_COUNTS.items()),
        sql.count("*").alias("ended"),
        sql.count_if("partial").alias("ended_partial"),
        sql.coalesce(sql.sum("service_us"), sql.lit(0)).alias("busy_us"),
        *(sql.kll_sketch_agg_bigint(f"{name}_us").alias(f"{name}_sketch") for name in SPREADS),
        _consumers(),
    )


def _durations() -> list[Column]:
    # Below zero where the clock went back between the two. (`greatest` would make a zero of a null.)
    columns = {name: sql.col(f"{name}_us") for name in SPREADS}
    return [sql.when(us < 0, sql.lit(0)).otherwise(us).alias(f"{name}_us") for name, us in columns.items()]


def _maps_of_lives(lives: DataFrame) -> DataFrame:
    """Return the same lives as histograms: a row for each queue and minute with maps alone."""
    entries = sql.array(
        *(sql.struct(sql.lit(f"{name}_buckets").alias("map"), _bucket(f"{name}_us").alias("key")) for name in SPREADS),
        sql.struct(sql.lit("dead_letter_causes").alias("map"), sql.col("cause").alias("key")),
    )
    cause = sql.when(sql.col("outcome") == "dead-lettered", sql.coalesce("reason", sql.lit("unknown")))
    shaped = lives.select(*_place(), minute_of("settled").alias("minute"), *_durations(), cause.alias("cause"))
    counted = shaped.select(*GROUP, sql.inline(entries)).where("key is not null").groupBy(*GROUP, "map", "key").count()
    return counted.groupBy(*GROUP).agg(*(_map_of(name, "int") for name in MAPS[:2]), _map_of(MAPS[2], "string"))


def _bucket(duration: str) -> Column:
    us = sql.col(duration)
    number = sql.when(us < 1, sql.lit(BELOW_ONE)).otherwise(sql.floor(sql.log2(us) * PER_DOUBLING))
    return sql.when(us.isNotNull(), number.cast("string"))


def _map_of(name: str, key: str) -> Column:
    entry = sql.struct(sql.col("key").cast(key).alias("key"), sql.col("count").alias("value"))
    return sql.map_from_entries(sql.collect_list(sql.when(sql.col("map") == name, entry))).alias(name)


def _sum_of_maps(name: str) -> Column:
    empty = sql.map_from_arrays(sql.array().cast(f"array<{_key_type(name)}>"), sql.array().cast("array<bigint>"))
    return sql.reduce(
        sql.collect_list(name),
        empty,
        lambda one, other: sql.map_zip_with(
            one,
            other,
            lambda _, a, b: sql.coalesce(a, sql.lit(0).cast("bigint")) + sql.coalesce(b, sql.lit(0).cast("bigint")),
        ),
    ).alias(name)


def _key_type(name: str) -> str:
    return "string" if pa.types.is_string(MINUTES.field(name).type.key_type) else "int"


def _with_depth(rows: DataFrame, open_lives: DataFrame) -> DataFrame:
    known = open_lives.where("published_lsn is not null").select(*_place())
    now = known.groupBy("vhost", "queue").agg(sql.count("*").alias("depth_now"))
    later = (
        Window.partitionBy("vhost", "queue")
        .orderBy(sql.col("minute").desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    came = sql.col("published") - sql.col("ended") + sql.col("ended_partial")
    came_later = sql.coalesce(sql.sum(came).over(later), sql.lit(0))
    joined = rows.join(now, ["vhost", "queue"], "left")
    return joined.withColumn("depth", sql.coalesce("depth_now", sql.lit(0)) - came_later)


def _derived(rows: DataFrame) -> DataFrame:
    consumers = sql.coalesce(sql.hll_sketch_estimate("consumers_sketch"), sql.lit(0))
    busy = sql.col("busy_us") / (sql.col("consumers") * MINUTE_US)
    derived = rows.withColumn("consumers", consumers)
    for name in SPREADS:
        for quantile, rank in QUANTILES.items():
            derived = derived.withColumn(f"{name}_{quantile}_us", _quantile(name, rank))
    return derived.withColumns(
        {
            "in_rate": sql.col("published") / 60,
            "out_rate": sql.col("ended") / 60,
            "redelivery_rate": sql.when(sql.col("delivered") > 0, sql.col("requeued") / sql.col("delivered")),
            "utilisation": sql.when(sql.col("consumers") > 0, sql.least(busy, sql.lit(1.0))),
        }
    ).select(*MINUTES.names)


def _quantile(name: str, rank: float) -> Column:
    # An empty sketch has no quantiles, and Spark raises when it is asked for one.
    value = sql.kll_sketch_get_quantile_bigint(f"{name}_sketch", sql.lit(rank))
    return sql.when(sql.size(f"{name}_buckets") > 0, value)
