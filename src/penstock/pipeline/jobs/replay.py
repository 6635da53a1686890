"""`penstock pipeline replay`: messages of the past back into queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.pipeline import defaults
from penstock.pipeline.jobs.command.choice import (
    BROKER_HELP,
    chosen,
    destination_of,
    replay_text,
    selection_of,
    show_progress,
)
from penstock.pipeline.jobs.command.job import Job, answer, end_line
from penstock.pipeline.jobs.command.options import json_option, needed, source_options, spark_options
from penstock.pipeline.jobs.command.starting import look_at_log, spark_for

if TYPE_CHECKING:
    from penstock.pipeline.publishing.replay import ReplayOptions


@click.command(cls=Job, short_help="Messages of the past back into queues.")
@click.option("--broker", envvar="PENSTOCK_URL", required=True, metavar="URL", help=BROKER_HELP)
@source_options
@click.option("--lake", envvar="PENSTOCK_LAKE", metavar="FOLDER", help="From here, rather than from --source.")
@click.option("--name", default="", metavar="NAME", help="The same replay has the same name: no message twice.")
@chosen
@click.option("--ordered", is_flag=True, help="In the order in which they were published.")
@click.option(
    "--slice-rows",
    type=click.IntRange(1),
    default=defaults.SLICE_ROWS,
    show_default=True,
    metavar="N",
    help="Published by one job of Spark: what is repeated after a kill.",
)
@spark_options
@json_option
def replay(master: str | None, driver_memory: str | None, as_json: bool, **given: Any) -> None:
    """Publish messages again that were published once: each into the queue that it was in, or elsewhere.

    They come from the lake, or straight from a journal. With --name a replay that was killed and started again goes on,
    and a queue with x-message-deduplication has each message once.
    """
    from penstock.pipeline.publishing.replay import replay as work
    from penstock.pipeline.publishing.selection import existing_lake

    options = options_of(given)
    if options.lake is not None:
        existing_lake(options.lake)
    else:
        look_at_log(needed(options.source), options.user)
    with spark_for("replay", master, driver_memory) as spark:
        result = work(spark, options, show_progress)
    end_line()
    answer(result, as_json, replay_text(result))


def options_of(given: dict[str, Any]) -> ReplayOptions:
    """SelectionError for what cannot be understood."""
    from penstock.pipeline.publishing.replay import ReplayOptions

    return ReplayOptions(
        broker=given["broker"],
        lake=given["lake"],
        source=None if given["lake"] is not None else given["source"],
        selection=selection_of(given),
        destination=destination_of(given),
        name=given["name"],
        dry_run=given["dry_run"],
        ordered=given["ordered"],
        rate_limit=given["rate_limit"],
        slice_rows=given["slice_rows"],
        user=given["user"],
    )


if __name__ == "__main__":
    replay()
