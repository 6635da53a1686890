"""`penstock fsck`: is everything in a data folder as it should be?"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from penstock.disk.os_files import OsFiles
from penstock.errors import StartupError

if TYPE_CHECKING:
    from penstock.store.inspect.fsck import Report

EXIT_FINDINGS = 1
EXIT_UNREADABLE = 2


@click.command(short_help="Check a data folder; changes nothing.")
@click.argument("folder", metavar="FOLDER")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with findings and counts.")
def fsck(folder: str, as_json: bool) -> None:
    """Check every file of a data folder, and say what is damaged and what that costs. Nothing is changed.

    For a folder that no broker uses at the moment: what a running one has not finished writing looks like damage.

    An error costs messages or definitions, a warning costs a reserve or is repaired by the next start, a note costs
    nothing.

    Exit codes: 0 all is well, or there are notes only; 1 there are errors or warnings; 2 the folder cannot be read.
    """
    # Imported here: `penstock serve` needs none of it.
    from penstock.store.inspect.fsck import NOTE
    from penstock.store.inspect.fsck import fsck as check_folder

    try:
        if not os.path.isdir(folder):
            raise FileNotFoundError("there is no such folder")
        report = check_folder(OsFiles(folder))
    except (OSError, StartupError) as error:
        click.echo(f"penstock: {folder} cannot be checked: {error}", err=True)
        sys.exit(EXIT_UNREADABLE)
    click.echo(json.dumps(as_object(report)) if as_json else as_text(report))
    if any(each.severity != NOTE for each in report.findings):
        sys.exit(EXIT_FINDINGS)


def as_object(report: Report) -> dict[str, object]:
    findings = [{"severity": each.severity, "path": each.path, "text": each.text} for each in report.findings]
    return {"findings": findings, "counts": report.counts}


def as_text(report: Report) -> str:
    from penstock.store.inspect.fsck import NOTE

    lines = [f"{each.severity}: {each.path}: {each.text}" for each in report.findings]
    lines += [f"{count:12,} {name}" for name, count in report.counts.items()]
    note_count = sum(each.severity == NOTE for each in report.findings)
    found_count = len(report.findings) - note_count
    summary = f"{found_count} findings" if found_count else "nothing is damaged"
    return "\n".join([*lines, f"{summary}, {note_count} notes" if note_count else summary])
