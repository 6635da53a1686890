"""Where a queue's depth is going: a straight line through its recent minutes, and when it meets a limit.

The slope is the median of the slopes between any two minutes (Theil and Sen): a burst or a pause does not bend it. The
range is what lies between the 10th and the 90th of a hundred of those slopes. It says how steady the queue has been,
not how sure the future is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final, Literal

from penstock.pipeline.report import wording
from penstock.pipeline.report.minute_rows import MINUTE, MinuteRow, Span

Verdict = Literal["empty", "full", "empties", "fills", "grows", "steady"]
# At the median slope, at the one that gets there first, and at the last one.
Times = tuple[float | None, float | None, float | None]
# More points than these say no more, and pairs grow with their square.
POINTS_MAX: Final = 180
LOW, HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class QueueOutlook:
    """What is to be expected of one queue. Slopes are in messages per second."""

    vhost: str
    queue: str
    depth: int
    limit: int | None
    # Medians of the minutes.
    in_rate: float
    out_rate: float
    slope: float
    slope_low: float
    slope_high: float
    # empty, full: it is so now. empties, fills: in `seconds`. grows: without a limit. steady: it stays as it is.
    verdict: Verdict
    # At the median slope, at the one that gets there first, and at the last one; None for never.
    seconds: float | None
    seconds_soonest: float | None
    seconds_latest: float | None
    # The answer in words.
    text: str


def outlook(span: Span, place: tuple[str, str], limit: int | None = None) -> QueueOutlook:
    """Return the outlook of a queue of the span."""
    rows = span.queues[place]
    depths = depths_by_minute(span, rows)
    slope, low, high = slopes(depths)
    depth = depths[-1]
    verdict = _verdict(depth, limit, slope)
    times: Times = (None, None, None)
    if verdict == "empties":
        times = (_until(depth, -slope), _until(depth, -low), _until(depth, -high))
    elif verdict == "fills" and limit is not None:
        room = limit - depth
        times = (_until(room, slope), _until(room, high), _until(room, low))
    came, gone = ({row.minute: count for row, count in zip(rows, counts, strict=True)} for counts in _counts(rows))
    # The newest minute may not be over yet.
    minutes = [span.first + MINUTE * number for number in range(max(1, span.minutes - 1))]
    return QueueOutlook(
        vhost=place[0],
        queue=place[1],
        depth=depth,
        limit=limit,
        in_rate=median(came.get(minute, 0) for minute in minutes) / 60,
        out_rate=median(gone.get(minute, 0) for minute in minutes) / 60,
        slope=slope,
        slope_low=low,
        slope_high=high,
        verdict=verdict,
        seconds=times[0],
        seconds_soonest=times[1],
        seconds_latest=times[2],
        text=_words(verdict, times, (slope, low, high)),
    )


def depths_by_minute(span: Span, rows: Sequence[MinuteRow]) -> list[int]:
    """Return the depth at the end of each minute; nothing changes in minutes without a row."""
    known = {row.minute: row.depth for row in rows}
    depth = max(0, rows[0].depth - rows[0].published + rows[0].ended)
    made = []
    for number in range(span.minutes):
        depth = known.get(span.first + MINUTE * number, depth)
        made.append(depth)
    return made


def slopes(depths: Sequence[int]) -> tuple[float, float, float]:
    """Messages per second: the median of the slopes between any two minutes, and the 10th and 90th of a hundred."""
    every = -(-len(depths) // POINTS_MAX)
    points = [(number * 60, depths[number]) for number in range(len(depths) - 1, -1, -every)]
    found = sorted((one[1] - other[1]) / (one[0] - other[0]) for one, other in combinations(points, 2))
    if not found:
        return 0.0, 0.0, 0.0
    return median(found), found[int(LOW * (len(found) - 1))], found[round(HIGH * (len(found) - 1))]


def _counts(rows: Sequence[MinuteRow]) -> tuple[list[int], list[int]]:
    return [row.published for row in rows], [row.ended for row in rows]


def _verdict(depth: int, limit: int | None, slope: float) -> Verdict:
    if limit is not None and depth >= limit:
        return "full"
    if slope > 0:
        return "grows" if limit is None else "fills"
    if depth == 0:
        return "empty"
    return "empties" if slope < 0 else "steady"


def _until(messages: int, slope: float) -> float | None:
    return messages / slope if slope > 0 else None


def _time(seconds: float | None) -> str:
    return "never" if seconds is None else wording.duration(seconds * 1e6)


def _words(verdict: Verdict, times: Times, slopes_found: tuple[float, float, float]) -> str:
    if verdict in ("empty", "full"):
        return f"{verdict} now"
    if verdict == "steady":
        return "steady"
    if verdict == "grows":
        slope, low, high = (wording.rate(each) for each in slopes_found)
        return f"grows by {slope} ({low} to {high})"
    what = "empty" if verdict == "empties" else "full"
    median_time, soonest, latest = (_time(seconds) for seconds in times)
    return f"{what} in {median_time} ({soonest} to {latest})"
