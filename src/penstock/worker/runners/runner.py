"""The contract between a worker and what runs its jobs: children of its own, a pool of them, or the worker itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from penstock.worker.jobs.formats import Call


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended, by itself or not."""

    # What `start` was given.
    key: int
    is_done: bool
    # The result as JSON, or what went wrong.
    note: str


class RunnerLost(Exception):
    """Jobs cannot be run any more; those that ran may or may not have ended."""


class Runner(ABC):
    """Runs jobs. One thread uses it."""

    # How many jobs may run at the same time.
    concurrency: int = 1
    # Whether `kill` works, and the worker is free while a job runs.
    has_children: bool = True

    @abstractmethod
    def start(self, key: int, name: str, call: Call) -> None:
        """Run the allowed function `name` with the call's arguments. Its end comes out of `wait`."""

    @abstractmethod
    def kill(self, key: int) -> None:
        """End a running job at once. That it ended comes out of `wait`, as a failure unless it was done before."""

    @abstractmethod
    def wait(self, timeout_s: float) -> list[Ended]:
        """Wait until a job has ended, `wake` was called or the time is over. May return nothing. Raises RunnerLost."""

    @abstractmethod
    def wake(self) -> None:
        """Make `wait` return; safe in a signal handler and on any thread."""

    @abstractmethod
    def close(self) -> None:
        """End everything that runs."""
