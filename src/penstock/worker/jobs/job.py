"""`@job`: a function that can also be put onto a queue. It does not run anything; calling it just calls it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

from penstock.client.errors import Closed
from penstock.worker.cron import Cron
from penstock.worker.jobs.backoff import Backoff
from penstock.worker.jobs.formats import encode_call

if TYPE_CHECKING:
    from penstock.client.sync.producer import Producer
    from penstock.client.sync.session import Session

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a job says about itself; None = as the worker was told."""

    queue: str | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout_s: float | None = None
    # Cron expressions are read when the module is imported, so that a bad one is seen at once.
    cron: Cron | None = None


class Job(Generic[P, R]):
    """A function with a name, a queue and its rules for retries."""

    def __init__(self, function: Callable[P, R], name: str | None, options: JobOptions) -> None:
        if name is None:
            if "<locals>" in function.__qualname__:
                raise ValueError(
                    f"{function.__qualname__} is inside a function, where no worker finds it; give a name="
                )
            name = f"{function.__module__}:{function.__qualname__}"
        self.name = name
        self.function = function
        self.options = options
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    @property
    def queue(self) -> str:
        return self.options.queue or DEFAULT_QUEUE

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        """Return the message that calls this job so: for an asynchronous session, or any other way to put it."""
        return encode_call(self.name, args, kwargs)

    def enqueue(self, session: Session, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Have a worker call it; the message's id."""
        return _put(session, self.queue, self.payload(*args, **kwargs))

    def enqueue_at(self, session: Session, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Have a worker call it, not before then. `when` has a time zone."""
        return _put(session, self.queue, self.payload(*args, **kwargs), ready_at=when)

    def enqueue_in(self, session: Session, seconds: float, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Have a worker call it after so many seconds."""
        return _put(session, self.queue, self.payload(*args, **kwargs), delay=seconds)


# One producer for each queue that a session has put jobs onto: to make one is a few round trips.
_PRODUCERS: WeakKeyDictionary[Session, dict[str, Producer]] = WeakKeyDictionary()


def _put(
    session: Session, queue: str, payload: bytes, delay: float | None = None, ready_at: datetime | None = None
) -> str:
    producers = _PRODUCERS.setdefault(session, {})
    if queue in producers:
        try:
            return producers[queue].put(payload, delay=delay, ready_at=ready_at).id
        except Closed:
            # It was closed elsewhere; a closed session says so again below.
            del producers[queue]
    producers[queue] = session.producer_for(queue)
    return producers[queue].put(payload, delay=delay, ready_at=ready_at).id


@overload
def job(function: Callable[P, R], /) -> Job[P, R]: ...


@overload
def job(
    *,
    queue: str | None = None,
    name: str | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | float | None = None,
    timeout: float | None = None,
    cron: str | None = None,
) -> Callable[[Callable[P, R]], Job[P, R]]: ...


def job(
    function: Callable[P, R] | None = None,
    /,
    *,
    queue: str | None = None,
    name: str | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | float | None = None,
    timeout: float | None = None,
    cron: str | None = None,
) -> Job[P, R] | Callable[[Callable[P, R]], Job[P, R]]:
    """Make a job of a function. Workers started with `--app` and its module run it.

    `backoff` is a `Backoff`, or the seconds before the second attempt. `timeout` is in seconds. `cron` has workers put
    it, without arguments, whenever the expression says.
    """
    if max_attempts is not None and max_attempts < 1:
        raise ValueError("max_attempts is 1 or more")
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError("timeout is a number of seconds above 0")
    if backoff is not None and not isinstance(backoff, Backoff):
        backoff = Backoff(first_s=backoff)
    options = JobOptions(queue, max_attempts, backoff, timeout, None if cron is None else Cron(cron))
    if function is not None:
        return Job(function, name, options)

    def decorate(decorated: Callable[P, R]) -> Job[P, R]:
        return Job(decorated, name, options)

    return decorate
