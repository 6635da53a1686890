"""`penstock pipeline report`: what the lake says about queues, for people. It starts no Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from penstock.pipeline import defaults
from penstock.pipeline.jobs.command.job import Job, answer, fail
from penstock.pipeline.jobs.command.options import json_option, lake_option, queue_options


# The user decides where the page is written, and who may read it.
@click.command(cls=Job, private=False, short_help="What happened, as a page with plots and as tables.")
@lake_option
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write a self-contained HTML page, too.")
@click.option(
    "--hours",
    type=click.FloatRange(0, min_open=True),
    default=defaults.REPORT_HOURS,
    show_default=True,
    metavar="N",
    help="Up to the newest minute that the lake has.",
)
@click.option("--all", "everything", is_flag=True, help="All that the lake has, whatever --hours says.")
@queue_options
@json_option
def report(
    lake: str,
    out: str | None,
    hours: float,
    everything: bool,
    queues: tuple[str, ...],
    vhost: str | None,
    as_json: bool,
) -> None:
    """Show rates, depth, wait and service times, outcomes and dead letters of the last hours, queue by queue.

    It shows what was refined; `penstock pipeline refine` brings that up to date.
    """
    from penstock.pipeline.lake.opening import open_lake
    from penstock.pipeline.report.report import report as work
    from penstock.pipeline.report.terminal import report_text

    try:
        made = work(open_lake(lake), out, hours=None if everything else hours, queues=queues, vhost=vhost)
    except OSError as error:
        fail(f"the page cannot be written: {error}")
    answer(made, as_json, report_text(made, shutil.get_terminal_size().columns).rstrip("\n"))
    if out is not None:
        click.echo(f"page: {Path(out).absolute().as_uri()}", err=True)


if __name__ == "__main__":
    report()
