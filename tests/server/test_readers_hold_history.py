"""A running broker keeps what named readers have not read, lets it go when they have, and says when it could not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest

from penstock.config import Config
from penstock.disk.files import Files
from penstock.disk.os_files import OsFiles
from penstock.journal.options import JournalOptions
from penstock.server.sync import open_store
from penstock.store.node.options import StoreOptions
from penstock.store.retention.reader_cursors import forget_cursor, log_id, write_cursor
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.brokers import check_health

SEGMENT = 16 * 1024
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def small_options(journal: JournalOptions, **given: Any) -> object:
    """In the place of those that the server asks for: tiny segments, and a checkpoint every now and then."""
    journal.segment_bytes = SEGMENT
    journal.batch_bytes_max = 4096
    return StoreOptions(journal, **{**given, "checkpoint_bytes": SEGMENT, "checkpoint_s": 0.05, "reserve_bytes": 0})


StartBroker = Callable[..., "Stage"]


class Stage:
    """A broker with tiny segments, and its folder as a reader sees it."""

    def __init__(self, folder: Path, readers_bytes_max: int) -> None:
        config = Config(
            login_refused_delay_s=0.0, history_bytes_max=0, readers_bytes_max=readers_bytes_max, disk_bytes_min=1
        )
        self.broker = Broker(config, data_dir=folder)
        self.folder = folder
        self.files: Files = OsFiles(str(folder))

    def pass_messages(self, count: int) -> None:
        """Publish, confirm and consume."""
        connection = pika.BlockingConnection(pika.URLParameters(self.broker.url))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish("", "q", b"x" * 2000, PERSISTENT)
            method, _, _ = channel.basic_get("q", auto_ack=True)
            assert method is not None
        connection.close()

    def segments(self) -> list[int]:
        return [int(path.stem) for path in sorted((self.folder / "journal").iterdir())]

    def next_lsn(self) -> int:
        return self.broker.call(lambda server: server.broker.node.journal.next_lsn if server.broker.node else -1)

    def reader_alarm(self) -> str:
        return self.broker.call(
            lambda server: "; ".join(server.broker.node.unread.warnings.values() if server.broker.node else ())
        )


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartBroker]:
    monkeypatch.setattr(open_store, "StoreOptions", small_options)
    started: list[Stage] = []

    def start_one(readers_bytes_max: int = 1 << 30) -> Stage:
        stage = Stage(tmp_path / "data", readers_bytes_max)
        started.append(stage)
        stage.broker.start()
        return stage

    yield start_one
    for stage in started:
        if stage.broker.is_running:
            check_health(stage.broker)
        stage.broker.stop()


def has_no_old_segments(stage: Stage, oldest: int) -> bool:
    return stage.segments()[0] >= oldest


def test_without_a_reader_nothing_is_held(start: StartBroker) -> None:
    stage = start()
    stage.pass_messages(40)
    wait_until(lambda: len(stage.segments()) <= 2, "history is gone", lambda: stage.pass_messages(1))


def test_a_reader_holds_segments_until_it_moves_its_cursor(start: StartBroker) -> None:
    stage = start()
    write_cursor(stage.files, "lake", 0, 1)
    stage.pass_messages(60)
    assert stage.segments()[0] == 1
    assert len(stage.segments()) > 4
    middle = stage.next_lsn()
    stage.pass_messages(60)
    assert stage.segments()[0] == 1
    write_cursor(stage.files, "lake", middle, 2)
    # No more messages: the broker looks at the cursors by itself.
    wait_until(lambda: stage.segments()[0] > 1, "what was read is gone")
    assert len(stage.segments()) > 4, "and what was not is there"
    assert stage.reader_alarm() == ""
    write_cursor(stage.files, "lake", stage.next_lsn(), 3)
    wait_until(lambda: len(stage.segments()) <= 2, "all was read", lambda: stage.pass_messages(1))


def test_a_reader_holds_segments_over_restarts_until_it_is_forgotten(start: StartBroker) -> None:
    stage = start()
    name = "a/b 'quoted' 水"
    write_cursor(stage.files, name, 0, 1)
    stage.pass_messages(30)
    first_id = log_id(stage.files)
    stage.broker.kill()
    stage.broker.start()
    stage.pass_messages(30)
    stage.broker.stop()
    stage.broker.start()
    stage.pass_messages(30)
    assert stage.segments()[0] == 1
    assert log_id(stage.files) == first_id != ""
    assert forget_cursor(stage.files, name)
    wait_until(lambda: len(stage.segments()) <= 2, "nobody holds anything", lambda: stage.pass_messages(1))


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_above_the_limit_the_oldest_go_and_the_log_says_so_once_per_reader(
    start: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    stage = start(readers_bytes_max=3 * SEGMENT)
    write_cursor(stage.files, "lake", 0, 1)
    wait_until(lambda: stage.reader_alarm(), "the alarm", lambda: stage.pass_messages(10))
    wait_until(lambda: has_no_old_segments(stage, 8), "more is gone", lambda: stage.pass_messages(10))
    (warning,) = [text for text in warnings_in(caplog) if "lake" in text]
    assert "events: they were removed before it had read them" in warning
    assert "Raise --readers-limit, or let lake read faster" in warning
    assert "`penstock history forget lake`" in warning
    # It gets on, and lapses once more: that is news.
    write_cursor(stage.files, "lake", stage.next_lsn(), 2)
    wait_until(lambda: stage.reader_alarm() == "", "the alarm is over")
    wait_until(lambda: stage.reader_alarm(), "the alarm again", lambda: stage.pass_messages(10))
    wait_until(lambda: len([text for text in warnings_in(caplog) if "lake" in text]) == 2, "it is said again")


def test_with_a_limit_of_nothing_readers_are_told_that_they_hold_nothing(start: StartBroker) -> None:
    stage = start(readers_bytes_max=0)
    write_cursor(stage.files, "lake", 0, 1)
    wait_until(lambda: "lake has lost" in stage.reader_alarm(), "the alarm", lambda: stage.pass_messages(10))
    assert "0 MiB" in stage.reader_alarm()


def test_a_low_disk_frees_what_readers_hold_and_says_so(start: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    stage = start()
    write_cursor(stage.files, "lake", 0, 1)
    stage.pass_messages(60)
    assert stage.segments()[0] == 1

    def set_mark(bytes_min: int) -> None:
        def change(server: object) -> None:
            alarm = server.broker.disk_alarm  # type: ignore[attr-defined]
            alarm.bytes_min = bytes_min

        stage.broker.call(change)

    set_mark(1 << 60)
    wait_until(lambda: stage.segments()[0] > 4, "what was held is gone")
    wait_until(lambda: [text for text in warnings_in(caplog) if "lake has lost" in text], "and the log says so")
    set_mark(1)
    wait_until(partial(stage.broker.call, lambda server: not server.broker.disk_alarm.active), "the alarm is over")
