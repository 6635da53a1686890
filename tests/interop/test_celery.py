"""Celery with real worker processes: tasks, results, retries, chords, events, remote control, lost workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.backends.rpc import RPCBackend
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from tests.interop import celery_app
from tests.interop.deadline import wait_until

ROOT = Path(__file__).resolve().parents[2]
ANSWER_S = 60


class Worker:
    """A `celery worker` in a process group of its own, with its log in a file."""

    def __init__(
        self, app: Celery, folder: Path, pool: str, packages: Path | None = None, concurrency: int = 2
    ) -> None:
        """`packages` is a folder with another Celery than the one that is installed."""
        self.name = f"w{uuid.uuid4().hex[:8]}@interop"
        self.log = folder / f"{self.name}.log"
        environment = {
            **os.environ,
            celery_app.BROKER: app.conf.broker_url,
            celery_app.BACKEND: app.conf.result_backend,
            celery_app.PREFIX: app.conf.task_default_queue,
        }
        if packages is not None:
            environment["PYTHONPATH"] = str(packages)
        command = [sys.executable, "-m", "celery", "-A", "tests.interop.celery_app", "worker", "--events"]
        command += ["--hostname", self.name, "--loglevel", "INFO", "--pool", pool]
        command += ["--concurrency", str(concurrency)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._is_ready, f"worker {self.name}", timeout_s=60)

    def _is_ready(self) -> bool:
        text = self.log.read_text(errors="replace")
        assert self.process.poll() is None, f"the worker ended:\n{text}"
        return " ready." in text

    def kill(self) -> None:
        """End it at once, with its children, as a crash of the machine would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(ANSWER_S)

    def stop(self) -> int:
        """Warm shutdown; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def close(app: Celery) -> None:
    """Close every connection the app holds in this process."""
    if isinstance(app.backend, RPCBackend):
        app.backend.result_consumer.stop()
    app.producer_pool.force_close_all()
    app.pool.force_close_all()
    app.close()


def delete_queues(app: Celery, *names: str) -> None:
    with app.connection() as connection, connection.channel() as channel:
        for name in names:
            channel.queue_delete(name)


@pytest.fixture(scope="module")
def app(broker_url: str) -> Iterator[Celery]:
    """Results come through reply queues of the broker itself."""
    made = celery_app.make_app(broker_url, "rpc://", f"interop.celery.{uuid.uuid4().hex[:8]}")
    yield made
    prefix = made.conf.task_default_queue
    delete_queues(made, prefix, f"{prefix}.priority")
    close(made)


@pytest.fixture(scope="module")
def worker(app: Celery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    started = Worker(app, tmp_path_factory.mktemp("worker"), pool="prefork")
    yield started
    assert started.stop() == 0, started.log.read_text()


def send(app: Celery, task: str, *args: Any, **options: Any) -> AsyncResult:
    return app.tasks[f"interop.{task}"].apply_async(args, **options)


def test_a_task_runs_in_the_worker_and_its_result_comes_back(app: Celery, worker: Worker) -> None:
    result = send(app, "add", 2, 3)
    assert result.get(timeout=ANSWER_S) == 5
    assert result.state == "SUCCESS"


def test_many_tasks_at_once_all_answer(app: Celery, worker: Worker) -> None:
    results = [send(app, "add", number, 1) for number in range(100)]
    assert [result.get(timeout=ANSWER_S) for result in results] == list(range(1, 101))


def test_an_exception_in_a_task_is_raised_where_the_result_is_asked_for(app: Celery, worker: Worker) -> None:
    result = send(app, "fail", "on purpose")
    with pytest.raises(ValueError, match="on purpose"):
        result.get(timeout=ANSWER_S)


def test_a_task_that_retries_with_a_countdown_answers_in_the_end(app: Celery, worker: Worker) -> None:
    assert send(app, "flaky", 3).get(timeout=ANSWER_S) == 3


def test_a_task_with_a_countdown_waits_in_the_worker(app: Celery, worker: Worker) -> None:
    assert send(app, "add", 1, 1, countdown=0.5).get(timeout=ANSWER_S) == 2


def test_tasks_with_priorities_go_through_a_queue_with_x_max_priority(app: Celery, worker: Worker) -> None:
    queue = f"{app.conf.task_default_queue}.priority"
    results = [send(app, "add", number, 0, queue=queue, priority=number) for number in range(10)]
    assert [result.get(timeout=ANSWER_S) for result in results] == list(range(10))


def test_groups_and_chains_pass_results_on(app: Celery, worker: Worker) -> None:
    add = app.tasks["interop.add"]
    assert group(add.s(n, n) for n in range(5))().get(timeout=ANSWER_S) == [0, 2, 4, 6, 8]
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=ANSWER_S) == 10


def test_an_events_receiver_sees_a_task_from_received_to_succeeded(app: Celery, worker: Worker) -> None:
    seen: dict[str, list[str]] = {}

    def on_event(event: dict[str, Any]) -> None:
        seen.setdefault(event.get("uuid", ""), []).append(event["type"])

    with app.connection() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": on_event})
        with receiver.consumer_context() as (drained, _channel, _consumers):
            result = send(app, "add", 20, 22)
            wait_until(
                lambda: "task-succeeded" in seen.get(result.id, []),
                "the task-succeeded event",
                lambda: drained.drain_events(timeout=ANSWER_S),
            )
    assert seen[result.id] == ["task-received", "task-started", "task-succeeded"]
    assert result.get(timeout=ANSWER_S) == 42


def test_inspect_asks_the_worker_about_itself(app: Celery, worker: Worker) -> None:
    inspect = app.control.inspect([worker.name], timeout=ANSWER_S)
    prefix = app.conf.task_default_queue
    assert inspect.ping() == {worker.name: {"ok": "pong"}}
    queues = {queue["name"] for queue in inspect.active_queues()[worker.name]}
    assert {prefix, f"{prefix}.priority"} <= queues
    assert "interop.add" in inspect.registered()[worker.name]
    assert inspect.stats()[worker.name]["pool"]["max-concurrency"] == 2


def test_a_revoked_task_does_not_run(app: Celery, worker: Worker) -> None:
    result = send(app, "add", 1, 1, countdown=2)
    inspect = app.control.inspect([worker.name], timeout=ANSWER_S)
    wait_until(lambda: inspect.scheduled()[worker.name], "the task to be scheduled in the worker")
    app.control.revoke(result.id, reply=True, timeout=ANSWER_S, destination=[worker.name])
    assert result.id in inspect.revoked()[worker.name]
    with pytest.raises(TaskRevokedError):
        result.get(timeout=ANSWER_S)


def test_remote_control_changes_rate_limits_and_consumers(app: Celery, worker: Worker) -> None:
    ask: dict[str, Any] = {"reply": True, "timeout": ANSWER_S, "destination": [worker.name]}
    limited = app.control.rate_limit("interop.total", "100/s", **ask)
    assert limited == [{worker.name: {"ok": "new rate limit set successfully"}}]
    extra = f"{app.conf.task_default_queue}.extra"
    app.control.add_consumer(extra, **ask)
    assert send(app, "add", 4, 4, queue=extra).get(timeout=ANSWER_S) == 8
    app.control.cancel_consumer(extra, **ask)
    inspect = app.control.inspect([worker.name], timeout=ANSWER_S)
    # The worker answers first and cancels at the next turn of its loop.
    wait_until(
        lambda: extra not in {queue["name"] for queue in inspect.active_queues()[worker.name]},
        "the worker to leave the queue",
    )
    delete_queues(app, extra)


@pytest.mark.slow
def test_a_chord_runs_its_body_after_all_parts_and_a_shut_down_worker_ends_cleanly(
    broker_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    app = celery_app.make_app(broker_url, folder.as_uri(), f"interop.chord.{uuid.uuid4().hex[:8]}")
    worker = Worker(app, tmp_path, pool="prefork")
    try:
        add, total = app.tasks["interop.add"], app.tasks["interop.total"]
        assert chord([add.s(n, 1) for n in range(10)], total.s())().get(timeout=ANSWER_S) == 55
        app.control.shutdown(destination=[worker.name])
        assert worker.process.wait(ANSWER_S) == 0
    finally:
        worker.stop()
        close(app)


@pytest.mark.slow
def test_a_broadcast_task_runs_in_every_worker_and_a_killed_worker_s_task_in_another(
    broker_url: str, tmp_path: Path
) -> None:
    app = celery_app.make_app(broker_url, "rpc://", f"interop.lost.{uuid.uuid4().hex[:8]}")
    workers = {w.process.pid: w for w in (Worker(app, tmp_path, pool="solo"), Worker(app, tmp_path, pool="solo"))}
    announced, files = tmp_path / "announced", tmp_path / "files"
    announced.mkdir()
    files.mkdir()
    try:
        send(app, "announce", str(announced))
        wait_until(lambda: len(list(announced.iterdir())) == 2, "both workers to run the broadcast task")
        assert {int(path.name) for path in announced.iterdir()} == set(workers)
        result = send(app, "wait_for_file", str(files))
        first = wait_until(lambda: list(files.glob("started.*")), "the task to start")[0]
        workers[int(first.suffix[1:])].kill()
        wait_until(lambda: len(list(files.glob("started.*"))) == 2, "the task to start again elsewhere")
        (files / "go").touch()
        assert result.get(timeout=ANSWER_S) is True
    finally:
        for worker in workers.values():
            worker.stop()
        close(app)
