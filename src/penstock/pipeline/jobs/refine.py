"""`penstock pipeline refine`: lives and minutes of what was archived."""

from __future__ import annotations

import click

from penstock.pipeline import defaults
from penstock.pipeline.jobs.command.job import Job, answer, end_line, show
from penstock.pipeline.jobs.command.options import json_option, lake_option, spark_options
from penstock.pipeline.jobs.command.starting import spark_for


@click.command(cls=Job, short_help="Lives and minutes of what was archived.")
@lake_option
@click.option(
    "--step-events",
    type=click.IntRange(1),
    default=defaults.STEP_EVENTS,
    show_default=True,
    metavar="N",
    help="Events of one range; more need more memory.",
)
@spark_options
@json_option
def refine(lake: str, step_events: int, master: str | None, driver_memory: str | None, as_json: bool) -> None:
    """Make one row per message life (table `silver`), and one per queue and minute (`gold`), of what is in `bronze`.

    Run it every few minutes, or after `archive --once`. It works in ranges of --step-events events; killed, it goes on
    where it was.
    """
    from penstock.pipeline.lake.opening import open_lake
    from penstock.pipeline.refine.refine import RefineResult
    from penstock.pipeline.refine.refine import refine as work

    def shown(done: RefineResult) -> None:
        show(f"{done.lsn:,} of {done.end_lsn:,} events refined")

    found = open_lake(lake)
    with spark_for("refine", master, driver_memory) as spark:
        result = work(spark, found, step_events=step_events, on_step=shown)
    end_line()
    done = f"{result.events:,} events refined in {result.seconds:,.1f} s"
    answer(result, as_json, f"{done}: {result.lives:,} lives ended, {result.open:,} are open")


if __name__ == "__main__":
    refine()
