"""The headers of a message straight from their octets to text, for the tables that messages have in practice.

`flat_headers` is a short way to what `properties.headers_of` says, without making fields in between. It gives up (None)
on everything that is unusual: then the long way decides, and says what is wrong.
"""

from __future__ import annotations

import json
from typing import Final, final

from penstock.errors import AmqpError
from penstock.limits import TABLE_ITEMS_MAX
from penstock.pipeline.decode.properties.properties import plain_value
from penstock.wire.tables import decode_table

_STRING: Final = ord("S")
_VOID: Final = ord("V")
_TRUTH: Final = ord("t")
_WITH_LENGTH: Final = frozenset(b"FAx")
# Octets of the fields whose size does not depend on their content.
_SIZES: Final = dict(zip(b"VtbBsuIilLfdDT", (0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 5, 8), strict=True))
_SIGNED: Final = frozenset(b"bsIlL")
_UNSIGNED: Final = frozenset(b"Bui")
# Values that are neither text nor a whole number and that are remembered.
REMEMBERED_MAX: Final = 1_000
REMEMBERED_BYTES_MAX: Final = 256

FlatHeaders = tuple[list[bytes], list[bytes]]


@final
class HeaderOctets:
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, bytes | None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def flat_headers(self, table: bytes) -> FlatHeaders | None:
        """Names and values as UTF-8, in order; None when the table is not of the usual kind. Without length octets."""
        names: list[bytes] = []
        values: list[bytes] = []
        end = len(table)
        # No table of this size has too many fields, nested ones included.
        if end > TABLE_ITEMS_MAX:
            return None
        pos = 0
        try:
            while pos < end:
                name_end = pos + 1 + table[pos]
                name = table[pos + 1 : name_end]
                code = table[name_end]
                pos = name_end + 1
                if code == _STRING or code in _WITH_LENGTH:
                    start = pos + 4
                    stop = start + int.from_bytes(table[pos:start], "big")
                    value = table[start:stop] if code == _STRING else self._odd(code, table[pos:stop])
                else:
                    stop = pos + _SIZES.get(code, end)
                    value = self._small(code, table[pos:stop])
                if value is None or stop > end or not is_utf8(name) or not is_utf8(value):
                    return None
                names.append(name)
                values.append(value)
                pos = stop
        except IndexError:
            return None
        if len(set(names)) != len(names):
            return None
        return names, values

    def _small(self, code: int, octets: bytes) -> bytes | None:
        if code == _VOID:
            return b"null"
        if code == _TRUTH and octets:
            return b"true" if octets != b"\0" else b"false"
        if code in _SIGNED or code in _UNSIGNED:
            return b"%d" % int.from_bytes(octets, "big", signed=code in _SIGNED) if octets else None
        return self._odd(code, octets)

    def _odd(self, code: int, octets: bytes) -> bytes | None:
        """Return a value of any type by the long way."""
        wanted = b"%c%b" % (code, octets)
        if wanted in self._known:
            return self._known[wanted]
        text = _value_text(wanted)
        if len(wanted) <= REMEMBERED_BYTES_MAX:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[wanted] = text
        return text


def is_utf8(octets: bytes) -> bool:
    if octets.isascii():
        return True
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def _value_text(field: bytes) -> bytes | None:
    """Return the text of a field: type code and octets. A table with this one field says what it is."""
    table = b"\x01x" + field
    octets = len(table).to_bytes(4, "big") + table
    try:
        decoded, end = decode_table(octets, 0, len(octets))
    except (AmqpError, IndexError):
        return None
    if end != len(octets) or len(decoded) != 1:
        return None
    value = plain_value(decoded["x"])
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode("utf-8", "replace")
