"""The columns of the view `events`, from a piece of a group."""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from penstock.journal.format.rows import PERSISTENT
from penstock.pipeline.columns import EXPIRES_MS_MAX, HEADERS, TIME
from penstock.pipeline.decode.columns.piece import Piece, fixed
from penstock.pipeline.decode.columns.row_columns import ROW_COLUMNS, row_column, row_problems
from penstock.pipeline.decode.decoded import DecodedGroup, FewFacts
from penstock.pipeline.decode.group.group import Bools, Ints

_FACTS: Final = ("message_id", "correlation_id", "content_type")
_US_OF_MS: Final = 1000


@final
class EventColumns:
    __slots__ = ("_bad_properties", "_decoded", "_piece", "_references")

    def __init__(self, piece: Piece, decoded: DecodedGroup) -> None:
        self._piece = piece
        self._decoded = decoded
        self._references: list[tuple[int, int, int, int]] | None = None

    def column(self, name: str) -> pa.Array:
        piece, rows = self._piece, self._piece.rows
        if name in ROW_COLUMNS:
            return row_column(name, piece, self._decoded, piece.counts, piece.size)
        if name == "lsn":
            return fixed(piece.counted(rows.lsn), pa.int64())
        if name == "seq":
            return fixed(piece.counted(rows.seq), pa.int64())
        if name == "time":
            return fixed(piece.spread(self._decoded.wall_us[rows.batch]), TIME)
        if name == "queue_no":
            return fixed(piece.spread(rows.queue.astype(np.int32)), pa.int32())
        if name == "kind_no":
            return fixed(piece.spread(rows.kind.astype(np.int16)), pa.int16())
        if not piece.published.any():
            return pa.nulls(piece.size, HEADERS if name == "headers" else _PUBLISHED_TYPES[name])
        if name in _FACTS:
            return self._fact(name)
        return _PUBLISHED_COLUMNS[name](self)

    def problem(self) -> pa.Array:
        row_problems(self._piece, self._decoded, self._piece.counts)
        return self._piece.problems.column(self._piece.size)

    def _persistent(self) -> pa.Array:
        values = (self._piece.rows.flags & PERSISTENT) != 0
        return pa.array(self._piece.spread(values), pa.bool_(), mask=self._piece.not_published)

    def _priority(self) -> pa.Array:
        return self._published_numbers(self._piece.rows.arg.astype(np.int16), pa.int16())

    def _expires(self) -> pa.Array:
        number = self._piece.rows.number
        return self._published_numbers(np.minimum(number, EXPIRES_MS_MAX) * _US_OF_MS, TIME, number >= 0)

    def _published_numbers(self, values: Any, arrow: pa.DataType, valid: Bools | None = None) -> pa.Array:
        piece = self._piece
        valid = piece.published if valid is None else piece.published & valid
        if not valid.any():
            return pa.nulls(piece.size, arrow)
        return fixed(piece.spread(values), arrow, None if valid.all() else piece.spread(valid))

    def _size(self) -> pa.Array:
        piece = self._piece
        sizes = self._decoded.entries.payload_len[piece.entries]
        valid = None if piece.not_published is None else ~piece.not_published
        for event, _, _, size in self._shared_bodies():
            sizes[event] = size
            if size < 0:
                valid = np.ones(piece.size, dtype=np.bool_) if valid is None else valid
                valid[event] = False
        return fixed(sizes, pa.int64(), valid)

    def _good_props_entries(self) -> tuple[Ints, Bools | None]:
        """Return the entry of each event's properties, and a mask of those that have none or damaged ones."""
        piece = self._piece
        entries = piece.props_entries
        mask = piece.not_published
        bad = self._decoded.bad_properties
        if bad is not None:
            is_bad = bad[entries]
            if mask is not None:
                is_bad &= ~mask
            if is_bad.any():
                piece.problems.add(np.flatnonzero(is_bad), "the properties are damaged")
                mask = is_bad if mask is None else mask | is_bad
        return entries, mask

    def _properties(self) -> pa.Array:
        facts = self._decoded.facts()
        if isinstance(facts, FewFacts) and self._is_by_row:
            return facts.properties.column(*self._fact_codes(), self._piece.size)
        entries, mask = self._good_props_entries()
        return self._decoded.entries.properties(entries, mask)

    @property
    def _is_by_row(self) -> bool:
        """Whether properties are the same for all events of a row."""
        return self._decoded.bad_properties is None and self._piece.all_shared

    def _fact_codes(self) -> tuple[Ints, Ints]:
        """Codes of facts with their counts: by row if all properties are shared, otherwise by event."""
        piece, facts = self._piece, self._decoded.facts()
        if self._is_by_row:
            codes = np.where(piece.published, facts.codes(piece.rows.props_entry), -1)
            return codes, piece.counts
        entries, mask = self._good_props_entries()
        codes = facts.codes(entries)
        if mask is not None:
            codes[mask] = -1
        return codes, np.ones(piece.size, dtype=np.int64)

    def _fact(self, name: str) -> pa.Array:
        codes, counts = self._fact_codes()
        self._note_facts(codes, counts)
        return self._decoded.facts().text_column(name, codes, counts, self._piece.size)

    def _headers(self) -> pa.Array:
        codes, counts = self._fact_codes()
        self._note_facts(codes, counts)
        return self._decoded.facts().header_column(codes, counts, self._piece.size)

    def _note_facts(self, codes: Ints, counts: Ints) -> None:
        self._piece.problems.add_coded(codes, counts, self._decoded.facts().problems())

    def _shared_bodies(self) -> list[tuple[int, int, int, int]]:
        if self._references is None:
            self._references = self._decoded.references(self._piece)
            bad = [event for event, _, _, size in self._references if size < 0]
            self._piece.problems.add(np.array(bad, dtype=np.int64), "the reference to its body is damaged")
        return self._references

    def _body(self) -> pa.Array:
        piece = self._piece
        if not self._decoded.request.bodies:
            return pa.nulls(piece.size, pa.binary())
        mask = piece.not_published
        bad = self._decoded.bad_bodies
        if bad is not None:
            is_bad = bad[piece.entries]
            if mask is not None:
                is_bad &= ~mask
            piece.problems.add(np.flatnonzero(is_bad), "the body is damaged")
            mask = is_bad if mask is None else mask | is_bad
        bodies = self._decoded.entries.bodies(piece.entries, mask)
        shared = self._shared_bodies()
        return self._with_shared(bodies, shared) if shared else bodies

    def _with_shared(self, bodies: pa.Array, shared: list[tuple[int, int, int, int]]) -> pa.Array:
        """Return the references among the bodies replaced by what they refer to."""
        indexes = np.arange(len(bodies))
        indexes[[event for event, _, _, _ in shared]] = np.arange(len(bodies), len(bodies) + len(shared))
        found = pa.array([self._shared_body(*place[1:]) for place in shared], pa.binary())
        return pa.concat_arrays([bodies, found]).take(pa.array(indexes))

    def _shared_body(self, queue_no: int, address: int, size: int) -> bytes | None:
        return self._decoded.log.shared_body(queue_no, address, size) if size >= 0 else None


_PUBLISHED_TYPES: Final = {
    "persistent": pa.bool_(),
    "priority": pa.int16(),
    "expires": TIME,
    "size": pa.int64(),
    "message_id": pa.string(),
    "correlation_id": pa.string(),
    "content_type": pa.string(),
    "properties": pa.binary(),
    "body": pa.binary(),
}
_PUBLISHED_COLUMNS: Final = {
    "persistent": EventColumns._persistent,
    "priority": EventColumns._priority,
    "expires": EventColumns._expires,
    "size": EventColumns._size,
    "headers": EventColumns._headers,
    "properties": EventColumns._properties,
    "body": EventColumns._body,
}
