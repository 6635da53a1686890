"""`penstock pipeline archive`: every event of the journal into the lake, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.pipeline import defaults
from penstock.pipeline.jobs.command.job import Job, answer, end_line, show
from penstock.pipeline.jobs.command.options import json_option, lake_option, needed, source_options, spark_options
from penstock.pipeline.jobs.command.starting import look_at_log, spark_for
from penstock.pipeline.jobs.command.stop import Stop

if TYPE_CHECKING:
    from penstock.pipeline.archive import ArchiveOptions, ArchiveProgress


@click.command(cls=Job, short_help="Every event of the journal into the lake, once.")
@source_options
@lake_option
@click.option("--once", is_flag=True, help="What is there now, and no more.")
@click.option("--format", type=click.Choice(["delta", "parquet"]), help="Of a new lake.  [default: delta]")
@click.option(
    "--reader", default=defaults.READER, show_default=True, metavar="NAME", help="Name of the cursor in the broker."
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.1),
    default=defaults.EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="From the beginning of a batch to that of the next.",
)
@click.option("--no-bodies", is_flag=True, help="Leave the bodies away.")
@click.option("--max-records", type=click.IntRange(1), metavar="N", help="Events in one batch at most.")
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    default=defaults.BATCH_BYTES,
    show_default=True,
    metavar="N",
    help="Bytes of the log in one batch at most.",
)
@click.option(
    "--allow-data-loss", is_flag=True, help="Go on, and count, when events were removed before they were read."
)
@spark_options
@json_option
def archive(master: str | None, driver_memory: str | None, as_json: bool, **given: Any) -> None:
    """Bring every event of the journal into the lake's table `bronze`, once, also when it is killed and starts again.

    Runs until SIGINT or SIGTERM, or with --once until it has what is there. The broker keeps what the reader has not
    read; `penstock history readers` shows it.
    """
    from penstock.pipeline.archive import archive as work
    from penstock.pipeline.lake.opening import Lake

    stop = Stop()
    options = options_of(given)
    look_at_log(options.source, options.user)
    Lake(options.lake, options.format)
    with spark_for("archive", master, driver_memory) as spark:
        stop.listen()
        result = work(spark, options, _show_progress, stop)
    end_line()
    done = f"{result.events:,} events archived in {result.seconds:,.1f} s"
    answer(result, as_json, f"{done}, up to {result.lsn}; {result.lag_events:,} left")


def options_of(given: dict[str, Any]) -> ArchiveOptions:
    from penstock.pipeline.archive import ArchiveOptions

    return ArchiveOptions(
        source=needed(given["source"]),
        user=given["user"],
        lake=given["lake"],
        format=given["format"],
        reader=given["reader"],
        once=given["once"],
        every_s=given["every_s"],
        bodies=not given["no_bodies"],
        max_records=given["max_records"],
        max_bytes=given["max_bytes"],
        fail_on_data_loss=not given["allow_data_loss"],
    )


def _show_progress(progress: ArchiveProgress) -> None:
    rate = progress.events / progress.seconds if progress.seconds else 0.0
    lag = f"{progress.lag_events:,} events, {progress.lag_s:.0f} s behind"
    show(f"{progress.events:,} events archived, {rate:,.0f} a second, {lag}")


if __name__ == "__main__":
    archive()
