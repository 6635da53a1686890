"""The columns of the view `runs`: one row for each row of the journal.

Of the heap only the names of routes are read, and references to bodies in the shared store, which say how large those
are. A run that a bound cuts in two has its payload bytes split in proportion, so that the parts always add up.
"""

from __future__ import annotations

from typing import final

import numpy as np
import pyarrow as pa

from penstock.pipeline.columns import TIME
from penstock.pipeline.decode.columns.piece import Piece, fixed
from penstock.pipeline.decode.columns.row_columns import ROW_COLUMNS, row_column, row_problems
from penstock.pipeline.decode.decoded import DecodedGroup, is_reference
from penstock.pipeline.decode.group.group import Bools, Ints


@final
class RunColumns:
    __slots__ = ("_decoded", "_piece")

    def __init__(self, piece: Piece, decoded: DecodedGroup) -> None:
        self._piece = piece
        self._decoded = decoded

    def column(self, name: str) -> pa.Array:
        rows = self._piece.rows
        if name in ROW_COLUMNS:
            return row_column(name, self._piece, self._decoded, np.ones(len(rows), dtype=np.int64), len(rows))
        if name == "bytes":
            return self._bytes()
        if name == "time":
            return fixed(self._decoded.wall_us[rows.batch], TIME)
        if name == "queue_no":
            return fixed(rows.queue.astype(np.int32), pa.int32())
        if name == "kind_no":
            return fixed(rows.kind.astype(np.int16), pa.int16())
        values = {"lsn": rows.lsn, "seq": rows.seq, "count": rows.count}[name]
        return fixed(np.ascontiguousarray(values), pa.int64())

    def problem(self) -> pa.Array:
        row_problems(self._piece, self._decoded, np.ones(len(self._piece.rows), dtype=np.int64))
        return self._piece.problems.column(len(self._piece.rows))

    def _bytes(self) -> pa.Array:
        piece, rows, entries = self._piece, self._piece.rows, self._decoded.entries
        before = np.zeros(entries.count + 1, dtype=np.int64)
        np.cumsum(entries.payload_len, out=before[1:])
        first = np.where(piece.published, rows.entry, 0)
        stored = before[np.where(piece.published, rows.entry + rows.count, 0)] - before[first]
        totals = np.where(piece.published, stored, _share(rows.number, rows.skipped, rows.count, rows.run_count))
        valid: Bools | None = None
        references = is_reference(rows)
        if references.any():
            totals[references] = 0
            for event, _, _, size in self._decoded.references(piece):
                row = int(np.searchsorted(piece.begins, event, "right")) - 1
                totals[row] += size
                if size < 0:
                    valid = np.ones(len(rows), dtype=np.bool_) if valid is None else valid
                    valid[row] = False
        if valid is not None:
            piece.problems.add(np.flatnonzero(~valid), "the reference to a body is damaged")
        return fixed(totals, pa.int64(), valid)


def _share(total: Ints, skipped: Ints, count: Ints, run_count: Ints) -> Ints:
    """Return the part of a run's bytes that the events [skipped, skipped + count) of it stand for."""
    if (count == run_count).all():
        return total
    shares = [
        size * (begin + part) // whole - size * begin // whole
        for size, begin, part, whole in zip(
            total.tolist(), skipped.tolist(), count.tolist(), run_count.tolist(), strict=True
        )
    ]
    return np.array(shares, dtype=np.int64)
