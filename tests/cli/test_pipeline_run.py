"""The pipeline beside a broker, as processes: it archives and reports as messages come, and ends when it should."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from tests.cli.conftest import Serve
from tests.cli.process import ServeProcess, environment
from tests.interop.deadline import wait_until

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

import pika

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Spark starts, twice in some tests, on a machine that does other things.
SPARK_S = 300.0


def publish(port: int, queue: str, *bodies: bytes) -> None:
    """Persistent messages that a consumer takes at once."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        for body in bodies:
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
            channel.basic_get(queue, auto_ack=True)


def wait_for_report(page: Path, queue: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the page names the queue; the process that it takes must not end before."""

    def is_there() -> bool:
        if page.is_file() and queue in page.read_text():
            return True
        said = log.read_text()
        assert process.poll() is None, said
        assert "exit code" not in said, said
        return False

    wait_until(is_there, f"{queue} is in {page}", timeout_s=SPARK_S)


def log_of(broker: ServeProcess) -> Path:
    return broker._log


def status_of(lake: Path) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["pipeline", "status", "--lake", str(lake), "--json"])
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def runs(lake: Path) -> list[int]:
    """Processes of `penstock pipeline run` for this lake, Spark's own among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                command = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if b"\0run\0" in command and str(lake).encode() in command and state != "Z":
                found.append(int(entry.name))
    return found


@contextmanager
def pipeline_run(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`penstock pipeline run` as the leader of a group, as a shell starts it."""
    command = [sys.executable, "-m", "penstock", "pipeline", "run", *arguments]
    with log.open("wb") as target:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=target, stderr=target, env=environment(), start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_run_archives_and_reports_as_messages_come_and_ends_when_it_is_asked(serve: Serve, tmp_path: Path) -> None:
    broker = serve("--port", "0").ready()
    publish(broker.port, "orders-one", b"one", b"two")
    lake, page, log = tmp_path / "lake", tmp_path / "page.html", tmp_path / "run.log"
    given = ("--source", str(broker.data_dir), "--lake", str(lake), "--report", str(page))
    often = ("--every", "0.2", "--refine-every", "1", "--master", "local[1]", "--driver-memory", "512m")
    with pipeline_run(log, *given, *often) as process:
        wait_for_report(page, "orders-one", process, log)
        # What comes while it runs is reported, too.
        publish(broker.port, "orders-two", b"three")
        wait_for_report(page, "orders-two", process, log)
        assert status_of(lake)["archive_running"] is True
        # As a terminal does it: to everybody in the group, Spark's processes included.
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(SPARK_S) == 0, log.read_text()
    said = log.read_text()
    assert "Traceback" not in said
    assert f"report {page.as_uri()}" in said
    found = status_of(lake)
    assert (found["archive_running"], found["archive_lag_events"], found["alarms"]) == (False, 0, [])
    assert found["refined_lsn"] > 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc: processes are looked for")
def test_a_broker_with_a_pipeline_takes_it_along_when_it_ends_in_whatever_way(serve: Serve, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    data = str(tmp_path / "data")

    def start() -> ServeProcess:
        return serve("--port", "0", "--pipeline", "--lake", str(lake), "--data-dir", data).ready()

    broker = start()
    publish(broker.port, "orders", b"one", b"two")
    broker.wait_until_logged((lake / "report.html").as_uri())
    wait_for_report(lake / "report.html", "orders", broker.process, log_of(broker))
    assert runs(lake)
    # The next report is a minute away: what is archived until then waits for the next life, which begins with one.
    publish(broker.port, "bills", b"three")
    wait_until(lambda: status_of(lake)["archive_lag_events"] == 0, "bills are archived", timeout_s=SPARK_S)
    broker.process.kill()
    broker.process.wait()
    wait_until(lambda: not runs(lake), "the pipeline has ended after its broker", timeout_s=SPARK_S)

    broker = start()
    publish(broker.port, "letters", b"four")
    wait_for_report(lake / "report.html", "bills", broker.process, log_of(broker))
    wait_until(lambda: status_of(lake)["archive_lag_events"] == 0, "letters are archived", timeout_s=SPARK_S)
    assert runs(lake)
    broker.process.send_signal(signal.SIGTERM)
    assert broker.process.wait(SPARK_S) == 0
    assert runs(lake) == []
    assert "Traceback" not in broker.log
    assert status_of(lake)["archive_running"] is False


def test_a_pipeline_needs_a_folder_to_read(tmp_path: Path) -> None:
    for wrong in (["--lake", "x"], ["--pipeline", "--in-memory"]):
        result = CliRunner().invoke(main, ["serve", *wrong])
        assert result.exit_code == 2
        assert "--pipeline" in result.stderr
