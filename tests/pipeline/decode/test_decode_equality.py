"""The fast reader shows what a plain one shows, for every kind of row."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings

from penstock.message import Incoming
from penstock.pipeline.columns import EXPIRES_MS_MAX, TIME
from penstock.pipeline.decode import decoded, events
from penstock.pipeline.decode.group import entries, sections
from penstock.pipeline.decode.request import BATCH_ROWS_MAX, Request
from tests.pipeline.decode.journals import (
    EVERY_KIND,
    JournalFolder,
    Step,
    bodies,
    envelope,
    journals,
    read_all,
    runs_request,
    write_steps,
)
from tests.pipeline.decode.plain import read_plain


def check_equal(folder: Path, steps: list[Step], batch_rows: int = 40_000) -> int:
    """Write a journal, and compare both readers on both views; the number of events."""
    house = JournalFolder(folder, segment_bytes=12_000)
    write_steps(house, steps)
    house.finish()
    log = house.log()
    plain_events, plain_runs = read_plain(house.folder, log)
    request = Request(batch_rows=batch_rows)
    assert read_all(log, request) == plain_events
    assert read_all(log, runs_request(request)) == plain_runs
    log.close()
    return len(plain_events)


def test_every_kind_of_row_is_shown_as_the_plain_reader_shows_it(tmp_path: Path) -> None:
    assert check_equal(tmp_path, EVERY_KIND) > 60


@pytest.mark.parametrize("first", [2**31 - 3, 2**32 - 3, 2**53 - 3, 2**62])
def test_numbers_of_events_and_messages_are_shown_up_to_63_bits(tmp_path: Path, first: int) -> None:
    house = JournalFolder(tmp_path, segment_bytes=12_000, lsn=first)
    steps = [("publish", [1, 2], 0, 0, [1] * 9, 0, -1, True), ("settle", 2, 1, first, 9, 9, 2, 0), ("commit",)]
    write_steps(house, steps, first)
    house.finish()
    log = house.log()
    plain_events, plain_runs = read_plain(house.folder, log)
    assert plain_events[0]["lsn"] >= first
    assert {event["seq"] for event in plain_events} == set(range(first, first + 9))
    assert read_all(log, Request()) == plain_events
    assert read_all(log, runs_request(Request())) == plain_runs
    log.close()


def test_what_is_held_for_longer_than_times_can_say_is_shown_with_the_last_of_them(tmp_path: Path) -> None:
    house = JournalFolder(tmp_path)
    held_until = [EXPIRES_MS_MAX - 1, EXPIRES_MS_MAX, EXPIRES_MS_MAX + 1, 2**62, 2**63 - 1]
    write_steps(house, [("publish", [1], 0, 0, [1], 0, expiry_ms, True) for expiry_ms in held_until])
    house.finish()
    log = house.log()
    shown = [event["expires"] for event in read_all(log, Request())]
    log.close()
    assert shown == [1000 * (EXPIRES_MS_MAX - 1), *[1000 * EXPIRES_MS_MAX] * 4]
    assert pa.array(shown, TIME).to_pylist()[-1].year == 9999


@pytest.mark.parametrize("batch_rows", [0, BATCH_ROWS_MAX + 1])
def test_batches_whose_columns_could_outgrow_what_offsets_reach_are_refused(batch_rows: int) -> None:
    with pytest.raises(ValueError, match="batch_rows"):
        Request(batch_rows=batch_rows)


@given(steps=journals)
@settings(max_examples=60, deadline=None)
def test_any_journal_is_shown_as_the_plain_reader_shows_it(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_equal(Path(folder), steps)


@pytest.mark.parametrize("batch_rows", [1, 2, 7])
def test_rows_are_the_same_in_batches_of_any_size(tmp_path: Path, batch_rows: int) -> None:
    assert check_equal(tmp_path, EVERY_KIND, batch_rows) > 60


@pytest.mark.parametrize("window_bytes", [1, 100, 700, 3000])
def test_rows_are_the_same_whatever_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    monkeypatch.setattr(sections, "WINDOW_BYTES", window_bytes)
    assert check_equal(tmp_path, EVERY_KIND) > 60


@pytest.mark.parametrize("batch_bytes", [1, 1000, 8000])
def test_a_batch_with_too_many_bytes_is_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr(events, "BATCH_BYTES_MAX", batch_bytes)
    assert check_equal(tmp_path, EVERY_KIND) > 60


def test_properties_are_shown_the_same_one_by_one_and_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded, "FEW_ENTRIES", 0)
    assert check_equal(tmp_path, EVERY_KIND) > 60


@given(steps=journals)
@settings(max_examples=30, deadline=None)
def test_any_journal_with_properties_all_at_once(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoded, "FEW_ENTRIES", 0)
        check_equal(Path(folder), steps)


def test_offsets_of_64_bits_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "INT32_MAX", 100)
    assert check_equal(tmp_path, EVERY_KIND) > 60


def test_a_purge_of_very_many_messages_comes_in_pieces(tmp_path: Path) -> None:
    house = JournalFolder(tmp_path)
    house.journal.settle(9, 1, 0, 2_500, 0)
    house.finish()
    log = house.log()
    rows = read_all(log, Request(batch_rows=1_000, columns=("seq", "kind")))
    assert rows == [{"seq": seq, "kind": "purged"} for seq in range(2_500)]


def test_a_body_of_a_fan_out_is_shown_in_each_queue(tmp_path: Path) -> None:
    house = JournalFolder(tmp_path)
    run, shared = bodies(b"one", b"two"), envelope()
    for queue in (1, 2, 3):
        house.journal.publish(queue, 10, Incoming(shared, run), -1)
    house.finish()
    rows = read_all(house.log(), Request(columns=("queue_no", "seq", "body")))
    assert [(row["queue_no"], row["seq"], row["body"]) for row in rows] == [
        (queue, seq, body) for queue in (1, 2, 3) for seq, body in ((10, b"one"), (11, b"two"))
    ]


def test_what_is_not_known_to_be_durable_is_not_shown(tmp_path: Path) -> None:
    house = JournalFolder(tmp_path)
    house.journal.publish(1, 0, Incoming(envelope(), bodies(b"durable")), -1)
    house.commit()
    house.journal.publish(1, 1, Incoming(envelope(), bodies(b"perhaps")), -1)
    house.commit()
    assert [row["body"] for row in read_all(house.log(), Request())] == [b"durable"]


def test_bodies_that_are_not_asked_for_are_null_and_their_sizes_are_known(tmp_path: Path) -> None:
    house = JournalFolder(tmp_path)
    write_steps(house, EVERY_KIND)
    house.finish()
    log = house.log()
    with_bodies = read_all(log, Request())
    assert any(row["body"] for row in with_bodies)
    assert read_all(log, Request(bodies=False)) == [row | {"body": None} for row in with_bodies]
