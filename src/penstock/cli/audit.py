"""`penstock audit`: who did what to a broker, from where."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

import click

from penstock.cli.data_folder import data_folder
from penstock.disk.os_files import OsFiles

EXIT_UNREADABLE: Final = 1
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
# Shown in columns of their own.
SHOWN: Final = ("time_ms", "event", "user", "via", "address")


@click.command(short_help="Show who did what, from where.")
@click.option("--since", metavar="TIME", help="From then on: 15m, 2h, 7d, or 2026-11-18T09:00 (UTC without an offset).")
@click.option("--until", metavar="TIME", help="Before then.")
@click.option("--user", default="", help="Acts of this user.")
@click.option("--event", default="", metavar="NAME", help="Such events; `queue.*` for all that begin so.")
@click.option("--data-dir", metavar="FOLDER", help="The broker's data folder.  [default: PENSTOCK_DATA_DIR]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def audit(since: str | None, until: str | None, user: str, event: str, data_dir: str | None, as_json: bool) -> None:
    """Show logins and failed logins, what was declared, deleted, purged, and which rights and rules were changed.

    The log is read from the data folder, whether the broker runs or not.

    Exit codes: 0 shown; 1 there is no such log; 2 wrong options.
    """
    # Imported here: `penstock serve` needs none of it.
    from penstock.broker.audit.reading import Filter, records

    folder = data_folder(data_dir)
    if not os.path.isdir(folder):
        click.echo(f"penstock: there is no data folder {folder}: name the broker's with --data-dir", err=True)
        sys.exit(EXIT_UNREADABLE)
    since_ms = 0 if since is None else moment_ms(since, "--since")
    until_ms = None if until is None else moment_ms(until, "--until")
    try:
        for record in records(OsFiles(folder), Filter(since_ms, until_ms, user, event)):
            click.echo(json.dumps(record) if as_json else as_line(record))
    except BrokenPipeError:
        # `penstock audit | head`.
        sys.stderr.close()
    except OSError as error:
        click.echo(f"penstock: the audit log in {folder} cannot be read: {error}", err=True)
        sys.exit(EXIT_UNREADABLE)


def as_line(record: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(record["time_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
    who = f"{record.get('user', '')}@{record['address']}" if record.get("address") else str(record.get("user", ""))
    rest = " ".join(f"{key}={json.dumps(value)}" for key, value in record.items() if key not in SHOWN)
    return f"{moment}  {ascii(record['event'])[1:-1]:<28} {ascii(who)[1:-1]:<24} {rest}"


def moment_ms(text: str, option: str) -> int:
    """Return a moment in milliseconds: a time ago, or a date."""
    ago = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    if ago is not None:
        return int((datetime.now(UTC).timestamp() - int(ago[1]) * SECONDS[ago[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"'{text}' is neither a time ago (15m, 2h, 7d) nor a date (2026-11-18T09:00)", param_hint=option
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
