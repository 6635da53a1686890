"""Field tables: the typed dictionaries of arguments, headers and peer properties.

Owns: the wire form of the fields and tables of `penstock.fields`, and their conversion from and to plain values.
Life of the data: decoded from a method or a content header, kept as long as the queue, binding or connection
it describes, encoded again when it is shown or sent on.

Invariants
1. A field keeps its type code, so what was read is written back octet for octet: only `L` comes back as `l`
   (RabbitMQ reads both as a signed 64-bit integer), a true other than 1 as 1, and of two fields with the same
   name the last one stays.
2. Reading and writing do not recurse: nesting is kept on a list, at most TABLE_DEPTH_MAX deep, and a
   table with everything inside it has at most TABLE_ITEMS_MAX fields.
3. No octet outside pos..end is interpreted, and a container never reaches beyond the one it is in.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Final

from penstock import errors
from penstock.fields import Field, FieldValue, Table
from penstock.limits import TABLE_DEPTH_MAX, TABLE_ITEMS_MAX
from penstock.wire.floats import decode_float, encode_float32, encode_float64
from penstock.wire.octets import encode_longstr, encode_shortstr

# Octets of the fields whose size does not depend on their content.
_SIZES: Final[dict[str, int]] = {
    "t": 1,
    "b": 1,
    "B": 1,
    "s": 2,
    "u": 2,
    "I": 4,
    "i": 4,
    "l": 8,
    "L": 8,
    "f": 4,
    "d": 8,
    "D": 5,
    "T": 8,
    "V": 0,
}
_UNSIGNED: Final = frozenset("BuiT")
# From the first octet of a value to behind its last one.
Span = tuple[int, int]
NO_FIELD: Final[Span] = (0, 0)
# The same for `skip_table`, by code; below 0 where octets of length follow, or the code is not known.
_UNKNOWN: Final = -1
_STRING: Final = -2
_TABLE: Final = -3
_ARRAY: Final = -4
_LONG: Final[dict[str, int]] = {"S": _STRING, "x": _STRING, "F": _TABLE, "A": _ARRAY}
_SKIPPED: Final[list[int]] = [_SIZES.get(chr(code), _LONG.get(chr(code), _UNKNOWN)) for code in range(256)]
# Names of fields that were seen to be UTF-8. There are few, and they come again and again.
_KNOWN_NAMES: Final[set[bytes]] = set()
_KNOWN_NAMES_MAX: Final = 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The last second of the year 9999, where datetime ends.
_DATETIME_S_MAX: Final = 253_402_300_799


def decode_table(data: bytes, pos: int, end: int) -> tuple[Table, int]:
    """Return the table whose length octets are at pos, and the position behind it."""
    assert end <= len(data)
    root: Table = {}
    stop = _container_end(data, pos, end)
    pos += 4
    # The container being filled: `table`, or `array` when that is not None.
    table = root
    array: list[Field] | None = None
    outer: list[tuple[Table, list[Field] | None, int]] = []
    items = 0
    while True:
        if pos == stop:
            if not outer:
                return root, pos
            table, array, stop = outer.pop()
            continue
        items += 1
        if items > TABLE_ITEMS_MAX:
            raise errors.syntax_error(f"table with more than {TABLE_ITEMS_MAX} fields")
        key = ""
        if array is None:
            key_end = pos + 1 + data[pos]
            # At least the type code must follow.
            if key_end >= stop:
                raise errors.syntax_error("table field is cut short")
            key = _text(data[pos + 1 : key_end])
            pos = key_end
        code = chr(data[pos])
        pos += 1
        if code != "F" and code != "A":
            field, pos = _decode_simple(code, data, pos, stop)
            if array is None:
                table[key] = field
            else:
                array.append(field)
            continue
        if len(outer) + 2 > TABLE_DEPTH_MAX:
            raise errors.syntax_error(f"table nested more than {TABLE_DEPTH_MAX} deep")
        inner_stop = _container_end(data, pos, stop)
        pos += 4
        inner_table: Table = {}
        inner_array: list[Field] | None = [] if code == "A" else None
        value: FieldValue = inner_table if inner_array is None else inner_array
        if array is None:
            table[key] = (code, value)
        else:
            array.append((code, value))
        outer.append((table, array, stop))
        table, array, stop = inner_table, inner_array, inner_stop


def skip_table(data: bytes, pos: int, end: int, spans: list[Span] | None) -> int:
    """Return the position behind the table whose length octets are at pos, if the decoder would accept it; else -1.

    Also -1 when the table itself has a field CC or BCC, which routing needs. Nothing is made of the fields: nobody
    looks at those of a message that only passes through. Where their values are is added to the spans.
    """
    start = pos + 4
    stop = start + int.from_bytes(data[pos:start], "big")
    if start > end or stop > end:
        return -1
    pos = start
    sizes = _SKIPPED
    names = _KNOWN_NAMES
    in_array = False
    outer: list[tuple[int, bool]] = []
    items = 0
    while True:
        if pos >= stop:
            if pos > stop:
                return -1
            if not outer:
                return pos if items <= TABLE_ITEMS_MAX else -1
            stop, in_array = outer.pop()
            continue
        items += 1
        if not in_array:
            at = pos + 1 + data[pos]
            # At least the type code must follow.
            if at >= stop:
                return -1
            name = data[pos + 1 : at]
            if name not in names and not _is_name(name, not outer):
                return -1
            pos = at
        size = sizes[data[pos]]
        pos += 1
        if size >= 0:
            if spans is not None:
                spans.append((pos, pos + size))
            pos += size
            continue
        start = pos + 4
        if start > stop:
            return -1
        length = int.from_bytes(data[pos:start], "big")
        if size == _STRING:
            pos = start + length
            if spans is not None:
                spans.append((start, pos))
            continue
        if size == _UNKNOWN or start + length > stop or len(outer) + 2 > TABLE_DEPTH_MAX:
            return -1
        outer.append((stop, in_array))
        pos, stop, in_array = start, start + length, size == _ARRAY


def find_field(data: bytes, pos: int, end: int, start_of_field: bytes) -> Span:
    """Return where type code and value of a field are, in the table whose length octets are at pos; else NO_FIELD.

    The field begins with its name, after an octet that says how long it is. Of two fields with one name it is the last
    one, as in a decoded table. Nothing is made of the others.
    """
    stop = pos + 4 + int.from_bytes(data[pos : pos + 4], "big")
    if stop > end:
        raise errors.syntax_error("table or array is cut short")
    pos += 4
    found = NO_FIELD
    while data.find(start_of_field, pos, stop) >= 0:
        # Maybe within a value: so field by field, up to the next one of that name.
        while True:
            start = pos + 1 + data[pos]
            if start >= stop:
                raise errors.syntax_error("table field is cut short")
            is_found = data.startswith(start_of_field, pos)
            size = _SKIPPED[data[start]]
            pos = start + 1
            if size == _UNKNOWN:
                raise errors.syntax_error(f"table field of unknown type {data[start]}")
            pos += size if size >= 0 else 4 + int.from_bytes(data[pos : pos + 4], "big")
            if pos > stop:
                raise errors.syntax_error("table field is cut short")
            if is_found:
                found = (start, pos)
                break
            if pos == stop:
                return found
    return found


def decode_field(data: bytes, span: Span) -> Field:
    """Return the field whose type code and value are there; one that holds no others."""
    return _decode_simple(chr(data[span[0]]), data, span[0] + 1, span[1])[0]


def encode_field(field: Field) -> bytes:
    """Return type code and value of a field that holds no others."""
    return field[0].encode() + _encode_simple(field[0], field[1])


def _is_name(name: bytes, is_outermost: bool) -> bool:
    """Return whether a field may be called so without concerning the broker. Names that may be are remembered."""
    if name == b"CC" or name == b"BCC":
        return not is_outermost
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    if len(_KNOWN_NAMES) >= _KNOWN_NAMES_MAX:
        _KNOWN_NAMES.clear()
    _KNOWN_NAMES.add(name)
    return True


def _container_end(data: bytes, pos: int, stop: int) -> int:
    """Where the container ends whose length octets are at pos; it may not reach beyond stop."""
    container_end = pos + 4 + int.from_bytes(data[pos : pos + 4], "big")
    if container_end > stop:
        raise errors.syntax_error("table or array is cut short")
    return container_end


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise errors.syntax_error("a field name of a table is not UTF-8") from None


def _decode_simple(code: str, data: bytes, pos: int, stop: int) -> tuple[Field, int]:
    """Return a field that holds no others, and the position behind it."""
    if code == "S" or code == "x":
        start = pos + 4
        pos = start + int.from_bytes(data[pos:start], "big")
        if pos > stop:
            raise errors.syntax_error("table field is cut short")
        return (code, data[start:pos]), pos
    size = _SIZES.get(code, -1)
    if size < 0:
        raise errors.syntax_error(f"table field of unknown type {ord(code)}")
    start = pos
    pos += size
    if pos > stop:
        raise errors.syntax_error("table field is cut short")
    if code == "V":
        return (code, None), pos
    if code == "t":
        return (code, data[start] != 0), pos
    if code == "f" or code == "d":
        return (code, decode_float(data[start:pos])), pos
    if code == "D":
        # RabbitMQ reads the number as unsigned; AMQP and the clients say signed. The octets are the same.
        return (code, (data[start], int.from_bytes(data[start + 1 : pos], "big", signed=True))), pos
    if code == "L":
        code = "l"
    return (code, int.from_bytes(data[start:pos], "big", signed=code not in _UNSIGNED)), pos


def encode_table(table: Table) -> bytes:
    """Return the table with its length octets."""
    if not table:
        return b"\0\0\0\0"
    out = bytearray(4)
    # Where the length octets of the container being written are: they are filled in when it is complete.
    length_pos = 0
    entries = _table_entries(table)
    outer: list[tuple[Iterator[tuple[str | None, Field]], int]] = []
    items = 0
    while True:
        for key, field in entries:
            items += 1
            if items > TABLE_ITEMS_MAX:
                raise errors.syntax_error(f"table with more than {TABLE_ITEMS_MAX} fields")
            code, value = field
            if key is not None:
                out += encode_shortstr(key)
            out += code.encode()
            if code != "F" and code != "A":
                out += _encode_simple(code, value)
                continue
            outer.append((entries, length_pos))
            if len(outer) >= TABLE_DEPTH_MAX:
                raise errors.syntax_error(f"table nested more than {TABLE_DEPTH_MAX} deep")
            length_pos = len(out)
            out += b"\0\0\0\0"
            if code == "F":
                assert isinstance(value, dict)
                entries = _table_entries(value)
            else:
                assert isinstance(value, list)
                entries = _array_entries(value)
            break
        else:
            out[length_pos : length_pos + 4] = (len(out) - length_pos - 4).to_bytes(4, "big")
            if not outer:
                return bytes(out)
            entries, length_pos = outer.pop()


def _table_entries(table: Table) -> Iterator[tuple[str | None, Field]]:
    entries: list[tuple[str | None, Field]] = []
    entries.extend(table.items())
    return iter(entries)


def _array_entries(array: list[Field]) -> Iterator[tuple[str | None, Field]]:
    """Elements have no name."""
    entries: list[tuple[str | None, Field]] = [(None, field) for field in array]
    return iter(entries)


def _encode_simple(code: str, value: FieldValue) -> bytes:
    """Return the octets behind the type code of a field that holds no others."""
    if code == "S" or code == "x":
        assert isinstance(value, bytes)
        return encode_longstr(value)
    if code == "V":
        assert value is None
        return b""
    if code == "f" or code == "d":
        assert isinstance(value, float)
        return encode_float32(value) if code == "f" else encode_float64(value)
    if code == "D":
        assert isinstance(value, tuple)
        return value[0].to_bytes(1, "big") + value[1].to_bytes(4, "big", signed=True)
    assert isinstance(value, int)
    if code == "t":
        return b"\1" if value else b"\0"
    return value.to_bytes(_SIZES[code], "big", signed=code not in _UNSIGNED)


def table_from_python(values: dict[str, object]) -> Table:
    """Return a table from plain values; TypeError or ValueError for what has no AMQP type or does not fit.

    str becomes `S`, bool `t`, int `I` or `l` by its size, float `d`, Decimal `D`, bytes `x`, datetime `T` (UTC
    when it has no zone), None `V`, list `A`, dict `F`.
    """
    return _table_from_python(values, 1)


def _table_from_python(values: dict[str, object], depth: int) -> Table:
    if depth > TABLE_DEPTH_MAX:
        raise ValueError(f"nested more than {TABLE_DEPTH_MAX} deep")
    return {key: _field_from_python(value, depth) for key, value in values.items()}


def _field_from_python(value: object, depth: int) -> Field:
    if isinstance(value, str):
        return "S", value.encode()
    if isinstance(value, bool):
        return "t", value
    if isinstance(value, int):
        if -(1 << 31) <= value < 1 << 31:
            return "I", value
        if -(1 << 63) <= value < 1 << 63:
            return "l", value
        raise ValueError(f"{value} does not fit in 64 bits")
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return "d", value
    if isinstance(value, dict):
        return "F", _table_from_python(value, depth + 1)
    if isinstance(value, list):
        if depth + 1 > TABLE_DEPTH_MAX:
            raise ValueError(f"nested more than {TABLE_DEPTH_MAX} deep")
        return "A", [_field_from_python(item, depth + 1) for item in value]
    if isinstance(value, bytes):
        return "x", value
    if value is None:
        return "V", None
    if isinstance(value, datetime):
        return "T", _seconds(value)
    if isinstance(value, Decimal):
        return "D", _scaled(value)
    raise TypeError(f"no AMQP type for {type(value).__name__}")


def _seconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if seconds < 0:
        raise ValueError(f"{moment} is before 1970")
    return seconds


def _scaled(number: Decimal) -> tuple[int, int]:
    """Return the decimal as number of decimal places and integer."""
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{number} is not a finite number")
    scale = max(-exponent, 0)
    # 32 bits are less than eleven digits; the test comes before anything long is computed.
    if scale <= 255 and number.adjusted() + scale <= 10:
        unscaled = int(number.scaleb(scale))
        if -(1 << 31) <= unscaled < 1 << 31:
            return scale, unscaled
    raise ValueError(f"{number} does not fit in a decimal field")


def table_to_python(table: Table) -> dict[str, object]:
    """Plain values: `S` is str, or bytes when it is not UTF-8; `T` datetime, or int beyond 9999; `D` Decimal."""
    return {key: _field_to_python(field) for key, field in table.items()}


def _field_to_python(field: Field) -> object:
    code, value = field
    if isinstance(value, dict):
        return table_to_python(value)
    if isinstance(value, list):
        return [_field_to_python(item) for item in value]
    if isinstance(value, tuple):
        return Decimal(value[1]).scaleb(-value[0])
    if code == "S":
        assert isinstance(value, bytes)
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if code == "T":
        assert isinstance(value, int)
        return _EPOCH + timedelta(seconds=value) if value <= _DATETIME_S_MAX else value
    return value
