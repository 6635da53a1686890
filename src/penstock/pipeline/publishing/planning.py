"""What a replay would publish: how much, of which queues and keys, in which slices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.pipeline.publishing.selection import SelectionError
from penstock.pipeline.publishing.slices import Slice, bucket_width, slices_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS_SHOWN: Final = 100
SAMPLE_ROWS: Final = 10
SKIPPED_SHOWN: Final = 20
PREVIEW_BYTES: Final = 80


@dataclass(frozen=True, slots=True)
class Planned:
    """Messages of a queue that came with one exchange and routing key."""

    queue: str
    exchange: str
    routing_key: str
    rows: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A message that cannot be published again."""

    lsn: int
    queue: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Counts include what will turn out to have no body."""

    rows: int = 0
    end_lsn: int = 0
    slices: list[Slice] = field(default_factory=list)
    by_queue: dict[str, int] = field(default_factory=dict)
    # The most frequent ones first.
    by_key: list[Planned] = field(default_factory=list)


def plan_of(rows: DataFrame, slice_rows: int, by_exchange: bool) -> Plan:
    """Count what is chosen. `by_exchange`: it goes to the exchanges it came by; SelectionError if copies would come."""
    from pyspark.sql import functions as f

    bounds = rows.agg(f.min("lsn").alias("first"), f.max("lsn").alias("last")).first()
    if bounds is None or bounds["first"] is None:
        return Plan()
    if by_exchange:
        _refuse_copies(rows)
    first, last = int(bounds["first"]), int(bounds["last"])
    width = bucket_width(first, last)
    bucket = f.floor((f.col("lsn") - f.lit(first)) / f.lit(width)).cast("long").alias("bucket")
    # What came meanwhile is behind the last bucket, and not of this plan.
    counted = rows.where(f.col("lsn") <= last).groupBy(bucket, f.coalesce("queue", f.lit("")).alias("queue")).count()
    by_bucket: dict[int, int] = {}
    by_queue: dict[str, int] = {}
    for row in counted.collect():
        by_bucket[row["bucket"]] = by_bucket.get(row["bucket"], 0) + row["count"]
        by_queue[row["queue"]] = by_queue.get(row["queue"], 0) + row["count"]
    return Plan(
        rows=sum(by_bucket.values()),
        end_lsn=last + 1,
        slices=slices_of(by_bucket.items(), first, width, slice_rows),
        by_queue=by_queue,
        by_key=_by_key(rows.where(f.col("lsn") <= last)),
    )


def _by_key(rows: DataFrame) -> list[Planned]:
    from pyspark.sql import functions as f

    names = ("queue", "exchange", "routing_key")
    counted = rows.groupBy(*[f.coalesce(name, f.lit("")).alias(name) for name in names]).count()
    top = counted.orderBy(f.desc("count"), *names).limit(KEYS_SHOWN).collect()
    return [Planned(row["queue"], row["exchange"], row["routing_key"], row["count"]) for row in top]


def _refuse_copies(rows: DataFrame) -> None:
    """One publish to an exchange is a row in each queue that it reached: each would be published to all of them."""
    from pyspark.sql import functions as f

    several = (
        rows.where(f.coalesce("exchange", f.lit("")) != "")
        .groupBy("exchange", "routing_key")
        .agg(f.countDistinct("queue").alias("queues"))
        .where(f.col("queues") > 1)
        .first()
    )
    if several is not None:
        raise SelectionError(
            f"messages of {several['queues']} queues came by exchange {several['exchange']!r} with routing key"
            f" {several['routing_key']!r}, and each would go to all of them again: choose one of the queues"
        )


def is_whole() -> Column:
    """Return whether a row can be published again."""
    from pyspark.sql import functions as f

    return f.col("body").isNotNull() & f.col("problem").isNull()


def skipped_messages(rows: DataFrame) -> list[Skipped]:
    """Return the first of those that cannot be published again."""
    from pyspark.sql import functions as f

    why = f.coalesce("problem", f.lit("its body had left the disk")).alias("why")
    found = rows.where(~is_whole()).select("lsn", f.coalesce("queue", f.lit("")).alias("queue"), why)
    first = found.orderBy("lsn").limit(SKIPPED_SHOWN).collect()
    return [Skipped(row["lsn"], row["queue"], row["why"]) for row in first]


def skipped_by_queue(rows: DataFrame) -> dict[str, int]:
    from pyspark.sql import functions as f

    counted = rows.where(~is_whole()).groupBy(f.coalesce("queue", f.lit("")).alias("queue")).count()
    return {row["queue"]: row["count"] for row in counted.collect()}


def sample_of(rows: DataFrame, count: int = SAMPLE_ROWS) -> list[dict[str, Any]]:
    """Return the first messages, in words that can be shown anywhere."""
    from pyspark.sql import functions as f

    columns = ("lsn", "time", "queue", "exchange", "routing_key", "message_id", "content_type", "size")
    start = f.substring("body", 1, PREVIEW_BYTES).alias("start")
    found = rows.select(*columns, start).orderBy("lsn").limit(count).collect()
    return [
        {**{name: shown(row[name]) for name in columns}, "body": preview(row["start"], row["size"])} for row in found
    ]


def shown(value: object) -> str:
    """Return a value as one line without control characters."""
    text = "" if value is None else str(value)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def preview(start: bytes | bytearray | None, size: int | None) -> str:
    """Return the beginning of a body, escaped; dots when there is more of it."""
    if start is None:
        return "(gone)"
    text = bytes(start[:PREVIEW_BYTES]).decode("utf-8", "backslashreplace")
    return shown(text) + ("…" if (size or 0) > PREVIEW_BYTES else "")
