"""`penstock queues`: list queues, and change one in place."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.data_folder import data_folder
from penstock.cli.session import open_session, session_options

if TYPE_CHECKING:
    from penstock.client.message import QueueStats

EXIT_FAILED = 1


class ListedByDefault(click.Group):
    """Without a command it lists: `penstock queues orders` is `penstock queues list orders`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ListedByDefault, short_help="List queues and their counts; change one in place.")
def queues() -> None:
    """List queues with their counts, or change one in place. Without a command they are listed.

    Exit codes: 0 done; 1 failed, and says why; 2 wrong options.
    """


@queues.command("list", short_help="List queues and their counts.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per queue, one on each line.")
def list_queues(names: tuple[str, ...], url: str | None, schema: str, as_json: bool) -> None:
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


@queues.command(short_help="Change the arguments of a queue in place.")
@click.argument("name")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="An argument, or auto_delete. Repeatable.")
@click.option(
    "--unset", multiple=True, metavar="KEY", help="An argument that the queue is to have no more. Repeatable."
)
@click.option("-p", "--vhost", default="/", show_default=True)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--data-dir", metavar="FOLDER", help="The broker's data folder.  [default: PENSTOCK_DATA_DIR]")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def migrate(
    name: str,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    vhost: str,
    dry_run: bool,
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Change arguments of the queue NAME of a running broker; its messages, bindings and consumers stay.

    A VALUE is a number, true, false or a text; quote a text that looks like a number: 'x-a="5"'.

    Exit codes: 0 done, or shown; 1 it could not be done, and the queue is as it was; 2 wrong options.
    """
    # Imported here: `penstock serve` needs none of it.
    from penstock.cli.ctl.broker_control import BrokerControl, NoBroker, Refused

    folder = data_folder(data_dir)
    arguments = {
        "vhost": vhost,
        "name": name,
        "set": dict(setting_of(text) for text in settings),
        "unset": list(unset),
        "dry_run": dry_run,
    }
    try:
        with BrokerControl(folder) as control:
            result = control.ask("migrate_queue", arguments)
    except (NoBroker, Refused) as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_FAILED)
    click.echo(json.dumps(result) if as_json else difference(result))


def setting_of(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise click.BadParameter(f"'{text}' is not KEY=VALUE", param_hint="--set")
    try:
        found = json.loads(value)
    except ValueError:
        return key, value
    # Anything else that is JSON is a text here.
    return key, found if isinstance(found, bool | int | str) else value


def difference(result: dict[str, Any]) -> str:
    """Return what changes, a line each, and what that means."""
    lines = [f"queue '{result['queue']}' in vhost '{result['vhost']}'"]
    for change in result["changes"]:
        if change["before"] is not None:
            lines.append(f"- {change['name']}={_value(change['before'])}")
        if change["after"] is not None:
            lines.append(f"+ {change['name']}={_value(change['after'])}")
    count, unacknowledged = result["messages_ready"], result["messages_unacknowledged"]
    held = f"{count} ready and {unacknowledged} unacknowledged messages"
    if not result["changes"]:
        lines.append("it is like that already")
    elif not result["done"]:
        lines.append(f"would {'move' if result['moves_messages'] else 'leave in place'}: {held}")
    else:
        lines.append(f"{'moved' if result['moves_messages'] else 'left in place'}: {held}")
    return "\n".join(lines)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
