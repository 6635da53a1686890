"""`penstock pipeline status`: how far the jobs are, and how far behind. It starts no Spark."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from penstock.pipeline.jobs.command.job import EXIT_FAILED, Job, answer
from penstock.pipeline.jobs.command.options import json_option, lake_option, source_options

if TYPE_CHECKING:
    from penstock.pipeline.status import PipelineStatus


@click.command(cls=Job, short_help="How far the jobs are, and how far behind.")
@source_options
@lake_option
@json_option
def status(source: str | None, user: str | None, lake: str, as_json: bool) -> None:
    """Show how far archive and refine are behind the broker, in events and in time, and the tables of the lake.

    Starts no Spark. Without --source the log is asked where the archive job found it.

    Exit codes: 0 all is well; 1 there is an alarm, or it failed; 2 wrong options.
    """
    from penstock.pipeline.status import status as ask

    found = ask(lake, source, user)
    answer(found, as_json, "\n".join(_lines(found)))
    sys.exit(EXIT_FAILED if found.alarms else 0)


def _lines(found: PipelineStatus) -> list[str]:
    end = "unknown" if found.end_lsn is None else f"{found.end_lsn:,}"
    archived = "never ran"
    if found.archived_lsn is not None:
        running = "running" if found.archive_running else "not running"
        heard = datetime.fromtimestamp((found.archive_updated_us or 0) / 1e6, UTC)
        lag = "unknown" if found.archive_lag_events is None else f"{found.archive_lag_events:,} events"
        late = "" if found.archive_lag_s is None else f", {found.archive_lag_s:,.1f} s"
        archived = f"{found.archived_lsn:,}, behind by {lag}{late}; {running} at {heard:%Y-%m-%d %H:%M:%S} UTC"
    return [
        f"lake      {found.lake} ({found.format})",
        f"log       {found.log_id or 'none yet'}, end {end}",
        f"archive   {archived}",
        f"refine    {found.refined_lsn:,}, behind by {found.refine_lag_events:,} events of the lake",
        *(
            f"{table.table:9} {table.rows:,} rows, {table.bytes / 1024 / 1024:,.1f} MiB in {table.files} files"
            for table in found.tables
        ),
        *(f"ALARM     {alarm}" for alarm in found.alarms),
    ]


if __name__ == "__main__":
    status()
