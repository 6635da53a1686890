"""`penstock config`: what a broker would be started with, and where each setting is from."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import click

from penstock.cli.settings_options import resolved_from, settings_options
from penstock.errors import StartupError


@click.group(short_help="Check or show the settings of a broker.")
def config() -> None:
    """Check or show the settings that `penstock serve` would start with.

    Both commands take the options of `penstock serve` and read the same files and variables; they start nothing.

    Exit codes: 0 the settings are good; 1 they are not, and the command says why; 2 wrong options.
    """


@config.command(short_help="Check the settings, and warn about what means nothing.")
@settings_options
def check(**values: Any) -> None:
    """Check the settings in files, variables and options.

    Exit codes: 0 they are good, maybe with warnings; 1 they are not, and it says why; 2 wrong options.
    """
    try:
        resolved = resolved_from(values)
        resolved.config()
    except StartupError as error:
        _fail(error)
    for warning in resolved.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"good: {', '.join(resolved.files) or 'no file of settings'}")


@config.command(short_help="Show every setting and where its value is from.")
@settings_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object: settings, files, warnings.")
def show(as_json: bool, **values: Any) -> None:
    """Show every setting, its value, and where the value is from. Secrets are masked.

    Exit codes: 0 shown; 1 the settings are not good, and it says why; 2 wrong options.
    """
    try:
        resolved = resolved_from(values)
        made = resolved.config()
    except StartupError as error:
        _fail(error)
    if as_json:
        click.echo(json.dumps(resolved.as_json(made), indent=2))
        return
    for warning in resolved.warnings:
        click.echo(f"warning: {warning}", err=True)
    for line in resolved.lines(made):
        click.echo(line)


def _fail(error: StartupError) -> NoReturn:
    click.echo(f"penstock: {error}", err=True)
    sys.exit(1)
