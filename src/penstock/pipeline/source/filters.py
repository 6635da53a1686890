"""Filters of a query that the source does by itself, so that what they leave out is not decoded or not even read.

Queue, vhost, kind, time and seq go into the `Request`, bounds of lsn into the range that is read. What is not
understood, or only in part, is left to Spark as well: a filter that is applied twice is right, one that is forgotten is
not. Spark pushes filters down for batches alone; streams have the options.

They are used with the option `pushFilters` only. Spark 4.3 remembers what a Python source has planned with the filters
of a query, for all queries on the same DataFrame: a second one with other filters, or with none, gets the rows of the
first, and so does the other side of a union or a join. With one `load()` for each query it is right; and the options
`queue`, `vhost`, `kinds`, `startingOffsets` and `endingOffsets` (which can be times) are always right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from operator import ge, gt, le, lt
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.pipeline.columns import KINDS
from penstock.pipeline.decode.request import EVENTS_VIEW, Request
from penstock.pipeline.source.options import microseconds

COMPARISONS: Final = {
    EqualTo: "=",
    EqualNullSafe: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
OPERATORS: Final = {">": gt, ">=": ge, "<": lt, "<=": le}
# What `decode` calls a kind of a later version.
UNKNOWN_KIND: Final = "unknown"
NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is to be read, as far as the filters have said: a request, and the bounds of lsn, the upper one out."""

    request: Request
    min_lsn: int = 0
    max_lsn: int | None = None


def narrow(narrowed: Narrowed, filter_: Filter) -> tuple[Narrowed, bool]:
    """With this filter; and whether it is done with, so that Spark need not look at it again."""
    if isinstance(filter_, In):
        return _among(narrowed, filter_.attribute, filter_.value)
    sign = COMPARISONS.get(type(filter_))
    if sign is None:
        return narrowed, False
    attribute, value = filter_.attribute, filter_.value  # type: ignore[attr-defined]
    if sign == "=":
        return _among(narrowed, attribute, (value,))
    return _compared(narrowed, attribute, sign, value)


def _among(narrowed: Narrowed, attribute: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Narrowed, bool]:
    """column = value, column in (values)."""
    name = attribute[0] if len(attribute) == 1 else ""
    request = narrowed.request
    if name in ("queue", "kind", "vhost") and all(isinstance(value, str) for value in values):
        texts = frozenset(values)
        if name == "queue":
            return replace(narrowed, request=replace(request, queues=_both(request.queues, texts))), True
        if name == "kind":
            return replace(narrowed, request=replace(request, kinds=_both(request.kinds, texts))), True
        return _in_vhost(narrowed, texts)
    if name == "kind_no" and all(_is_whole(value) for value in values):
        kinds = frozenset(KINDS.get(value, UNKNOWN_KIND) for value in values)
        # Several numbers have the same kind: Spark looks at the number itself.
        return replace(narrowed, request=replace(request, kinds=_both(request.kinds, kinds))), False
    if name in ("time", "seq", "lsn") and len(values) == 1:
        above, is_above = _compared(narrowed, attribute, ">=", values[0])
        both, is_below = _compared(above, attribute, "<=", values[0])
        return both, is_above and is_below
    return narrowed, False


def _in_vhost(narrowed: Narrowed, vhosts: frozenset[str]) -> tuple[Narrowed, bool]:
    request = narrowed.request
    if request.vhost is not None:
        vhosts = vhosts & {request.vhost}
    if not vhosts:
        return replace(narrowed, request=replace(request, queues=NOTHING)), True
    if len(vhosts) > 1:
        return narrowed, False
    (vhost,) = vhosts
    return replace(narrowed, request=replace(request, vhost=vhost)), True


def _compared(narrowed: Narrowed, attribute: tuple[str, ...], sign: str, value: Any) -> tuple[Narrowed, bool]:
    """column < value, and the other three."""
    name = attribute[0] if len(attribute) == 1 else ""
    request = narrowed.request
    if name == "kind_no" and _is_whole(value):
        kinds = frozenset(kind for number, kind in KINDS.items() if OPERATORS[sign](number, value)) | {UNKNOWN_KIND}
        return replace(narrowed, request=replace(request, kinds=_both(request.kinds, kinds))), False
    if name == "time" and isinstance(value, datetime):
        low, high = _bounds(request.min_us, request.max_us, sign, microseconds(value))
        return replace(narrowed, request=replace(request, min_us=low, max_us=high)), True
    # A run stands for many messages and many events: its bounds are not those of its rows.
    if request.view != EVENTS_VIEW or not _is_whole(value):
        return narrowed, False
    if name == "seq":
        low, high = _bounds(request.min_seq, request.max_seq, sign, value)
        return replace(narrowed, request=replace(request, min_seq=low, max_seq=high)), True
    if name == "lsn":
        low, high = _bounds(narrowed.min_lsn, narrowed.max_lsn, sign, value)
        return replace(narrowed, min_lsn=low or 0, max_lsn=high), True
    return narrowed, False


def _bounds(low: int | None, high: int | None, sign: str, value: int) -> tuple[int | None, int | None]:
    """Narrow low <= … < high."""
    if sign in (">", ">="):
        least = value + 1 if sign == ">" else value
        return least if low is None else max(low, least), high
    beyond = value + 1 if sign == "<=" else value
    return low, beyond if high is None else min(high, beyond)


def _both(one: frozenset[str] | None, other: frozenset[str]) -> frozenset[str]:
    return other if one is None else one & other


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
