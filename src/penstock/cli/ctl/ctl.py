"""What every verb of `penstockctl` has in common: its options, the broker it asks, how it speaks, its exit codes.

The exit codes are those of rabbitmqctl, which has them from sysexits.h.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

import click

from penstock.cli.ctl.broker_control import BrokerControl, NoBroker, Refused
from penstock.cli.ctl.formats import FORMATTERS, JSON, TABLE, Row, format_rows
from penstock.cli.data_folder import data_folder

EXIT_USAGE: Final = 64
EXIT_DATA: Final = 65
EXIT_NOT_FOUND: Final = 67
EXIT_UNAVAILABLE: Final = 69
EXIT_SOFTWARE: Final = 70
EXIT_NOT_ALLOWED: Final = 77
EXIT_OF_KIND: Final = {
    "not_found": EXIT_NOT_FOUND,
    "bad_request": EXIT_DATA,
    "exists": EXIT_SOFTWARE,
    "not_allowed": EXIT_NOT_ALLOWED,
}


class Ctl:
    def __init__(self, data_dir: str, formatter: str, is_quiet: bool, with_headers: bool) -> None:
        self._data_dir = data_dir
        self._formatter = formatter
        self._is_quiet = is_quiet
        self._with_headers = with_headers

    @property
    def is_json(self) -> bool:
        return self._formatter == JSON

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Have the broker do something, and return its result."""
        with BrokerControl(self._data_dir) as control:
            return control.ask(operation, arguments)

    def say(self, text: str) -> None:
        """Tell what is done, to people. Programs ask for --quiet, or for JSON."""
        if not self._is_quiet and self._formatter != JSON:
            click.echo(text)

    def show(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        text = format_rows(rows, columns, self._formatter, self._with_headers)
        if text:
            click.echo(text)

    def show_object(self, thing: dict[str, Any]) -> None:
        """Show one thing: a line for each of its properties."""
        if self._formatter == JSON:
            click.echo(json.dumps(thing))
        else:
            self.show([{"key": key, "value": value} for key, value in thing.items()], ("key", "value"))


Verb = Callable[..., None]


def verb(function: Verb) -> click.Command:
    """Make a command of a function that takes a `Ctl` and what its own options and arguments give."""

    @wraps(function)
    def run(
        data_dir: str | None, formatter: str, quiet: bool, silent: bool, no_table_headers: bool, node: str, **own: Any
    ) -> None:
        folder = data_folder(data_dir)
        ctl = Ctl(folder, formatter, quiet or silent, not (silent or no_table_headers))
        try:
            function(ctl, **own)
        except NoBroker as error:
            _fail(str(error), EXIT_UNAVAILABLE)
        except Refused as error:
            _fail(str(error), EXIT_OF_KIND.get(error.kind, EXIT_SOFTWARE))

    command: Callable[..., Any] = run
    # Those that the function was decorated with; click has left them there.
    command.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_COMMON):
        command = option(command)
    return click.command(function.__name__)(command)


_COMMON: Final = (
    click.option("--data-dir", metavar="FOLDER", help="The broker's data folder.  [default: PENSTOCK_DATA_DIR]"),
    click.option("--formatter", type=click.Choice(FORMATTERS), default=TABLE, show_default=True),
    click.option("--json", "formatter", flag_value=JSON, help="The same as --formatter json."),
    click.option("-q", "--quiet", is_flag=True, help="Print results only."),
    click.option("-s", "--silent", is_flag=True, help="Print results only, without headers."),
    click.option("--no-table-headers", is_flag=True, help="Print no headers."),
    click.option("-n", "--node", default="", metavar="NODE", help="Accepted for scripts; there is one node."),
)


def vhost_option(command: Verb) -> Verb:
    return click.option("-p", "--vhost", default="/", show_default=True, metavar="VHOST")(command)


def _fail(text: str, code: int) -> None:
    click.echo(f"Error: {text}", err=True)
    sys.exit(code)
