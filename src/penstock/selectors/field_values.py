"""The plain value of a field of a message: what a selector can compare.

Invariants
1. Every field has a plain value or None; nothing raises, whatever octets a publisher sent.
2. Text and binary are the same: the octets read as UTF-8. Octets that are not UTF-8 have no plain value, since two
   different ones must not become equal.
3. A decimal becomes the float nearest to it. A timestamp is its seconds.
4. Arrays, tables and void have no plain value: a selector sees them as missing.
"""

from __future__ import annotations

from typing import Final

from penstock.fields import Field
from penstock.selectors.bounds import INTEGER_MAX, INTEGER_MIN
from penstock.selectors.values import Value

# The scale of a decimal is one octet.
SCALE_MAX: Final = 255


def plain_value(field: Field) -> Value:
    value = field[1]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    if isinstance(value, tuple):
        return _decimal(value[0], value[1])
    if value is None or isinstance(value, (list, dict)):
        return None
    return value


def _decimal(scale: int, digits: int) -> Value:
    if scale < 0 or scale > SCALE_MAX or digits < INTEGER_MIN or digits > INTEGER_MAX:
        return None
    # Python divides integers exactly and rounds once, so 0.1 of the wire is 0.1 of the selector.
    return float(digits / 10**scale)
