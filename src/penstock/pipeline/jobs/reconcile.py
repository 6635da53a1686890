"""`penstock pipeline reconcile`: every counter recomputed, and compared."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import click

from penstock.pipeline import defaults
from penstock.pipeline.jobs.command.job import EXIT_FAILED, Job, answer
from penstock.pipeline.jobs.command.options import json_option, source_options, spark_options
from penstock.pipeline.jobs.command.starting import spark_for


@click.command(cls=Job, short_help="Recompute every counter, and compare.")
@source_options
@click.option("--lake", envvar="PENSTOCK_LAKE", metavar="FOLDER", help="Needed when history does not reach back.")
@click.option("--postgres", metavar="URL", help="Compare the counters of queues in this PostgreSQL, too.")
@click.option("--schema", default=defaults.SCHEMA, show_default=True, metavar="NAME", help="penstock's schema there.")
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
    master: str | None,
    driver_memory: str | None,
    as_json: bool,
) -> None:
    """Count from the journal what every queue must hold, and compare that with the broker's own counters.

    --source is the http URL of a running broker. With --postgres the counters there are compared with their rows.

    Exit codes: 0 all agree; 1 something differs, repaired or not, or it failed; 2 wrong options.
    """
    from penstock.pipeline.reconcile.reconcile import ReconcileOptions
    from penstock.pipeline.reconcile.reconcile import reconcile as work

    options = ReconcileOptions(source, lake, postgres, schema, repair, user)
    with ExitStack() as stack:
        result = work(lambda: stack.enter_context(spark_for("reconcile", master, driver_memory)), options)
    lines = [f"DIFFERS   {one}" for one in result.differences]
    lines.append(f"{result.counters} counters of {result.queues} queues compared, {len(result.differences)} differ")
    if result.repaired:
        lines.append("the counters of PostgreSQL were set right")
    answer(result, as_json, "\n".join(lines))
    sys.exit(EXIT_FAILED if result.differences else 0)


if __name__ == "__main__":
    reconcile()
