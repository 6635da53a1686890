"""Columns of text from a few distinct texts: the names of queues, consumers, routes and kinds. Octets, too.

A code is the index of a text; `NO_TEXT` is null. Codes come for each run, not for each event, so that a run's text is
repeated and not looked up again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from penstock.pipeline.decode.group.group import Bools, Ints

NO_TEXT: Final = -1
# From this many events in a run on it is cheaper to repeat its text than to look each one up.
_RUN_EVENTS: Final = 8
_TEXT: Final = pa.string()


def bitmap(valid: Bools) -> pa.Buffer:
    """Return the validity of an Arrow array."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


@final
class Texts:
    __slots__ = ("_array", "_arrow", "_lengths", "_octets", "_valid")

    def __init__(self, values: Sequence[str | bytes | None], arrow: pa.DataType = _TEXT) -> None:
        # Text that is not Unicode (lone surrogates) is shown escaped: Arrow has nothing for it. The last one is null.
        self._octets: list[bytes | None] = [
            value.encode("utf-8", "backslashreplace") if isinstance(value, str) else value for value in values
        ]
        self._octets.append(None)
        self._arrow = arrow
        self._lengths: Ints = np.array([len(octets or b"") for octets in self._octets])
        self._valid: Bools = np.array([octets is not None for octets in self._octets])
        self._array: Any = None

    def column(self, codes: Ints, counts: Ints, size: int) -> pa.Array:
        """`size` texts: each code as often as its count says."""
        if not len(codes):
            return pa.nulls(size, self._arrow)
        if (codes == codes[0]).all():
            return self._constant(int(codes[0]), size)
        if len(codes) * _RUN_EVENTS <= size:
            return self._repeated(codes, counts, size)
        if self._array is None:
            self._array = pa.array(self._octets, pa.binary()).cast(self._arrow)
        indexes = np.where(codes < 0, len(self._octets) - 1, codes)
        return self._array.take(pa.array(np.repeat(indexes, counts)))

    def _constant(self, code: int, size: int) -> pa.Array:
        octets = self._octets[code]
        if octets is None:
            return pa.nulls(size, self._arrow)
        offsets = np.arange(0, (size + 1) * len(octets), len(octets), dtype=np.int32) if octets else _zeros(size + 1)
        return self._made(offsets[: size + 1], octets * size, None, size)

    def _repeated(self, codes: Ints, counts: Ints, size: int) -> pa.Array:
        octets = self._octets
        pairs = zip(codes.tolist(), counts.tolist(), strict=True)
        data = b"".join([(octets[code] or b"") * count for code, count in pairs])
        offsets = np.zeros(size + 1, dtype=np.int32)
        np.cumsum(np.repeat(self._lengths[codes], counts), out=offsets[1:])
        valid = self._valid[codes]
        nulls = None if valid.all() else bitmap(np.repeat(valid, counts))
        return self._made(offsets, data, nulls, size)

    def _made(self, offsets: Any, data: bytes, nulls: pa.Buffer | None, size: int) -> pa.Array:
        return pa.Array.from_buffers(self._arrow, size, [nulls, pa.py_buffer(offsets), pa.py_buffer(data)])


def _zeros(size: int) -> Any:
    return np.zeros(size, dtype=np.int32)


@final
class Names:
    """Texts by the numbers that stand for them in rows."""

    __slots__ = ("_numbers", "_texts")

    def __init__(self, names: Mapping[int, Mapping[str, Any]], fields: Sequence[str]) -> None:
        self._numbers: Ints = np.array(sorted(names), dtype=np.int64)
        self._texts: dict[str, Texts] = {}
        for field in fields:
            found = [names[number].get(field) for number in self._numbers.tolist()]
            self._texts[field] = Texts([text if isinstance(text, str) else None for text in found])

    def codes(self, numbers: Ints) -> Ints:
        """NO_TEXT for a number that has no name."""
        if not len(self._numbers):
            return np.full(len(numbers), NO_TEXT)
        at = np.searchsorted(self._numbers, numbers)
        at[at == len(self._numbers)] = 0
        return np.where(self._numbers[at] == numbers, at, NO_TEXT)

    def texts(self, field: str) -> Texts:
        return self._texts[field]
