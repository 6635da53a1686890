"""The format of rabbitmq.conf: `key = value` lines, comments with `#`, values in quotes, `$(VARIABLE)`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.errors import StartupError

FILE_BYTES_MAX: Final = 1024 * 1024
KEY: Final = re.compile(r"[A-Za-z0-9_@-]+(?:\.[A-Za-z0-9_@/*-]+)*", re.ASCII)
VARIABLE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)", re.ASCII)


class ConfLine(NamedTuple):
    key: str
    value: str
    # For complaints: the file and the line.
    where: str


def read_lines(text: str, path: str, env: Mapping[str, str]) -> list[ConfLine]:
    """Return the lines of a rabbitmq.conf that set something. Raises StartupError about one that does not parse."""
    if len(text) > FILE_BYTES_MAX:
        raise StartupError(f"{path} is larger than {FILE_BYTES_MAX} bytes: it is not a rabbitmq.conf")
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}, line {number}"
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if number == 1 and stripped.startswith("["):
            raise StartupError(f"{path} is in Erlang's old format; write it as `key = value` lines")
        key, equals, value = stripped.partition("=")
        key = key.rstrip()
        if not equals or KEY.fullmatch(key) is None:
            raise StartupError(f"{where} is not of the form `key = value`")
        found.append(ConfLine(key, _expanded(_unquoted(value.strip(), where), where, env), where))
    return found


def _unquoted(value: str, where: str) -> str:
    """A value in single quotes may have a # in it; another one ends before it."""
    if value.startswith("'"):
        inside, quote, behind = value[1:].partition("'")
        if not quote or (behind.strip() and not behind.strip().startswith("#")):
            raise StartupError(f"{where}: a quoted value does not end in a quote")
        return inside
    return re.split(r"\s#|^#", value, maxsplit=1)[0].rstrip()


def _expanded(value: str, where: str, env: Mapping[str, str]) -> str:
    """Put the values of variables in; a value of a variable is not looked at again."""
    for name in VARIABLE.findall(value):
        if name not in env:
            raise StartupError(f"{where} names the variable {name}, which is not set")
    return VARIABLE.sub(lambda found: env[found[1]], value)
