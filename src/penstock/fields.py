"""The shape of a field table: what `wire` decodes, and what the rooms behind it read.

A field is its one-character type code, as RabbitMQ writes it on the wire, and its value:

    t bool   b B s u I i l int   f d float   D (scale, int)   S x bytes
    T int (seconds)   A list of fields   F dict of fields by name   V None

Fields never change once they are made. `freeze_table` and `comparable` give the two equalities of RabbitMQ,
both of hashable results:
- arguments of bindings (`freeze_table`): types and values must be equal, the order of the outermost fields is
  not looked at. The order inside nested tables is, because RabbitMQ sorts only the outermost one.
- values of headers (`comparable`): the outermost type is not looked at, so that 5 is 5 in every width and also
  5.0, and text is equal to bytes. A boolean is never equal to a number. Nested fields are compared with their types.
"""

from __future__ import annotations

from typing import Final

from penstock.limits import SHORT_STRING_BYTES_MAX

FieldValue = bool | int | float | bytes | tuple[int, int] | list["Field"] | dict[str, "Field"] | None
Field = tuple[str, FieldValue]
Table = dict[str, Field]

# A hashable stand-in for a value; what it looks like is nobody's business but this module's.
Frozen = bool | int | float | str | bytes | tuple["Frozen", ...] | None

# The type codes with the names that RabbitMQ uses in its texts ("the value '5' of type 'signedint'").
TYPE_NAMES: Final[dict[str, str]] = {
    "t": "bool",
    "b": "byte",
    "B": "unsignedbyte",
    "s": "short",
    "u": "unsignedshort",
    "I": "signedint",
    "i": "unsignedint",
    "l": "long",
    "f": "float",
    "d": "double",
    "D": "decimal",
    "S": "longstr",
    "A": "array",
    "T": "timestamp",
    "F": "table",
    "V": "void",
    "x": "binary",
}

# NaN is not equal to itself; a binding that has one among its arguments could never be removed.
NOT_A_NUMBER: Final = "NaN"


def freeze_table(table: Table) -> Frozen:
    """Equal for tables with the same fields, types included, in any order."""
    return tuple([(name, freeze_field(table[name])) for name in sorted(table)])


def freeze_field(field: Field) -> Frozen:
    code, value = field
    if isinstance(value, list):
        return (code, tuple([freeze_field(item) for item in value]))
    if isinstance(value, dict):
        return (code, tuple([(name, freeze_field(item)) for name, item in value.items()]))
    if isinstance(value, float) and value != value:
        return (code, NOT_A_NUMBER)
    return (code, value)


def comparable(field: Field) -> Frozen:
    """Equal for two headers that RabbitMQ's headers exchange takes for equal; None for no field."""
    value = field[1]
    if isinstance(value, (list, dict)):
        # In RabbitMQ both are lists, and an empty array is the same as an empty table.
        return freeze_field(field) if value else ()
    if value is None or isinstance(value, bool):
        return field[0], value
    if isinstance(value, float) and value != value:
        return NOT_A_NUMBER
    return value


def term_text(field: Field) -> str:
    """Return the value as RabbitMQ prints it in its texts: an Erlang term."""
    value = field[1]
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return _binary_text(value)
    if isinstance(value, tuple):
        return f"{{{value[0]},{value[1]}}}"
    if isinstance(value, list):
        items = [f"{{{TYPE_NAMES[item[0]]},{term_text(item)}}}" for item in value]
        return "[" + ",".join(items) + "]"
    if isinstance(value, dict):
        rows = [
            f"{{{_binary_text(name.encode('utf-8', 'replace'))},{TYPE_NAMES[item[0]]},{term_text(item)}}}"
            for name, item in value.items()
        ]
        return "[" + ",".join(rows) + "]"
    return str(value)


def _binary_text(value: bytes) -> str:
    # A reply text is a short string: what is longer is cut off there, and need not be made here.
    head = value[:SHORT_STRING_BYTES_MAX]
    if not head:
        return "<<>>"
    text = head.decode("utf-8", "replace")
    if text.isprintable() and "\ufffd" not in text:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'<<"{escaped}">>'
    return "<<" + ",".join([str(octet) for octet in head]) + ">>"
