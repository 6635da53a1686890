"""A span of minutes, summed up for each queue, and cut into equal parts for plots.

Percentiles come from histograms that can be merged, and are right within 4.5 % (`refine.buckets`). Utilisation is busy
time over (consumers x time), at most 1; it is an approximation, because consumers that prefetch hold many messages at a
time. Minutes without a row are minutes in which nothing happened: rates are 0 and the depth stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.pipeline.refine.buckets import merged, quantiles
from penstock.pipeline.refine.minute_columns import QUANTILES
from penstock.pipeline.report.minute_rows import MINUTE, MinuteRow, Span

# Of a plot: more points than this are more than a screen shows.
POINTS_MAX: Final = 240
MINUTE_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a duration, µs."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Part:
    """Some minutes of a queue, of which a plot shows one point."""

    in_rate: float
    out_rate: float
    depth: int
    wait: Spread | None
    service: Spread | None
    redelivery_rate: float | None
    utilisation: float | None


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """One queue over the whole span."""

    vhost: str
    queue: str
    published: int
    published_bytes: int
    delivered: int
    requeued: int
    ended: int
    # Messages per second, over the whole span.
    in_rate: float
    out_rate: float
    # At the end of the span, and the largest at the end of any minute.
    depth: int
    depth_max: int
    wait: Spread | None
    service: Spread | None
    redelivery_rate: float | None
    outcomes: dict[str, int]
    dead_letter_causes: dict[str, int]
    # The most in any minute.
    consumers: int
    utilisation: float | None
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Report:
    """All queues, those with the most traffic first."""

    # ISO times of the first and the last minute.
    first: str
    last: str
    minutes: int
    # Each point of a plot stands for so many.
    minutes_per_part: int
    queues: list[QueueSummary]


def percentile(spread: Spread | None, name: str) -> float | None:
    """One of them by its name, µs; None when nothing ended."""
    if spread is None:
        return None
    return {"p50": spread.p50, "p95": spread.p95, "p99": spread.p99}[name]


def summarise(span: Span, points_max: int = POINTS_MAX) -> Report:
    """Return the report of a span."""
    per_part = -(-span.minutes // points_max)
    queues = [_queue(span, place, rows, per_part) for place, rows in span.queues.items()]
    queues.sort(key=lambda queue: (-queue.published - queue.ended, queue.vhost, queue.queue))
    return Report(span.first.isoformat(), span.last.isoformat(), span.minutes, per_part, queues)


def _queue(span: Span, place: tuple[str, str], rows: list[MinuteRow], per_part: int) -> QueueSummary:
    published, ended = sum(row.published for row in rows), sum(row.ended for row in rows)
    seconds = span.minutes * 60
    return QueueSummary(
        vhost=place[0],
        queue=place[1],
        published=published,
        published_bytes=sum(row.published_bytes for row in rows),
        delivered=sum(row.delivered for row in rows),
        requeued=sum(row.requeued for row in rows),
        ended=ended,
        in_rate=published / seconds,
        out_rate=ended / seconds,
        depth=rows[-1].depth,
        depth_max=max(row.depth for row in rows),
        wait=_spread([row.wait for row in rows]),
        service=_spread([row.service for row in rows]),
        redelivery_rate=_redelivery_rate(rows),
        outcomes=_added([row.outcomes for row in rows]),
        dead_letter_causes=_added([row.causes for row in rows]),
        consumers=max(row.consumers for row in rows),
        utilisation=_utilisation(rows),
        parts=_parts(span, rows, per_part),
    )


def _parts(span: Span, rows: list[MinuteRow], per_part: int) -> list[Part]:
    count = -(-span.minutes // per_part)
    held: list[list[MinuteRow]] = [[] for _ in range(count)]
    for row in rows:
        held[(row.minute - span.first) // MINUTE // per_part].append(row)
    # What was there before the first row: nothing is known of it but what that row says.
    depth = max(0, rows[0].depth - rows[0].published + rows[0].ended)
    made = []
    for number, part in enumerate(held):
        minutes = min(per_part, span.minutes - number * per_part)
        depth = part[-1].depth if part else depth
        made.append(_part(part, minutes * 60, depth))
    return made


def _part(rows: list[MinuteRow], seconds: int, depth: int) -> Part:
    return Part(
        in_rate=sum(row.published for row in rows) / seconds,
        out_rate=sum(row.ended for row in rows) / seconds,
        depth=depth,
        wait=_spread([row.wait for row in rows]),
        service=_spread([row.service for row in rows]),
        redelivery_rate=_redelivery_rate(rows),
        utilisation=_utilisation(rows),
    )


def _spread(histograms: Sequence[dict[int, int]]) -> Spread | None:
    found = quantiles(merged(histograms), list(QUANTILES.values()))
    return None if found is None else Spread(*(round(us, 1) for us in found))


def _redelivery_rate(rows: Sequence[MinuteRow]) -> float | None:
    delivered = sum(row.delivered for row in rows)
    return sum(row.requeued for row in rows) / delivered if delivered else None


def _utilisation(rows: Sequence[MinuteRow]) -> float | None:
    there_us = sum(row.consumers for row in rows) * MINUTE_US
    return min(1.0, sum(row.busy_us for row in rows) / there_us) if there_us else None


def _added(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))
