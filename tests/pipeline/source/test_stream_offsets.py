"""The offsets of a stream: where it begins, how far a trigger goes, what is kept for it, and what it refuses."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from penstock.history.log import HistoryError
from penstock.history.opening import open_log
from penstock.pipeline.decode.ranges import BehindRetention
from penstock.pipeline.source import log_read
from penstock.pipeline.source.log_stream import LogStreamReader
from penstock.pipeline.source.positions import Offset
from tests.pipeline.source.log_scenes import decoded, minute, rows_of, state_of, stream_reader, write_log, write_minute

ALL = ReadAllAvailable()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_log(tmp_path / "data").journal.close()
    return tmp_path / "data"


def batches(reader: LogStreamReader, start: Offset, limit: ReadLimit) -> list[list[int]]:
    """LSNs of one batch after the other, as Spark asks for them, until there is nothing new."""
    found = []
    while (end := reader.latestOffset(start, limit)) != start:
        found.append([row["lsn"] for row in rows_of(reader, reader.partitions(start, end))])
        reader.commit(end)
        start = end
    return found


def cursor(folder: Path, name: str) -> int | None:
    log = open_log(str(folder))
    found = {reader.name: reader.lsn for reader in log.readers()}
    log.close()
    return found.get(name)


def set_cursor(folder: Path, name: str, lsn: int) -> None:
    log = open_log(str(folder))
    log.set_cursor(name, lsn)
    log.close()


# --- where it begins ------------------------------------------------------------------------------------


def test_a_stream_begins_where_it_is_told_to(folder: Path) -> None:
    state = state_of(folder)
    second = state.segments[1].first_lsn
    expected = {
        "earliest": state.first_lsn,
        "latest": state.end_lsn,
        "7": 7,
        minute(1).isoformat(): second,
        minute(99).isoformat(): state.end_lsn,
        "1999-01-01": state.first_lsn,
    }
    found = {text: stream_reader(folder, startingOffsets=text).initialOffset()["lsn"] for text in expected}
    assert found == expected
    assert stream_reader(folder).initialOffset()["lsn"] == state.first_lsn
    with pytest.raises(HistoryError, match="startingOffsets is 9999, but the log"):
        stream_reader(folder, startingOffsets="9999").initialOffset()


def test_a_reader_goes_on_where_its_cursor_is(folder: Path) -> None:
    assert stream_reader(folder, reader="archive").initialOffset()["lsn"] == 0
    set_cursor(folder, "archive", 12)
    assert stream_reader(folder, reader="archive").initialOffset()["lsn"] == 12
    assert stream_reader(folder, reader="archive", startingOffsets="earliest").initialOffset()["lsn"] == 0
    assert stream_reader(folder, reader="another").initialOffset()["lsn"] == 0


def test_latest_is_where_the_log_ended_when_the_reader_was_made(folder: Path) -> None:
    set_cursor(folder, "live", 5)
    # Spark asks again when it was killed in the first batch; meanwhile the log has grown.
    assert state_of(folder).end_lsn > 5
    assert stream_reader(folder, reader="live", startingOffsets="latest").initialOffset()["lsn"] == 5
    assert (
        stream_reader(folder, reader="new", startingOffsets="latest").initialOffset()["lsn"] == state_of(folder).end_lsn
    )
    assert stream_reader(folder, reader="live", startingOffsets="7").initialOffset()["lsn"] == 7


def test_what_a_new_stream_will_read_is_held_from_the_first_moment_on(folder: Path) -> None:
    stream_reader(folder, reader="archive", startingOffsets="9").initialOffset()
    assert cursor(folder, "archive") == 9


def test_offsets_are_the_same_text_each_time(folder: Path) -> None:
    reader = stream_reader(folder)
    start, end = reader.initialOffset(), reader.latestOffset(reader.initialOffset(), ALL)
    assert json.dumps(start) == f'{{"log_id": "{1:032x}", "lsn": 0}}'
    # Through the checkpoint and back.
    again = json.loads(json.dumps(end))
    assert json.dumps(reader.latestOffset(again, ALL)) == json.dumps(end) == json.dumps(reader.reportLatestOffset())


# --- how far a trigger goes -------------------------------------------------------------------------------


def test_batches_of_any_size_are_the_log(folder: Path) -> None:
    whole = [row["lsn"] for row in decoded(folder)]
    start = stream_reader(folder).initialOffset()
    for limit in (ALL, ReadMaxRows(1), ReadMaxRows(7), ReadMaxBytes(1), ReadMaxBytes(700), ReadMaxBytes(10**9)):
        found = batches(stream_reader(folder), start, limit)
        assert [lsn for batch in found for lsn in batch] == whole
        if isinstance(limit, ReadMaxRows):
            assert max(len(batch) for batch in found) == limit.max_rows


def test_runs_of_any_batches_are_all_events(folder: Path) -> None:
    reader = stream_reader(folder, view="runs")
    start, events = reader.initialOffset(), 0
    while (end := reader.latestOffset(start, ReadMaxRows(5))) != start:
        events += sum(row["count"] for row in rows_of(reader, reader.partitions(start, end)))
        start = end
    assert events == len(decoded(folder))


def test_the_limits_of_the_options_are_told_to_spark(folder: Path) -> None:
    assert stream_reader(folder).getDefaultReadLimit() == ALL
    assert stream_reader(folder, maxRecordsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert stream_reader(folder, maxBytesPerTrigger="6").getDefaultReadLimit() == ReadMaxBytes(6)


def test_the_smaller_of_two_limits_holds(folder: Path) -> None:
    both = stream_reader(folder, maxRecordsPerTrigger="1000", maxBytesPerTrigger="1")
    limit = both.getDefaultReadLimit()
    assert limit == ReadMaxRows(1000)
    start = both.initialOffset()
    first = both.latestOffset(start, limit)["lsn"]
    assert first == stream_reader(folder).latestOffset(start, ReadMaxBytes(1))["lsn"] < state_of(folder).end_lsn
    # Spark may ask for everything whatever the options say.
    assert both.latestOffset(start, ALL)["lsn"] == state_of(folder).end_lsn


def test_a_stream_sees_what_comes_later(tmp_path: Path) -> None:
    journal = write_log(tmp_path / "data", minutes=1)
    reader = stream_reader(tmp_path / "data")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(end, ALL) == end
    write_minute(journal)
    journal.mark()
    later = batches(reader, end, ALL)
    assert [lsn for batch in later for lsn in batch] == [
        row["lsn"] for row in decoded(tmp_path / "data") if row["lsn"] >= end["lsn"]
    ]
    assert len(later[0]) == 17
    journal.close()


def test_a_run_of_what_is_there_ends_although_more_comes(tmp_path: Path) -> None:
    journal = write_log(tmp_path / "data", minutes=1)
    reader = stream_reader(tmp_path / "data")
    reader.prepareForTriggerAvailableNow()
    target = state_of(tmp_path / "data").end_lsn
    write_minute(journal)
    journal.mark()
    start = reader.initialOffset()
    found = batches(reader, start, ReadMaxRows(4))
    assert max(lsn for batch in found for lsn in batch) < target < state_of(tmp_path / "data").end_lsn
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert latest["lsn"] == state_of(tmp_path / "data").end_lsn
    journal.close()


# --- the cursor -------------------------------------------------------------------------------------------


def test_the_cursor_follows_what_is_committed_and_catches_up_when_nothing_is_new(folder: Path) -> None:
    reader = stream_reader(folder, reader="archive")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    reader.partitions(start, end)
    assert cursor(folder, "archive") == 0
    after = reader.latestOffset(end, ReadMaxRows(1000))
    assert cursor(folder, "archive") == 0
    reader.commit(end)
    reader.commit(end)
    assert cursor(folder, "archive") == 10
    reader.commit(start)
    assert cursor(folder, "archive") == 10
    # Asked what comes behind the last batch, and there is nothing: that batch is done.
    assert reader.latestOffset(after, ReadMaxRows(1000)) == after
    assert cursor(folder, "archive") == after["lsn"]


def test_a_stream_that_goes_on_holds_its_place_again(folder: Path) -> None:
    state = state_of(folder)
    start, end = {"log_id": state.log_id, "lsn": 20}, {"log_id": state.log_id, "lsn": 30}
    reader = stream_reader(folder, reader="forgotten")
    # After a restart Spark plans the unfinished batch first.
    reader.partitions(start, end)
    assert cursor(folder, "forgotten") == 20


def test_a_stream_without_a_name_holds_nothing(folder: Path) -> None:
    reader = stream_reader(folder)
    start = reader.initialOffset()
    reader.commit(reader.latestOffset(start, ALL))
    assert open_log(str(folder)).readers() == []


def test_what_goes_to_the_workers_is_not_open(folder: Path) -> None:
    reader = stream_reader(folder, user="u", password="secret")
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ALL))
    sent, sent_parts = pickle.loads(pickle.dumps((reader, parts)))
    assert vars(sent)["_log"] is None
    assert rows_of(sent, sent_parts) == decoded(folder)
    assert "secret" not in repr(parts)


def test_an_index_with_many_names_is_not_sent_with_every_range(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = stream_reader(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    with_index = reader.partitions(start, end)
    monkeypatch.setattr(log_read, "NAMES_SENT_MAX", 1)
    without = reader.partitions(start, end)
    assert [part.index.number for part in with_index] == [part.range.segment for part in without]  # type: ignore
    assert {part.index for part in without} == {None}  # type: ignore[attr-defined]
    assert rows_of(reader, with_index) == rows_of(reader, without) == decoded(folder)


# --- what it refuses --------------------------------------------------------------------------------------


def test_the_checkpoint_of_another_log_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "one", log_id=1).close()
    write_log(tmp_path / "two", log_id=2).close()
    start = stream_reader(tmp_path / "one").initialOffset()
    end = stream_reader(tmp_path / "one").latestOffset(start, ALL)
    with pytest.raises(HistoryError, match=r"belongs to another log: it was made for 0*1, and .* is 0*2\."):
        stream_reader(tmp_path / "two").latestOffset(start, ALL)
    with pytest.raises(HistoryError, match="belongs to another log"):
        stream_reader(tmp_path / "two").partitions(start, end)


def test_a_log_that_had_no_id_yet_is_the_same_log(folder: Path) -> None:
    reader = stream_reader(folder)
    assert reader.latestOffset({"log_id": "", "lsn": 0}, ALL) == reader.latestOffset(reader.initialOffset(), ALL)


def test_an_older_copy_of_the_log_is_refused(folder: Path) -> None:
    beyond = {"log_id": "", "lsn": state_of(folder).end_lsn + 1}
    for option in ("true", "false"):
        # Or a power cut took the proof that its last events are durable: they are there, and shown again later.
        with pytest.raises(HistoryError, match=r"older copy of the data folder.*power cut.*start the broker"):
            stream_reader(folder, failOnDataLoss=option).latestOffset(beyond, ALL)


def test_the_checkpoint_of_another_source_is_refused(folder: Path) -> None:
    with pytest.raises(HistoryError, match="another source's"):
        stream_reader(folder).latestOffset({"xid": 7}, ALL)


def test_a_reader_behind_retention_is_told_so(tmp_path: Path) -> None:
    journal = write_log(tmp_path / "data")
    reader = stream_reader(tmp_path / "data")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    journal.remove_segment(1)
    first = state_of(tmp_path / "data").first_lsn
    with pytest.raises(BehindRetention, match=f"events 0 to {first - 1} are no longer in the log"):
        reader.latestOffset(start, ALL)
    # A batch that was begun before, too.
    with pytest.raises(BehindRetention, match="no longer in the log"):
        reader.partitions(start, end)
    journal.close()


def test_a_reader_that_may_lose_goes_on_and_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = write_log(tmp_path / "data")
    reader = stream_reader(tmp_path / "data", failOnDataLoss="false", reader="archive")
    start = reader.initialOffset()
    journal.remove_segment(1)
    journal.remove_segment(2)
    first = state_of(tmp_path / "data").first_lsn
    log = open_log(str(tmp_path / "data"))
    assert [state.lost_events for state in log.readers()] == [first]
    log.close()
    found = batches(reader, start, ReadMaxRows(5))
    assert [lsn for batch in found for lsn in batch] == [row["lsn"] for row in decoded(tmp_path / "data")]
    # Planned again, and not told again.
    reader.partitions(start, reader.latestOffset(start, ALL))
    told = [record.message for record in caplog.records]
    assert told == [f"{first} events are lost: 0 to {first - 1} were removed before they were read"]
    journal.close()
