"""Field tables as JSON, there and back without a loss.

A field is a list of its type code and its value. Octets that are UTF-8 are a string, others an object with their hex
digits; a number that JSON does not have (NaN, infinity) is a string; a decimal is its scale and its digits.
"""

from __future__ import annotations

import math
from typing import Any, Final

from penstock.fields import TYPE_NAMES, Field, FieldValue, Table
from penstock.limits import TABLE_DEPTH_MAX

OCTETS: Final = frozenset("Sx")
FLOATS: Final = frozenset("fd")
WHOLE: Final = frozenset("bBsuIilT")


def table_to_json(table: Table) -> dict[str, Any]:
    return {name: field_to_json(field) for name, field in table.items()}


def field_to_json(field: Field) -> list[Any]:
    code, value = field
    if isinstance(value, bytes):
        return [code, _octets_to_json(value)]
    if isinstance(value, float):
        return [code, value if math.isfinite(value) else str(value)]
    if isinstance(value, tuple):
        return [code, list(value)]
    if isinstance(value, list):
        return [code, [field_to_json(item) for item in value]]
    if isinstance(value, dict):
        return [code, table_to_json(value)]
    return [code, value]


def _octets_to_json(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def table_from_json(data: object, depth: int = 0) -> Table:
    """Raises ValueError for anything that `table_to_json` does not make."""
    if not isinstance(data, dict) or depth > TABLE_DEPTH_MAX:
        raise ValueError("not a table")
    return {_text(name): field_from_json(field, depth) for name, field in data.items()}


def field_from_json(data: object, depth: int = 0) -> Field:
    if not isinstance(data, list) or len(data) != 2 or not isinstance(data[0], str) or data[0] not in TYPE_NAMES:
        raise ValueError("not a field")
    return data[0], _value(data[0], data[1], depth)


def _value(code: str, value: object, depth: int) -> FieldValue:
    if code == "V" and value is None:
        return None
    if code == "t" and isinstance(value, bool):
        return value
    if code in OCTETS:
        return _octets(value)
    if code in FLOATS and isinstance(value, int | float | str):
        return float(value)
    if code == "D" and isinstance(value, list) and len(value) == 2:
        return _whole(value[0]), _whole(value[1])
    if code == "A" and isinstance(value, list) and depth < TABLE_DEPTH_MAX:
        return [field_from_json(item, depth + 1) for item in value]
    if code == "F":
        return table_from_json(value, depth + 1)
    if code in WHOLE:
        return _whole(value)
    raise ValueError(f"not a value of type {TYPE_NAMES[code]}")


def _octets(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and isinstance(value.get("hex"), str):
        return bytes.fromhex(value["hex"])
    raise ValueError("not octets")


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("not a whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a name")
    return value
