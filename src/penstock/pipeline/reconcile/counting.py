"""How many messages each queue must hold, by the log alone.

A message is in its queue from its `published` until its first ending. All endings but one kind name messages that are
there, so for most queues the count is a sum over runs, and no message is looked at by itself. A purge of a whole queue
names a range in which messages may be gone already; queues that had one are counted message by message. Bytes are sums
everywhere: every run, that of a purge too, carries those of the messages that really left.

One run can lie across the position at which counting begins, and one across that at which it ends. Its bytes are known
for the whole of it only, so their sum is not always exact. `exactly` counts events instead of runs: slower, and right
everywhere. It is for queues of which the sums look wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.pipeline.columns import GONE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETED: Final = "deleted"
PURGED: Final = "purged"
# What `held` answers: of each queue number that occurs and was not deleted.
HELD: Final = ("queue_no", "vhost", "queue", "messages", "bytes")


def held(runs: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Return messages and bytes that each queue holds after these runs.

    `before`: what was there before the first of them, as (queue_no, seq, size), one row for each message; None when the
    runs begin with the log.
    """
    from pyspark.sql import functions as sf

    is_gone = sf.col("kind").isin(*GONE)
    is_published = sf.col("kind") == "published"
    events = runs.select("lsn", "vhost", "queue", "queue_no", "seq", "count", "kind", "bytes")
    if before is not None:
        earlier = before.select(
            sf.lit(-1).cast("long").alias("lsn"),
            sf.lit(None).cast("string").alias("vhost"),
            sf.lit(None).cast("string").alias("queue"),
            "queue_no",
            "seq",
            sf.lit(1).cast("long").alias("count"),
            sf.lit("published").alias("kind"),
            sf.col("size").alias("bytes"),
        )
        events = events.unionByName(earlier)
    sums = (
        events.groupBy("queue_no")
        .agg(
            sf.max("vhost").alias("vhost"),
            sf.max("queue").alias("queue"),
            signed("count", is_published, is_gone).alias("sum"),
            signed("bytes", is_published, is_gone).alias("bytes"),
            sf.max((sf.col("kind") == PURGED).cast("int")).alias("was_purged"),
            sf.max((sf.col("kind") == DELETED).cast("int")).alias("was_deleted"),
        )
        .where("was_deleted = 0 AND queue_no >= 0")
    )
    counted = message_by_message(events.join(sums.where("was_purged = 1").select("queue_no"), "queue_no"))
    return sums.join(counted, "queue_no", "left").select(
        "queue_no",
        "vhost",
        "queue",
        sf.when(sf.col("was_purged") == 1, sf.coalesce("counted", sf.lit(0)))
        .otherwise(sf.col("sum"))
        .alias("messages"),
        "bytes",
    )


def exactly(events: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Return the same as `held`, message by message; without the names of the queues. `before` as there."""
    from pyspark.sql import functions as sf

    facts = events.where(sf.col("kind").isin("published", DELETED, *GONE)).select("queue_no", "seq", "kind", "size")
    if before is not None:
        facts = facts.unionByName(before.select("queue_no", "seq", sf.lit("published").alias("kind"), "size"))
    lives = facts.groupBy("queue_no", "seq").agg(
        sf.max((sf.col("kind") == "published").cast("int")).alias("was_published"),
        sf.max(sf.col("kind").isin(*GONE).cast("int")).alias("is_gone"),
        sf.max((sf.col("kind") == DELETED).cast("int")).alias("is_deletion"),
        sf.max("size").alias("size"),
    )
    is_here = (sf.col("was_published") == 1) & (sf.col("is_gone") == 0)
    return (
        lives.groupBy("queue_no")
        .agg(
            sf.count(sf.when(is_here, 1)).alias("messages"),
            sf.coalesce(sf.sum(sf.when(is_here, sf.col("size"))), sf.lit(0)).alias("bytes"),
            sf.max("is_deletion").alias("was_deleted"),
        )
        .where("was_deleted = 0 AND queue_no >= 0")
        .select("queue_no", "messages", "bytes")
    )


def signed(column: str, plus: Column, minus: Column) -> Column:
    """Return the sum of a column, with the sign of what the row does."""
    from pyspark.sql import functions as sf

    value = sf.coalesce(sf.col(column), sf.lit(0)).cast("long")
    return sf.sum(sf.when(plus, value).when(minus, -value).otherwise(sf.lit(0)))


def message_by_message(events: DataFrame) -> DataFrame:
    """(queue_no, counted): published and not gone. A range may name messages that never were in the log."""
    from pyspark.sql import functions as sf

    relevant = events.where(sf.col("kind").isin("published", *GONE))
    messages = relevant.select(
        "queue_no",
        "kind",
        sf.explode(sf.sequence(sf.col("seq"), sf.col("seq") + sf.col("count") - 1)).alias("seq"),
    )
    lives = messages.groupBy("queue_no", "seq").agg(
        sf.max((sf.col("kind") == "published").cast("int")).alias("was_published"),
        sf.max((sf.col("kind") != "published").cast("int")).alias("is_gone"),
    )
    return (
        lives.where("was_published = 1 AND is_gone = 0").groupBy("queue_no").agg(sf.count(sf.lit(1)).alias("counted"))
    )
