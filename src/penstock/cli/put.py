"""`penstock put`: try a queue from a shell."""

from __future__ import annotations

import json
import sys

import click

from penstock.cli.seconds import Seconds
from penstock.cli.session import open_session, session_options

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
