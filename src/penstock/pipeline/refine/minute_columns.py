"""The columns of gold: one row for each queue and minute in which anything happened to it.

Everything in a row can be merged with the rows of other minutes: counts and `busy_us` are added, maps are added key by
key, sketches have merge functions in Spark (kll_merge_agg_bigint, hll_union_agg). Rates, percentiles, utilisation and
the number of consumers follow from those.

A column, once released, keeps its name and its type.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.pipeline.columns import TIME

# Of events, by their time.
EVENT_COUNTS: Final = {"published": "published", "delivered": "delivered", "requeued": "requeued"}
# Of lives, by the time of their ending: outcome -> column. A purge may name messages that are gone, so its events do
# not count; lives do.
OUTCOME_COUNTS: Final = {
    "acked": "acked",
    "rejected": "rejected",
    "expired": "expired",
    "dead-lettered": "dead_lettered",
    "dropped": "dropped",
    "purged": "purged",
    "fetched": "fetched",
    "lost": "lost",
    "moved": "moved",
    "deleted": "deleted",
}
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
BUCKETS: Final = pa.map_(pa.int32(), pa.int64())


def _spread(name: str) -> list[pa.Field]:
    return [
        *(pa.field(f"{name}_{quantile}_us", pa.int64()) for quantile in QUANTILES),
        # A histogram that any program can merge; see `buckets`.
        pa.field(f"{name}_buckets", BUCKETS, nullable=False),
        # KLL, of Apache DataSketches: 200 items, about 1.3 % of rank.
        pa.field(f"{name}_sketch", pa.binary()),
    ]


MINUTES: Final = pa.schema(
    [
        pa.field("minute", TIME, nullable=False),
        pa.field("vhost", pa.string(), nullable=False),
        # "#7" where the journal has no name for queue number 7.
        pa.field("queue", pa.string(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in EVENT_COUNTS.values()),
        pa.field("published_bytes", pa.int64(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in OUTCOME_COUNTS.values()),
        # All lives that ended, and those of them whose publication is not in the lake.
        pa.field("ended", pa.int64(), nullable=False),
        pa.field("ended_partial", pa.int64(), nullable=False),
        # Messages per second, in and gone.
        pa.field("in_rate", pa.float64(), nullable=False),
        pa.field("out_rate", pa.float64(), nullable=False),
        # Messages in the queue at the end of the minute, ready or not, of those the lake has seen published. It can be
        # below 0 for a while only where the wall clock went back.
        pa.field("depth", pa.int64(), nullable=False),
        # Of the lives that ended in this minute.
        *_spread("wait"),
        *_spread("service"),
        # requeued / delivered.
        pa.field("redelivery_rate", pa.float64()),
        # Reason -> how many.
        pa.field("dead_letter_causes", pa.map_(pa.string(), pa.int64()), nullable=False),
        # Different consumers that got or finished something; an estimate (HLL) that is exact while they are few.
        pa.field("consumers", pa.int64(), nullable=False),
        pa.field("consumers_sketch", pa.binary()),
        # Service time of the lives that ended in this minute, though a part of it may lie before.
        pa.field("busy_us", pa.int64(), nullable=False),
        # busy_us / (consumers x minute), at most 1: an approximation, because consumers that prefetch hold many
        # messages at a time. Null when no consumer was there.
        pa.field("utilisation", pa.float64()),
    ]
)
