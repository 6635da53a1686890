"""Reading a folder while a broker of another process writes, is killed, and takes old segments away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pika
import pytest

from penstock.disk.os_files import OsFiles
from penstock.history.folder_log import FolderLog
from penstock.history.log import SegmentGone
from penstock.server.sync import open_store
from tests.history.naive_reader import Event, events_of, recovered_events
from tests.history.small_broker import (
    PERSISTENT,
    channel_of,
    http_broker,
    publish,
    small_options,
    wait_for_all,
)
from tests.interop.deadline import wait_until

ROOT = Path(__file__).resolve().parents[2]


def start_process(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A broker with a tiny store, and its port."""
    command = [sys.executable, "-m", "tests.crash.small_store", "serve", "--json", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["port"]


def publish_until_killed(port: int, started: threading.Event) -> None:
    try:
        channel = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).channel()
        channel.queue_declare("orders", durable=True)
        while True:
            channel.basic_publish("", "orders", b"x" * 1000, PERSISTENT)
            channel.basic_get("orders", auto_ack=True)
            started.set()
    except (pika.exceptions.AMQPError, OSError):
        return


def test_what_was_shown_survives_kill_9_every_time(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    log: FolderLog | None = None
    kept: list[Event] = []
    for _ in range(3):
        process, port = start_process(folder)
        try:
            log = log or FolderLog(str(folder))
            started = threading.Event()
            publisher = threading.Thread(target=publish_until_killed, args=(port, started))
            publisher.start()
            assert started.wait(60)
            end = log.state().end_lsn
            wait_until(lambda log=log, end=end: log.state().end_lsn > end + 500, "the log grows")
            os.kill(process.pid, signal.SIGKILL)
            publisher.join()
        finally:
            process.kill()
            process.communicate()
        state = log.state()
        kept = [event for event in kept if event[0] >= state.first_lsn]
        shown = events_of(log)
        fresh = FolderLog(str(folder))
        assert events_of(fresh) == shown[: fresh.state().end_lsn - state.first_lsn]
        fresh.close()
        assert shown[: len(kept)] == kept
        real = recovered_events(OsFiles(folder))
        assert shown == real[: len(shown)]
        assert [event[0] for event in shown] == list(range(state.first_lsn, state.end_lsn))
        kept = shown
    assert log is not None
    log.close()


def test_a_reader_that_is_slower_than_retention_sees_where_the_log_begins_now(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_store, "StoreOptions", small_options)
    with http_broker(folder, history_bytes_max=0, history_hours_max=0.0) as broker:
        log = FolderLog(str(folder))
        first = log.state().segments[0].number
        with channel_of(broker) as channel:
            channel.queue_declare("orders", durable=True)

            def work() -> bool:
                publish(channel, "orders", [b"x" * 300] * 10)
                channel.queue_purge("orders")
                state = log.state()
                assert [info.first_lsn for info in state.segments] == sorted(info.first_lsn for info in state.segments)
                return state.first_lsn > 0

            wait_until(work, "old segments are removed")
        with pytest.raises(SegmentGone):
            log.index(first)
        with pytest.raises(SegmentGone):
            log.read(first, 0, 100)
        wait_for_all(broker, log)
        log.close()
