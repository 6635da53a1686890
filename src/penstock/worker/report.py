"""What a worker reports about its work; the command decides what becomes of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["done", "retry", "buried", "invalid", "refused", "requeued", "lost"]

# What each outcome means, for the documentation of --json.
OUTCOMES: dict[Outcome, str] = {
    "done": "finalized, with the result as its note",
    "retry": "failed, and comes back after retry_in_s",
    "buried": "failed for the last time, and is put aside until somebody kicks it",
    "invalid": "no job at all: finalized, and the note says why",
    "refused": "not allowed here, or called with wrong arguments: put aside unrun",
    "requeued": "given back because the worker stops",
    "lost": "the reservation was gone before the job ended: somebody else has it",
}


@dataclass(frozen=True, slots=True)
class JobReport:
    """A message that the worker is finished with."""

    queue: str
    id: str
    # The name that the message used; None when it had none.
    job: str | None
    outcome: Outcome
    attempt: int
    seconds: float
    note: str
    retry_in_s: float | None = None


@dataclass(slots=True)
class Progress:
    """The figures of a worker so far."""

    running: int = 0
    done: int = 0
    # Attempts that failed: retry, buried, invalid, refused and lost.
    failed: int = 0
    # The queue that the last job came from.
    queue: str = ""
    state: Literal["working", "stopping", "without connection"] = "working"

    @property
    def finished(self) -> int:
        return self.done + self.failed

    def count(self, outcome: Outcome) -> None:
        if outcome == "done":
            self.done += 1
        elif outcome != "requeued":
            self.failed += 1


class Reporter:
    """Hears of everything; does nothing with it."""

    def attached(self, queues: list[str]) -> None:
        """The worker has its queues, and waits for jobs."""

    def started(self, queue: str, message_id: str, job: str, attempt: int) -> None:
        """A job begins."""

    def finished(self, report: JobReport) -> None:
        """A message is settled."""

    def put_by_cron(self, queue: str, job: str, slot: str) -> None:
        """This worker has put a slot of a schedule."""

    def problem(self, text: str) -> None:
        """Something that a person should know."""

    def stopping(self, running: int, grace_s: float) -> None:
        """The worker was told to stop, and waits for its running jobs."""

    def progress(self, figures: Progress) -> None:
        """Called often; also when nothing has changed."""

    def ended(self, figures: Progress) -> None:
        """The worker has ended, whatever the reason."""
