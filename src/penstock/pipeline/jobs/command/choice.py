"""Which messages, and where to: what `replay` and `triage` are told alike."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from penstock.pipeline.jobs.command.job import show
from penstock.pipeline.jobs.command.options import Command

if TYPE_CHECKING:
    from penstock.pipeline.publishing.replay import ReplayProgress, ReplayResult
    from penstock.pipeline.publishing.replayed import Destination
    from penstock.pipeline.publishing.selection import Selection

BROKER_HELP = "amqp://USER:PASSWORD@HOST:PORT/VHOST.  [default: PENSTOCK_URL]"

SELECTION = (
    click.option("--vhost", metavar="NAME", help="That of the broker's URL unless given."),
    click.option("--queue", metavar="NAME", help="In which they were."),
    click.option("--from", "since", metavar="TIME", help="Published from then on: 2026-01-31T08:00:00Z."),
    click.option("--to", "until", metavar="TIME", help="Published before then."),
    click.option("--exchange", metavar="NAME", help="By which they came."),
    click.option("--routing-key", metavar="KEY", help="With which they came."),
    click.option("--content-type", metavar="TYPE", help="That they have."),
    click.option("--header", multiple=True, metavar="NAME=VALUE", help="That they have. Repeatable."),
    click.option("--where", metavar="SQL", help="On the columns of published events: size > 1000."),
    click.option(
        "--outcome", multiple=True, metavar="WORD", help="How their life has ended: dead-lettered, rejected, …"
    ),
    click.option("--reason", multiple=True, metavar="WORD", help="Why they were dead-lettered: expired, maxlen, …"),
)
DESTINATION = (
    click.option("--to-queue", metavar="NAME", help="Instead of the queue that they were in."),
    click.option("--to-exchange", metavar="NAME", help="Instead of a queue."),
    click.option("--to-routing-key", metavar="KEY", help="Instead of their own; with --to-exchange."),
    click.option("--to-original", is_flag=True, help="To the exchange they came by, with their key."),
    click.option("--dry-run", is_flag=True, help="Count and show, and publish nothing."),
    click.option("--rate-limit", type=click.FloatRange(0, min_open=True), metavar="N", help="Messages in a second."),
)


def chosen(command: Command) -> Command:
    for option in reversed((*SELECTION, *DESTINATION)):
        command = option(command)
    return command


def selection_of(given: dict[str, Any]) -> Selection:
    """SelectionError for what cannot be understood."""
    from penstock.pipeline.publishing.selection import Selection

    return Selection(
        vhost=given["vhost"],
        queue=given["queue"],
        since=moment(given["since"]),
        until=moment(given["until"]),
        outcomes=given["outcome"],
        reasons=given["reason"],
        exchange=given["exchange"],
        routing_key=given["routing_key"],
        content_type=given["content_type"],
        headers=tuple(_header(text) for text in given["header"]),
        where=given["where"],
    )


def destination_of(given: dict[str, Any]) -> Destination:
    from penstock.pipeline.publishing.replayed import Destination
    from penstock.pipeline.publishing.selection import SelectionError

    try:
        return Destination(given["to_queue"], given["to_exchange"], given["to_routing_key"], given["to_original"])
    except ValueError as error:
        raise SelectionError(str(error)) from None


def moment(text: str | None) -> datetime | None:
    """Return an ISO time; without a zone it is UTC."""
    from penstock.pipeline.publishing.selection import SelectionError

    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise SelectionError(f"{text!r} is no time; write it like 2026-01-31T08:00:00Z") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _header(text: str) -> tuple[str, str]:
    from penstock.pipeline.publishing.selection import SelectionError

    name, sign, value = text.partition("=")
    if not sign or not name:
        raise SelectionError(f"a header is given as NAME=VALUE, not {text!r}")
    return name, value


def show_progress(progress: ReplayProgress) -> None:
    done = progress.published + progress.skipped
    share = done / progress.total if progress.total else 1.0
    bar = "#" * round(30 * share)
    show(f"[{bar:30}] {done:,} of {progress.total:,}")


def replay_text(result: ReplayResult) -> str:
    if result.already_done:
        return f"the replay {result.name} is over already: nothing was published"
    lines = [f"{count:>12,}  {queue}" for queue, count in result.by_queue.items()]
    lines += [f"     skipped  {one.queue}, event {one.lsn}: {one.why}" for one in result.skipped_messages]
    did, count = ("published", result.published)
    if result.dry_run:
        did, count = ("would be published:", sum(result.by_queue.values()))
    lines.append(f"{did} {count:,}, skipped {result.skipped:,}; to {result.destination}; name {result.name}")
    return "\n".join(lines)
