"""Values of settings: from a text, from a TOML value, and back to a text.

A number of bytes may have a unit (`512 MiB`, `2GB`), and so may a time (`500ms`, `2 min`). Every complaint begins with
the name under which the value was given, and never shows a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.config import UserConfig
from penstock.errors import StartupError
from penstock.setting import BOOLEAN, INTEGER, NUMBER, TEXT, TEXTS, USERS, Setting

MASK: Final = "********"
# What switches an optional setting off.
NONE: Final = "none"
# Nothing that is set needs more, and int() of very long texts is slow.
NUMBER_CHARS_MAX: Final = 32
QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)[ ]*([A-Za-z]*)", re.ASCII)
# RabbitMQ's units: KB is 1000 bytes, k and KiB are 1024.
BYTES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("", "b"), 1),
    **dict(zip(("kb", "mb", "gb", "tb"), (10**3, 10**6, 10**9, 10**12), strict=True)),
    **dict(zip("kmgt", (2**10, 2**20, 2**30, 2**40), strict=True)),
    **dict(zip(("kib", "mib", "gib", "tib"), (2**10, 2**20, 2**30, 2**40), strict=True)),
}
SECONDS: Final[Mapping[str, float]] = {
    "ms": 0.001,
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
}
HOURS: Final[Mapping[str, float]] = {"": 1, "h": 1, "hour": 1, "hours": 1, "d": 24, "days": 24, "min": 1 / 60}
UNITS: Final[Mapping[str, Mapping[str, float]]] = {"bytes": BYTES, "s": SECONDS, "hours": HOURS, "": {"": 1}}
WORDS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def from_text(row: Setting, text: str, called: str, scale: int = 1) -> Any:
    """Return the value that a variable, a flag or a line of rabbitmq.conf gives.

    A number without a unit counts `scale` times.
    """
    value: Any
    if row.is_optional and text.strip().lower() == NONE:
        return None
    if row.kind == TEXT:
        value = text
    elif row.kind == TEXTS:
        value = [part.strip() for part in text.split(",") if part.strip()]
    elif row.kind == USERS:
        value = [user_from_text(part, called) for part in text.split()]
    elif row.kind == BOOLEAN:
        if text.strip().lower() not in WORDS:
            raise StartupError(f"{called} is {_shown(row, text)!r}; it must be true or false")
        value = WORDS[text.strip().lower()]
    else:
        value = _number(row, text, called, scale)
    row.check(value, called)
    return value


def _number(row: Setting, text: str, called: str, scale: int) -> int | float:
    units = UNITS[row.unit]
    found = QUANTITY.fullmatch(text.strip()) if len(text) <= NUMBER_CHARS_MAX else None
    if found is None or found[2].lower() not in units:
        raise StartupError(f"{called} is {_shown(row, text)!r}; it must be {what(row)}")
    factor = scale if not found[2] and scale != 1 else units[found[2].lower()]
    value = float(found[1]) * factor if "." in found[1] or factor != int(factor) else int(found[1]) * int(factor)
    if row.kind == NUMBER:
        return float(value)
    if value != int(value):
        raise StartupError(f"{called} is {_shown(row, text)!r}; it must be a whole number")
    return int(value)


def user_from_text(text: str, called: str) -> UserConfig:
    name, colon, password = text.partition(":")
    if not name or not colon or not password:
        raise StartupError(f"{called} is not of the form NAME:PASSWORD")
    return UserConfig(name, password)


def from_toml(row: Setting, value: object, called: str) -> Any:
    """Return the value that a key of penstock.toml gives. Numbers with a unit are texts there."""
    made: Any
    if row.kind in (INTEGER, NUMBER):
        if isinstance(value, str) and row.unit:
            return from_text(row, value, called)
        if isinstance(value, bool) or not isinstance(value, int if row.kind == INTEGER else int | float):
            raise _wrong_type(row, value, called)
        if not math.isfinite(value):
            raise _wrong_type(row, value, called)
        made = float(value) if row.kind == NUMBER else value
    elif row.kind == USERS:
        made = _users(row, value, called)
    elif row.kind == TEXTS:
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise _wrong_type(row, value, called)
        made = list(value)
    elif isinstance(value, bool if row.kind == BOOLEAN else str):
        made = value
    else:
        raise _wrong_type(row, value, called)
    row.check(made, called)
    return made


def _users(row: Setting, value: object, called: str) -> list[UserConfig]:
    if not isinstance(value, list):
        raise _wrong_type(row, value, called)
    users = []
    for user in value:
        texts = isinstance(user, dict) and set(user) == {"name", "password"} and user["name"] and user["password"]
        if not texts or not all(isinstance(part, str) for part in user.values()):
            raise StartupError(f'{called}: each needs a name and a password: [[{row.name}]] name = "…" password = "…"')
        users.append(UserConfig(user["name"], user["password"]))
    return users


def _wrong_type(row: Setting, value: object, called: str) -> StartupError:
    return StartupError(f"{called} is {_shown(row, value)!r}; it must be {what(row)}")


def what(row: Setting) -> str:
    """What kind of value a setting wants, in words."""
    if row.choices:
        return f"one of {', '.join(row.choices)}"
    if row.name.endswith("port"):
        return "a port number"
    if row.unit == "bytes":
        return 'a number of bytes, or one with a unit, as "512 MiB"'
    if row.unit:
        return f'a number of {"seconds" if row.unit == "s" else row.unit}, or one with a unit, as "2 min"'
    words = {INTEGER: "a whole number", NUMBER: "a number", BOOLEAN: "true or false", TEXT: "a text"}
    return words.get(row.kind, f"a {row.kind}")


def _shown(row: Setting, value: object) -> object:
    return MASK if row.is_secret else value


def to_text(row: Setting, value: object) -> str:
    """Return a value as people read it, a secret as a mask."""
    if value is None:
        return NONE
    if row.is_secret and row.kind != USERS:
        return MASK
    if isinstance(value, bool):
        return str(value).lower()
    if row.unit == "bytes" and isinstance(value, int):
        return _bytes_text(value)
    if isinstance(value, float):
        return f"{value:g}{' s' if row.unit == 's' else ''}"
    if row.unit == "s":
        return f"{value} s"
    if isinstance(value, list):
        return ", ".join(_item(part) for part in value) or NONE
    return str(value)


def _item(part: object) -> str:
    return f"{part.name}:{MASK}" if isinstance(part, UserConfig) else str(part)


def _bytes_text(value: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size and value % size == 0 and value // size < 10_000:
            return f"{value // size} {unit}"
    return str(value)


def to_json(row: Setting, value: object) -> object:
    """Return a value for programs, a secret as a mask."""
    if row.kind == USERS and isinstance(value, list):
        return [{"name": user.name, "password": MASK} for user in value]
    return MASK if row.is_secret and value is not None and value != row.default else value
