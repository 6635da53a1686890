"""The columns of text that are the same for all events of a row, for both views."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from penstock.journal.format.rows import PUBLISHED
from penstock.pipeline.decode.columns.piece import Piece
from penstock.pipeline.decode.columns.texts import NO_TEXT
from penstock.pipeline.decode.decoded import REASONS, DecodedGroup
from penstock.pipeline.decode.group.group import Bools, Ints
from penstock.pipeline.decode.group.rows import IS_KNOWN_KIND, Rows

ROW_COLUMNS: Final = frozenset(
    {"vhost", "queue", "kind", "reason", "consumer", "connection", "exchange", "routing_key"}
)


def row_column(name: str, piece: Piece, decoded: DecodedGroup, counts: Ints, size: int) -> pa.Array:
    """Return a column of `size` texts, those of each row as often as its count says."""
    rows, names = piece.rows, decoded.names
    if name == "kind":
        return names.kinds.column(rows.kind, counts, size)
    if name == "reason":
        return names.reasons.column(_reason_codes(rows), counts, size)
    if name in ("vhost", "queue"):
        return names.queues.texts(name).column(names.queues.codes(rows.queue), counts, size)
    if name in ("consumer", "connection"):
        return names.consumers.texts(name).column(names.consumers.codes(_consumers(rows)), counts, size)
    codes = np.where(piece.published, rows.route, NO_TEXT)
    exchanges, keys = names.routes.texts()
    return (exchanges if name == "exchange" else keys).column(codes, counts, size)


def row_problems(piece: Piece, decoded: DecodedGroup, counts: Ints) -> None:
    """Note what is wrong with names and kinds, for each row as often as its count says."""
    rows, request, names = piece.rows, decoded.request, decoded.names

    def note(which: Bools, text: str) -> None:
        if which.any():
            piece.problems.add(np.flatnonzero(np.repeat(which, counts)), text)

    for kind_no in np.unique(rows.kind[~IS_KNOWN_KIND[rows.kind]]).tolist():
        note(rows.kind == kind_no, f"kind {kind_no} is not known to this version")
    if request.wants("vhost", "queue"):
        note(names.queues.codes(rows.queue) < 0, "the name of the queue cannot be read")
    if request.wants("consumer", "connection"):
        consumers = _consumers(rows)
        note((consumers > 0) & (names.consumers.codes(consumers) < 0), "the name of the consumer cannot be read")
    if request.wants("exchange", "routing_key"):
        note(piece.published & (rows.route < 0), "exchange and routing key are damaged")
        codes = np.where(piece.published, rows.route, NO_TEXT)
        piece.problems.add_coded(codes, counts, names.routes.problems)


def _reason_codes(rows: Rows) -> Ints:
    is_reason = (rows.kind != PUBLISHED) & (rows.arg > 0) & (rows.arg < len(REASONS))
    return np.where(is_reason, rows.arg, 0)


def _consumers(rows: Rows) -> Ints:
    """Return the consumer's number; 0 for none."""
    return np.where((rows.actor > 0) & (rows.kind != PUBLISHED), rows.actor, 0)
