"""`penstock work`: run the jobs of queues until it is told to stop."""

from __future__ import annotations

import os
from dataclasses import dataclass

import click

from penstock.cli.seconds import Seconds
from penstock.cli.session import session_options

# Each running job has a process and a socket; select takes about a thousand of them.
_CONCURRENCY_MAX = 256


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """The command's options, as they were given."""

    queues: tuple[str, ...]
    url: str | None
    schema: str
    apps: tuple[str, ...]
    allowed: tuple[str, ...]
    isolation: str
    concurrency: int
    jobs_per_child: int
    timeout: float | None
    max_attempts: int
    backoff: float
    backoff_max: float
    lease: float
    cron_lines: tuple[str, ...]
    timezone: str
    grace: float
    burst: bool
    max_jobs: int | None
    as_json: bool
    log_level: str


@click.command(short_help="Run the jobs of queues, in order of priority.")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@session_options
@click.option("--app", "apps", multiple=True, metavar="MODULE", help="Import the module and run its @job functions.")
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="[ALIAS=]MODULE:NAME",
    help="Run this function, or the `perform` of this class; MODULE:* = all public ones that the module defines."
    " Messages may also use the alias.",
)
@click.option(
    "--isolation",
    type=click.Choice(["fork", "pool", "inline"]),
    help="Where jobs run: a new process for each, processes that stay, or the worker itself (nothing can be killed, and"
    " no timeout).  [default: fork; inline where there is no fork]",
)
@click.option(
    "--concurrency", type=click.IntRange(1, _CONCURRENCY_MAX), default=1, show_default=True, help="Jobs at a time."
)
@click.option(
    "--jobs-per-child",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="With --isolation pool: replace a process after so many jobs; 0 = never.",
)
@click.option("--timeout", type=Seconds(0, min_open=True), metavar="SECONDS", help="Kill jobs that take longer.")
@click.option(
    "--max-attempts", type=click.IntRange(1), default=5, show_default=True, help="Then a failing job is put aside."
)
@click.option(
    "--backoff",
    type=Seconds(0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait before the second attempt; each further wait is twice as long, less a bit of chance.",
)
@click.option(
    "--backoff-max",
    type=Seconds(0),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait.",
)
@click.option(
    "--lease",
    type=Seconds(1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="A job goes to another worker when this one has not been heard of for so long.",
)
@click.option(
    "--cron",
    "cron_lines",
    multiple=True,
    metavar="'M H D M W MODULE:NAME'",
    help="Put this job whenever the expression says, and allow it. All workers may be told the same: one puts it.",
)
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="For cron, e.g. Europe/Berlin.")
@click.option(
    "--grace",
    type=Seconds(0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="After SIGTERM or SIGINT: how long running jobs may go on before they are given back.",
)
@click.option("--burst", is_flag=True, help="Stop when the queues are empty.")
@click.option("--max-jobs", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finished job, one on each line.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def work(
    queues: tuple[str, ...],
    url: str | None,
    schema: str,
    apps: tuple[str, ...],
    allowed: tuple[str, ...],
    isolation: str | None,
    concurrency: int,
    jobs_per_child: int,
    timeout: float | None,
    max_attempts: int,
    backoff: float,
    backoff_max: float,
    lease: float,
    cron_lines: tuple[str, ...],
    timezone: str,
    grace: float,
    burst: bool,
    max_jobs: int | None,
    as_json: bool,
    log_level: str,
) -> None:
    """Run the jobs of queues until SIGINT or SIGTERM: from the first QUEUE while it has any, then from the next.

    Without a QUEUE it is "default". A job is a message {"job": "MODULE:NAME", "args": […], "kwargs": {…}}, or Resque's
    {"class": "NAME", "args": […]}. Only what --app and --allow name is ever run; modules are looked for in this folder
    too. See docs/jobs.md.

    SIGTERM or SIGINT: no new jobs, and running ones have --grace seconds; once more: they are given back at once.

    With --json each line has queue, id, job, outcome (done, retry, buried, invalid, refused, requeued, lost), attempt,
    seconds, note, retry_in_s.

    Exit codes: 0 stopped as asked; 1 could not start or go on; 2 wrong options.
    """
    isolation = isolation or ("fork" if hasattr(os, "fork") else "inline")
    if isolation == "inline" and (timeout is not None or concurrency != 1):
        raise click.UsageError("--isolation inline has neither --timeout nor --concurrency: use fork or pool")
    options = WorkOptions(
        queues=queues,
        url=url,
        schema=schema,
        apps=apps,
        allowed=allowed,
        isolation=isolation,
        concurrency=concurrency,
        jobs_per_child=jobs_per_child,
        timeout=timeout,
        max_attempts=max_attempts,
        backoff=backoff,
        backoff_max=backoff_max,
        lease=lease,
        cron_lines=cron_lines,
        timezone=timezone,
        grace=grace,
        burst=burst,
        max_jobs=max_jobs,
        as_json=as_json,
        log_level=log_level,
    )
    # Imported here: `penstock serve` needs none of it.
    from penstock.cli.work_start import start_worker

    start_worker(options)
