"""`penstock pipeline archive`, `refine`, `run` and `maintain`: what fills the lake and keeps it tidy."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.pipeline import (
    as_object,
    json_option,
    lake_option,
    look_at_log,
    needed,
    said,
    source_options,
    spark_for,
    spark_options,
)

if TYPE_CHECKING:
    from penstock.pipeline.jobs.archive import ArchiveProgress
    from penstock.pipeline.jobs.refine import RefineResult


class Stop:
    """Whether somebody has asked for the end."""

    def __init__(self, parent: int | None = None) -> None:
        self.asked = False
        # The process that started this one, if its end is ours.
        self._parent = parent
        self.listen()

    def listen(self) -> None:
        """From now on signals ask. To be called again when Spark has started: it takes SIGINT for itself."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True

    def __call__(self) -> bool:
        return self.asked or (self._parent is not None and os.getppid() != self._parent)


def show_progress(progress: ArchiveProgress) -> None:
    """One line that is written over, on a terminal."""
    if sys.stderr.isatty():
        rate = progress.events / progress.seconds if progress.seconds else 0.0
        lag = f"{progress.lag_events:,} events, {progress.lag_s:.0f} s behind"
        click.echo(f"\r\x1b[K{progress.events:,} events archived, {rate:,.0f} a second, {lag}", nl=False, err=True)


@click.command(short_help="Every event of the journal into the lake, once.")
@source_options
@lake_option
@click.option("--once", is_flag=True, help="What is there now, and no more.")
@click.option(
    "--format", "lake_format", type=click.Choice(["delta", "parquet"]), help="Of a new lake.  [default: delta]"
)
@click.option(
    "--reader", default="archive", show_default=True, metavar="NAME", help="Name of the cursor in the broker."
)
@click.option("--every", "every_s", type=click.FloatRange(0.1), default=10.0, show_default=True, metavar="SECONDS")
@click.option("--no-bodies", is_flag=True, help="Leave the bodies away.")
@click.option("--max-records", type=click.IntRange(1), metavar="N", help="Events in one batch at most.")
@click.option(
    "--allow-data-loss", is_flag=True, help="Go on, and count, when events were removed before they were read."
)
@spark_options
@json_option
def archive(
    source: str | None,
    user: str | None,
    lake: str,
    once: bool,
    lake_format: str | None,
    reader: str,
    every_s: float,
    no_bodies: bool,
    max_records: int | None,
    allow_data_loss: bool,
    master: str,
    driver_memory: str,
    as_json: bool,
) -> None:
    """Bring every event of the journal into the lake's table `bronze`, once, also when it is killed and starts again.

    Runs until SIGINT or SIGTERM, or with --once until it has what is there. The broker keeps what the reader has not
    read; `penstock history readers` shows it.
    """
    stop = Stop()
    with said():
        from penstock.pipeline.jobs.archive import ArchiveOptions
        from penstock.pipeline.jobs.archive import archive as work
        from penstock.pipeline.lake.opening import Lake

        options = ArchiveOptions(
            source=needed(source),
            lake=lake,
            format=lake_format,
            reader=reader,
            once=once,
            trigger_seconds=every_s,
            bodies=not no_bodies,
            max_records=max_records,
            fail_on_data_loss=not allow_data_loss,
            user=user,
            master=master,
        )
        look_at_log(options.source, user)
        Lake(lake, lake_format)
        with spark_for("archive", master, driver_memory) as spark:
            stop.listen()
            result = work(spark, options, show_progress, stop)
    if sys.stderr.isatty():
        click.echo("", err=True)
    text = (
        f"{result.events:,} events archived in {result.seconds:,.1f} s, up to {result.lsn}; {result.lag_events:,} left"
    )
    click.echo(as_object(result) if as_json else text)


