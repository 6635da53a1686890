"""`penstock pipeline status` and `reconcile`: is everything where it should be?"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from penstock.cli.pipeline import (
    EXIT_FAILED,
    as_object,
    json_option,
    lake_option,
    said,
    source_options,
    spark_for,
    spark_options,
)

if TYPE_CHECKING:
    from penstock.pipeline.jobs.status import PipelineStatus


@click.command(short_help="How far the jobs are, and how far behind.")
@source_options
@lake_option
@json_option
def status(source: str | None, user: str | None, lake: str, as_json: bool) -> None:
    """Show how far archive and refine are behind the broker, in events and in time, and the tables of the lake.

    Starts no Spark. Without --source the log is asked where the archive job found it.

    Exit codes: 0 all is well; 1 there is an alarm, or it failed; 2 wrong options.
    """
    with said():
        from penstock.pipeline.jobs.status import status as ask

        found = ask(lake, source, user)
    if as_json:
        click.echo(as_object(found))
    else:
        show(found)
    sys.exit(EXIT_FAILED if found.alarms else 0)


def show(found: PipelineStatus) -> None:
    click.echo(f"lake      {found.lake} ({found.format})")
    end = "unknown" if found.end_lsn is None else f"{found.end_lsn:,}"
    click.echo(f"log       {found.log_id or 'none yet'}, end {end}")
    if found.archived_lsn is None:
        click.echo("archive   never ran")
    else:
        running = "running" if found.archive_running else "not running"
        heard = datetime.fromtimestamp((found.archive_updated_us or 0) / 1e6, UTC)
        lag = "unknown" if found.archive_lag_events is None else f"{found.archive_lag_events:,} events"
        late = "" if found.archive_lag_s is None else f", {found.archive_lag_s:,.1f} s"
        click.echo(
            f"archive   {found.archived_lsn:,}, behind by {lag}{late}; {running} at {heard:%Y-%m-%d %H:%M:%S} UTC"
        )
    click.echo(f"refine    {found.refined_lsn:,}, behind by {found.refine_lag_events:,} events of the lake")
    for table in found.tables:
        click.echo(f"{table.table:9} {table.rows:,} rows, {table.bytes / 1024 / 1024:,.1f} MiB in {table.files} files")
    for alarm in found.alarms:
        click.echo(f"ALARM     {alarm}")


@click.command(short_help="Recompute every counter, and compare.")
@source_options
@click.option("--lake", envvar="PENSTOCK_LAKE", metavar="FOLDER", help="Needed when history does not reach back.")
@click.option("--postgres", metavar="URL", help="Compare the counters of queues in this PostgreSQL, too.")
@click.option("--schema", default="penstock", show_default=True, metavar="NAME", help="penstock's schema there.")
@click.option("--repair", is_flag=True, help="Set PostgreSQL's counters right.")
@spark_options
@json_option
def reconcile(
    source: str | None,
    user: str | None,
    lake: str | None,
    postgres: str | None,
    schema: str,
    repair: bool,
    master: str,
    driver_memory: str,
    as_json: bool,
) -> None:
    """Count from the journal what every queue must hold, and compare that with the broker's own counters.

    --source is the http URL of a running broker. With --postgres the counters there are compared with their rows.

    Exit codes: 0 all agree; 1 something differs, repaired or not, or it failed; 2 wrong options.
    """
    with said(), ExitStack() as stack:
        from penstock.pipeline.jobs.reconcile import ReconcileOptions
        from penstock.pipeline.jobs.reconcile import reconcile as work

        options = ReconcileOptions(source, lake, postgres, schema, repair, user, None, master)
        result = work(lambda: stack.enter_context(spark_for("reconcile", master, driver_memory)), options)
    if as_json:
        click.echo(as_object(result))
    else:
        for one in result.differences:
            click.echo(f"DIFFERS   {one}")
        click.echo(f"{result.counters} counters of {result.queues} queues compared, {len(result.differences)} differ")
        if result.repaired:
            click.echo("the counters of PostgreSQL were set right")
    sys.exit(EXIT_FAILED if result.differences else 0)
