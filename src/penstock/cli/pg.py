"""`penstock pg`: the queues' schema in a PostgreSQL database, from the command line."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from penstock.errors import StartupError

if TYPE_CHECKING:
    from psycopg import Connection

    from penstock.pg.status import Status

EXIT_FAILED = 1
MISSING = "PostgreSQL needs psycopg: pip install 'penstock[postgres]'"


@click.group(short_help="Install and look after queues in PostgreSQL.")
def pg() -> None:
    """Install, upgrade, remove and look after the queues in a PostgreSQL database.

    Every command takes the database's --url, or PENSTOCK_POSTGRES_URL from the environment.

    Exit codes: 0 done as asked; 1 failed, and says why; 2 wrong options.
    """


def common(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all have."""
    url = click.option(
        "--url",
        envvar="PENSTOCK_POSTGRES_URL",
        required=True,
        metavar="URL",
        help="postgresql://USER:PASSWORD@HOST:PORT/DATABASE  [default: PENSTOCK_POSTGRES_URL]",
    )
    schema = click.option(
        "--schema", default="penstock", metavar="NAME", help="The schema's name.  [default: penstock]"
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    return url(schema(as_json(command)))


@contextmanager
def connected(url: str) -> Iterator[Connection[Any]]:
    """A connection for the command; every error becomes a line that says what to do, and exit code 1."""
    try:
        import psycopg
    except ImportError:
        fail(MISSING)
    from penstock.pg.sessions import url_options

    try:
        url_options(url)
    except ValueError as error:
        fail(str(error))
    try:
        with psycopg.connect(url, autocommit=True, application_name="penstock pg") as connection:
            # The operator may have many rights. Functions that others have put into `public` are not called with them.
            connection.execute("SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)")
            yield connection
    except StartupError as error:
        fail(str(error))
    except psycopg.errors.InsufficientPrivilege as error:
        fail(f"{text_of(error)}; connect as the schema's owner, or as one who may create schemas here")
    except psycopg.OperationalError as error:
        fail(f"{text_of(error)}; check the server and --url")
    except psycopg.Error as error:
        fail(text_of(error))


def text_of(error: Exception) -> str:
    return " ".join(str(error).split())


def fail(text: str) -> NoReturn:
    click.echo(f"penstock: {text}", err=True)
    sys.exit(EXIT_FAILED)


def say(as_json: bool, answer: dict[str, Any], text: str) -> None:
    click.echo(json.dumps(answer) if as_json else text)


@pg.command(short_help="Make the schema with its tables and functions.")
@common
def install(url: str, schema: str, as_json: bool) -> None:
    """Make the schema, or bring it up to date if it is there. Somebody else's schema is left alone.

    Exit codes: 0 installed; 1 failed, and says why; 2 wrong options.
    """
    with connected(url) as connection:
        from penstock.pg.install import install as install_schema

        version = install_schema(connection, schema)
    say(as_json, {"schema": schema, "version": version}, f'schema "{schema}" has version {version}')


@pg.command(short_help="Bring the schema up to this penstock's version.")
@common
def upgrade(url: str, schema: str, as_json: bool) -> None:
    """Bring the schema up to date: new migrations once, all functions anew. Messages stay.

    Exit codes: 0 up to date; 1 failed, and says why; 2 wrong options.
    """
    with connected(url) as connection:
        from penstock.pg.install import upgrade as upgrade_schema

        version = upgrade_schema(connection, schema)
    say(as_json, {"schema": schema, "version": version}, f'schema "{schema}" has version {version}')


@pg.command(short_help="Remove the schema with all messages.")
@common
@click.option("--yes", is_flag=True, help="Do not ask.")
def uninstall(url: str, schema: str, as_json: bool, yes: bool) -> None:
    """Remove the schema with all queues, messages and their history. Asks first, unless --yes is given.

    Exit codes: 0 removed; 1 failed or not wanted, and says why; 2 wrong options.
    """
    with connected(url) as connection:
        from penstock.pg.install import require_installed
        from penstock.pg.install import uninstall as uninstall_schema

        require_installed(connection, schema)
        if not yes:
            click.confirm(f'Remove schema "{schema}" with all messages in it?', abort=True, err=True)
        uninstall_schema(connection, schema)
    say(as_json, {"schema": schema, "version": 0}, f'schema "{schema}" is removed')


@pg.command(short_help="Version, queues, participants, dead rows.")
@common
def status(url: str, schema: str, as_json: bool) -> None:
    """Show the schema's version, queues with their counts, who is attached, and what keeps dead rows in place.

    Exit codes: 0 installed and up to date; 1 not installed, older than this penstock, or failed; 2 wrong options.
    """
    with connected(url) as connection:
        from penstock.pg.status import read_status

        found = read_status(connection, schema)
    say(as_json, dataclasses.asdict(found), status_text(found))
    if found.version < found.newest:
        sys.exit(EXIT_FAILED)


@pg.command(short_help="Do what is due: once.")
@common
def sweep(url: str, schema: str, as_json: bool) -> None:
    """Make due messages ready, return what the gone had reserved, fold the counts, keep the history's partitions.

    Brokers, sessions and workers do so every second or so while they run; this is for databases that have none of them.

    Exit codes: 0 done; 1 failed, and says why; 2 wrong options.
    """
    with connected(url) as connection:
        from penstock.pg.status import sweep as sweep_schema

        done = sweep_schema(connection, schema)
    say(as_json, done, ", ".join([f"{count} {name}" for name, count in done.items()]))


@pg.command(short_help="Say how long finalized messages are kept.")
@common
@click.option("--days", type=click.IntRange(1), required=True, metavar="N", help="Keep the history for N days.")
def retain(url: str, schema: str, as_json: bool, days: int) -> None:
    """Keep finalized messages for N days from now on. What is older is dropped at once.

    Exit codes: 0 done; 1 failed, and says why; 2 wrong options.
    """
    with connected(url) as connection:
        from penstock.pg.status import retain as retain_history

        changed = retain_history(connection, schema, days)
    say(as_json, {"history_days": days, "partitions": changed}, f"history is kept for {days} days")


def status_text(found: Status) -> str:
    if found.version == 0:
        return f'there is no penstock in schema "{found.schema}"; `penstock pg install` makes one'
    lines = [f'schema "{found.schema}" has version {found.version}']
    if found.version < found.newest:
        lines.append(f"version {found.newest} is there: `penstock pg upgrade` brings it")
    days = "for ever" if found.history_days is None else f"for {found.history_days} days"
    lines.append(f"history is kept {days}")
    lines.append("")
    if found.queues:
        kinds = ("ready", "reserved", "scheduled", "buried", "finalized", "producer", "consumer")
        heads = [f"{kind}_count" for kind in kinds]
        lines.append(" ".join([f"{head:>15}" for head in heads]) + "  queue")
        lines += [" ".join([f"{queue[head]:>15,}" for head in heads]) + f"  {queue['name']}" for queue in found.queues]
    else:
        lines.append("no queues")
    lines.append("")
    for each in found.participants:
        waiting = ", waits" if each["waiting"] else ""
        lines.append(f"{each['name']} (pid {each['pid']}), seen {each['seen_s_ago']:.1f} s ago{waiting}")
    return "\n".join([*lines, *upkeep_lines(found.upkeep)])


def upkeep_lines(upkeep: dict[str, Any]) -> list[str]:
    lines = [f"{upkeep['dead_rows']:,} dead rows in messages, {upkeep['messages_bytes']:,} bytes with indexes"]
    if upkeep["oldest_transaction_s"] is None:
        lines.append("no open transaction keeps dead rows")
    else:
        pid, age = upkeep["oldest_transaction_pid"], upkeep["oldest_transaction_s"]
        lines.append(f"dead rows since {age:.1f} s are kept by the transaction of pid {pid}")
    if upkeep["oldest_prepared_s"] is not None:
        lines.append(
            f"a prepared transaction is {upkeep['oldest_prepared_s']:.1f} s old: COMMIT or ROLLBACK PREPARED it"
        )
    if upkeep["idle_slots"]:
        lines.append(f"{upkeep['idle_slots']} replication slots that nobody reads keep dead rows too")
    return lines
