"""How `penstock work` tells about its work: log lines, JSON lines, and a progress line on a terminal."""

from __future__ import annotations

import json
import logging
import shutil
from collections import deque
from dataclasses import asdict
from typing import TextIO

from penstock.clock import Clock
from penstock.worker.report import JobReport, Outcome, Progress, Reporter
from penstock.worker.runners.notes import first_line

LOG = logging.getLogger("penstock.work")

# The rate is that of the last seconds, so that it shows what is happening now.
_RATE_WINDOW_S = 10.0
_REDRAW_S = 0.2
_BAD: tuple[Outcome, ...] = ("buried", "invalid", "refused", "lost")


class LogReporter(Reporter):
    """A log line per job."""

    def attached(self, queues: list[str]) -> None:
        LOG.info("waits for jobs in %s", ", ".join(queues))

    def started(self, queue: str, message_id: str, job: str, attempt: int) -> None:
        LOG.debug("%s: %s %s begins, attempt %d", queue, message_id, logged_name(job), attempt)

    def finished(self, report: JobReport) -> None:
        level = logging.WARNING if report.outcome in _BAD else logging.INFO
        again = "" if report.retry_in_s is None else f", again in {report.retry_in_s:.1f} s"
        LOG.log(
            level,
            "%s: %s %s %s in %.3f s, attempt %d%s: %s",
            report.queue,
            report.id,
            "?" if report.job is None else logged_name(report.job),
            report.outcome,
            report.seconds,
            report.attempt,
            again,
            first_line(report.note),
        )

    def put_by_cron(self, queue: str, job: str, slot: str) -> None:
        LOG.info("%s: cron has put %s for %s", queue, job, slot)

    def problem(self, text: str) -> None:
        LOG.warning("%s", text)

    def stopping(self, running: int, grace_s: float) -> None:
        if running:
            LOG.info("stopping: %d running jobs have %g s; a second signal gives them back at once", running, grace_s)

    def ended(self, figures: Progress) -> None:
        LOG.info("stopped: done %d, failed %d", figures.done, figures.failed)


class JsonReporter(LogReporter):
    """A JSON line per job on a stream; the rest is logged."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def finished(self, report: JobReport) -> None:
        self._stream.write(json.dumps(asdict(report)) + "\n")
        self._stream.flush()


class ProgressReporter(LogReporter):
    """A line on the terminal that is drawn again and again; what went wrong is logged above it."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self._drawn_s = -_REDRAW_S
        self._drawn = ""
        # Pairs of a time and how many jobs were finished then.
        self._marks: deque[tuple[float, int]] = deque()

    def finished(self, report: JobReport) -> None:
        if report.outcome != "done":
            self.clear()
            super().finished(report)

    def put_by_cron(self, queue: str, job: str, slot: str) -> None:
        self.clear()
        super().put_by_cron(queue, job, slot)

    def problem(self, text: str) -> None:
        self.clear()
        super().problem(text)

    def stopping(self, running: int, grace_s: float) -> None:
        self.clear()
        super().stopping(running, grace_s)

    def progress(self, figures: Progress) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._drawn_s >= _REDRAW_S:
            self._draw(figures, now_s)

    def ended(self, figures: Progress) -> None:
        self._draw(figures, self._clock.monotonic_s())
        self._stream.write("\n")
        self._stream.flush()

    def _draw(self, figures: Progress, now_s: float) -> None:
        self._drawn_s = now_s
        self._marks.append((now_s, figures.finished))
        while self._marks[0][0] < now_s - _RATE_WINDOW_S:
            self._marks.popleft()
        line = progress_line(figures, self._rate(), now_s - self._started_s)
        line = line[: max(1, shutil.get_terminal_size().columns - 1)]
        self._stream.write("\r" + line.ljust(len(self._drawn)))
        self._stream.flush()
        self._drawn = line

    def clear(self) -> None:
        """Make room for a line that stays."""
        if self._drawn:
            self._stream.write("\r" + " " * len(self._drawn) + "\r")
            self._stream.flush()
            self._drawn = ""
            self._drawn_s = -_REDRAW_S

    def _rate(self) -> float:
        first_s, first = self._marks[0]
        last_s, last = self._marks[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


def logged_name(name: str) -> str:
    """Return the name of a job as a message has it: anything."""
    return name if name.isprintable() else ascii(name)


def progress_line(figures: Progress, rate: float, uptime_s: float) -> str:
    """Return the line: queue, running, done, failed, rate, uptime."""
    minutes, seconds = divmod(int(uptime_s), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{figures.queue or '-'}  running {figures.running}  done {figures.done}  failed {figures.failed}"
        f"  {rate:.1f}/s  up {hours}:{minutes:02}:{seconds:02}  {figures.state}"
    )
