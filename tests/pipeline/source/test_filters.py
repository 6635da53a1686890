"""Filters that the source does by itself; each is compared with Spark's own in test_batch.py."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.pipeline.decode.request import RUNS_VIEW, Request
from penstock.pipeline.source.filters import Narrowed, narrow

SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def narrowed(*filters: Filter, request: Request | None = None) -> tuple[Narrowed, list[bool]]:
    found = Narrowed(request or Request())
    done = []
    for filter_ in filters:
        found, is_done = narrow(found, filter_)
        done.append(is_done)
    return found, done


def test_a_queue_is_one_of_those_that_all_filters_name() -> None:
    found, done = narrowed(In(("queue",), ("a", "b")), EqualTo(("queue",), "b"))
    assert (found.request.queues, done) == ({"b"}, [True, True])
    assert narrowed(EqualTo(("queue",), "a"), EqualNullSafe(("queue",), "b"))[0].request.queues == set()


def test_filters_and_options_hold_together() -> None:
    request = Request(queues=frozenset({"a"}), kinds=frozenset({"acked"}), vhost="/")
    found, done = narrowed(EqualTo(("kind",), "published"), EqualTo(("vhost",), "other"), request=request)
    assert done == [True, True]
    assert (found.request.kinds, found.request.queues) == (set(), set())


def test_several_vhosts_are_left_to_spark() -> None:
    assert narrowed(In(("vhost",), ("a", "b"))) == (Narrowed(Request()), [False])
    found, done = narrowed(In(("vhost",), ("a", "b")), request=Request(vhost="a"))
    assert (found.request.vhost, done) == ("a", [True])


def test_the_number_of_a_kind_is_looked_at_by_spark_again() -> None:
    found, done = narrowed(EqualTo(("kind_no",), 13))
    assert (found.request.kinds, done) == ({"delivered"}, [False])
    found, done = narrowed(LessThan(("kind_no",), 3), Not(EqualTo(("kind_no",), 1)))
    assert (found.request.kinds, done) == ({"published", "delivered", "unknown"}, [False, False])
    assert narrowed(EqualTo(("kind_no",), 77))[0].request.kinds == {"unknown"}


@pytest.mark.parametrize(
    ("filter_", "low", "high"),
    [
        (GreaterThan(("x",), 5), 6, None),
        (GreaterThanOrEqual(("x",), 5), 5, None),
        (LessThan(("x",), 5), None, 5),
        (LessThanOrEqual(("x",), 5), None, 6),
        (EqualTo(("x",), 5), 5, 6),
    ],
)
def test_a_comparison_is_a_bound(filter_: Filter, low: int | None, high: int | None) -> None:
    kind, value = type(filter_), 5
    found, done = narrowed(kind(("seq",), value))  # type: ignore[call-arg]
    assert (found.request.min_seq, found.request.max_seq, done) == (low, high, [True])
    found, done = narrowed(kind(("lsn",), value))  # type: ignore[call-arg]
    assert (found.min_lsn, found.max_lsn, done) == (low or 0, high, [True])
    found, done = narrowed(kind(("time",), SECOND))  # type: ignore[call-arg]
    shift = 1_000_000 - 5
    assert found.request.min_us == (None if low is None else low + shift)
    assert found.request.max_us == (None if high is None else high + shift)


def test_the_narrowest_bound_holds() -> None:
    found, _ = narrowed(
        GreaterThan(("lsn",), 5),
        GreaterThan(("lsn",), 2),
        LessThan(("lsn",), 90),
        LessThan(("lsn",), 100),
        GreaterThanOrEqual(("seq",), 3),
        GreaterThanOrEqual(("seq",), 1),
        LessThanOrEqual(("seq",), 8),
        LessThanOrEqual(("seq",), 9),
    )
    assert (found.min_lsn, found.max_lsn) == (6, 90)
    assert (found.request.min_seq, found.request.max_seq) == (3, 9)


def test_a_run_has_other_bounds_than_its_rows() -> None:
    runs = Request(view=RUNS_VIEW)
    found, done = narrowed(GreaterThan(("lsn",), 5), LessThan(("seq",), 3), EqualTo(("seq",), 1), request=runs)
    assert (found, done) == (Narrowed(runs), [False, False, False])
    assert narrowed(EqualTo(("queue",), "a"), request=runs)[1] == [True]


@pytest.mark.parametrize(
    "filter_",
    [
        IsNotNull(("queue",)),
        Not(EqualTo(("queue",), "a")),
        StringStartsWith(("queue",), "a"),
        EqualTo(("queue",), None),
        In(("queue",), ("a", None)),
        EqualTo(("headers", "queue"), "a"),
        EqualTo(("size",), 5),
        EqualTo(("seq",), 5.5),
        EqualTo(("seq",), True),
        GreaterThan(("time",), "1970"),
        In(("seq",), (1, 2)),
    ],
)
def test_what_is_not_understood_is_left_to_spark(filter_: Filter) -> None:
    assert narrowed(filter_) == (Narrowed(Request()), [False])
