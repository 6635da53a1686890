"""What properties say, for a group in which most messages have properties of their own: all of them at once.

Flags and lengths are followed with NumPy, a step for each property; texts are taken from where they stand. Entries that
are odd in any way (malformed, not UTF-8, unusual headers) go the long way, one by one, and so every entry shows exactly
what `properties.read_facts` says.
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from penstock.pipeline.columns import HEADERS
from penstock.pipeline.decode.group.entries import Entries, cut_out, taken
from penstock.pipeline.decode.group.group import Bools, Ints
from penstock.pipeline.decode.properties.header_octets import FlatHeaders, HeaderOctets, is_utf8
from penstock.pipeline.decode.properties.properties import Facts, read_facts

# Flags of the properties: texts that have a column, headers, and what has a fixed size. All others are texts.
_TEXTS: Final = {0x8000: "content_type", 0x0400: "correlation_id", 0x0080: "message_id"}
_HEADERS: Final = 0x2000
_FIXED: Final = {0x1000: 1, 0x0800: 1, 0x0040: 8}
_UNDEFINED: Final = 0x0003
_LENGTH_BYTES: Final = 4


@final
class WideFacts:
    """Facts by code: the number of an entry among those that are used."""

    __slots__ = ("_arrays", "_code_of_entry", "_headers", "_problems")

    def __init__(self, used: Ints, entries: Entries, header_octets: HeaderOctets) -> None:
        self._code_of_entry: Ints = np.full(entries.count, -1)
        self._code_of_entry[used] = np.arange(len(used))
        places = _Places(entries.window, *entries.property_bounds(used))
        odd = places.is_odd
        flat: dict[int, FlatHeaders] = {}
        unusual: list[int] = []
        for code, table in places.tables():
            headers = header_octets.flat_headers(table)
            if headers is None:
                unusual.append(code)
            else:
                flat[code] = headers
        odd[unusual] = True
        raw = {name: places.texts(name) for name in _TEXTS.values()}
        for texts in raw.values():
            odd |= _not_utf8(texts)
        octets = entries.distinct_properties(used[odd]).to_pylist()
        facts = dict(zip(np.flatnonzero(odd).tolist(), map(read_facts, octets), strict=True))
        self._arrays = {name: _patched(name, texts, odd, facts) for name, texts in raw.items()}
        self._headers = _header_maps(flat, len(used), facts)
        self._problems = {code: found.problem for code, found in facts.items() if found.problem is not None}

    def codes(self, props_entries: Ints) -> Ints:
        return self._code_of_entry[props_entries]

    def text_column(self, name: str, codes: Ints, counts: Ints, size: int) -> pa.Array:
        return taken(self._arrays[name], np.repeat(codes, counts))

    def header_column(self, codes: Ints, counts: Ints, size: int) -> pa.Array:
        return taken(self._headers, np.repeat(codes, counts))

    def problems(self) -> dict[int, str]:
        """By code."""
        return self._problems


@final
class _Places:
    """Where in the window the properties of some entries have what."""

    __slots__ = ("_ends", "_octets", "_table_at", "_table_end", "_texts", "_window", "has_headers", "is_odd")

    def __init__(self, window: memoryview, starts: Ints, ends: Ints) -> None:
        self._window = window
        self._octets: Any = np.frombuffer(window, np.uint8)
        self._ends = ends
        # Start, end, and whether there is one, of each text that has a column.
        self._texts: dict[str, tuple[Ints, Ints, Bools]] = {}
        self.has_headers: Bools = np.zeros(len(starts), dtype=np.bool_)
        self._table_at = self._table_end = starts
        # Entries that do not end where their flags and lengths say.
        self.is_odd: Bools = ends - starts < 2
        self._follow(starts)

    def texts(self, name: str) -> pa.Array:
        """Return the octets of a text, by entry."""
        starts, ends, has = self._texts[name]
        return cut_out(self._window, starts, ends).take(pa.array(np.arange(len(starts)) * 2, mask=~has))

    def tables(self) -> list[tuple[int, bytes]]:
        """Return the headers of the entries that have some, without their length."""
        window = self._window
        which = np.flatnonzero(self.has_headers & ~self.is_odd)
        bounds = zip(which.tolist(), self._table_at[which].tolist(), self._table_end[which].tolist(), strict=True)
        return [(code, bytes(window[start:end])) for code, start, end in bounds]

    def _follow(self, starts: Ints) -> None:
        flags = self._octet(starts) * 256 + self._octet(starts + 1)
        self.is_odd |= (flags & _UNDEFINED) != 0
        pos = np.minimum(starts + 2, self._ends)
        for bit in range(15, 1, -1):
            flag = 1 << bit
            has = (flags & flag) != 0
            if flag in _FIXED:
                pos = self._within(np.where(has, pos + _FIXED[flag], pos))
            elif flag == _HEADERS and has.any():
                begin = pos + _LENGTH_BYTES
                self.has_headers = has
                self._table_at = np.minimum(begin, self._ends)
                pos = self._within(np.where(has, begin + self._length(pos), pos))
                self._table_end = pos
            elif has.any():
                begin = np.minimum(np.where(has, pos + 1, pos), self._ends)
                pos = self._within(np.where(has, pos + 1 + self._octet(pos), pos))
                if flag in _TEXTS:
                    self._texts[_TEXTS[flag]] = (begin, pos, has)
            elif flag in _TEXTS:
                self._texts[_TEXTS[flag]] = (pos, pos, has)
        self.is_odd |= pos != self._ends

    def _within(self, pos: Ints) -> Ints:
        """Positions that do not leave their entry; those that would are odd."""
        self.is_odd |= pos > self._ends
        return np.minimum(pos, self._ends)

    def _octet(self, pos: Ints) -> Ints:
        # What stands behind the window's end belongs to an entry that is found to be odd.
        octets: Ints = self._octets[np.minimum(pos, len(self._octets) - 1)].astype(np.int64)
        return octets

    def _length(self, pos: Ints) -> Ints:
        length = self._octet(pos)
        for at in range(1, _LENGTH_BYTES):
            length = length * 256 + self._octet(pos + at)
        return length


def _not_utf8(texts: pa.Array) -> Bools:
    """Which of them are no text."""
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([octets is not None and not is_utf8(octets) for octets in texts.to_pylist()])
    return np.zeros(len(texts), dtype=np.bool_)


def _patched(name: str, texts: pa.Array, odd: Bools, facts: dict[int, Facts]) -> pa.Array:
    """Texts, with those of the odd entries from their facts."""
    if not facts:
        return texts.cast(pa.string())
    good: list[bytes | None] = texts.to_pylist()
    shown: list[str | None] = [
        None if is_odd or octets is None else octets.decode() for octets, is_odd in zip(good, odd.tolist(), strict=True)
    ]
    for code, found in facts.items():
        shown[code] = found.text(name)
    return pa.array(shown, pa.string())


def _header_maps(flat: dict[int, FlatHeaders], size: int, facts: dict[int, Facts]) -> pa.Array:
    """Return the headers of each entry; null for those that have none."""
    for code, found in facts.items():
        flat.pop(code, None)
        if found.headers is not None:
            texts = [(name.encode(), value.encode()) for name, value in found.headers]
            flat[code] = [name for name, _ in texts], [value for _, value in texts]
    if not flat:
        return pa.nulls(size, HEADERS)
    codes = sorted(flat)
    counts = np.zeros(size, dtype=np.int64)
    counts[codes] = [len(flat[code][0]) for code in codes]
    offsets = np.zeros(size + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    has = np.zeros(size, dtype=np.bool_)
    has[codes] = True
    names = pa.array([name for code in codes for name in flat[code][0]], pa.binary()).cast(pa.string())
    values = pa.array([value for code in codes for value in flat[code][1]], pa.binary()).cast(pa.string())
    mask = None if has.all() else pa.array(~has)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values, type=HEADERS, mask=mask)
