"""The data folder of a command that looks for a broker, or for what one has left."""

from __future__ import annotations

import os

import click

from penstock.errors import StartupError
from penstock.machine import default_data_dir
from penstock.settings.resolve import resolve


def data_folder(given: str | None) -> str:
    """Return the folder that was given, or the one that `penstock serve` would use here."""
    if given:
        return given
    try:
        found = resolve(os.environ).values["data_dir"]
    except StartupError as error:
        raise click.ClickException(str(error)) from error
    return str(found or default_data_dir(os.environ))
