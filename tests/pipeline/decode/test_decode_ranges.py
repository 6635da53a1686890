"""Ranges: together they are the whole, wherever the log is cut, and no row is in two of them."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.history.log import HistoryError, Log, SegmentGone, SegmentIndex
from penstock.message import Incoming
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import BehindRetention, LogRange, bytes_until, lsn_at_time, plan
from penstock.pipeline.decode.request import Request
from penstock.pipeline.source.known_indexes import KnownIndexes
from tests.pipeline.decode.journals import EVERY_KIND, JournalFolder, Row, bodies, envelope, read_all, write_steps

BEGIN_US = 1_700_000_000_000_000


@pytest.fixture
def house(tmp_path: Path) -> JournalFolder:
    made = JournalFolder(tmp_path, segment_bytes=16_000)
    small = [("publish", [1, 2], 0, 0, [40, 40], 0, -1, True), ("settle", 3, 1, 0, 5, 7, 0, 0), ("commit",)]
    write_steps(made, (EVERY_KIND + small * 6) * 2)
    made.finish()
    return made


@pytest.fixture
def log(house: JournalFolder) -> Iterator[Log]:
    opened = house.log()
    yield opened
    opened.close()


def check_follow_each_other(ranges: list[LogRange], from_lsn: int, to_lsn: int) -> None:
    assert [part.from_lsn for part in ranges] == [from_lsn, *(part.to_lsn for part in ranges[:-1])]
    assert ranges[-1].to_lsn == to_lsn


@pytest.mark.parametrize("target_bytes", [1, 500, 2000, 5000, 1 << 24])
def test_the_ranges_of_a_plan_are_the_whole(log: Log, target_bytes: int) -> None:
    end = log.state().end_lsn
    whole = read_all(log, Request())
    ranges = plan(log, 0, end, target_bytes)
    check_follow_each_other(ranges, 0, end)
    assert ranges.lost_events == 0
    assert read_all(log, Request(), ranges) == whole


def test_smaller_ranges_are_more_ranges(log: Log) -> None:
    end = log.state().end_lsn
    assert len(plan(log, 0, end, 1)) > len(plan(log, 0, end, 2000)) > len(plan(log, 0, end, 1 << 24)) > 1


def test_any_lsn_can_be_the_end_of_one_part_and_the_beginning_of_the_next(log: Log) -> None:
    end = log.state().end_lsn
    request = Request(columns=("lsn", "seq", "size", "properties"))
    whole = read_all(log, request)
    for cut in range(end + 1):
        first = read_all(log, request, plan(log, 0, cut))
        second = read_all(log, request, plan(log, cut, end))
        assert [row for row in whole if row["lsn"] < cut] == first
        assert [row for row in whole if row["lsn"] >= cut] == second


def test_runs_that_are_cut_in_two_add_up(log: Log) -> None:
    end = log.state().end_lsn
    whole = read_all(log, Request(view="runs"))
    choose = random.Random(6)
    for _ in range(40):
        cuts = sorted([0, *choose.sample(range(1, end), 3), end])
        parts: list[Row] = []
        for begin, stop in pairwise(cuts):
            parts += read_all(log, Request(view="runs"), plan(log, begin, stop, 700))
        for field in ("count", "bytes"):
            assert sum(row[field] for row in parts) == sum(row[field] for row in whole)


def test_a_plan_is_the_same_each_time(house: JournalFolder) -> None:
    one, other = house.log(), house.log()
    end = one.state().end_lsn
    assert plan(one, 17, end - 9, 900) == plan(other, 17, end - 9, 900)


@pytest.mark.parametrize("target_bytes", [1, 700, 1500, 4000])
def test_a_plan_is_the_same_when_the_log_has_grown(tmp_path: Path, target_bytes: int) -> None:
    # A batch of Spark that is made again has the same tasks with the same rows: keys of messages are made of both.
    made = JournalFolder(tmp_path, segment_bytes=16_000)
    log = made.log()
    before: dict[int, list[tuple[int, int]]] = {}
    for number in range(120):
        write_steps(made, [("publish", [1, 2], 0, 0, [number % 90, 40], 0, -1, True), ("commit",)])
        end = log.state().end_lsn
        before[end] = [(part.from_lsn, part.to_lsn) for part in plan(log, 0, end, target_bytes)]
    made.finish()
    for end, ranges in before.items():
        assert [(part.from_lsn, part.to_lsn) for part in plan(log, 0, end, target_bytes)] == ranges
    log.close()


def test_a_range_can_be_sent_to_another_process(log: Log) -> None:
    ranges = plan(log, 3, 30)
    assert pickle.loads(pickle.dumps(ranges)) == ranges


def test_nothing_is_planned_beyond_the_end(log: Log) -> None:
    end = log.state().end_lsn
    assert plan(log, end, end + 100) == []
    assert plan(log, 5, 5) == []
    check_follow_each_other(plan(log, end - 5, end + 100), end - 5, end)


def test_positions_are_a_hint_and_lsns_decide(log: Log) -> None:
    whole = read_all(log, Request())
    for part in plan(log, 0, log.state().end_lsn, 1):
        segment_end = log.index(part.segment).end_pos
        generous = LogRange(part.segment, 4160, segment_end, part.from_lsn, part.to_lsn)
        expected = [row for row in whole if part.from_lsn <= row["lsn"] < part.to_lsn]
        assert read_all(log, Request(), [generous]) == expected


# --- what is gone -----------------------------------------------------------------------------------------


def test_a_reader_behind_retention_is_told_so(house: JournalFolder, tmp_path: Path) -> None:
    (tmp_path / "journal" / "00000001.pnj").unlink()
    log = house.log()
    first = log.state().first_lsn
    assert first > 0
    with pytest.raises(BehindRetention) as caught:
        plan(log, 0, log.state().end_lsn)
    assert (caught.value.from_lsn, caught.value.first_lsn) == (0, first)
    assert isinstance(caught.value, HistoryError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


class Retention(KnownIndexes):
    """Removes a segment after the log was listed and before it is looked into."""

    def __init__(self, log: Log, segment: Path) -> None:
        super().__init__(log)
        self._segment = segment

    def index(self, number: int) -> SegmentIndex:
        self._segment.unlink(missing_ok=True)
        return super().index(number)


def test_a_segment_that_goes_while_a_plan_is_made_is_lost_as_any_other(house: JournalFolder, tmp_path: Path) -> None:
    whole = read_all(house.log(), Request())
    end = house.log().state().end_lsn
    log = Retention(house.log(), tmp_path / "journal" / "00000001.pnj")
    ranges = plan(log, 3, end, fail_on_data_loss=False)
    first = log.state().first_lsn
    assert ranges.lost_events == first - 3 > 0
    assert read_all(log, Request(), ranges) == [row for row in whole if row["lsn"] >= first]
    log = Retention(house.log(), tmp_path / "journal" / "00000002.pnj")
    assert bytes_until(log, first, 1) > log.state().first_lsn > first
    log = Retention(house.log(), tmp_path / "journal" / "00000003.pnj")
    with pytest.raises(BehindRetention):
        plan(log, log.state().first_lsn, end)


def test_a_reader_that_does_not_mind_goes_on_and_knows_how_much_it_lost(house: JournalFolder, tmp_path: Path) -> None:
    whole = read_all(house.log(), Request())
    (tmp_path / "journal" / "00000001.pnj").unlink()
    log = house.log()
    state = log.state()
    ranges = plan(log, 3, state.end_lsn, fail_on_data_loss=False)
    assert ranges.lost_events == state.first_lsn - 3
    assert read_all(log, Request(), ranges) == [row for row in whole if row["lsn"] >= state.first_lsn]
    gone = plan(log, 0, state.first_lsn, fail_on_data_loss=False)
    assert (gone, gone.lost_events) == ([], state.first_lsn)


def test_a_segment_that_goes_while_it_is_read_is_no_damage(house: JournalFolder, tmp_path: Path) -> None:
    log = house.log()
    ranges = plan(log, 0, log.state().end_lsn)
    log.close()
    (tmp_path / "journal" / "00000001.pnj").unlink()
    with pytest.raises(SegmentGone):
        list(read_range(house.log(), ranges[0], Request()))


# --- positions --------------------------------------------------------------------------------------------


def test_a_time_is_the_lsn_of_the_first_batch_from_then_on(log: Log) -> None:
    whole = read_all(log, Request())
    for us in {row["time"] for row in whole}:
        for wanted in (us - 1, us):
            lsn = lsn_at_time(log, wanted)
            assert min(row["lsn"] for row in whole if row["time"] >= us) >= lsn
            assert not [row for row in whole if row["time"] < wanted and row["lsn"] >= lsn]
    assert lsn_at_time(log, 0) == 0
    assert lsn_at_time(log, BEGIN_US + 10**12) == log.state().end_lsn


@pytest.mark.parametrize("max_bytes", [0, 1, 300, 1000, 4000, 9000, 30_000, 10**9])
def test_a_limit_of_bytes_is_kept_but_for_one_batch(log: Log, max_bytes: int) -> None:
    state = log.state()
    at, steps = 0, 0
    while at < state.end_lsn:
        reached = bytes_until(log, at, max_bytes)
        assert at < reached <= state.end_lsn
        sizes = [part.to_pos - part.from_pos for part in plan(log, at, reached, 1)]
        # A mark may stand in front of the first batch, and one behind the last.
        assert sum(sizes[1:-1]) <= max_bytes
        at, steps = reached, steps + 1
    assert bytes_until(log, at, max_bytes) == at
    assert steps > 10 if max_bytes <= 300 else steps >= 1
    assert steps == 1 if max_bytes == 10**9 else steps > 1


def test_a_limit_of_bytes_ends_where_a_batch_ends(tmp_path: Path) -> None:
    house = JournalFolder(tmp_path)
    ends = []
    for number in range(12):
        house.journal.publish(1, 2 * number, Incoming(envelope(), bodies(b"a" * 50, b"b" * 50)), -1)
        house.commit()
        ends.append(house.journal.next_lsn)
    house.finish()
    log = house.log(mark_bytes=1 << 20)
    found = []
    at = 0
    while at < log.state().end_lsn:
        at = bytes_until(log, at, 800)
        found.append(at)
    assert set(found) <= set(ends)
    assert 3 < len(found) < len(ends)
