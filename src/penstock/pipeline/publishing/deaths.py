"""Messages that died, in groups of one kind.

Lives that ended as dead letters, or were rejected and are gone, come from silver; what their messages looked like comes
from bronze. They are grouped by queue, reason, routing key, content type and a header of one's choice. A group has an
id, made from these.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from penstock.pipeline import defaults
from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake.reading import read_table
from penstock.pipeline.publishing.planning import PREVIEW_BYTES, preview, shown
from penstock.pipeline.publishing.selection import Selection, check_selection, existing_lake, lives_in_lake, narrowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

DEAD: Final = ("dead-lettered", "rejected")
SAMPLES: Final = 3
KEYS: Final = ("vhost", "queue", "outcome", "reason", "routing_key", "content_type", "header_value")


@dataclass(frozen=True, slots=True)
class TriageOptions:
    """Which deaths to look at, and how to group them."""

    lake: str
    # `outcomes`, when there are none, are those of DEAD.
    selection: Selection = field(default_factory=Selection)
    # Its value is part of a group.
    header: str | None = None
    groups: int = defaults.GROUPS


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """A message of a group, in words that can be shown anywhere."""

    lsn: int | None
    message_id: str
    settled: datetime
    body: str


@dataclass(frozen=True, slots=True)
class Group:
    """Deaths of one kind."""

    id: str
    vhost: str | None
    queue: str | None
    outcome: str
    reason: str | None
    routing_key: str | None
    content_type: str | None
    header_value: str | None
    count: int
    # Of these, what can be published again: their publication is in the lake, with its body.
    whole: int
    first: datetime
    last: datetime
    samples: list[SampleMessage]


@dataclass(frozen=True, slots=True)
class TriageResult:
    """The largest groups first."""

    header: str | None
    messages: int
    # How many groups there are; not all of them may be shown.
    groups_count: int
    groups: list[Group]


def triage(spark: SparkSession, options: TriageOptions) -> TriageResult:
    """Group what died. SelectionError, LakeError when it cannot be done."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    dead = _dead(spark, options)
    grouped = dead.groupBy(*KEYS).agg(
        f.count(f.lit(1)).alias("count"),
        f.count(f.when(f.col("has_body"), 1)).alias("whole"),
        f.min("settled").alias("first"),
        f.max("settled").alias("last"),
    )
    totals = grouped.agg(f.count(f.lit(1)).alias("groups"), f.sum("count").alias("messages")).first()
    assert totals is not None
    top = grouped.orderBy(f.desc("count"), *KEYS).limit(options.groups).collect()
    newest = Window.partitionBy(*KEYS).orderBy(f.desc("settled_lsn"), f.desc("seq"))
    numbered = dead.withColumn("place", f.row_number().over(newest)).where(f.col("place") <= SAMPLES)
    samples: dict[str, list[SampleMessage]] = {group_id(row, options.header): [] for row in top}
    for row in numbered.orderBy("place").collect() if top else []:
        found = samples.get(group_id(row, options.header))
        if found is not None:
            found.append(_sample(row))
    groups = [_group(row, options.header, samples[group_id(row, options.header)]) for row in top]
    return TriageResult(options.header, int(totals["messages"] or 0), int(totals["groups"]), groups)


def _dead(spark: SparkSession, options: TriageOptions) -> DataFrame:
    """One row for each death, with what is known of its message."""
    from pyspark.sql import functions as f

    selection = deaths_of(options)
    check_selection(selection)
    lake = existing_lake(options.lake)
    lives = lives_in_lake(spark, lake, selection).select(
        *(
            "vhost",
            "queue",
            "outcome",
            "reason",
            "settled",
            "settled_lsn",
            "seq",
            "published_lsn",
            "routing_key",
            "message_id",
        )
    )
    value = f.lit(None).cast("string") if options.header is None else f.col("headers").getItem(options.header)
    rows = narrowed(read_table(spark, lake.table("bronze"), EVENTS), selection)
    messages = rows.select(
        "lsn",
        "content_type",
        value.alias("header_value"),
        (f.col("body").isNotNull() & f.col("problem").isNull()).alias("has_body"),
        "size",
        f.substring("body", 1, PREVIEW_BYTES).alias("start"),
    )
    # A life whose beginning is not in the lake is shown, too, as long as nothing is asked about its beginning.
    way = "inner" if selection.is_about_publishing else "left"
    return lives.join(messages, lives["published_lsn"] == messages["lsn"], way)


def deaths_of(options: TriageOptions) -> Selection:
    chosen = options.selection
    return chosen if chosen.outcomes else replace(chosen, outcomes=DEAD)


def group_id(row: Row, header: str | None) -> str:
    """Return the same for the same kind of death, in each run."""
    text = json.dumps([header, *[row[key] for key in KEYS]])
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _group(row: Row, header: str | None, samples: list[SampleMessage]) -> Group:
    return Group(
        id=group_id(row, header),
        **{key: row[key] for key in KEYS},
        count=row["count"],
        whole=row["whole"],
        first=_utc(row["first"]),
        last=_utc(row["last"]),
        samples=samples,
    )


def _sample(row: Row) -> SampleMessage:
    return SampleMessage(
        lsn=row["published_lsn"],
        message_id=shown(row["message_id"]),
        settled=_utc(row["settled"]),
        body=preview(row["start"], row["size"]),
    )


def _utc(moment: datetime) -> datetime:
    """Spark gives times without a zone, in that of this machine."""
    return moment.astimezone(UTC)


def selection_of_group(group: Group, options: TriageOptions) -> Selection:
    """What chooses the messages of a group, and no others."""
    header = options.header
    chosen = replace(
        deaths_of(options),
        vhost=group.vhost,
        queue=group.queue,
        outcomes=(group.outcome,),
        reasons=() if group.reason is None else (group.reason,),
        routing_key=group.routing_key,
        content_type=group.content_type,
        no_content_type=group.content_type is None,
    )
    if header is None:
        return chosen
    if group.header_value is None:
        return replace(chosen, no_headers=(*chosen.no_headers, header))
    return replace(chosen, headers=(*chosen.headers, (header, group.header_value)))
