"""Verbs that write definitions to a file and read them from one."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

import click

from penstock.cli.ctl.ctl import EXIT_DATA, EXIT_USAGE, Ctl, verb

STANDARD: Final = "-"


@verb
@click.argument("file")
@click.option("--vhost", "-p", default=None, help="Only what is in this vhost.")
@click.option(
    "--for-rabbitmq", is_flag=True, help="Leave out what a RabbitMQ would refuse; each is named on standard error."
)
def export_definitions(ctl: Ctl, file: str, vhost: str | None, for_rabbitmq: bool) -> None:
    """Write users, vhosts, permissions, policies, queues, exchanges and bindings to FILE (- for standard output)."""
    if file != STANDARD:
        ctl.say(f'Exporting definitions in JSON to a file at "{file}" ...')
    answer = ctl.ask("export_definitions", vhost=vhost, rabbitmq_only=for_rabbitmq)
    text = json.dumps(answer["definitions"], indent=None if file == STANDARD else 2)
    if file == STANDARD:
        click.echo(text)
    else:
        write_private(file, text)
    for warning in answer["warnings"]:
        click.echo(f"Warning: {warning}", err=True)


@verb
@click.argument("file", default=STANDARD)
@click.option("--vhost", "-p", default=None, help="Import what is in a vhost into this one.")
@click.option("--skip-if-unchanged", is_flag=True, help="Do nothing if the same definitions were imported last.")
def import_definitions(ctl: Ctl, file: str, vhost: str | None, skip_if_unchanged: bool) -> None:
    """Make what FILE names, all of it or nothing. What is there already stays as it is."""
    definitions = read_definitions_file(file)
    ctl.say(f'Importing definitions in JSON from a file at "{file}" ...')
    answer = ctl.ask("import_definitions", definitions=definitions, vhost=vhost, skip_if_unchanged=skip_if_unchanged)
    for each in answer["different"]:
        click.echo(f"Warning: {each} exists with other properties, and stays as it is", err=True)
    if answer["unchanged"]:
        ctl.say("The same definitions were imported before: nothing was done.")
    elif ctl.is_json:
        ctl.show_object(answer)
    else:
        made = ", ".join(f"{count} {name}" for name, count in answer["made"].items())
        ctl.say(f"Successfully started definition import. Made: {made or 'nothing, all of it was there'}")


def read_definitions_file(file: str) -> dict[str, Any]:
    """Return what the file has; ends the command with what is wrong with it."""
    try:
        if file == STANDARD:
            text = sys.stdin.read()
        else:
            with open(file, encoding="utf-8") as opened:
                text = opened.read()
        data = json.loads(text)
    except OSError as error:
        _end(f"{file} cannot be read: {error.strerror or error}", EXIT_USAGE)
    except (ValueError, RecursionError) as error:
        _end(f"{file} is not JSON: {error}", EXIT_DATA)
    if not isinstance(data, dict):
        _end(f"{file} is not a definitions file: it must have one JSON object", EXIT_DATA)
    definitions: dict[str, Any] = data
    return definitions


def write_private(file: str, text: str) -> None:
    """Write a file that only its owner can read: there are password hashes in it."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text + "\n")
    except OSError as error:
        _end(f"{file} cannot be written: {error.strerror or error}", EXIT_USAGE)


def _end(text: str, code: int) -> None:
    click.echo(f"Error: {text}", err=True)
    sys.exit(code)


VERBS: Final[tuple[click.Command, ...]] = (export_definitions, import_definitions)
