"""What a job looks like as a message: JSON in one of three shapes.

    {"job": "shop.mail:send", "args": ["a"], "kwargs": {"b": 1}}     penstock's own
    {"job": "Mailer.send", "params": ["a"]}                          queue_classic's
    {"class": "Mailer", "args": ["a"]}                               Resque's; calls `perform`

Other keys are ignored: other programs add some. A name in here is only ever looked up in the worker's allow-list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

# A name is shown in notes and logs, and no real one is longer.
NAME_CHARS_MAX = 500
# Values are written as JSON again for the child, by functions that call themselves: far below where they fail.
DEPTH_MAX = 100


class InvalidPayload(ValueError):
    """No program can run this payload; the text says why."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a payload asks for. Nothing of it has been checked against the allow-list."""

    name: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    # Resque's shape: the name is a class's, and its `perform` is meant.
    is_class: bool = False


def encode_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return a payload of penstock's own shape. Raises TypeError when an argument is no JSON."""
    call: dict[str, Any] = {"job": name, "args": list(args)}
    if kwargs:
        call["kwargs"] = dict(kwargs)
    return json.dumps(call, allow_nan=False, separators=(",", ":")).encode()


def decode_call(payload: bytes) -> Call:
    """Read a payload, or raise InvalidPayload."""
    try:
        value = json.loads(payload.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidPayload("the payload is not UTF-8") from error
    except RecursionError as error:
        raise InvalidPayload("the payload is nested too deeply") from error
    except ValueError as error:
        raise InvalidPayload(f"the payload is not JSON: {error}") from error
    if payload.count(b"[") + payload.count(b"{") > DEPTH_MAX and _is_deeper(value, DEPTH_MAX):
        raise InvalidPayload("the payload is nested too deeply")
    if not isinstance(value, dict):
        raise InvalidPayload(f"the payload is {_kind(value)}; a job is an object with a 'job' or a 'class'")
    if "job" in value and "class" in value:
        raise InvalidPayload("the payload has both a 'job' and a 'class'; a job has one of them")
    if "class" in value:
        return Call(_name(value, "class"), _list(value, "args"), is_class=True)
    if "job" not in value:
        raise InvalidPayload("the payload has neither a 'job' nor a 'class'")
    if "args" in value and "params" in value:
        raise InvalidPayload("the payload has both 'args' and 'params'; a job has one of them")
    return Call(_name(value, "job"), _list(value, "params" if "params" in value else "args"), _kwargs(value))


def _is_deeper(value: Any, depth_max: int) -> bool:
    """Return whether arrays and objects are nested deeper than this, found level by level."""
    level = [value]
    for _ in range(depth_max):
        inner: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                inner.extend(container.values())
            elif isinstance(container, list):
                inner.extend(container)
        if not inner:
            return False
        level = inner
    return any(isinstance(container, dict | list) for container in level)


def _name(value: dict[str, Any], key: str) -> str:
    name = value[key]
    if not isinstance(name, str) or not name:
        raise InvalidPayload(f"'{key}' is {_kind(name)}; it must be the name of a job")
    if len(name) > NAME_CHARS_MAX:
        raise InvalidPayload(f"'{key}' has {len(name)} characters; names have at most {NAME_CHARS_MAX}")
    return name


def _list(value: dict[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise InvalidPayload(f"'{key}' is {_kind(found)}; it must be an array")
    return found


def _kwargs(value: dict[str, Any]) -> dict[str, Any]:
    found = value.get("kwargs")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidPayload(f"'kwargs' is {_kind(found)}; it must be an object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _kind(value: object) -> str:
    """JSON's name for what it is."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string" if value else "an empty string"
    return "an array" if isinstance(value, list) else "an object"
