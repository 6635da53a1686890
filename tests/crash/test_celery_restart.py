"""Celery over a kill -9 of its broker: late-acknowledged tasks survive it, and are run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import celery_tasks
from tests.crash.broker_process import ROOT, BrokerProcess
from tests.interop.deadline import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WORKER_S = 90.0
EXIT_S = 60.0


@contextlib.contextmanager
def celery_worker(url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "-A", "tests.crash.celery_tasks", "worker", "--loglevel", "INFO"]
    command += ["--pool", "prefork", "--concurrency", "2"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, celery_tasks.BROKER: url},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # With its children; it is the leader of its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(EXIT_S)


def names(folder: Path, kind: str) -> set[str]:
    return {path.name.removeprefix(f"{kind}.") for path in folder.glob(f"{kind}.*")}


def test_tasks_that_were_running_and_tasks_that_waited_survive_a_kill_of_the_broker(tmp_path: Path) -> None:
    data_dir, log, marks = tmp_path / "data", tmp_path / "broker.log", tmp_path / "marks"
    marks.mkdir()
    wanted = {f"task-{number}" for number in range(12)}
    with BrokerProcess(data_dir, log).wait_until_ready() as broker:
        port = broker.port
        url = f"amqp://guest:guest@127.0.0.1:{port}//"
        app = celery_tasks.make_app(url)
        for name in sorted(wanted):
            app.send_task(celery_tasks.TASK, (str(marks), name))
        app.pool.force_close_all()
        with celery_worker(url, tmp_path / "worker.log"):
            # Two are run, two are prefetched, the others wait in the queue; none is acknowledged.
            wait_until(lambda: len(names(marks, "started")) == 2, "two tasks run", timeout_s=WORKER_S)
            broker.kill()
            with BrokerProcess(data_dir, log, ("--port", str(port))).wait_until_ready():
                (marks / "go").touch()
                wait_until(lambda: names(marks, "done") == wanted, "all tasks are done", timeout_s=WORKER_S)
    app.close()


def test_tasks_of_a_worker_and_a_broker_that_die_together_are_run_by_the_next(tmp_path: Path) -> None:
    data_dir, log, marks = tmp_path / "data", tmp_path / "broker.log", tmp_path / "marks"
    marks.mkdir()
    with BrokerProcess(data_dir, log).wait_until_ready() as broker:
        port = broker.port
        url = f"amqp://guest:guest@127.0.0.1:{port}//"
        app = celery_tasks.make_app(url)
        app.send_task(celery_tasks.TASK, (str(marks), "only"))
        app.pool.force_close_all()
        with celery_worker(url, tmp_path / "first.log"):
            wait_until(lambda: names(marks, "started") == {"only"}, "the task runs", timeout_s=WORKER_S)
            broker.kill()
    (marks / "go").touch()
    assert names(marks, "done") == set()
    with (
        BrokerProcess(data_dir, log, ("--port", str(port))).wait_until_ready(),
        celery_worker(url, tmp_path / "second.log"),
    ):
        wait_until(lambda: names(marks, "done") == {"only"}, "the task is done", timeout_s=WORKER_S)
    app.close()
