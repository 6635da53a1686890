"""What becomes of a message when its job has ended, or never began.

    done                          finalized, the result is the note
    failed, attempts left         requeued after the backoff
    failed for the last time      buried, the traceback is the note
    no job at all                 finalized, the note says why: no worker will ever run it
    not allowed, wrong arguments  buried unrun: another worker, or the next version of the code, may

Attempts are the message's deliveries, so those that ended with the worker count as well. When the connection is lost,
the answer is kept and sent later; if another worker has the message by then, the job may run twice, and the report says
so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.client.errors import ConnectionLost, NotReserved
from penstock.worker.jobs.allow_list import Runnable
from penstock.worker.report import JobReport, Outcome, Progress, Reporter
from penstock.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from penstock.client.message import Message
    from penstock.client.sync.consumer import Consumer

# Of a job that was given back by a worker that stopped. Such an attempt is no reason to bury it.
STOPPED = "the worker was stopped while the job ran"


@dataclass(frozen=True, slots=True)
class _Owed:
    say: Callable[[], object]
    report: JobReport


class Settler:
    def __init__(self, settings: WorkerSettings, reporter: Reporter, figures: Progress, chance: random.Random) -> None:
        self._settings = settings
        self._reporter = reporter
        self._figures = figures
        self._chance = chance
        self._owed: list[_Owed] = []

    @property
    def owes(self) -> bool:
        """Whether something could not be said yet."""
        return bool(self._owed)

    def pay(self) -> None:
        """Say what could not be said. Raises ConnectionLost if it still cannot."""
        while self._owed:
            owed = self._owed[0]
            self._say(owed)
            del self._owed[0]

    def give_up(self) -> None:
        """Nothing more will be said: the reservations go back by themselves."""
        for owed in self._owed:
            self._tell(_lost(owed.report, "the connection was lost before it could be settled"))
        self._owed.clear()

    def done(self, consumer: Consumer, message: Message, name: str, seconds: float, note: str) -> None:
        """The job has returned."""
        self._settle(lambda: consumer.finalize(message, note), _report(message, name, "done", seconds, note))

    def failed(
        self, consumer: Consumer, message: Message, name: str, runnable: Runnable, seconds: float, note: str
    ) -> None:
        """The job has raised, or its child has died, or it took too long."""
        attempt = message.deliveries
        if attempt >= (runnable.options.max_attempts or self._settings.max_attempts):
            self._settle(lambda: consumer.bury(message, note), _report(message, name, "buried", seconds, note))
            return
        backoff = runnable.options.backoff or self._settings.backoff
        delay_s = backoff.delay_s(attempt, self._chance.random())
        report = _report(message, name, "retry", seconds, note, retry_in_s=round(delay_s, 3))
        self._settle(lambda: consumer.requeue(message, delay=delay_s, note=note), report)

    def invalid(self, consumer: Consumer, message: Message, note: str) -> None:
        """The payload is no job."""
        self._settle(lambda: consumer.finalize(message, note), _report(message, None, "invalid", 0.0, note))

    def refused(self, consumer: Consumer, message: Message, name: str, note: str) -> None:
        """The payload is a job that is not run here."""
        self._settle(lambda: consumer.bury(message, note), _report(message, name, "refused", 0.0, note))

    def buried_as_deadly(self, consumer: Consumer, message: Message, name: str, runnable: Runnable) -> bool:
        """Bury a message that has had all its attempts, none of which came to an end; whether it was one."""
        allowed = runnable.options.max_attempts or self._settings.max_attempts
        if message.deliveries <= allowed or message.note == STOPPED:
            return False
        note = f"handed out {message.deliveries - 1} times, and each time its worker was gone before the job had ended"
        if message.note:
            note = f"{note}; the note before this one: {message.note}"
        self._settle(lambda: consumer.bury(message, note), _report(message, name, "buried", 0.0, note))
        return True

    def requeued(self, consumer: Consumer, message: Message, name: str, seconds: float) -> None:
        """The worker stops; the job was killed through no fault of its own."""
        report = _report(message, name, "requeued", seconds, STOPPED)
        self._settle(lambda: consumer.requeue(message, note=STOPPED), report)

    def lost(self, message: Message, name: str, seconds: float, note: str) -> None:
        """Report that another worker has the message."""
        self._tell(_report(message, name, "lost", seconds, note))

    def _settle(self, say: Callable[[], object], report: JobReport) -> None:
        owed = _Owed(say, report)
        try:
            # In the order in which jobs ended.
            self.pay()
            self._say(owed)
        except ConnectionLost:
            self._owed.append(owed)

    def _say(self, owed: _Owed) -> None:
        try:
            owed.say()
        except NotReserved as error:
            self._tell(_lost(owed.report, str(error)))
        else:
            self._tell(owed.report)

    def _tell(self, report: JobReport) -> None:
        self._figures.count(report.outcome)
        self._reporter.finished(report)


def _report(
    message: Message, name: str | None, outcome: Outcome, seconds: float, note: str, retry_in_s: float | None = None
) -> JobReport:
    return JobReport(
        message.queue, message.id, name, outcome, message.deliveries, round(seconds, 3), note, retry_in_s=retry_in_s
    )


def _lost(report: JobReport, why: str) -> JobReport:
    note = f"{why}; the outcome would have been {report.outcome!r}: {report.note}"
    return JobReport(report.queue, report.id, report.job, "lost", report.attempt, report.seconds, note)
