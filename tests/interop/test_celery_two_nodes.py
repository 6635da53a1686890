"""One Celery app on two brokers that share its queue through PostgreSQL, with a real worker on each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from celery import Celery, chain, chord
from celery.result import AsyncResult

from tests.crash.broker_process import ROOT, BrokerProcess
from tests.interop import celery_two_nodes_app as shared
from tests.interop.deadline import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ANSWER_S = 60
# Quoted in SQL and in a channel's name, and longer than a channel's name may be.
QUEUE = 'celery\'s "shared" ' + "q" * 60


class Node:
    """A broker, the Celery app that speaks to it, and at most one worker."""

    def __init__(self, postgres: str, folder: Path, results: Path) -> None:
        self._folder = folder
        self._results = results.as_uri()
        folder.mkdir()
        self.broker = BrokerProcess(folder / "data", folder / "broker.log", ["--postgres", postgres]).wait_until_ready()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.broker.port}//"
        self.app: Celery = shared.make_app(self.url, self._results, QUEUE)
        self.worker: subprocess.Popen[bytes] | None = None

    def start_worker(self) -> None:
        """One task at a time, in the worker's own process."""
        log = self._folder / "worker.log"
        command = [sys.executable, "-m", "celery", "-A", "tests.interop.celery_two_nodes_app", "worker"]
        command += [
            "--loglevel",
            "INFO",
            "--pool",
            "solo",
            "--concurrency",
            "1",
            "--without-mingle",
            "--without-gossip",
        ]
        environment = {shared.BROKER: self.url, shared.RESULTS: self._results, shared.QUEUE: QUEUE}
        with log.open("wb") as output:
            self.worker = subprocess.Popen(
                [*command, "--hostname", f"{self._folder.name}@two-nodes"],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(lambda: " ready." in log.read_text(errors="replace"), f"the worker of {log}", timeout_s=90)

    @property
    def worker_pid(self) -> int:
        assert self.worker is not None
        return self.worker.pid

    def kill_worker(self) -> None:
        if self.worker is not None and self.worker.poll() is None:
            os.killpg(self.worker.pid, signal.SIGKILL)
            self.worker.wait(ANSWER_S)

    def send(self, task: str, *arguments: Any) -> AsyncResult:
        return self.app.tasks[f"two_nodes.{task}"].apply_async(arguments)

    def close(self) -> None:
        self.kill_worker()
        self.app.producer_pool.force_close_all()
        self.app.pool.force_close_all()
        self.app.close()
        self.broker.kill()


class Runs:
    """What the tasks have left in their folder: who ran what how often."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def all(self) -> list[tuple[str, int]]:
        """Task and process, once for each time that it was begun."""
        names = [path.name.split(".") for path in self.folder.iterdir() if path.name != "go"]
        return [(name, int(pid)) for name, pid, _ in names]

    def pids(self) -> set[int]:
        return {pid for _, pid in self.all()}

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def nodes(penstock_url: str, tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    results = tmp_path / "results"
    results.mkdir()
    with ExitStack() as running:
        made: list[Node] = []
        for name in ("one", "two"):
            made.append(Node(penstock_url, tmp_path / name, results))
            running.callback(made[-1].close)
        yield made[0], made[1]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "runs")


def left_in(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as sql:
        row = sql.execute("SELECT count(*) FROM penstock.messages").fetchone()
        assert row is not None
        return int(row[0])


def deliveries_in(url: str) -> dict[int, int]:
    """How many tasks were delivered how often before they were done."""
    with psycopg.connect(url, autocommit=True) as sql:
        found = sql.execute("SELECT deliveries, count(*) FROM penstock.messages_history GROUP BY 1").fetchall()
        return {int(deliveries): int(count) for deliveries, count in found}


def test_tasks_sent_to_either_node_run_once_on_whichever_worker(
    nodes: tuple[Node, Node], runs: Runs, penstock_url: str
) -> None:
    for node in nodes:
        node.start_worker()
    # A worker does one at a time: both workers have one of these, whichever nodes they came through.
    blocked = [nodes[0].send("wait", str(runs.folder), f"block-{number}") for number in range(2)]
    wait_until(lambda: len(runs.all()) == 2, "both workers have begun")
    assert runs.pids() == {node.worker_pid for node in nodes}
    results = [nodes[number % 2].send("note", str(runs.folder), f"task-{number}") for number in range(100)]
    runs.go()
    assert [result.get(timeout=ANSWER_S) for result in results] == [f"task-{number}" for number in range(100)]
    assert [result.get(timeout=ANSWER_S) for result in blocked] == [False, False]
    wait_until(lambda: left_in(penstock_url) == 0, "every task is acknowledged")
    assert set(Counter(name for name, _ in runs.all()).values()) == {1}
    assert deliveries_in(penstock_url) == {1: 102}


def test_chains_and_chords_pass_from_node_to_node(nodes: tuple[Node, Node], penstock_url: str) -> None:
    # Sent through one node, worked on at the other: every step is handed on in the database.
    nodes[1].start_worker()
    tasks = nodes[0].app.tasks
    add, total = tasks["two_nodes.add"], tasks["two_nodes.total"]
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=ANSWER_S) == 10
    assert chord([add.s(number, 1) for number in range(10)], total.s())().get(timeout=ANSWER_S) == 55
    wait_until(lambda: left_in(penstock_url) == 0, "every task is acknowledged")


def test_a_task_of_a_killed_worker_is_run_by_the_worker_of_the_other_node(
    nodes: tuple[Node, Node], runs: Runs, penstock_url: str
) -> None:
    one, two = nodes
    one.start_worker()
    result = two.send("wait", str(runs.folder), "late")
    wait_until(lambda: runs.all() == [("late", one.worker_pid)], "the only worker has begun")
    two.start_worker()
    one.kill_worker()
    wait_until(lambda: two.worker_pid in runs.pids(), "the other worker has begun")
    runs.go()
    assert result.get(timeout=ANSWER_S) is True
    wait_until(lambda: left_in(penstock_url) == 0, "the task is acknowledged")
    assert deliveries_in(penstock_url) == {2: 1}


def test_what_a_killed_node_had_is_all_done_by_the_worker_of_the_other(
    nodes: tuple[Node, Node], runs: Runs, penstock_url: str
) -> None:
    one, two = nodes
    one.start_worker()
    # One task is with the worker, some are reserved for the node, the others are nobody's yet.
    blocked = one.send("wait", str(runs.folder), "in-flight")
    wait_until(lambda: runs.all() == [("in-flight", one.worker_pid)], "the task is in flight")
    results = [nodes[number % 2].send("note", str(runs.folder), f"task-{number}") for number in range(40)]
    one.broker.kill()
    two.start_worker()
    wait_until(lambda: ("in-flight", two.worker_pid) in runs.all(), "the task came back", timeout_s=ANSWER_S)
    # The worker without a broker has the task as well, and Celery's results in files are not for two writers.
    one.kill_worker()
    runs.go()
    assert [result.get(timeout=ANSWER_S) for result in results] == [f"task-{number}" for number in range(40)]
    assert blocked.get(timeout=ANSWER_S) is True
    wait_until(lambda: left_in(penstock_url) == 0, "every task is acknowledged")
    done = Counter(runs.all())
    assert {name for name, pid in done if pid == two.worker_pid} == {"in-flight", *[f"task-{n}" for n in range(40)]}
    assert set(done.values()) == {1}
