"""`penstock put` and `penstock queues`: try queues from a shell."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from penstock.cli.seconds import Seconds
from penstock.cli.session import open_session, session_options

if TYPE_CHECKING:
    from penstock.client.message import QueueStats

EXIT_FAILED = 1


@click.command(short_help="Put a message onto a queue.")
@click.argument("queue")
@click.argument("payload", required=False)
@session_options
@click.option("--delay", type=Seconds(0), metavar="SECONDS", help="Nobody gets it before then.")
@click.option("--ttl", type=Seconds(0, min_open=True), metavar="SECONDS", help="Gone if nobody takes it.")
@click.option("--json", "as_json", is_flag=True, help="Print queue and id as a JSON object.")
def put(
    queue: str,
    payload: str | None,
    url: str | None,
    schema: str,
    delay: float | None,
    ttl: float | None,
    as_json: bool,
) -> None:
    """Put PAYLOAD onto QUEUE and print the id of the message. Without a PAYLOAD the standard input is put.

    Exit codes: 0 it is there; 1 it could not be put; 2 wrong options.
    """
    # Imported here: `penstock serve` needs none of it.
    from penstock.client.errors import ClientError

    body = sys.stdin.buffer.read() if payload is None else payload.encode()
    try:
        with open_session(url, schema, "put") as session:
            message_id = session.producer_for(queue).put(body, delay=delay, ttl=ttl).id
    except (ClientError, ValueError) as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_FAILED)
    click.echo(json.dumps({"queue": queue, "id": message_id}) if as_json else message_id)


@click.command(short_help="List queues and their counts.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per queue, one on each line.")
def queues(names: tuple[str, ...], url: str | None, schema: str, as_json: bool) -> None:
    """List the queues with their counts: all of them, or these. An AMQP broker does not tell its queues: name them.

    Exit codes: 0 listed; 1 could not; 2 wrong options.
    """
    from penstock.client.errors import ClientError

    try:
        with open_session(url, schema, "queues") as session:
            if not names and url is not None and url.startswith(("amqp://", "amqps://")):
                raise ClientError(
                    "an AMQP broker does not say over AMQP which queues it has: name them (penstock queues --url URL"
                    " NAME …), or ask its management"
                )
            found = [session.stats(name) for name in names or session.queues()]
    except (ClientError, ValueError) as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_FAILED)
    for stats in found:
        click.echo(json.dumps(asdict(stats)) if as_json else as_text(stats))


def as_text(stats: QueueStats) -> str:
    counts = {name: count for name, count in asdict(stats).items() if name != "queue" and count is not None}
    return f"{stats.queue}  " + "  ".join(f"{name}={count}" for name, count in counts.items())
