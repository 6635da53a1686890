"""What every log promises, whether it is read from the folder or over HTTP; with a real broker that writes it."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pika
import pytest

from penstock.disk.os_files import OsFiles
from penstock.history.folder_log import FolderLog
from penstock.history.log import HistoryError, Log, SegmentGone
from penstock.history.opening import open_log
from penstock.journal.format import rows
from penstock.journal.format.layout import FIRST_BATCH_AT, HEADER_BYTES, decode_header
from penstock.journal.reading.replay import BatchView, replay
from penstock.testing import Broker
from tests.history.conftest import OpenLog
from tests.history.naive_reader import events_of, recovered_events
from tests.history.small_broker import OWN_FILE_BYTES, PERSISTENT, channel_of, log_of, next_lsn, publish, wait_for_all
from tests.interop.deadline import wait_until


def written(broker: Broker, count: int = 60, size: int = 200) -> None:
    """Enough for several segments."""
    with channel_of(broker) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", [b"x" * size] * count)
        for _ in range(count // 2):
            channel.basic_get("orders", auto_ack=True)


def test_a_new_log_is_short_and_has_an_id(any_log: OpenLog) -> None:
    log = any_log()
    state = log.state()
    assert len(state.log_id) == 32
    assert state.first_lsn == 0
    assert [info.first_lsn for info in state.segments] == [0]
    assert any_log().state().log_id == state.log_id


def test_everything_that_was_written_is_shown_in_order_and_without_gaps(broker: Broker, any_log: OpenLog) -> None:
    written(broker)
    log = any_log()
    wait_for_all(broker, log)
    state = log.state()
    assert len(state.segments) > 3, "the test has to cross segments"
    events = events_of(log)
    assert [lsn for lsn, _, _, _ in events] == list(range(state.first_lsn, state.end_lsn))
    kinds = [kind for _, _, kind, _ in events]
    assert kinds.count(rows.PUBLISHED) == 60
    assert kinds.count(rows.FETCHED) == 30


def test_the_state_fits_together(broker: Broker, any_log: OpenLog) -> None:
    written(broker)
    log = any_log()
    wait_for_all(broker, log)
    state = log.state()
    segments = state.segments
    assert segments[0].first_lsn == state.first_lsn
    assert segments[-1].next_lsn == state.end_lsn
    for before, after in pairwise(segments):
        assert before.number + 1 == after.number
        assert before.next_lsn == after.first_lsn
        assert before.begun_us <= after.begun_us <= state.end_us
    for info in segments:
        index = log.index(info.number)
        assert (index.first_lsn, index.next_lsn) == (info.first_lsn, info.next_lsn)
        # A commit mark may come behind the last event.
        assert index.end_pos == info.bytes or info is segments[-1]


def test_reading_can_begin_at_every_mark(broker: Broker, folder: Path) -> None:
    written(broker)
    log = FolderLog(str(folder), mark_bytes=1000)
    wait_for_all(broker, log)
    marks_seen = 0
    for info in log.state().segments:
        index = log.index(info.number)
        assert index.marks[0].pos == FIRST_BATCH_AT
        for mark, behind in zip(index.marks, [*index.marks[1:], None], strict=True):
            header = decode_header(log.read(info.number, mark.pos, HEADER_BYTES), 0, info.number, mark.pos)
            assert header is not None
            assert header.first_lsn == mark.lsn
            assert mark.min_us <= header.wall_us <= mark.max_us
            assert behind is None or behind.pos >= mark.pos + 1000
            marks_seen += 1
    assert marks_seen > 2 * len(log.state().segments)
    log.close()


def test_an_index_names_the_queues_that_its_segment_speaks_of(broker: Broker, any_log: OpenLog) -> None:
    with channel_of(broker) as channel:
        for name in ("orders", "naïve ☃ {}"):
            channel.queue_declare(name, durable=True)
            publish(channel, name, [b"x" * 500] * 20)
    log = any_log()
    wait_for_all(broker, log)
    for info in log.state().segments:
        index = log.index(info.number)
        used = {queue for lsn, queue, kind, _ in events_of(log) if info.first_lsn <= lsn < info.next_lsn and kind == 1}
        assert used <= index.queues.keys()
    names = {name["queue"] for info in log.state().segments for name in log.index(info.number).queues.values()}
    assert names == {"orders", "naïve ☃ {}"}


def test_an_index_names_the_consumers_that_were_given_messages(broker: Broker, any_log: OpenLog) -> None:
    with channel_of(broker) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", [b"x"] * 3)
        for method, _, _ in channel.consume("orders", inactivity_timeout=60):
            channel.basic_ack(method.delivery_tag)
            if method.delivery_tag == 3:
                break
        tag = next(iter(channel.consumer_tags))
        channel.cancel()
    log = any_log()
    wait_for_all(broker, log)
    consumers = log.index(log.state().segments[-1].number).consumers
    assert [name["consumer"] for name in consumers.values()] == [tag]


def test_a_range_has_the_same_events_each_time_while_the_log_grows(broker: Broker, any_log: OpenLog) -> None:
    written(broker, 20)
    log = any_log()
    wait_for_all(broker, log)
    before = events_of(log)
    for _ in range(3):
        written(broker, 20)
        wait_for_all(broker, log)
        assert events_of(log)[: len(before)] == before


def test_the_end_never_goes_back_while_others_write(broker: Broker, any_log: OpenLog) -> None:
    log = any_log()
    ends: list[int] = []
    writer = threading.Thread(target=written, args=(broker, 100))
    writer.start()
    while writer.is_alive():
        state = log.state()
        ends.append(state.end_lsn)
        assert log.index(state.segments[-1].number).next_lsn >= state.segments[-1].next_lsn
    writer.join()
    wait_for_all(broker, log)
    assert ends == sorted(ends)
    assert len(set(ends)) > 3


def test_a_restart_begins_a_segment_and_changes_nothing_that_was_there(broker: Broker, any_log: OpenLog) -> None:
    written(broker, 10)
    log = any_log()
    wait_for_all(broker, log)
    before, events = log.state(), events_of(log)
    port = broker.call(lambda server: server.http_port)
    broker.stop()
    broker._config.http_port = port
    broker.start()
    written(broker, 10)
    wait_for_all(broker, log)
    after = log.state()
    assert after.log_id == before.log_id
    assert after.segments[-1].number > before.segments[-1].number
    assert events_of(log)[: len(events)] == events


def test_bytes_are_those_of_the_file(broker: Broker, folder: Path, any_log: OpenLog) -> None:
    written(broker)
    log = any_log()
    wait_for_all(broker, log)
    number = log.state().segments[0].number
    data = (folder / "journal" / f"{number:08d}.pnj").read_bytes()
    assert log.read(number, 0, len(data)) == data
    assert log.read(number, 100, 5) == data[100:105]
    assert log.read(number, 0, len(data) + 100) == data
    assert log.read(number, len(data) - 3, 10) == data[-3:]
    assert log.read(number, len(data), 10) == b""
    assert log.read(number, 2**62, 10) == b""
    assert log.read(number, 0, 0) == b""
    with pytest.raises(HistoryError, match="negative"):
        log.read(number, -1, 10)


def test_more_bytes_than_one_answer_holds_come_in_parts(
    broker: Broker, any_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(broker, 20)
    log = any_log()
    wait_for_all(broker, log)
    number = log.state().segments[0].number
    whole = log.read(number, 0, 10_000)
    monkeypatch.setattr("penstock.history.http_log.RANGE_BYTES_MAX", 1000)
    assert log.read(number, 0, 10_000) == whole
    assert log.read(number, 7, 2000) == whole[7:2007]


@pytest.mark.parametrize("number", [0, 77, 2**62])
def test_a_segment_that_is_not_there_is_gone(any_log: OpenLog, number: int) -> None:
    log = any_log()
    with pytest.raises(SegmentGone):
        log.index(number)
    with pytest.raises(SegmentGone):
        log.read(number, 0, 10)


def test_a_segment_that_retention_removes_under_the_reader_is_gone(
    broker: Broker, folder: Path, any_log: OpenLog
) -> None:
    written(broker)
    log = any_log()
    wait_for_all(broker, log)
    first = log.state().segments[0]
    assert log.read(first.number, 0, 10)
    assert log.index(first.number).next_lsn == first.next_lsn
    (folder / "journal" / f"{first.number:08d}.pnj").unlink()
    with pytest.raises(SegmentGone):
        log.read(first.number, 0, 10)
    with pytest.raises(SegmentGone):
        log.index(first.number)
    state = log.state()
    assert state.first_lsn == first.next_lsn
    assert [lsn for lsn, *_ in events_of(log)] == list(range(state.first_lsn, state.end_lsn))


# --- large bodies ---------------------------------------------------------------------------------


def references(folder: Path) -> list[tuple[int, int, int]]:
    """(queue number, address, size) of every reference in the journal."""
    found: list[tuple[int, int, int]] = []

    def visit(view: BatchView) -> None:
        for row in view.rows:
            if row[rows.ROW_KIND] == rows.PUBLISHED and row[rows.ROW_FLAGS] & rows.REFERENCE:
                body = view.body(row[rows.ROW_ENTRY])
                address, size = int.from_bytes(body[:8], "little"), int.from_bytes(body[8:12], "little")
                found.append((row[rows.ROW_QUEUE], address, size))

    replay(OsFiles(folder), "journal", 1, 0, visit)
    return found


def test_a_large_body_is_read_by_its_reference(broker: Broker, folder: Path, any_log: OpenLog) -> None:
    large = [bytes([number]) * (5000 + number) for number in range(5)]
    with channel_of(broker) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", large)
    log = any_log()
    wait_for_all(broker, log)
    found = references(folder)
    assert [log.shared_body(*reference) for reference in found] == large


def test_what_is_no_reference_leads_to_nothing(broker: Broker, folder: Path, any_log: OpenLog) -> None:
    with channel_of(broker) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", [b"x" * 5000])
    log = any_log()
    wait_for_all(broker, log)
    [(queue_no, address, size)] = references(folder)
    assert log.shared_body(queue_no, address, size) == b"x" * 5000
    for wrong in [
        (queue_no + 1, address, size),
        (queue_no, address + 1, size),
        (queue_no, address + (1 << 32), size),
        (queue_no, 2**63 - 1, size),
        (queue_no, address, size + 1),
        (queue_no, address, 0),
    ]:
        assert log.shared_body(*wrong) is None, wrong


def test_a_damaged_body_is_not_shown(broker: Broker, folder: Path, any_log: OpenLog) -> None:
    with channel_of(broker) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", [b"x" * 5000])
    log = any_log()
    wait_for_all(broker, log)
    [reference] = references(folder)
    [path] = (folder / "vhosts").glob("*/shared/persistent/*.pms")
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    assert log.shared_body(*reference) is None


def test_a_body_that_left_with_its_message_is_gone(broker: Broker, folder: Path, any_log: OpenLog) -> None:
    with channel_of(broker) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", [b"x" * OWN_FILE_BYTES])
        log = any_log()
        wait_for_all(broker, log)
        [reference] = references(folder)
        assert log.shared_body(*reference) == b"x" * OWN_FILE_BYTES
        channel.queue_purge("orders")
    wait_until(lambda: log.shared_body(*reference) is None, "the body has left the disk")


def test_a_body_is_found_where_compaction_has_copied_it(broker: Broker, folder: Path, any_log: OpenLog) -> None:
    bodies = [bytes([number]) * 5000 for number in range(12)]
    with channel_of(broker) as channel:
        channel.queue_declare("orders", durable=True)
        publish(channel, "orders", bodies)
        log = any_log()
        wait_for_all(broker, log)
        found = references(folder)
        kept = 3
        tags = [channel.basic_get("orders")[0].delivery_tag for _ in bodies]
        for tag in tags[:kept] + tags[kept + 1 :]:
            channel.basic_ack(tag)
        wait_until(
            lambda: (
                [*(folder / "vhosts").glob("*/shared/persistent/*-c.pms")]
                and not [*(folder / "vhosts").glob("*/shared/persistent/00000001.pms")]
            ),
            "the body was copied, and its first file is gone",
        )
        assert log.shared_body(*found[kept]) == bodies[kept]


# --- readers --------------------------------------------------------------------------------------


def test_a_reader_has_a_cursor_that_only_grows(broker: Broker, any_log: OpenLog) -> None:
    written(broker)
    log = any_log()
    wait_for_all(broker, log)
    end = log.state().end_lsn
    assert log.readers() == []
    log.set_cursor("archive", 10)
    log.set_cursor("archive", 7)
    log.set_cursor("b / ü%2F?", end)
    first, second = any_log().readers()
    assert (first.name, first.lsn, first.lag_events, first.lost_events) == ("archive", 10, end - 10, 0)
    assert 0 < first.lag_bytes <= sum(info.bytes for info in log.state().segments)
    assert first.lag_s > 0
    assert first.updated_us > 0
    assert (second.name, second.lag_events, second.lag_bytes, second.lag_s) == ("b / ü%2F?", 0, 0, 0.0)
    assert log.forget_reader("b / ü%2F?")
    assert not log.forget_reader("b / ü%2F?")
    assert [reader.name for reader in log.readers()] == ["archive"]


def test_lag_shrinks_as_the_cursor_moves(broker: Broker, any_log: OpenLog) -> None:
    written(broker)
    log = any_log()
    wait_for_all(broker, log)
    lags = []
    for lsn in range(0, log.state().end_lsn + 1, 5):
        log.set_cursor("archive", lsn)
        [reader] = log.readers()
        lags.append((reader.lag_events, reader.lag_bytes, reader.lag_s))
    for column in zip(*lags, strict=True):
        assert list(column) == sorted(column, reverse=True)
    assert lags[0][1] > lags[-1][1]


def test_a_reader_that_was_too_slow_sees_what_it_lost(broker: Broker, folder: Path, any_log: OpenLog) -> None:
    written(broker)
    log = any_log()
    wait_for_all(broker, log)
    log.set_cursor("archive", 1)
    first = log.state().segments[0]
    (folder / "journal" / f"{first.number:08d}.pnj").unlink()
    [reader] = log.readers()
    assert reader.lost_events == first.next_lsn - 1
    assert reader.lag_events == log.state().end_lsn - first.next_lsn


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", "a\0b", "\x1b[31m"])
def test_a_name_that_is_not_allowed_is_refused(any_log: OpenLog, name: str) -> None:
    log = any_log()
    with pytest.raises(HistoryError, match="name"):
        log.set_cursor(name, 1)
    assert log.readers() == []


@pytest.mark.parametrize("lsn", [-1, 2**63])
def test_a_position_that_cannot_be_is_refused(any_log: OpenLog, lsn: int) -> None:
    log = any_log()
    with pytest.raises(HistoryError):
        log.set_cursor("archive", lsn)
    assert log.readers() == []


def test_a_reader_too_many_is_refused(any_log: OpenLog) -> None:
    log = any_log()
    for number in range(100):
        log.set_cursor(f"reader {number}", 1)
    with pytest.raises(HistoryError, match="forget"):
        log.set_cursor("one more", 1)
    log.set_cursor("reader 5", 2)
    assert len(log.readers()) == 100


# --- several at once ------------------------------------------------------------------------------


def test_readers_at_once_see_the_same(broker: Broker, folder: Path) -> None:
    logs: list[Log] = [log_of(kind, broker, folder) for kind in ("folder", "http", "folder", "http")]
    seen: list[list[tuple[int, int, int, int]]] = [[] for _ in logs]
    stop = threading.Event()

    def follow(position: int) -> None:
        while not stop.is_set():
            events_of(logs[position])
        wait_for_all(broker, logs[position])
        seen[position] = events_of(logs[position])

    threads = [threading.Thread(target=follow, args=(position,)) for position in range(len(logs))]
    for thread in threads:
        thread.start()
    written(broker, 50)
    stop.set()
    for thread in threads:
        thread.join()
    for log in logs:
        log.close()
    assert len(seen[0]) == next_lsn(broker)
    assert all(each == seen[0] for each in seen)


def test_a_stopped_broker_leaves_a_log_that_shows_everything(broker: Broker, folder: Path) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("orders", durable=True)
    channel.basic_publish("", "orders", b"the last one", PERSISTENT)
    assert channel.basic_get("orders", auto_ack=True)[2] == b"the last one"
    written_lsn = next_lsn(broker)
    # No time for a commit mark.
    broker.stop()
    with suppress(pika.exceptions.AMQPError):
        connection.close()
    log = open_log(str(folder))
    assert log.state().end_lsn >= written_lsn
    assert events_of(log) == recovered_events(OsFiles(folder))
    log.close()
