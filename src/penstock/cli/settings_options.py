"""The options that set a broker's settings, made from the table of settings, and what they come to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.config import SETTINGS
from penstock.errors import StartupError
from penstock.setting import BOOLEAN, TEXTS, USERS, Setting
from penstock.settings.resolve import resolve
from penstock.settings.resolved import Resolved
from penstock.settings.values import from_text, to_text, user_from_text

Command = TypeVar("Command", bound=Callable[..., Any])


def _converter(row: Setting) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback of an option that turns its texts into values of the setting."""

    def one(text: str) -> Any:
        if row.kind == USERS:
            return user_from_text(text, row.flag)
        return text if row.kind == TEXTS else from_text(row, text, row.flag, row.flag_scale)

    def convert(ctx: click.Context, parameter: click.Parameter, given: Any) -> Any:
        try:
            if isinstance(given, tuple):
                return [one(text) for text in given] or None
            return None if given is None else one(given)
        except StartupError as error:
            raise click.BadParameter(str(error), ctx, parameter) from error

    return convert


def settings_options(command: Command) -> Command:
    """Give a command an option for every setting that has one, --set for the others, and the files to read."""
    options = [
        click.option(
            "--config",
            "config_path",
            metavar="FILE",
            help="The file of settings.  [default: PENSTOCK_CONFIG, or the first that is there of"
            " ~/.config/penstock/penstock.toml and /etc/penstock/penstock.toml]",
        ),
        click.option(
            "--rabbitmq-conf",
            "rabbitmq_paths",
            multiple=True,
            metavar="FILE",
            help="A rabbitmq.conf to read as well, or a folder of such files; may be repeated.  [default:"
            " RABBITMQ_CONFIG_FILE and RABBITMQ_CONFIG_FILES]",
        ),
        *(_option(row) for row in SETTINGS.values() if row.flag),
        click.option(
            "--set",
            "pairs",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any other setting; may be repeated. docs/configuration.md and `penstock config show` list them all.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _option(row: Setting) -> Callable[[Command], Command]:
    text = f"{row.about}  [{_default(row)}]"
    if row.kind == BOOLEAN:
        return click.option(row.flag, row.name, is_flag=True, default=None, help=row.about)
    if row.choices:
        return click.option(row.flag, row.name, type=click.Choice(row.choices), help=text)
    is_many = row.kind in (TEXTS, USERS)
    metavar = row.metavar or ("NUMBER" if row.least is not None else "TEXT")
    return click.option(row.flag, row.name, multiple=is_many, metavar=metavar, callback=_converter(row), help=text)


def _default(row: Setting) -> str:
    """Return what the value is without the flag, as help texts end."""
    return f"default: {row.default_text or to_text(row, row.default)}, or {row.variable}"


def resolved_from(values: dict[str, Any]) -> Resolved:
    """Return the settings of a command with `settings_options`, and take its options out of `values`."""
    config_path = values.pop("config_path")
    rabbitmq_paths = values.pop("rabbitmq_paths")
    pairs = values.pop("pairs")
    given = {row.name: values.pop(row.name) for row in SETTINGS.values() if row.flag}
    flags = {name: value for name, value in given.items() if value is not None}
    return resolve(os.environ, flags, pairs, config_path, rabbitmq_paths)
