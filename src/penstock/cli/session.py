"""What commands that open a session have in common: where the queues are, and the words when that is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from penstock.client.sync.session import Session

F = TypeVar("F", bound=Callable[..., object])


def session_options(command: F) -> F:
    """Return the options of every command that opens a session."""
    schema = click.option(
        "--schema", default="penstock", show_default=True, help="PostgreSQL: the schema that penstock was installed in."
    )
    url = click.option(
        "--url",
        envvar="PENSTOCK_URL",
        metavar="URL",
        help="Where the queues are: postgresql://…, amqp://… or file:///FOLDER.  [default: PENSTOCK_URL]",
    )
    return url(schema(command))


def open_session(url: str | None, schema: str, name: str) -> Session:
    """Return a session for a command, or the words that help."""
    if not url:
        raise click.UsageError(
            "no URL: set PENSTOCK_URL or give --url, for example postgresql://localhost/mydb or file:///FOLDER"
        )
    # Imported here: `penstock serve` needs none of it.
    from penstock.client.errors import ClientError
    from penstock.client.sync.session import Session

    try:
        return Session(url, schema=schema, name=name)
    except ClientError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
