"""The log of a folder: torn tails, rot, segments that come and go, and folders that are none.

The measure is recovery: what `journal.reading.replay.replay` finds. The log may show less, at the end, and never
anything else.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.disk.os_files import OsFiles
from penstock.history.folder_log import FolderLog
from penstock.history.indexing import SegmentWalk
from penstock.history.log import HistoryError, SegmentGone
from penstock.history.walked_segments import WalkedSegments
from penstock.journal.format.layout import FIRST_BATCH_AT, HEAD_COPY_AT
from penstock.journal.options import JournalOptions
from penstock.journal.reading.replay import cut_torn_tail, replay
from penstock.store.node.checkpoint import CheckpointDraft, CheckpointHeader
from penstock.store.retention.reader_cursors import make_log_id
from penstock.testing import Broker
from tests.history.naive_reader import events_of, recovered_events
from tests.history.small_broker import channel_of, publish, wait_for_all
from tests.unit.journal.journal_house import House


def house_in(folder: Path, segment: int = 1, lsn: int = 0, segment_bytes: int = 1 << 20) -> House:
    """A journal on the real disk."""
    folder.mkdir(exist_ok=True)
    (folder / "format").write_bytes(b"penstock 1\n")
    options = JournalOptions(segment_bytes=segment_bytes, batch_bytes_max=512)
    return House(OsFiles(folder), options, segment=segment, lsn=lsn)  # type: ignore[arg-type]


def segment_file(folder: Path, number: int = 1) -> Path:
    return folder / "journal" / f"{number:08d}.pnj"


def idle(house: House) -> None:
    """The commit mark is written."""
    house.clock.advance(1.0)
    house.journal.commit()


def shown(folder: Path) -> list[tuple[int, int, int, int]]:
    log = FolderLog(str(folder))
    try:
        return events_of(log)
    finally:
        log.close()


def recovered(folder: Path) -> list[tuple[int, int, int, int]]:
    return recovered_events(OsFiles(folder))


def batches_shown(folder: Path) -> list[tuple[int, int, int]]:
    """(segment, position, LSN) of every batch that the log speaks of."""
    log = FolderLog(str(folder), mark_bytes=1)
    try:
        numbers = [info.number for info in log.state().segments]
        return [(number, mark.pos, mark.lsn) for number in numbers for mark in log.index(number).marks]
    finally:
        log.close()


def batches_recovered(folder: Path) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    replay(OsFiles(folder), "journal", 1, 0, lambda view: found.append((view.segment, view.pos, view.first_lsn)))
    return found


# --- the end of the newest segment ----------------------------------------------------------------


def test_the_last_batch_is_shown_once_something_behind_it_proves_it(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    house.commit_one(b"first")
    assert shown(tmp_path) == []
    house.commit_one(b"second")
    after_first = len(shown(tmp_path))
    assert 0 < after_first < house.journal.next_lsn
    idle(house)
    assert len(shown(tmp_path)) == house.journal.next_lsn


def test_a_checkpoint_proves_what_is_below_it_and_a_damaged_one_proves_nothing(tmp_path: Path) -> None:
    """After a clean stop there may be no commit mark."""
    house = house_in(tmp_path)
    house.commit_one(b"first")
    after_first = house.journal.next_lsn
    house.commit_one(b"second")
    house.commit_one(b"third")
    files = OsFiles(tmp_path)
    files.make_dir("checkpoint")
    log = FolderLog(str(tmp_path))
    for number, lsn in ((1, after_first), (2, house.journal.next_lsn)):
        before = log.state().end_lsn
        header = CheckpointHeader(number, 7, 0, True)
        header.replay_lsn = lsn
        draft = CheckpointDraft(files, header)
        draft.finish()
        draft.publish()
        assert log.state().end_lsn == max(before, lsn)
    assert before < log.state().end_lsn == house.journal.next_lsn
    path = tmp_path / "checkpoint" / "00000002.ckpt"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert len(shown(tmp_path)) == before
    log.close()


@pytest.mark.parametrize("with_mark", [False, True])
def test_a_tail_that_is_cut_anywhere_shows_nothing_that_recovery_does_not(tmp_path: Path, with_mark: bool) -> None:
    house = house_in(tmp_path)
    house.commit_one(b"first")
    _, before_last = house.commit_one(b"second")
    house.commit_one(b"third")
    if with_mark:
        idle(house)
    house.journal.close()
    data = segment_file(tmp_path).read_bytes()
    counts = set()
    for size in range(before_last, len(data) + 1):
        segment_file(tmp_path).write_bytes(data[:size])
        seen, real = shown(tmp_path), recovered(tmp_path)
        assert seen == real[: len(seen)], size
        counts.add(len(seen))
    # It was not nothing all the time.
    assert len(counts) >= 2


@pytest.mark.parametrize("filler", [b"\0", b"\xff"])
def test_a_tail_that_was_not_written_whole_shows_nothing_that_recovery_does_not(tmp_path: Path, filler: bytes) -> None:
    """After a power cut the size of a file may be there, and its bytes not."""
    house = house_in(tmp_path)
    for text in (b"first", b"second", b"third"):
        house.commit_one(text)
    idle(house)
    house.journal.close()
    data = segment_file(tmp_path).read_bytes()
    for size in range(FIRST_BATCH_AT, len(data)):
        segment_file(tmp_path).write_bytes(data[:size] + filler * (len(data) - size))
        seen = shown(tmp_path)
        assert seen == recovered(tmp_path)[: len(seen)], size


def test_a_batch_that_is_being_written_is_shown_when_it_is_durable(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    for number in range(5):
        house.commit_one(b"x" * number * 100)
    idle(house)
    house.journal.close()
    data = segment_file(tmp_path).read_bytes()
    everything = shown(tmp_path)
    segment_file(tmp_path).write_bytes(b"")
    log = FolderLog(str(tmp_path))
    ends = []
    with segment_file(tmp_path).open("r+b", buffering=0) as file:
        for at in range(0, len(data), 7):
            file.write(data[at : at + 7])
            seen = events_of(log)
            assert seen == everything[: len(seen)]
            ends.append(log.state().end_lsn)
    assert ends == sorted(ends)
    assert len(set(ends)) > 4
    assert events_of(log) == everything
    log.close()


def test_what_was_shown_before_a_crash_is_there_after_it(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    for text in (b"first", b"second", b"never durable"):
        house.commit_one(text)
    house.journal.close()
    log = FolderLog(str(tmp_path))
    before = events_of(log)
    segment_file(tmp_path).write_bytes(segment_file(tmp_path).read_bytes()[:-10])
    files = OsFiles(tmp_path)
    end = replay(files, "journal", 1, 0, lambda view: None)
    cut_torn_tail(files, "journal", end)
    again = house_in(tmp_path, end.next_segment, end.next_lsn)
    again.publish(0, [b"another one"], 2)
    again.commit()
    idle(again)
    after = events_of(log)
    assert before
    assert after[: len(before)] == before
    assert after == recovered(tmp_path)
    log.close()


def test_a_write_that_was_taken_back_and_made_again_is_seen_as_it_is_now(tmp_path: Path) -> None:
    """As after a full disk: other bytes of the same size come in the place of those that were not durable."""
    for name, texts in (("first try", (b"first", b"x" * 100)), ("second try", (b"first", b"y" * 100))):
        house = house_in(tmp_path / name)
        for text in texts:
            house.commit_one(text)
        if name == "second try":
            idle(house)
    log = FolderLog(str(tmp_path / "first try"))
    before = events_of(log)
    with segment_file(tmp_path / "first try").open("r+b") as file:
        file.write(segment_file(tmp_path / "second try").read_bytes())
    after = events_of(log)
    assert 0 < len(before) < len(after)
    assert after == recovered(tmp_path / "first try")
    log.close()


# --- damage ---------------------------------------------------------------------------------------


def test_rot_in_the_middle_costs_what_it_costs_recovery(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    house.commit_one(b"first")
    _, start = house.commit_one(b"second")
    _, end = house.commit_one(b"third")
    house.commit_one(b"fourth")
    idle(house)
    house.journal.close()
    data = segment_file(tmp_path).read_bytes()
    whole = shown(tmp_path)
    with_gaps = 0
    for position in range(start, end):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        segment_file(tmp_path).write_bytes(damaged)
        seen = shown(tmp_path)
        assert seen == recovered(tmp_path), position
        assert batches_shown(tmp_path) == batches_recovered(tmp_path), position
        with_gaps += len(seen) < len(whole)
    assert with_gaps > 100


def test_a_batch_that_does_not_follow_the_one_before_it_is_not_believed(tmp_path: Path) -> None:
    """As when a disk has brought back what a failed write had left: valid, at its place, and of another history."""
    for name, text in (("one", b"aaaa"), ("two", b"bbbb")):
        house = house_in(tmp_path / name)
        house.commit_one(text)
        _, at = house.commit_one(b"second")
        house.commit_one(b"third")
        idle(house)
        house.journal.close()
    one, two = segment_file(tmp_path / "one"), segment_file(tmp_path / "two")
    one.write_bytes(one.read_bytes()[:at] + two.read_bytes()[at:])
    assert batches_shown(tmp_path / "one") == batches_recovered(tmp_path / "one")
    assert at not in [pos for _, pos, _ in batches_shown(tmp_path / "one")]


def test_there_is_a_mark_behind_damage(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    house.commit_one(b"first")
    _, start = house.commit_one(b"second")
    _, behind = house.commit_one(b"third")
    idle(house)
    house.journal.close()
    data = bytearray(segment_file(tmp_path).read_bytes())
    data[start + 20] ^= 1
    segment_file(tmp_path).write_bytes(data)
    log = FolderLog(str(tmp_path))
    first, second = log.index(1).marks
    assert (first.pos, second.pos) == (FIRST_BATCH_AT, behind)
    assert second.lsn > first.lsn + 1
    log.close()


def test_a_damaged_name_costs_the_name(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    house.commit_one(b"first")
    idle(house)
    house.journal.close()
    data = segment_file(tmp_path).read_bytes()
    assert data.count(b"queue 1") == 1
    segment_file(tmp_path).write_bytes(data.replace(b"queue 1", b"queue 2"))
    log = FolderLog(str(tmp_path))
    assert log.index(1).queues == {}
    assert len(events_of(log)) == house.journal.next_lsn
    log.close()


def test_a_label_of_another_form_is_shown_as_it_is(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    house.commit_one(b"first")
    idle(house)
    log = FolderLog(str(tmp_path))
    assert log.index(1).queues == {1: {"vhost": None, "queue": "queue 1", "vhost_id": None}}
    log.close()


def three_segments(folder: Path, text: bytes = b"text %d") -> House:
    house = house_in(folder, segment_bytes=FIRST_BATCH_AT + 800)
    number = 0
    while house.journal.segments.position()[0] < 4:
        house.commit_one(text % number)
        number += 1
    house.commit_one(b"the last one")
    idle(house)
    return house


def test_a_head_that_is_damaged_once_is_read_from_its_copy(tmp_path: Path) -> None:
    three_segments(tmp_path)
    whole = shown(tmp_path)
    for number in (1, 2, 3):
        data = bytearray(segment_file(tmp_path, number).read_bytes())
        data[10] ^= 1
        segment_file(tmp_path, number).write_bytes(data)
    assert shown(tmp_path) == whole


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_segment_without_any_readable_head_is_left_out(tmp_path: Path, number: int) -> None:
    three_segments(tmp_path)
    data = bytearray(segment_file(tmp_path, number).read_bytes())
    for position in (10, HEAD_COPY_AT + 10, FIRST_BATCH_AT + 10):
        data[position] ^= 1
    segment_file(tmp_path, number).write_bytes(data)
    log = FolderLog(str(tmp_path))
    assert number not in [info.number for info in log.state().segments]
    assert events_of(log) == recovered(tmp_path)
    with pytest.raises(HistoryError, match="fsck"):
        log.index(number)
    log.close()


def test_a_missing_segment_leaves_a_gap(tmp_path: Path) -> None:
    three_segments(tmp_path)
    segment_file(tmp_path, 2).unlink()
    seen = shown(tmp_path)
    assert seen == recovered(tmp_path)
    assert [lsn for lsn, *_ in seen] != list(range(len(seen)))


def test_what_a_later_segment_has_given_out_again_is_not_shown(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    house.commit_one(b"first")
    house.commit_one(b"second")
    lsn = house.journal.next_lsn
    house.commit_one(b"was cut off, and came back")
    house.journal.close()
    again = house_in(tmp_path, 2, lsn)
    again.commit_one(b"another")
    idle(again)
    seen = shown(tmp_path)
    assert seen == recovered(tmp_path)
    assert [event[0] for event in seen] == list(range(again.journal.next_lsn))


# --- segments come and go -------------------------------------------------------------------------


def test_a_newest_segment_without_bytes_proves_those_before_it(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    house.commit_one(b"first")
    log = FolderLog(str(tmp_path))
    assert log.state().end_lsn == 0
    segment_file(tmp_path, 2).write_bytes(b"")
    assert log.state().end_lsn == house.journal.next_lsn
    assert [info.number for info in log.state().segments] == [1]
    again = House(OsFiles(tmp_path / "other"), None, segment=2, lsn=house.journal.next_lsn)  # type: ignore[arg-type]
    again.commit_one(b"second")
    idle(again)
    shutil.copy(segment_file(tmp_path / "other", 2), segment_file(tmp_path, 2))
    assert [info.number for info in log.state().segments] == [1, 2]
    assert events_of(log) == recovered(tmp_path)
    log.close()


def test_segments_that_are_removed_while_they_are_listed_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_segments(tmp_path)
    log = FolderLog(str(tmp_path))
    real_open: Callable[..., object] = OsFiles.open

    def open_late(files: OsFiles, path: str, create: bool = False) -> object:
        if path.endswith("00000001.pnj") and segment_file(tmp_path, 1).exists():
            segment_file(tmp_path, 1).unlink()
        return real_open(files, path, create)

    monkeypatch.setattr(OsFiles, "open", open_late)
    assert log.state().segments[0].number == 2
    with pytest.raises(SegmentGone):
        log.index(1)
    log.close()


def test_few_files_are_open_however_many_segments_there_are(tmp_path: Path) -> None:
    house = house_in(tmp_path, segment_bytes=FIRST_BATCH_AT + 100)
    for number in range(30):
        house.commit_one(b"text %d" % number)
    idle(house)
    before = len(os.listdir("/proc/self/fd"))
    log = FolderLog(str(tmp_path))
    assert len(log.state().segments) >= 30
    assert len(events_of(log)) == house.journal.next_lsn
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    log.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_asking_again_walks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_segments(tmp_path)
    log = FolderLog(str(tmp_path))
    before = log.state()

    def never(*arguments: object) -> None:
        raise AssertionError("nothing was written, so there is nothing to walk")

    monkeypatch.setattr(SegmentWalk, "advance", never)
    assert log.state() is before
    log.close()


def test_another_folder_in_the_same_place_is_another_log(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    three_segments(folder)
    make_log_id(OsFiles(folder), lambda bits: 1)
    log = FolderLog(str(folder))
    first = log.state()
    assert len(events_of(log)) == first.end_lsn
    shutil.rmtree(folder)
    house = three_segments(folder, b"x" * 200 + b"%d")
    make_log_id(OsFiles(folder), lambda bits: 2)
    second = log.state()
    assert [info.number for info in first.segments] == [info.number for info in second.segments]
    assert first.log_id != second.log_id
    assert second.end_lsn == house.journal.next_lsn
    assert events_of(log) == recovered(folder)
    log.close()


def test_a_broker_that_was_killed_leaves_a_log_that_its_next_start_only_makes_longer(
    broker: Broker, folder: Path
) -> None:
    with channel_of(broker) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", [b"x" * 300] * 40)
    broker.kill()
    log = FolderLog(str(folder))
    before = events_of(log)
    assert before == recovered(folder)[: len(before)]
    broker.start()
    wait_for_all(broker, log)
    assert events_of(log)[: len(before)] == before
    log.close()


# --- whose folder ---------------------------------------------------------------------------------


def test_reading_leaves_no_trace_and_needs_no_right_to_write(tmp_path: Path) -> None:
    three_segments(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    log = FolderLog(str(tmp_path))
    events_of(log)
    descriptor = log._segments.reader(1).file.fileno()
    assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    log.close()


def test_a_folder_without_a_journal_yet_is_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "format").write_bytes(b"penstock 1\n")
    log = FolderLog(str(tmp_path))
    state = log.state()
    assert (state.log_id, state.first_lsn, state.end_lsn, state.end_us, state.segments) == ("", 0, 0, 0, ())
    assert log.readers() == []
    log.set_cursor("early", 0)
    assert [reader.lag_events for reader in log.readers()] == [0]
    house = house_in(tmp_path)
    house.commit_one(b"first")
    idle(house)
    assert log.state().end_lsn == house.journal.next_lsn
    log.close()


def test_what_is_no_data_folder_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="not a data folder"):
        FolderLog(str(tmp_path))
    with pytest.raises(HistoryError, match="no folder"):
        FolderLog(str(tmp_path / "nowhere"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HistoryError):
        FolderLog(str(tmp_path / "file"))


def test_a_folder_that_is_removed_while_it_is_read_is_an_error_and_not_an_empty_log(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    three_segments(folder)
    log = FolderLog(str(folder))
    assert log.state().end_lsn > 0
    shutil.rmtree(folder)
    with pytest.raises(HistoryError, match="no folder"):
        log.state()
    log.close()


def test_names_of_segments_walked_long_ago_are_given_up_and_found_again(tmp_path: Path) -> None:
    three_segments(tmp_path)
    log = FolderLog(str(tmp_path), walked=WalkedSegments(names_max=1))
    first = log.index(1)
    assert first.queues
    assert log.index(1) is first
    log.index(2)
    again = log.index(1)
    assert again is not first
    assert again == first
    assert len(events_of(log)) == len(shown(tmp_path))
    log.close()


def test_a_complete_segment_is_walked_once_for_all_logs_and_again_when_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_segments(tmp_path)
    walks: list[int] = []
    advance = SegmentWalk.advance

    def counted(walk: SegmentWalk, *rest: Any) -> None:
        walks.append(walk.number)
        advance(walk, *rest)

    monkeypatch.setattr(SegmentWalk, "advance", counted)
    walked = WalkedSegments()

    def walk_all() -> list[int]:
        """Which segments a new log has walked."""
        walks.clear()
        log = FolderLog(str(tmp_path), walked=walked)
        for info in log.state().segments:
            log.index(info.number)
        log.close()
        return sorted(set(walks))

    *complete, newest = walk_all()
    assert len(complete) >= 2
    # The newest may grow.
    assert walk_all() == [newest]
    os.utime(segment_file(tmp_path, complete[1]), ns=(1, 1))
    assert walk_all() == [complete[1], newest]


def test_a_view_of_a_segment_is_what_a_read_of_it_is(tmp_path: Path) -> None:
    three_segments(tmp_path)
    log = FolderLog(str(tmp_path))
    size = segment_file(tmp_path, 1).stat().st_size
    for offset, length in ((0, 10), (FIRST_BATCH_AT, size), (size - 3, 10), (size, 1), (size + 5, 7), (0, 0)):
        assert bytes(log.view(1, offset, length)) == log.read(1, offset, length)
    kept = log.view(1, 0, size)
    segment_file(tmp_path, 1).unlink()
    # Whoever has a view goes on with it; a new one says that the segment is gone.
    assert len(bytes(kept)) == size
    with pytest.raises(SegmentGone):
        log.view(1, 0, 10)
    log.close()


def test_a_view_shows_what_a_segment_has_grown_by(tmp_path: Path) -> None:
    house = house_in(tmp_path)
    house.commit_one(b"first")
    log = FolderLog(str(tmp_path))
    before = bytes(log.view(1, 0, 1 << 20))
    house.commit_one(b"second")
    after = bytes(log.view(1, 0, 1 << 20))
    assert after == segment_file(tmp_path).read_bytes()
    assert len(after) > len(before)
    log.close()
