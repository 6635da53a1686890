"""A projection or a filter shows what is left of the whole when one projects or filters that."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.history.log import Log
from penstock.pipeline.columns import EVENTS, RUNS
from penstock.pipeline.decode.ranges import plan
from penstock.pipeline.decode.request import Request
from tests.pipeline.decode.journals import EVERY_KIND, JournalFolder, Row, read_all, write_steps

Keep = Callable[[Row], bool]
BEGIN_US = 1_700_000_000_000_000

FILTERS: list[tuple[Request, Keep]] = [
    (Request(vhost="v1"), lambda row: row["vhost"] == "v1"),
    (Request(vhost="nobody's"), lambda row: False),
    (Request(queues=frozenset({"queue 2", "queue 4"})), lambda row: row["queue"] in ("queue 2", "queue 4")),
    (Request(queues=frozenset()), lambda row: False),
    (Request(vhost="v0", queues=frozenset({"queue 1", "queue 2"})), lambda row: row["queue"] == "queue 2"),
    (Request(kinds=frozenset({"published", "taken"})), lambda row: row["kind"] in ("published", "taken")),
    (Request(kinds=frozenset({"unknown", "deleted"})), lambda row: row["kind"] in ("unknown", "deleted")),
    (Request(kinds=frozenset({"delivered"})), lambda row: row["kind_no"] in (2, 13)),
    (Request(min_us=BEGIN_US + 500_000), lambda row: row["time"] >= BEGIN_US + 500_000),
    (Request(max_us=BEGIN_US + 500_000), lambda row: row["time"] < BEGIN_US + 500_000),
    (
        Request(min_us=BEGIN_US + 500_000, max_us=BEGIN_US + 500_001),
        lambda row: row["time"] == BEGIN_US + 500_000,
    ),
    (Request(min_seq=1), lambda row: row["seq"] >= 1),
    (Request(max_seq=2), lambda row: row["seq"] < 2),
    (Request(min_seq=1, max_seq=2), lambda row: row["seq"] == 1),
    (
        Request(kinds=frozenset({"published"}), vhost="v0", min_seq=1, max_us=BEGIN_US + 800_000),
        lambda row: (
            row["kind"] == "published" and row["vhost"] == "v0" and row["seq"] >= 1 and row["time"] < BEGIN_US + 800_000
        ),
    ),
]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    house = JournalFolder(tmp_path, segment_bytes=12_000)
    write_steps(house, EVERY_KIND)
    house.finish()
    opened = house.log()
    yield opened
    opened.close()


@pytest.mark.parametrize(("request_", "keep"), FILTERS, ids=[str(at) for at in range(len(FILTERS))])
def test_a_filter_leaves_what_it_would_leave_of_the_whole(log: Log, request_: Request, keep: Keep) -> None:
    whole = read_all(log, Request())
    left = [row for row in whole if keep(row)]
    assert read_all(log, request_) == left
    assert len(left) < len(whole)


@pytest.mark.parametrize("name", [name for name in EVENTS.names if name != "problem"])
def test_a_column_alone_is_the_same_as_among_all(log: Log, name: str) -> None:
    whole = read_all(log, Request())
    assert read_all(log, Request(columns=(name,))) == [{name: row[name]} for row in whole]


@pytest.mark.parametrize("name", RUNS.names)
def test_a_column_of_runs_alone_is_the_same_as_among_all(log: Log, name: str) -> None:
    whole = read_all(log, Request(view="runs"))
    found = read_all(log, Request(view="runs", columns=(name,)))
    if name == "problem":
        # It is about the columns that are asked for.
        assert [row["problem"] for row in found if row["problem"]] == [True, True]
    else:
        assert found == [{name: row[name]} for row in whole]


def test_columns_come_in_the_order_in_which_they_are_asked_for(log: Log) -> None:
    columns = ("body", "lsn", "queue", "kind_no")
    rows = read_all(log, Request(columns=columns))
    assert tuple(rows[0]) == columns


def test_runs_add_up_to_the_events_whatever_is_cut_off(log: Log) -> None:
    for request in (Request(), Request(min_seq=1), Request(max_seq=31), Request(vhost="v1", min_seq=2)):
        events = read_all(log, request)
        runs = read_all(log, replace(request, view="runs"))
        assert sum(row["count"] for row in runs) == len(events) > 0
        sizes = [row["size"] for row in events if row["kind"] == "published"]
        assert sum(row["bytes"] for row in runs if row["kind"] == "published") == sum(sizes)


def test_a_segment_without_the_queue_is_not_read(log: Log) -> None:
    state = log.state()
    request = Request(queues=frozenset({"queue 3"}))
    named = {part.segment for part in plan(log, 0, state.end_lsn, request=request)}
    assert named == {info.number for info in state.segments if 3 in log.index(info.number).queues}
    assert len(named) < len(state.segments)


def test_a_request_for_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no column colour"):
        Request(columns=("lsn", "colour"))
    with pytest.raises(ValueError, match="no view 'queues'"):
        Request(view="queues")
    with pytest.raises(ValueError, match="at least 1"):
        Request(batch_rows=0)


def test_a_request_can_be_sent_to_another_process() -> None:
    request = Request(view="runs", columns=("lsn",), queues=frozenset({"a"}), min_us=5)
    assert pickle.loads(pickle.dumps(request)) == request
