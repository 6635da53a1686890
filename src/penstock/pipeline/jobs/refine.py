"""`penstock pipeline refine`: what bronze has more than silver and gold becomes lives and minutes.

A batch, to be run every few minutes. It works in ranges of at most so many events, each a transaction of its own, until
bronze is exhausted; so memory does not grow with what has piled up, and a run that is killed has done what it has done.

What it does not do: read the journal. That is `archive`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import StartupError
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import Lake, open_lake
from penstock.pipeline.lake.reading import largest
from penstock.pipeline.lake.table import LakeError
from penstock.pipeline.refine import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP_EVENTS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class RefineOptions:
    """What to refine, and how."""

    lake: str
    # Of one range. More is faster as long as Spark has the memory to sort them.
    max_events_per_step: int = STEP_EVENTS
    master: str | None = "local[*]"


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
    spark: SparkSession, lake: Lake, *, max_events_per_step: int = STEP_EVENTS, on_step: OnStep | None = None
) -> RefineResult:
    """Refine all that bronze has now. LakeError when the lake's own files contradict each other."""
    from penstock.pipeline.refine.refine_step import run_step

    if max_events_per_step < 1:
        raise LakeError("a range has at least one event: give more for max_events_per_step")
    begun = time.monotonic()
    with progress.only_one(lake):
        done = progress.refined(lake)
        last = largest(lake.table("bronze"), "lsn")
        end = done.lsn if last is None else int(last) + 1
        result = RefineResult(done.lsn, end, 0, 0, 0, progress.count_open(lake, done), 0, 0.0)
        while (step := next_step(lake, done, end, max_events_per_step)) is not None:
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
    """The range that comes next: the one that was begun, or a new one; None when there is nothing more."""
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


def parser() -> argparse.ArgumentParser:
    """The arguments of `main`."""
    made = argparse.ArgumentParser(prog="refine", description="events of the lake become lives and minutes")
    made.add_argument("--lake", required=True, help="folder of the lake")
    made.add_argument("--max-events-per-step", type=int, default=STEP_EVENTS, metavar="N", help="events of one range")
    made.add_argument("--master", help="of Spark; for spark-submit leave it away")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """For spark-submit."""
    from penstock.pipeline.session import spark_session

    options = RefineOptions(**vars(parser().parse_args(arguments)))
    try:
        lake = open_lake(options.lake)
        spark = spark_session("penstock refine", options.master)
        try:
            result = refine(spark, lake, max_events_per_step=options.max_events_per_step)
        finally:
            spark.stop()
    except (LakeError, StartupError) as error:
        sys.stderr.write(f"refine: {error}\n")
        return 1
    sys.stdout.write(json.dumps(asdict(result)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
