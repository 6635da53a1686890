"""Which messages: published rows of a lake or of a log, narrowed by what the operator says.

Names, keys and headers of the operator are values, never text of a query; `where` alone is SQL, and is meant to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from penstock.pipeline.columns import EVENTS, KINDS
from penstock.pipeline.lake.opening import Lake, open_lake
from penstock.pipeline.lake.reading import Limits, read_table
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.refine.life_columns import LIVES, OUTCOMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PUBLISHED: Final = KINDS[1]
# Queues in which the broker keeps what features remember; see broker/vhost/companions.py. Clients do not publish to
# them.
COMPANIONS: Final = ("amq.dedup.", "amq.held-queue.", "amq.held-exchange.")
# What a replayed message says of itself; see `replayed`.
NAME_HEADER: Final = "x-penstock-replayed"
LSN_HEADER: Final = "x-penstock-replayed-lsn"
REASONS: Final = ("rejected", "expired", "maxlen", "delivery_limit")


class SelectionError(Exception):
    """Messages cannot be chosen so. The text is for people, and says what to do next."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is chosen: everything that is given must hold."""

    vhost: str | None = None
    queue: str | None = None
    # When it was published: from `since`, before `until`.
    since: datetime | None = None
    until: datetime | None = None
    # How its life has ended, and why; only a lake that was refined knows.
    outcomes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    # When its life has ended: from then on, before then.
    ended_since: datetime | None = None
    ended_until: datetime | None = None
    exchange: str | None = None
    routing_key: str | None = None
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    # What it must not have.
    no_content_type: bool = False
    no_headers: tuple[str, ...] = ()
    # SQL on the columns of published events, by the operator.
    where: str | None = None

    @property
    def needs_lives(self) -> bool:
        return bool(self.outcomes or self.reasons or self.ended_since or self.ended_until)

    @property
    def is_about_publishing(self) -> bool:
        """Whether it says anything that only the published event knows."""
        own = (self.since, self.until, self.exchange, self.routing_key, self.content_type, self.where)
        return any(value is not None for value in own) or bool(self.headers or self.no_headers or self.no_content_type)


def check_selection(selection: Selection) -> None:
    """SelectionError for an outcome or a reason that there is not, and for times without a zone."""
    for words, given, known in (("outcome", selection.outcomes, OUTCOMES), ("reason", selection.reasons, REASONS)):
        for one in given:
            if one not in known:
                raise SelectionError(f"there is no {words} {one!r}; there are {', '.join(known)}")
    for moment in (selection.since, selection.until, selection.ended_since, selection.ended_until):
        if moment is not None and moment.tzinfo is None:
            raise SelectionError(f"{moment.isoformat()} does not say in which time zone; write {moment.isoformat()}Z")


def existing_lake(folder: str) -> Lake:
    """Open the lake; SelectionError where there is none."""
    try:
        return open_lake(folder)
    except LakeError as error:
        raise SelectionError(str(error)) from None


def published_in_lake(
    spark: SparkSession, lake: Lake, selection: Selection, columns: Sequence[str] | None = None
) -> DataFrame:
    """Published rows of bronze that are chosen. Without `columns`, all of them."""
    at_least: Limits = {} if selection.since is None else {"time": selection.since}
    below: Limits = {} if selection.until is None else {"time": selection.until}
    rows = narrowed(read_table(spark, lake.table("bronze"), EVENTS, None, at_least, below), selection)
    if selection.needs_lives:
        lives = lives_in_lake(spark, lake, selection).select("published_lsn")
        rows = rows.join(lives, rows["lsn"] == lives["published_lsn"], "left_semi")
    return rows if columns is None else rows.select(*columns)


def lives_in_lake(spark: SparkSession, lake: Lake, selection: Selection) -> DataFrame:
    """Ended lives of silver that are chosen by vhost, queue, outcome and reason."""
    from pyspark.sql import functions as f

    table = lake.table("silver", LIVES)
    if not table.exists():
        raise SelectionError(f"the lake {lake.path} has no lives yet: run `penstock pipeline refine` first")
    at_least: Limits = {} if selection.ended_since is None else {"settled": selection.ended_since}
    below: Limits = {} if selection.ended_until is None else {"settled": selection.ended_until}
    lives = read_table(spark, table, LIVES, None, at_least, below).where(not_companion(f.col("queue")))
    for column, value in (("vhost", selection.vhost), ("queue", selection.queue)):
        if value is not None:
            lives = lives.where(f.col(column) == f.lit(value))
    if selection.outcomes:
        lives = lives.where(f.col("outcome").isin(*selection.outcomes))
    if selection.reasons:
        lives = lives.where(f.col("reason").isin(*selection.reasons))
    return lives


def replayed_before(spark: SparkSession, lake: Lake, name: str) -> DataFrame:
    """Column `lsn`: what replays of this name have published, as far as the lake has heard of it."""
    from pyspark.sql import functions as f

    bronze = read_table(spark, lake.table("bronze"), EVENTS, ("kind", "headers"))
    sent = bronze.where((f.col("kind") == PUBLISHED) & (f.col("headers").getItem(NAME_HEADER) == f.lit(name)))
    return sent.select(f.col("headers").getItem(LSN_HEADER).try_cast("long").alias("lsn")).distinct()


def published_in_log(
    spark: SparkSession,
    source: str,
    selection: Selection,
    bodies: bool,
    user: str | None = None,
) -> DataFrame:
    """Published events of a data folder or URL that are chosen."""
    if selection.needs_lives:
        raise SelectionError("how a life has ended is known in a lake: give --lake, and not --source")
    reader = spark.read.format("penstock").option("view", "events").option("source", source)
    reader = reader.option("kinds", PUBLISHED).option("bodies", str(bodies).lower())
    for name, value in (("vhost", selection.vhost), ("queue", selection.queue), ("user", user)):
        if value is not None:
            reader = reader.option(name, value)
    return narrowed(reader.load(), selection)


def narrowed(rows: DataFrame, selection: Selection) -> DataFrame:
    """Published events among the rows that are chosen by their own columns."""
    from pyspark.sql import functions as f

    rows = rows.where(f.col("kind") == PUBLISHED).where(not_companion(f.col("queue")))
    for column, value in (
        ("vhost", selection.vhost),
        ("queue", selection.queue),
        ("exchange", selection.exchange),
        ("routing_key", selection.routing_key),
        ("content_type", selection.content_type),
    ):
        if value is not None:
            rows = rows.where(f.col(column) == f.lit(value))
    if selection.since is not None:
        rows = rows.where(f.col("time") >= f.lit(selection.since))
    if selection.until is not None:
        rows = rows.where(f.col("time") < f.lit(selection.until))
    for name, value in selection.headers:
        rows = rows.where(f.col("headers").getItem(name) == f.lit(value))
    for name in selection.no_headers:
        rows = rows.where(f.col("headers").getItem(name).isNull())
    if selection.no_content_type:
        rows = rows.where(f.col("content_type").isNull())
    return rows if selection.where is None else rows.where(f.expr(selection.where))


def without_header(rows: DataFrame, name: str, value: str) -> DataFrame:
    """Return rows whose header is not this: what a replay itself has published is not replayed by its next run."""
    from pyspark.sql import functions as f

    return rows.where(~f.col("headers").getItem(name).eqNullSafe(f.lit(value)))


def not_companion(queue: Column) -> Column:
    from pyspark.sql import functions as f

    named = f.coalesce(queue, f.lit(""))
    kept = f.lit(True)
    for prefix in COMPANIONS:
        kept = kept & ~named.startswith(prefix)
    return kept
