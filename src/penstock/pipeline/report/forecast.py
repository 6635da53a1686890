"""`penstock pipeline forecast`: when will this backlog be empty, or this queue full?

It reads the last minutes of gold, without Spark. What it says holds as long as things go on as they did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline import defaults
from penstock.pipeline.report import wording
from penstock.pipeline.report.minute_rows import read_span
from penstock.pipeline.report.outlook import QueueOutlook, outlook
from penstock.pipeline.report.terminal import TextColumn, text_table

if TYPE_CHECKING:
    from penstock.pipeline.lake.opening import Lake


@dataclass(frozen=True, slots=True)
class Forecast:
    """All queues, those with the most messages first."""

    # ISO time of the newest minute: the outlook is from there.
    as_of: str
    minutes: int
    queues: list[QueueOutlook]


def forecast(
    lake: Lake,
    *,
    minutes: int = defaults.FORECAST_MINUTES,
    queues: Sequence[str] = (),
    vhost: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Forecast:
    """The outlook of every queue that something happened to in the last minutes. LakeError when there are none."""
    span = read_span(lake, minutes, queues, vhost)
    made = [outlook(span, place, (limits or {}).get(place[1])) for place in span.queues]
    made.sort(key=lambda each: (-each.depth, each.vhost, each.queue))
    return Forecast(span.last.isoformat(), span.minutes, made)


def limit_of(text: str) -> tuple[str, int]:
    """QUEUE=N; the name may have a = in it. ValueError when it is something else."""
    name, _, number = text.rpartition("=")
    if not name or not number.isascii() or not number.isdigit():
        raise ValueError(f"a limit is QUEUE=N, such as orders=100000, not {text!r}")
    return name, int(number)


def forecast_text(made: Forecast, width: int) -> str:
    """As a table."""
    columns = [
        TextColumn("queue", [wording.place(each.vhost, each.queue) for each in made.queues], is_left=True),
        TextColumn("depth", [wording.count(each.depth) for each in made.queues]),
        TextColumn("in", [wording.rate(each.in_rate) for each in made.queues], 1),
        TextColumn("out", [wording.rate(each.out_rate) for each in made.queues], 1),
        TextColumn("outlook", [each.text for each in made.queues], is_left=True),
    ]
    head = f"As of {made.as_of}, from the last {made.minutes} minutes\n\n"
    return head + "\n".join(text_table(columns, width)) + "\n"
