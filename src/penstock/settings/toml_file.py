"""penstock.toml: a flat file of `name = value`, and `[[users]]`."""

from __future__ import annotations

import tomllib
from typing import Any, Final

from penstock.config import SETTINGS
from penstock.errors import StartupError
from penstock.settings.nearest import did_you_mean
from penstock.settings.values import from_toml

FILE_BYTES_MAX: Final = 1024 * 1024


def read_toml(text: str, path: str) -> dict[str, Any]:
    """Return the settings in the text of a file, checked. Raises StartupError with the file, the key and what to do."""
    if len(text) > FILE_BYTES_MAX:
        raise StartupError(f"{path} is larger than {FILE_BYTES_MAX} bytes: it is not a file of settings")
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise StartupError(f"{path} is not TOML: {_first_line(error)}") from error
    values = {}
    for key, value in document.items():
        row = SETTINGS.get(key)
        if row is None:
            hint = did_you_mean(key, SETTINGS)
            if not hint and isinstance(value, dict):
                hint = "; settings stand at the top of the file, without [tables]"
            raise StartupError(f"{path}: there is no setting {key!a}{hint}")
        values[key] = from_toml(row, value, f"{path}: {key}")
    return values


def _first_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    lines = ascii(str(error))[1:-1]
    return lines[:200]
