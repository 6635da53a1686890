"""`penstock dump`: what is in a file of the data folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from penstock.disk.os_files import OsFiles
from penstock.errors import StartupError
from penstock.store.queue.places import StoreError

EXIT_UNREADABLE = 2


@click.command(short_help="Show what is in a file of a data folder.")
@click.argument("file", metavar="FILE")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Show at most so many records.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per record, one on each line.")
def dump(file: str, limit: int, as_json: bool) -> None:
    """Show the records of a journal segment, a checkpoint, an index or a store file. Nothing is changed.

    Exit codes: 0 shown; 2 the file cannot be read, or is none of these.
    """
    # Imported here: `penstock serve` needs none of it.
    from penstock.store.inspect.dump import dump as dump_file

    path = Path(file).resolve()
    try:
        if not path.is_file():
            raise FileNotFoundError("there is no such file")
        # With its folder, which a journal segment is known by.
        for record in dump_file(OsFiles(path.parent.parent), f"{path.parent.name}/{path.name}", limit):
            click.echo(json.dumps(record) if as_json else as_text(record))
    except BrokenPipeError:
        # The reader has seen enough (`| head`): click ends the command without a word.
        raise
    except (OSError, StartupError, StoreError, ValueError) as error:
        click.echo(f"penstock: {file} cannot be shown: {error}", err=True)
        sys.exit(EXIT_UNREADABLE)


def as_text(record: dict[str, object]) -> str:
    return "  ".join(f"{name}={value}" for name, value in record.items())