@click.command(short_help="Lives and minutes of what was archived.")
@lake_option
@click.option("--step-events", type=click.IntRange(1), default=2_000_000, show_default=True, metavar="N")
@spark_options
@json_option
def refine(lake: str, step_events: int, master: str, driver_memory: str, as_json: bool) -> None:
    """Make one row per message life (table `silver`), and one per queue and minute (`gold`), of what is in `bronze`.

    Run it every few minutes, or after `archive --once`. It works in ranges of --step-events events; killed, it goes on
    where it was.
    """
    with said():
        from penstock.pipeline.jobs.refine import refine as work
        from penstock.pipeline.lake.opening import open_lake

        def shown(done: RefineResult) -> None:
            if sys.stderr.isatty():
                click.echo(f"\r\x1b[K{done.lsn:,} of {done.end_lsn:,} events refined", nl=False, err=True)

        found = open_lake(lake)
        with spark_for("refine", master, driver_memory) as spark:
            result = work(spark, found, max_events_per_step=step_events, on_step=shown)
    if sys.stderr.isatty():
        click.echo("", err=True)
    lives = f"{result.lives:,} lives ended, {result.open:,} are open"
    text = f"{result.events:,} events refined in {result.seconds:,.1f} s: {lives}"
    click.echo(as_object(result) if as_json else text)


@click.command(short_help="Archive all the time, refine and report now and then.")
@source_options
@lake_option
@click.option("--every", "every_s", type=click.FloatRange(0.1), default=5.0, show_default=True, metavar="SECONDS")
@click.option("--refine-every", type=click.FloatRange(1), default=60.0, show_default=True, metavar="SECONDS")
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
    refine_every: float,
    page: str | None,
    with_parent: int | None,
    master: str,
    driver_memory: str,
) -> None:
    """Stand beside a broker: archive as it goes, refine and write the report every --refine-every seconds.

    Runs until SIGINT or SIGTERM.
    """
    stop = Stop(with_parent)
    with said():
        from penstock.pipeline.jobs.archive import ArchiveOptions
        from penstock.pipeline.jobs.run import RunOptions
        from penstock.pipeline.jobs.run import run as work
        from penstock.pipeline.lake.opening import Lake

        archiving = ArchiveOptions(needed(source), lake, trigger_seconds=every_s, user=user, master=master)
        options = RunOptions(archiving, refine_every, page)
        look_at_log(archiving.source, user)
        Lake(lake)
        with spark_for("pipeline", master, driver_memory) as spark:
            stop.listen()
            work(spark, options, lambda text: click.echo(text, err=True), stop)


@click.command(short_help="Compact, apply retention, remove what nobody needs.")
@lake_option
@click.option("--keep-days", "keep_days", multiple=True, metavar="TABLE=DAYS", help="Retention of a table; repeatable.")
@click.option("--vacuum-hours", type=click.FloatRange(0), default=168.0, show_default=True, metavar="HOURS")
@click.option("--target-mib", type=click.IntRange(1), default=128, show_default=True, metavar="MIB")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option
def maintain(
    lake: str, keep_days: tuple[str, ...], vacuum_hours: float, target_mib: int, dry_run: bool, as_json: bool
) -> None:
    """Make few files of many small ones, take away what is older than asked for, and what no version needs.

    May run beside the other jobs. Events that were not refined yet stay, however old they are.
    """
    with said():
        from penstock.pipeline.jobs.maintain import MaintainOptions
        from penstock.pipeline.jobs.maintain import maintain as work

        days = dict(_keep(text) for text in keep_days)
        result = work(MaintainOptions(lake, days, target_mib * 1024 * 1024, vacuum_hours, dry_run))
    if as_json:
        click.echo(as_object(result))
        return
    would = "would be " if result.dry_run else ""
    for table in result.tables:
        done = f"{table.expired_files} expired, {table.files_before} compacted to {table.files_after}"
        problem = f"; left alone: {table.problem}" if table.problem else ""
        click.echo(f"{table.table}: files {would}{done}, {table.vacuumed_files} vacuumed{problem}")
    click.echo(f"open lives: {result.refine_folders} old folders {would}removed")


def _keep(text: str) -> tuple[str, float]:
    table, equals, days = text.partition("=")
    try:
        if not equals:
            raise ValueError
        return table, float(days)
    except ValueError:
        raise click.BadParameter(f"'{text}' is not of the form TABLE=DAYS", param_hint="--keep-days") from None
