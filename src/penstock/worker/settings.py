"""How a worker works; the command's options end up here."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.worker.jobs.backoff import Backoff


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The defaults are the command's."""

    # A reservation is renewed three times within this; a worker that hangs or is cut off loses its jobs after it.
    lease_s: float = 60.0
    # For jobs that do not say themselves.
    max_attempts: int = 5
    backoff: Backoff = field(default_factory=Backoff)
    # None = no limit.
    timeout_s: float | None = None
    # How long running jobs may go on after a stop.
    grace_s: float = 30.0
    # Stop when nothing is ready and nothing runs.
    is_burst: bool = False
    # Stop after so many messages; None = no limit.
    jobs_max: int | None = None


def queue_names(names: tuple[str, ...] | list[str], default: str) -> list[str]:
    """In order, blank ones dropped, each once; without any, the default."""
    kept = [name for name in names if name.strip()]
    return list(dict.fromkeys(kept)) or [default]
