"""`penstock pipeline replay` and `triage`: messages of the past back into queues, and those that died by cause."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.pipeline import (
    Command,
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
    from penstock.pipeline.jobs.replay import ReplayProgress, ReplayResult
    from penstock.pipeline.jobs.triage import Group

BROKER_HELP = "amqp://USER:PASSWORD@HOST:PORT/VHOST.  [default: PENSTOCK_URL]"

SELECTION = (
    click.option("--vhost", metavar="NAME", help="That of the broker's URL unless given."),
    click.option("--queue", metavar="NAME", help="In which they were."),
    click.option("--from", "since", metavar="TIME", help="Published from then on: 2026-01-31T08:00:00Z."),
    click.option("--to", "until", metavar="TIME", help="Published before then."),
    click.option("--exchange", metavar="NAME", help="By which they came."),
    click.option("--routing-key", metavar="KEY", help="With which they came."),
    click.option("--content-type", metavar="TYPE"),
    click.option("--header", multiple=True, metavar="NAME=VALUE"),
    click.option("--where", metavar="SQL", help="On the columns of published events: size > 1000."),
    click.option(
        "--outcome", multiple=True, metavar="WORD", help="How their life has ended: dead-lettered, rejected, …"
    ),
    click.option("--reason", multiple=True, metavar="WORD", help="Why they were dead-lettered: expired, maxlen, …"),
)
DESTINATION = (
    click.option("--to-queue", metavar="NAME", help="Instead of the queue that they were in."),
    click.option("--to-exchange", metavar="NAME"),
    click.option("--to-routing-key", metavar="KEY", help="Instead of their own; with --to-exchange."),
    click.option("--to-original", is_flag=True, help="To the exchange they came by, with their key."),
    click.option("--dry-run", is_flag=True, help="Count and show, and publish nothing."),
    click.option("--rate-limit", type=click.FloatRange(0, min_open=True), metavar="N", help="Messages in a second."),
)


def chosen(command: Command) -> Command:
    """Which messages, and where to."""
    for option in reversed((*SELECTION, *DESTINATION)):
        command = option(command)
    return command


def show_progress(progress: ReplayProgress) -> None:
    """A bar that is written over, on a terminal."""
    if sys.stderr.isatty():
        done = progress.published + progress.skipped
        share = done / progress.total if progress.total else 1.0
        bar = "#" * round(30 * share)
        click.echo(f"\r\x1b[K[{bar:30}] {done:,} of {progress.total:,}", nl=False, err=True)


@click.command(short_help="Messages of the past back into queues.")
@click.option("--broker", envvar="PENSTOCK_URL", required=True, metavar="URL", help=BROKER_HELP)
@source_options
@click.option("--lake", envvar="PENSTOCK_LAKE", metavar="FOLDER", help="From here, rather than from --source.")
@click.option("--name", default="", metavar="NAME", help="The same replay has the same name: no message twice.")
@chosen
@click.option("--ordered", is_flag=True, help="In the order in which they were published.")
@spark_options
@json_option
def replay(broker: str, source: str | None, user: str | None, lake: str | None, **given: Any) -> None:
    """Publish messages again that were published once: each into the queue that it was in, or elsewhere.

    They come from the lake, or straight from a journal. With --name a replay that was killed and started again goes on,
    and a queue with x-message-deduplication has each message once.
    """
    master, memory, as_json = given["master"], given["driver_memory"], given["as_json"]
    with said():
        from penstock.pipeline.jobs.replay import ReplayOptions
        from penstock.pipeline.jobs.replay import replay as work
        from penstock.pipeline.publishing.arguments import destination_of, selection_of
        from penstock.pipeline.publishing.selection import existing_lake

        space = argparse.Namespace(**given)
        options = ReplayOptions(
            broker=broker,
            lake=lake,
            source=None if lake is not None else source,
            selection=selection_of(space),
            destination=destination_of(space),
            name=given["name"],
            dry_run=given["dry_run"],
            ordered=given["ordered"],
            rate_limit=given["rate_limit"],
            user=user,
            master=master,
        )
        if lake is not None:
            existing_lake(lake)
        else:
            look_at_log(needed(source), user)
        with spark_for("replay", master, memory) as spark:
            result = work(spark, options, show_progress)
    if sys.stderr.isatty():
        click.echo("", err=True)
    if as_json:
        click.echo(as_object(result))
    else:
        show_replay(result)


def show_replay(result: ReplayResult) -> None:
    if result.already_done:
        click.echo(f"the replay {result.name} is over already: nothing was published")
        return
    for queue, count in result.by_queue.items():
        click.echo(f"{count:>12,}  {queue}")
    for one in result.skipped_messages:
        click.echo(f"     skipped  {one.queue}, event {one.lsn}: {one.why}")
    did, count = ("published", result.published)
    if result.dry_run:
        did, count = ("would be published:", sum(result.by_queue.values()))
    click.echo(f"{did} {count:,}, skipped {result.skipped:,}; to {result.destination}; name {result.name}")


@click.command(short_help="Messages that died, by cause; and back with them.")
@lake_option
@click.option("--broker", envvar="PENSTOCK_URL", metavar="URL", help=f"For --redrive. {BROKER_HELP}")
@chosen
@click.option("--died-from", metavar="TIME", help="Died from then on.")
@click.option("--died-to", metavar="TIME", help="Died before then.")
@click.option("--by-header", metavar="NAME", help="Its value is part of a group.")
@click.option("--groups", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Shown at most.")
@click.option("--redrive", multiple=True, metavar="ID", help="Bring the messages of a group back. Repeatable.")
@click.option("--again", is_flag=True, help="Also what was brought back before.")
@spark_options
@json_option
def triage(lake: str, broker: str | None, **given: Any) -> None:
    """Group dead-lettered and rejected messages by queue, cause, routing key and content type.

    With --redrive the messages of a group are published again, once the cause is mended: into the queue that they died
    in, or elsewhere.
    """
    master, memory, as_json = given["master"], given["driver_memory"], given["as_json"]
    if given["redrive"] and not broker:
        raise click.UsageError("--redrive publishes: say where with --broker")
    with said():
        from penstock.pipeline.jobs.triage import RedriveOptions, TriageOptions, redrive
        from penstock.pipeline.jobs.triage import triage as work
        from penstock.pipeline.publishing.arguments import destination_of, moment, selection_of
        from penstock.pipeline.publishing.selection import existing_lake

        space = argparse.Namespace(**given)
        ended_since, ended_until = moment(given["died_from"]), moment(given["died_to"])
        selection = replace(selection_of(space), ended_since=ended_since, ended_until=ended_until)
        options = TriageOptions(lake, selection, given["by_header"], given["groups"], master=master)
        destination = destination_of(space)
        existing_lake(lake)
        with spark_for("triage", master, memory) as spark:
            if not given["redrive"]:
                found = work(spark, options)
            else:
                wanted = RedriveOptions(
                    triage=options,
                    broker=broker or "",
                    groups=given["redrive"],
                    destination=destination,
                    dry_run=given["dry_run"],
                    rate_limit=given["rate_limit"],
                    again=given["again"],
                )
                results = redrive(spark, wanted, show_progress)
    if given["redrive"]:
        if as_json:
            click.echo(json.dumps({group: asdict(one) for group, one in results.items()}, default=str))
        else:
            for one in results.values():
                show_replay(one)
        return
    if as_json:
        click.echo(as_object(found))
        return
    for group in found.groups:
        show_group(group)
    click.echo(f"{found.messages:,} messages died, in {found.groups_count:,} groups")


def show_group(group: Group) -> None:
    facts = [group.outcome, group.reason, f"key {group.routing_key}", group.content_type, group.header_value]
    words = ", ".join(str(fact) for fact in facts if fact is not None)
    click.echo(f"{group.id}  {group.count:,} in {group.queue} ({words}), {group.whole:,} can be redriven")
    click.echo(f"    from {group.first:%Y-%m-%d %H:%M:%S} to {group.last:%Y-%m-%d %H:%M:%S}")
    for sample in group.samples:
        click.echo(f"    {sample.message_id or 'no id'}: {sample.body}")
