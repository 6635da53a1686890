"""`penstock pipeline refine`: what bronze has more than silver and gold becomes lives and minutes.

A batch, to be run every few minutes. It works in ranges of at most so many events, each a transaction of its own, until
bronze is exhausted; so memory does not grow with what has piled up, and a run that is killed has done what it has done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.pipeline import defaults
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.reading import largest
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.refine import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RefineResult:
    """What a run has done so far; at its end, its result."""

    # Everything below is refined.
    lsn: int
    # Behind the last event of bronze, when the run began.
    end_lsn: int
    steps: int
    events: int
    # Lives that ended, and lives that are open now.
    lives: int
    open: int
    # Rows of gold, those counted twice that two ranges have changed.
    minutes: int
    seconds: float


OnStep = Callable[[RefineResult], None]


def refine(
    spark: SparkSession, lake: Lake, *, step_events: int = defaults.STEP_EVENTS, on_step: OnStep | None = None
) -> RefineResult:
    """Refine all that bronze has now. LakeError when the lake's own files contradict each other."""
    from penstock.pipeline.refine.refine_step import run_step

    if step_events < 1:
        raise LakeError("a range has at least one event: give more for step_events")
    begun = time.monotonic()
    with progress.only_one(lake):
        done = progress.refined(lake)
        last = largest(lake.table("bronze"), "lsn")
        end = done.lsn if last is None else int(last) + 1
        result = RefineResult(done.lsn, end, 0, 0, 0, progress.count_open(lake, done), 0, 0.0)
        while (step := next_step(lake, done, end, step_events)) is not None:
            made = run_step(spark, lake, done, step)
            done = progress.refined(lake)
            result = RefineResult(
                lsn=done.lsn,
                end_lsn=end,
                steps=result.steps + 1,
                events=result.events + made.events,
                lives=result.lives + made.lives,
                open=made.open,
                minutes=result.minutes + made.minutes,
                seconds=round(time.monotonic() - begun, 3),
            )
            durable.replace_json(lake.own / "progress" / "refine.json", asdict(result))
            if on_step is not None:
                on_step(result)
    return result


def next_step(lake: Lake, done: progress.Refined, end: int, max_events: int) -> progress.Planned | None:
    """Return the range that comes next: the one that was begun, or a new one; None when there is nothing more."""
    begun = progress.planned(lake)
    if begun is not None and begun.version == done.version + 1:
        # Tables may have it already, so it cannot be another one.
        return begun
    if done.lsn >= end:
        return None
    # Behind a gap there is no need to walk through it.
    firsts = [
        int(file.minimums["lsn"])
        for name in ("bronze", "poison")
        if lake.table(name).exists()
        for file in lake.table(name).files()
        if int(file.maximums["lsn"]) >= done.lsn
    ]
    start = max(done.lsn, min(firsts, default=done.lsn))
    return progress.Planned(done.version + 1, start, min(end, start + max_events))
