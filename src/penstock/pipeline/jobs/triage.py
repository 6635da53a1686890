"""`penstock pipeline triage`: messages that died, by cause; and back with them once the cause is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from penstock.pipeline import defaults
from penstock.pipeline.jobs.command.choice import (
    BROKER_HELP,
    chosen,
    destination_of,
    moment,
    replay_text,
    selection_of,
    show_progress,
)
from penstock.pipeline.jobs.command.job import Job, answer, end_line
from penstock.pipeline.jobs.command.options import json_option, lake_option, spark_options
from penstock.pipeline.jobs.command.starting import spark_for

if TYPE_CHECKING:
    from penstock.pipeline.publishing.deaths import Group


@click.command(cls=Job, short_help="Messages that died, by cause; and back with them.")
@lake_option
@click.option("--broker", envvar="PENSTOCK_URL", metavar="URL", help=f"For --redrive. {BROKER_HELP}")
@chosen
@click.option("--died-from", metavar="TIME", help="Died from then on.")
@click.option("--died-to", metavar="TIME", help="Died before then.")
@click.option("--by-header", metavar="NAME", help="Its value is part of a group.")
@click.option(
    "--groups", type=click.IntRange(1), default=defaults.GROUPS, show_default=True, metavar="N", help="Shown at most."
)
@click.option(
    "--redrive", "wanted", multiple=True, metavar="ID", help="Bring the messages of a group back. Repeatable."
)
@click.option("--again", is_flag=True, help="Also what was brought back before.")
@spark_options
@json_option
def triage(
    lake: str,
    broker: str | None,
    wanted: tuple[str, ...],
    master: str | None,
    driver_memory: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Group dead-lettered and rejected messages by queue, cause, routing key and content type.

    With --redrive the messages of a group are published again, once the cause is mended: into the queue that they died
    in, or elsewhere.
    """
    from penstock.pipeline.publishing.deaths import TriageOptions
    from penstock.pipeline.publishing.deaths import triage as work
    from penstock.pipeline.publishing.redrive import RedriveOptions, redrive
    from penstock.pipeline.publishing.selection import existing_lake

    if wanted and not broker:
        raise click.UsageError("--redrive publishes: say where with --broker")
    died_from, died_to = moment(given["died_from"]), moment(given["died_to"])
    selection = replace(selection_of(given), ended_since=died_from, ended_until=died_to)
    options = TriageOptions(lake, selection, given["by_header"], given["groups"])
    redriving = RedriveOptions(
        triage=options,
        broker=broker or "",
        groups=wanted,
        destination=destination_of(given),
        dry_run=given["dry_run"],
        rate_limit=given["rate_limit"],
        again=given["again"],
    )
    existing_lake(lake)
    with spark_for("triage", master, driver_memory) as spark:
        if not wanted:
            found = work(spark, options)
        else:
            results = redrive(spark, redriving, show_progress)
    if not wanted:
        lines = [line for group in found.groups for line in _lines(group)]
        lines.append(f"{found.messages:,} messages died, in {found.groups_count:,} groups")
        answer(found, as_json, "\n".join(lines))
        return
    end_line()
    if as_json:
        click.echo(json.dumps({group: asdict(one) for group, one in results.items()}, default=str))
    else:
        click.echo("\n".join(map(replay_text, results.values())))


def _lines(group: Group) -> Iterator[str]:
    facts = [group.outcome, group.reason, f"key {group.routing_key}", group.content_type, group.header_value]
    words = ", ".join(str(fact) for fact in facts if fact is not None)
    yield f"{group.id}  {group.count:,} in {group.queue} ({words}), {group.whole:,} can be redriven"
    yield f"    from {group.first:%Y-%m-%d %H:%M:%S} to {group.last:%Y-%m-%d %H:%M:%S}"
    for sample in group.samples:
        yield f"    {sample.message_id or 'no id'}: {sample.body}"


if __name__ == "__main__":
    triage()
