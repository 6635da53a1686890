"""Some rows, written out: one element for each event. The arithmetic that all columns share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import pyarrow as pa

from penstock.journal.format.rows import SHARED_PROPS
from penstock.pipeline.decode.group.group import Bools, Ints
from penstock.pipeline.decode.group.rows import Rows


@final
class Problems:
    """Why some events are not whole. Nearly always nothing."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def add(self, events: Ints, text: str) -> None:
        for event in events.tolist():
            self._add(event, text)

    def add_coded(self, codes: Ints, counts: Ints, problems: Mapping[int, str]) -> None:
        """A problem for each code that has one. There may be as many as there are codes: each is looked at once."""
        if problems:
            which = np.isin(codes, np.fromiter(problems, dtype=np.int64))
            spread = np.repeat(np.where(which, codes, -1), counts)
            events = np.flatnonzero(spread >= 0)
            for event, code in zip(events.tolist(), spread[events].tolist(), strict=True):
                self._add(event, problems[code])

    def _add(self, event: int, text: str) -> None:
        before = self._texts.get(event)
        if before is None:
            self._texts[event] = text
        elif text not in before:
            self._texts[event] = f"{before}; {text}"

    def column(self, size: int) -> pa.Array:
        if not self._texts:
            return pa.nulls(size, pa.string())
        texts: list[str | None] = [None] * size
        for event, text in self._texts.items():
            texts[event] = text
        return pa.array(texts, pa.string())


@final
class Piece:
    __slots__ = (
        "_entries",
        "_not_published",
        "_props_entries",
        "begins",
        "counts",
        "problems",
        "published",
        "rows",
        "size",
    )

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.counts = rows.count
        ends = np.cumsum(rows.count)
        self.begins: Ints = ends - rows.count
        self.size = int(ends[-1])
        self.published: Bools = rows.published
        self.problems = Problems()
        self._not_published: Any = None
        self._entries: Ints | None = None
        self._props_entries: Ints | None = None

    def spread(self, values: Any) -> Any:
        """Return the value of its row for each event."""
        if len(values) == 1:
            return np.full(self.size, values[0])
        return np.repeat(values, self.counts)

    def counted(self, values: Ints) -> Ints:
        """Return the value of its row for the first event of a run, one more for the next, and so on."""
        starts = values - self.begins
        if (starts == starts[0]).all():
            return np.arange(starts[0], starts[0] + self.size)
        counted: Ints = np.repeat(starts, self.counts)
        counted += np.arange(self.size)
        return counted

    @property
    def entries(self) -> Ints:
        """The entry of each event; 0 for those that have none."""
        if self._entries is None:
            self._entries = self._zero_elsewhere(self.counted(self.rows.entry))
        return self._entries

    @property
    def props_entries(self) -> Ints:
        """The entry that has the properties of each event, shared or not."""
        if self._props_entries is None:
            rows = self.rows
            # Where they are shared, it does not count up.
            shared = self.spread((rows.flags & SHARED_PROPS) != 0)
            same = self.spread(rows.props_entry)
            found = same if shared.all() else np.where(shared, same, self.counted(rows.props_entry))
            self._props_entries = self._zero_elsewhere(found)
        return self._props_entries

    def _zero_elsewhere(self, entries: Ints) -> Ints:
        if self.not_published is not None:
            entries[self.not_published] = 0
        return entries

    @property
    def all_shared(self) -> bool:
        """Whether the properties of each published row are one for all its events."""
        return bool((((self.rows.flags & SHARED_PROPS) != 0) | ~self.published).all())

    @property
    def published_entries(self) -> Ints:
        return self.entries if self.not_published is None else self.entries[~self.not_published]

    @property
    def published_props_entries(self) -> Ints:
        return self.props_entries if self.not_published is None else self.props_entries[~self.not_published]

    @property
    def not_published(self) -> Bools | None:
        """A mask for columns that only published events have; None when all are."""
        if self._not_published is None and not self.published.all():
            self._not_published = self.spread(~self.published)
        mask: Bools | None = self._not_published
        return mask


def fixed(values: Any, arrow: pa.DataType, valid: Bools | None = None) -> pa.Array:
    """Return an Arrow array of numbers, without a copy."""
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(arrow, len(values), [nulls, pa.py_buffer(values)])
