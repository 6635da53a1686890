"""`penstock pipeline forecast`: when will this backlog be empty, or full? It starts no Spark."""

from __future__ import annotations

import shutil

import click

from penstock.pipeline import defaults
from penstock.pipeline.jobs.command.job import Job, answer
from penstock.pipeline.jobs.command.options import json_option, lake_option, queue_options


@click.command(cls=Job, short_help="When will this backlog be empty, or full?")
@lake_option
@click.option(
    "--minutes",
    type=click.IntRange(1),
    default=defaults.FORECAST_MINUTES,
    show_default=True,
    metavar="N",
    help="The past to go by.",
)
@queue_options
@click.option("--limit", "limits", multiple=True, metavar="QUEUE=N", help="How many messages it takes. Repeatable.")
@json_option
def forecast(
    lake: str, minutes: int, queues: tuple[str, ...], vhost: str | None, limits: tuple[str, ...], as_json: bool
) -> None:
    """Say for each queue when it will be empty, when it reaches its --limit, or how fast it grows.

    By the rates of the last minutes that were refined: it holds as long as things go on as they did.
    """
    from penstock.pipeline.lake.opening import open_lake
    from penstock.pipeline.report.forecast import forecast as work
    from penstock.pipeline.report.forecast import forecast_text, limit_of

    try:
        known = dict(limit_of(text) for text in limits)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--limit") from None
    made = work(open_lake(lake), minutes=minutes, queues=queues, vhost=vhost, limits=known)
    answer(made, as_json, forecast_text(made, shutil.get_terminal_size().columns).rstrip("\n"))


if __name__ == "__main__":
    forecast()
