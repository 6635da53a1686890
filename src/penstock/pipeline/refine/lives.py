"""A life is the fold of its events: aggregations of Spark SQL, with nothing in Python for each row.

`published` opens a life and the first ending closes it; later endings of the same message mean nothing, because a purge
covers a range in which messages may be gone already. `deleted` stands for the whole queue, and closes every life that
is open in it.

Every event becomes a row of the same shape, and so does every life that an earlier refinement left open. Their minima,
maxima and sums are the life. Those can be taken in any order and in any number of rounds, so it does not matter where
the log is cut between two refinements.

A message of which the publication was never seen (history began later) has a life all the same, `partial`, so that
counts add up. A purge or a deletion alone makes no life: it names messages that were gone, or that are not history's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from penstock.pipeline.columns import GONE, KINDS, UNREADABLE
from penstock.pipeline.refine.life_columns import DELETED, LIVES, OPEN_LIVES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = ("queue_no", "seq")
# The columns of bronze that a life is made of.
EVENT_COLUMNS: Final = (
    *("lsn", "time", "vhost", "queue", "queue_no", "seq", "kind", "reason", "consumer", "connection"),
    *("exchange", "routing_key", "persistent", "priority", "expires", "size", "message_id", "headers"),
)
BIRTH: Final = (
    *("published_lsn", "published", "exchange", "routing_key", "message_id", "size"),
    *("persistent", "priority", "expires", "x_death", "first_death_queue"),
)
# What happens to a single message. Kinds of a newer broker are none of them: what they mean is not known here.
MESSAGE_KINDS: Final = sorted(set(KINDS.values()) - {KINDS[UNREADABLE], DELETED})
DELIVERIES: Final = ("delivered", "fetched")
X_DEATH: Final = "array<struct<queue:string,exchange:string,reason:string,count:bigint,time:string>>"

LAST_SECOND: Final = 253402300799


def fold_lives(events: DataFrame, open_lives: DataFrame | None) -> DataFrame:
    """Lives, ended and open, in the columns of LIVES and OPEN_LIVES together. `outcome` is null in open ones."""
    parts = _parts_of_events(events.where(sql.col("kind").isin(*MESSAGE_KINDS)))
    if open_lives is not None:
        parts = parts.unionByName(_parts_of_lives(open_lives))
    # Sorted once, behind the exchange, instead of before and behind it.
    lives = parts.repartition(*KEY).groupBy(*KEY).agg(*_sums())
    deletions = (
        events.where(sql.col("kind") == DELETED)
        .groupBy("queue_no")
        .agg(
            sql.min(
                sql.struct(
                    sql.col("lsn"), sql.col("time"), sql.col("kind"), sql.lit(None).cast("string").alias("reason")
                )
            )
        )
        .toDF("queue_no", "deletion")
    )
    ended = lives.join(sql.broadcast(deletions), "queue_no", "left").withColumn("end", _first_ending())
    # Only of purges and deletions: no life.
    return _columns(ended.where("known"))


def _parts_of_events(events: DataFrame) -> DataFrame:
    kind = sql.col("kind")
    is_delivery = kind.isin(*DELIVERIES)
    headers = sql.col("headers")
    birth = sql.struct(
        sql.col("lsn").alias("published_lsn"),
        sql.col("time").alias("published"),
        *(sql.col(name) for name in BIRTH[2:-2]),
        headers["x-death"].alias("x_death"),
        headers["x-first-death-queue"].alias("first_death_queue"),
    )
    return events.select(
        *KEY,
        "vhost",
        "queue",
        sql.when(kind == "published", birth).alias("birth"),
        sql.when(is_delivery, sql.struct("lsn", "time")).alias("first"),
        sql.when(is_delivery, sql.struct("lsn", "time", "consumer", "connection")).alias("last"),
        is_delivery.cast("long").alias("deliveries"),
        (kind == "requeued").cast("long").alias("requeues"),
        sql.when(kind == "requeued", sql.col("lsn")).alias("requeued_lsn"),
        sql.when(kind.isin(*GONE), sql.struct("lsn", "time", "kind", "reason")).alias("end"),
        (kind != "purged").alias("known"),
    )


def _parts_of_lives(open_lives: DataFrame) -> DataFrame:
    was_delivered = sql.col("first_delivered_lsn").isNotNull()
    first = sql.struct(sql.col("first_delivered_lsn").alias("lsn"), sql.col("first_delivered").alias("time"))
    last = sql.struct(
        sql.col("last_delivered_lsn").alias("lsn"), sql.col("last_delivered").alias("time"), "consumer", "connection"
    )
    return open_lives.select(
        *KEY,
        "vhost",
        "queue",
        sql.when(sql.col("published_lsn").isNotNull(), sql.struct(*BIRTH)).alias("birth"),
        sql.when(was_delivered, first).alias("first"),
        sql.when(was_delivered, last).alias("last"),
        "deliveries",
        "requeues",
        "requeued_lsn",
        sql.lit(None).cast("struct<lsn:bigint,time:timestamp,kind:string,reason:string>").alias("end"),
        sql.lit(True).alias("known"),
    )


def _sums() -> list[Column]:
    # Structs begin with their lsn, so that the least is the earliest. The wall clock may have gone back; LSNs do not.
    return [
        sql.max("vhost").alias("vhost"),
        sql.max("queue").alias("queue"),
        sql.min("birth").alias("birth"),
        sql.min("first").alias("first"),
        sql.max("last").alias("last"),
        sql.sum("deliveries").alias("deliveries"),
        sql.sum("requeues").alias("requeues"),
        sql.max("requeued_lsn").alias("requeued_lsn"),
        sql.min("end").alias("end"),
        sql.max("known").alias("known"),
    ]


def _first_ending() -> Column:
    # `least` of structs: nulls do not count.
    return sql.least(sql.col("end"), sql.col("deletion"))


def _columns(ended: DataFrame) -> DataFrame:
    is_ended = sql.col("end").isNotNull()
    nobody_had_it = sql.coalesce(sql.col("requeued_lsn") > sql.col("last.lsn"), sql.lit(False))
    flat = ended.select(
        *KEY,
        "vhost",
        "queue",
        "birth.*",
        sql.col("first.lsn").alias("first_delivered_lsn"),
        sql.col("first.time").alias("first_delivered"),
        sql.col("last.lsn").alias("last_delivered_lsn"),
        sql.col("last.time").alias("last_delivered"),
        "last.consumer",
        "last.connection",
        "deliveries",
        "requeues",
        "requeued_lsn",
        sql.col("end.time").alias("settled"),
        sql.col("end.lsn").alias("settled_lsn"),
        sql.col("end.kind").alias("outcome"),
        sql.col("end.reason").alias("reason"),
        _microseconds("first.time", "birth.published").alias("wait_us"),
        sql.when(~nobody_had_it & (sql.col("end.kind") != "fetched"), _microseconds("end.time", "last.time")).alias(
            "service_us"
        ),
        _microseconds("end.time", "birth.published").alias("life_us"),
        sql.when(is_ended, sql.coalesce(dead_letter_path("birth.x_death"), sql.array())).alias("dead_letter_path"),
        sql.col("birth").isNull().alias("partial"),
    )
    names = list(dict.fromkeys([*OPEN_LIVES.names, *LIVES.names]))
    return flat.select(*names)


def _microseconds(later: str, earlier: str) -> Column:
    return sql.unix_micros(sql.col(later)) - sql.unix_micros(sql.col(earlier))


def dead_letter_path(x_death: str) -> Column:
    """The x-death header, a JSON text, as an array of deaths; null when there is none or it is no array of tables.

    Publishers can write this header, so nothing in it is believed to have the right type.
    """
    deaths = sql.from_json(sql.col(x_death), X_DEATH)
    return sql.transform(
        sql.filter(deaths, lambda death: death.isNotNull()),
        lambda death: sql.struct(
            death["queue"].alias("queue"),
            death["exchange"].alias("exchange"),
            death["reason"].alias("reason"),
            death["count"].alias("count"),
            _header_time(death["time"]).alias("time"),
        ),
    )


def _header_time(text: Column) -> Column:
    # AMQP has seconds; a decoder may have made an ISO text of them.
    seconds = text.try_cast("bigint")
    is_a_time = seconds.between(0, LAST_SECOND)
    return sql.when(is_a_time, sql.timestamp_seconds(seconds)).otherwise(text.try_cast("timestamp"))
