"""Damage: a row is what it was, or says that it is not; nothing is raised, and no LSN is passed over in silence."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from penstock.history.log import Log
from penstock.journal.format.layout import FIRST_BATCH_AT, ROW
from penstock.message import Incoming
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import plan
from penstock.pipeline.decode.request import Request
from tests.pipeline.decode.journals import (
    EVERY_KIND,
    JournalFolder,
    Row,
    bodies,
    envelope,
    read_all,
    without_time_of_damage,
    write_steps,
)
from tests.pipeline.decode.plain import read_plain

RUNS = Request(view="runs")


@pytest.fixture
def house(tmp_path: Path) -> JournalFolder:
    folder = tmp_path / "data"
    folder.mkdir()
    made = JournalFolder(folder, segment_bytes=1 << 20)
    small = [("publish", [1, 2], 1, 0, [40, 900], 0, -1, True), ("settle", 3, 1, 0, 5, 7, 2, 0), ("commit",)]
    write_steps(made, [step for step in EVERY_KIND if step != ("roll",)] + small * 4)
    made.finish()
    return made


def segment_of(house: JournalFolder, number: int = 1) -> Path:
    return Path(house.folder) / "journal" / f"{number:08}.pnj"


def flip(path: Path, byte: int, bit: int) -> None:
    """Change one bit in place: whoever has the file open sees it."""
    with path.open("r+b") as file:
        file.seek(byte)
        old = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([old ^ 1 << bit]))


def lsns(runs: list[Row]) -> set[int]:
    return {lsn for run in runs for lsn in range(run["lsn"], run["lsn"] + run["count"])}


def check_equal_or_marked(whole: list[Row], found: list[Row]) -> int:
    """Each row is the one it was, or is marked and has nothing that it had not; the number of marks."""
    before = {row["lsn"]: row for row in whole}
    marks = 0
    for row in found:
        if row["kind"] == "unreadable":
            assert row["problem"]
            marks += 1
            continue
        old = before[row["lsn"]]
        if row != old:
            assert row["problem"]
            marks += 1
            for name, value in row.items():
                assert name == "problem" or value in (None, old[name])
    assert [row["lsn"] for row in found] == sorted({row["lsn"] for row in found})
    return marks


def check_damaged(house: JournalFolder, whole: list[Row], whole_runs: list[Row]) -> int:
    log = house.log()
    found, runs = read_all(log, Request()), read_all(log, RUNS)
    plain_events, plain_runs = read_plain(house.folder, log)
    assert without_time_of_damage(found) == plain_events
    assert without_time_of_damage(runs) == plain_runs
    assert lsns(runs) >= lsns(whole_runs)
    log.close()
    return check_equal_or_marked(whole, found)


def test_a_flipped_bit_changes_nothing_or_is_marked(house: JournalFolder) -> None:
    log = house.log()
    whole, whole_runs = read_all(log, Request()), read_all(log, RUNS)
    log.close()
    path = segment_of(house)
    choose = random.Random(13)
    marked = 0
    size = path.stat().st_size
    places = [*range(0, 64, 5), *choose.sample(range(FIRST_BATCH_AT, size), 160)]
    for place in places:
        bit = choose.randrange(8)
        flip(path, place, bit)
        marks = check_damaged(house, whole, whole_runs)
        assert marks == 0 or place >= FIRST_BATCH_AT
        marked += marks > 0
        flip(path, place, bit)
    assert marked > 100


def test_a_bit_that_flips_after_the_index_was_made_is_marked(house: JournalFolder) -> None:
    log = house.log()
    whole, whole_runs = read_all(log, Request()), read_all(log, RUNS)
    ranges = plan(log, 0, log.state().end_lsn, 1)
    assert len(ranges) > 4
    path = segment_of(house)
    choose = random.Random(14)
    marked = 0
    for place in choose.sample(range(FIRST_BATCH_AT, path.stat().st_size), 160):
        bit = choose.randrange(8)
        flip(path, place, bit)
        marked += check_equal_or_marked(whole, read_all(log, Request(), ranges)) > 0
        assert lsns(read_all(log, RUNS, ranges)) >= lsns(whole_runs)
        flip(path, place, bit)
    assert marked > 100


def test_where_a_range_ends_does_not_change_what_is_said_about_damage(house: JournalFolder) -> None:
    path = segment_of(house)
    choose = random.Random(15)
    for place in choose.sample(range(FIRST_BATCH_AT, path.stat().st_size), 25):
        flip(path, place, 3)
        log = house.log()
        end = log.state().end_lsn
        whole = read_all(log, Request())
        assert read_all(log, Request(), plan(log, 0, end, 1)) == whole
        for cut in choose.sample(range(end), 6):
            parts = read_all(log, Request(), plan(log, 0, cut)) + read_all(log, Request(), plan(log, cut, end))
            assert parts == whole
        log.close()
        flip(path, place, 3)


def test_a_segment_that_is_cut_short_says_what_is_missing(house: JournalFolder, tmp_path: Path) -> None:
    log = house.log()
    whole, whole_runs = read_all(log, Request()), read_all(log, RUNS)
    ranges = plan(log, 0, log.state().end_lsn, 1)
    log.close()
    path = segment_of(house)
    shutil.copy(path, tmp_path / "copy")
    size = path.stat().st_size
    # The last 96 bytes are a commit mark: with them nothing is lost.
    for length in [FIRST_BATCH_AT, FIRST_BATCH_AT + 10, *range(FIRST_BATCH_AT + 96, size - 97, 997), size - 97]:
        with path.open("r+b") as file:
            file.truncate(length)
        assert check_damaged(house, whole, whole_runs) > 0
        shutil.copy(tmp_path / "copy", path)
        # The ranges were planned when all was there.
        log = house.log()
        log.index(1)
        with path.open("r+b") as file:
            file.truncate(length)
        assert check_equal_or_marked(whole, read_all(log, Request(), ranges)) > 0
        log.close()
        shutil.copy(tmp_path / "copy", path)


def test_a_missing_segment_is_one_row(tmp_path: Path) -> None:
    house = JournalFolder(tmp_path, segment_bytes=5_000)
    for seq in range(5):
        house.journal.publish(1, seq, Incoming(envelope(), bodies(b"x" * 300)), -1)
        house.commit()
    house.finish()
    log = house.log()
    whole = read_all(log, Request())
    second, third = log.state().segments[1:3]
    log.close()
    segment_of(house, second.number).unlink()
    rows = read_all(house.log(), Request())
    lost = [row for row in rows if row["kind"] == "unreadable"]
    assert [(row["lsn"], row["queue_no"], row["seq"], row["kind_no"]) for row in lost] == [
        (second.first_lsn, -1, -1, 101)
    ]
    assert [row for row in rows if row not in lost] == [
        row for row in whole if not second.first_lsn <= row["lsn"] < third.first_lsn
    ]


def test_a_damaged_block_costs_the_bodies_that_touch_it_and_no_rows(tmp_path: Path) -> None:
    house = JournalFolder(tmp_path)
    texts = [bytes([65 + at]) * 1500 for at in range(12)]
    house.journal.publish(1, 0, Incoming(envelope(), bodies(*texts)), -1)
    house.finish()
    log = house.log()
    whole = read_all(log, Request())
    data = segment_of(house).read_bytes()
    flip(segment_of(house), data.index(texts[5]) + 100, 0)
    rows = read_all(log, Request())
    assert len(rows) == 12
    bad = [row["seq"] for row in rows if row["body"] is None]
    assert 5 in bad
    assert 2 <= len(bad) <= 5
    assert [row for row in rows if row["seq"] not in bad] == [row for row in whole if row["seq"] not in bad]
    assert [row for row in rows if row["seq"] in bad] == [
        row | {"body": None, "problem": True} for row in whole if row["seq"] in bad
    ]
    # Whoever does not want bodies does not mind.
    assert read_all(log, Request(bodies=False)) == [row | {"body": None} for row in whole]


def test_filters_are_exact_on_what_is_unreadable(house: JournalFolder) -> None:
    path = segment_of(house)
    flip(path, FIRST_BATCH_AT + 100, 1)
    log = house.log()
    whole = read_all(log, Request())
    lost = [row for row in whole if row["kind"] == "unreadable"]
    assert len(lost) == 1
    assert read_all(log, Request(kinds=frozenset({"unreadable"}))) == lost
    assert read_all(log, Request(max_us=lost[0]["time"] + 1)) == lost
    for request in (
        Request(vhost="v1"),
        Request(queues=frozenset({"queue 1"})),
        Request(min_seq=0),
        Request(max_seq=-1),
        Request(kinds=frozenset({"published"})),
        Request(min_us=lost[0]["time"] + 1),
    ):
        assert "unreadable" not in [row["kind"] for row in read_all(log, request)]


def test_an_unreadable_row_says_where_and_which_events(house: JournalFolder) -> None:
    flip(segment_of(house), FIRST_BATCH_AT + 100, 1)
    log: Log = house.log()
    (part, *_) = plan(log, 0, log.state().end_lsn)
    (first, *_) = read_range(log, part, Request(kinds=frozenset({"unreadable"})))
    text = first["problem"][0].as_py()
    next_lsn = log.index(1).marks[0].lsn
    assert f"segment 1, bytes {FIRST_BATCH_AT} to {log.index(1).marks[0].pos}" in text
    assert f"events 0 to {next_lsn - 1}" in text


NONSENSE = {
    "a count below one": (0, 1, 0, -1, -1, -1, 3),
    "more events than the header says": (0, 1, 0, 5, -1, -1, 3),
    "an entry that is not there": (0, 1, 0, 1, 0, 99, 1),
    "a message without an entry": (0, 1, 0, 1, 0, -1, 1),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_rows_that_make_no_sense_are_unreadable_and_their_neighbours_are_read(tmp_path: Path, what: str) -> None:
    house = JournalFolder(tmp_path)
    journal = house.journal
    journal.publish(1, 0, Incoming(envelope(), bodies(b"before")), -1)
    house.commit()
    journal.publish(1, 1, Incoming(envelope(), bodies(b"beside")), -1)
    journal._rows.append(ROW.pack(*NONSENSE[what], 0, 0, 0))
    journal.next_lsn += 1
    house.commit()
    journal.publish(1, 2, Incoming(envelope(), bodies(b"behind")), -1)
    house.finish()
    log = house.log()
    rows = read_all(log, Request())
    assert [(row["kind"], row["body"]) for row in rows] == [
        ("published", b"before"),
        ("unreadable", None),
        ("published", b"behind"),
    ]
    runs = read_all(log, RUNS)
    assert [(run["kind"], run["count"]) for run in runs] == [("published", 1), ("unreadable", 3), ("published", 1)]
