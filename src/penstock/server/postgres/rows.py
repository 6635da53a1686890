"""Rows as the broker sends them to PostgreSQL (`put_rows`) and as it gets them from there (`row_columns`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.backing.postgres.link import PutRow, TakenRow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def put_parameters(queue_ids: Sequence[int], rows: Sequence[PutRow]) -> tuple[list[Any], ...]:
    """Seven arrays, as `put_rows` takes them."""
    return (
        list(queue_ids),
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        [row[3] for row in rows],
        [None if row[4] < 0 else EPOCH + timedelta(milliseconds=row[4]) for row in rows],
        [row[5] for row in rows],
    )


def taken_rows(found: Sequence[tuple[Any, ...]]) -> list[TakenRow]:
    """In the order of their ids, whatever part of `reserve` has found them."""
    rows: list[TakenRow] = [(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]) for r in found]
    rows.sort(key=_id_of)
    return rows


def _id_of(row: TakenRow) -> int:
    return row[0]
