"""Puts a worker together from the options of `penstock work`, and runs it."""

from __future__ import annotations

import logging
import os
import signal
import sys
from datetime import UTC, tzinfo
from types import FrameType
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from penstock.cli.session import open_session
from penstock.cli.work_report import JsonReporter, LogReporter, ProgressReporter
from penstock.client.checks import queue_name
from penstock.client.errors import ClientError
from penstock.clock import SystemClock
from penstock.worker.cron import CronError
from penstock.worker.jobs.allow_list import AllowList, NotRunnable
from penstock.worker.jobs.backoff import Backoff
from penstock.worker.jobs.job import DEFAULT_QUEUE
from penstock.worker.jobs.operator_code import allow, load_allow_list
from penstock.worker.report import Reporter
from penstock.worker.runners.child_runner import ChildRunner
from penstock.worker.runners.inline_runner import InlineRunner
from penstock.worker.runners.process_name import set_process_name
from penstock.worker.runners.runner import Runner, RunnerLost
from penstock.worker.settings import WorkerSettings, queue_names
from penstock.worker.timetable import Timetable, entries_of, entry_for, split_cron_line
from penstock.worker.worker import Worker

if TYPE_CHECKING:
    from penstock.cli.work import WorkOptions

EXIT_FAILED = 1


def start_worker(options: WorkOptions) -> None:
    """The whole command, once its options are read."""
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s"
    )
    try:
        names = [queue_name(name) for name in queue_names(options.queues, DEFAULT_QUEUE)]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    session = open_session(options.url, options.schema, "work")
    allow_list, timetable = read_code(
        options.apps, options.allowed, options.cron_lines, names[0], zone_named(options.timezone)
    )
    reporter = reporter_for(options.as_json)
    set_process_name("penstock work")
    # Before the session connects: what the children are forked from has never had a connection.
    runner = runner_for(options.isolation, allow_list, options.concurrency, options.jobs_per_child)
    try:
        with session:
            settings = settings_of(options)
            run(Worker(session, names, allow_list, runner, settings, timetable=timetable, reporter=reporter))
    except (ClientError, RunnerLost) as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_FAILED)
    finally:
        runner.close()


def settings_of(options: WorkOptions) -> WorkerSettings:
    return WorkerSettings(
        lease_s=options.lease,
        max_attempts=options.max_attempts,
        backoff=Backoff(first_s=options.backoff, max_s=max(options.backoff, options.backoff_max)),
        timeout_s=options.timeout,
        grace_s=options.grace,
        is_burst=options.burst,
        jobs_max=options.max_jobs,
    )


def read_code(
    apps: tuple[str, ...], allowed: tuple[str, ...], cron_lines: tuple[str, ...], queue: str, zone: tzinfo
) -> tuple[AllowList, Timetable]:
    """Import what the operator named; the table of what may run, and what runs by the clock."""
    if not (apps or allowed or cron_lines):
        raise click.UsageError("nothing may be run: name it with --app MODULE or --allow MODULE:NAME")
    # The command itself is somewhere else: `python -m` would have this folder as well.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        table = load_allow_list(apps, allowed)
        entries = entries_of(table.runnables(), queue)
        for line in cron_lines:
            cron, name = split_cron_line(line)
            entries += [entry_for(cron, runnable, queue) for runnable in allow(table, name)]
    except (NotRunnable, CronError) as error:
        raise click.UsageError(str(error)) from error
    return table, Timetable(entries, SystemClock(), zone)


def zone_named(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise click.UsageError(f"--timezone {name!r} is not known here; on Windows: pip install tzdata") from error


def runner_for(isolation: str, allow_list: AllowList, concurrency: int, jobs_per_child: int) -> Runner:
    if isolation == "inline":
        return InlineRunner(allow_list)
    return ChildRunner(allow_list, concurrency, 1 if isolation == "fork" else jobs_per_child)


def reporter_for(as_json: bool) -> Reporter:
    if as_json:
        # The lines are for a program: what jobs print goes to the standard error from here on.
        lines = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        return JsonReporter(lines)
    if sys.stderr.isatty():
        return ProgressReporter(sys.stderr, SystemClock())
    return LogReporter()


def run(worker: Worker) -> None:
    """Until it is finished; signals stop it."""

    def stop(number: int, frame: FrameType | None) -> None:
        worker.stop_from_signal()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        worker.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
