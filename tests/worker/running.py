"""A worker in the test's own process, and what it has told."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.client.sync.session import Session
from penstock.clock import Clock
from penstock.worker.jobs.operator_code import load_allow_list
from penstock.worker.report import JobReport, Reporter
from penstock.worker.runners.child_runner import ChildRunner
from penstock.worker.settings import WorkerSettings
from penstock.worker.timetable import Timetable
from penstock.worker.worker import Worker
from tests.interop.deadline import wait_until

SHOP = "tests.worker.shop"


class Recorder(Reporter):
    """Keeps everything; `on_finished` is called after each message."""

    def __init__(self, on_finished: Callable[[JobReport], object] = lambda report: None) -> None:
        self.reports: list[JobReport] = []
        self.begun: list[str] = []
        self.slots: list[str] = []
        self.problems: list[str] = []
        self._on_finished = on_finished

    def started(self, queue: str, message_id: str, job: str, attempt: int) -> None:
        self.begun.append(job)

    def finished(self, report: JobReport) -> None:
        self.reports.append(report)
        self._on_finished(report)

    def put_by_cron(self, queue: str, job: str, slot: str) -> None:
        self.slots.append(slot)

    def problem(self, text: str) -> None:
        self.problems.append(text)

    @property
    def outcomes(self) -> list[str]:
        return [report.outcome for report in self.reports]


def make_worker(
    session: Session,
    *queues: str,
    recorder: Recorder | None = None,
    timetable: Timetable | None = None,
    clock: Clock | None = None,
    concurrency: int = 1,
    jobs_per_child: int = 1,
    **settings: Any,
) -> Worker:
    """A worker that runs the shop; a burst unless the settings say otherwise."""
    allow_list = load_allow_list(apps=[SHOP], allowed=[f"{SHOP}:*"])
    return Worker(
        session,
        queues or ["default"],
        allow_list,
        ChildRunner(allow_list, concurrency, jobs_per_child),
        WorkerSettings(**{"is_burst": True, **settings}),
        timetable=timetable,
        reporter=recorder,
        clock=clock,
        chance=random.Random(5),
    )


def work(session: Session, *queues: str, **options: Any) -> Recorder:
    """Work until nothing is ready."""
    recorder = options.pop("recorder", None) or Recorder()
    make_worker(session, *queues, recorder=recorder, **options).run()
    return recorder


def put(session: Session, queue: str, name: str, *args: Any, **kwargs: Any) -> str:
    call = {"job": f"{SHOP}:{name}", "args": list(args), "kwargs": kwargs}
    with session.producer_for(queue) as producer:
        return producer.put_json(call).id


@contextmanager
def meanwhile(action: Callable[[], object]) -> Iterator[None]:
    """Something that happens on another thread; what fails there fails the test."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not failures, failures


def open_gate(gate: str) -> None:
    """Let the jobs go on that wait there."""
    os.close(os.open(gate, os.O_WRONLY))


def wait_for_lines(path: Path, count: int = 1) -> list[str]:
    def lines() -> list[str] | None:
        if not path.exists():
            return None
        found = path.read_text().splitlines(keepends=True)
        return found if len(found) >= count and found[-1].endswith("\n") else None

    found: list[str] = wait_until(lines, f"{count} lines in {path.name}")
    return [line.strip() for line in found]
