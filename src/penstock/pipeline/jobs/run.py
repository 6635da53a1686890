"""`penstock pipeline run`: archive all the time, refine and report now and then."""

from __future__ import annotations

import click

from penstock.pipeline import defaults
from penstock.pipeline.jobs.command.job import Job
from penstock.pipeline.jobs.command.options import lake_option, needed, source_options, spark_options
from penstock.pipeline.jobs.command.starting import look_at_log, spark_for
from penstock.pipeline.jobs.command.stop import Stop


@click.command(cls=Job, short_help="Archive all the time, refine and report now and then.")
@source_options
@lake_option
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.1),
    default=defaults.RUN_EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="From the beginning of a batch to that of the next.",
)
@click.option(
    "--refine-every",
    "refine_every_s",
    type=click.FloatRange(1),
    default=defaults.REFINE_EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="From one refinement and report to the next.",
)
@click.option("--report", "page", metavar="FILE", help="Where the page goes.  [default: report.html in the lake]")
@click.option(
    "--with-parent", type=click.IntRange(1), metavar="PID", help="End when this process ends, which has started it."
)
@spark_options
def run(
    source: str | None,
    user: str | None,
    lake: str,
    every_s: float,
    refine_every_s: float,
    page: str | None,
    with_parent: int | None,
    master: str | None,
    driver_memory: str | None,
) -> None:
    """Stand beside a broker: archive as it goes, refine and write the report every --refine-every seconds.

    Runs until SIGINT or SIGTERM.
    """
    from penstock.pipeline.archive import ArchiveOptions
    from penstock.pipeline.lake.opening import Lake
    from penstock.pipeline.run import RunOptions
    from penstock.pipeline.run import run as work

    stop = Stop(with_parent)
    archiving = ArchiveOptions(needed(source), lake, every_s=every_s, user=user)
    look_at_log(archiving.source, user)
    Lake(lake)
    with spark_for("pipeline", master, driver_memory) as spark:
        stop.listen()
        work(spark, RunOptions(archiving, refine_every_s, page), lambda text: click.echo(text, err=True), stop)


if __name__ == "__main__":
    run()
