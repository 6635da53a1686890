"""`penstock pipeline report` and `forecast`: what the lake says about queues, for people. Neither starts Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from penstock.cli.pipeline import as_object, fail, json_option, lake_option, said

QUEUE_HELP = "Only these; * and ? stand for anything. Repeatable."


@click.command(short_help="What happened, as a page with plots and as tables.")
@lake_option
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write a self-contained HTML page, too.")
@click.option("--hours", type=click.FloatRange(0, min_open=True), default=24.0, show_default=True, metavar="N")
@click.option("--all", "everything", is_flag=True, help="All that the lake has, whatever --hours says.")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help=QUEUE_HELP)
@click.option("--vhost", metavar="NAME")
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
    with said():
        from penstock.pipeline.jobs.report import report as work
        from penstock.pipeline.lake.opening import open_lake
        from penstock.pipeline.report.terminal import report_text

        try:
            made = work(open_lake(lake), out, hours=None if everything else hours, queues=queues, vhost=vhost)
        except OSError as error:
            fail(f"the page cannot be written: {error}")
        click.echo(as_object(made) if as_json else report_text(made, shutil.get_terminal_size().columns), nl=as_json)
    if out is not None:
        click.echo(f"page: {Path(out).absolute().as_uri()}", err=True)


@click.command(short_help="When will this backlog be empty, or full?")
@lake_option
@click.option(
    "--minutes", type=click.IntRange(1), default=60, show_default=True, metavar="N", help="The past to go by."
)
@click.option("--queue", "queues", multiple=True, metavar="NAME", help=QUEUE_HELP)
@click.option("--vhost", metavar="NAME")
@click.option("--limit", "limits", multiple=True, metavar="QUEUE=N", help="How many messages it takes. Repeatable.")
@json_option
def forecast(
    lake: str, minutes: int, queues: tuple[str, ...], vhost: str | None, limits: tuple[str, ...], as_json: bool
) -> None:
    """Say for each queue when it will be empty, when it reaches its --limit, or how fast it grows.

    By the rates of the last minutes that were refined: it holds as long as things go on as they did.
    """
    with said():
        from penstock.pipeline.jobs.forecast import forecast as work
        from penstock.pipeline.jobs.forecast import forecast_text, limit_of
        from penstock.pipeline.lake.opening import open_lake

        try:
            known = dict(limit_of(text) for text in limits)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--limit") from None
        made = work(open_lake(lake), minutes=minutes, queues=queues, vhost=vhost, limits=known)
        click.echo(as_object(made) if as_json else forecast_text(made, shutil.get_terminal_size().columns), nl=as_json)
