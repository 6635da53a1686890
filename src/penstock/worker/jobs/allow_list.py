"""The table of everything that a worker runs. It is made once, at the start, from what the operator named.

A name from a message is a key of this table and nothing else: it is never imported, evaluated or taken apart.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.worker.jobs.formats import Call
from penstock.worker.jobs.job import Job, JobOptions


class NotRunnable(ValueError):
    """What the operator named cannot be run; the text says why."""


class Refused(Exception):
    """This worker does not run that call; the text says why."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """One function that may be run."""

    name: str
    function: Callable[..., Any]
    options: JobOptions = field(default_factory=JobOptions)
    # Made of a class with a `perform`: Resque's shape finds it by the class's name.
    class_name: str | None = None


class AllowList:
    """Runnables by the names that messages may use."""

    def __init__(self) -> None:
        self._by_name: dict[str, Runnable] = {}
        self._by_class: dict[str, Runnable] = {}

    def __len__(self) -> int:
        return len(self.runnables())

    def runnables(self) -> list[Runnable]:
        """Return each once, by name."""
        return sorted({entry.name: entry for entry in self._by_name.values()}.values(), key=lambda entry: entry.name)

    def allow(self, runnable: Runnable, alias: str | None = None) -> None:
        """Let messages call it by its name, by its name with a dot for the colon, and by the alias."""
        self._enter(self._by_name, runnable.name, runnable)
        self._enter(self._by_name, runnable.name.replace(":", "."), runnable)
        if runnable.class_name is not None and alias is None:
            self._enter(self._by_class, runnable.class_name, runnable)
        if runnable.class_name is not None:
            self._enter(self._by_class, runnable.name, runnable)
        if alias is not None:
            self._enter(self._by_name, alias, runnable)
            self._enter(self._by_class, alias, runnable)

    def get(self, name: str) -> Runnable | None:
        """By one of the names of a function."""
        return self._by_name.get(name)

    def find(self, call: Call) -> Runnable:
        """What the call means here; raises Refused."""
        table = self._by_class if call.is_class else self._by_name
        found = table.get(call.name)
        if found is not None:
            return found
        if call.is_class:
            raise Refused(
                f"class {call.name!r} is not allowed here; start the worker with --allow {call.name}=MODULE:CLASS"
            )
        raise Refused(f"job {call.name!r} is not allowed here; start the worker with --allow or --app if it should run")

    def _enter(self, table: dict[str, Runnable], name: str, runnable: Runnable) -> None:
        known = table.setdefault(name, runnable)
        if known.function != runnable.function:
            raise NotRunnable(
                f"{known.name} and {runnable.name} would both be called {name!r}; allow one as ALIAS=MODULE:NAME"
            )


def runnable_from(name: str, found: object) -> Runnable:
    """Make an entry of an object that the operator named; raises NotRunnable."""
    if isinstance(found, Job):
        return Runnable(found.name, found.function, found.options)
    if inspect.isclass(found):
        return Runnable(name, _perform_of(name, found), class_name=found.__name__)
    if callable(found):
        return Runnable(name, found)
    raise NotRunnable(f"{name} is {type(found).__name__}, neither a function nor a class with a method perform")


def _perform_of(name: str, found: type) -> Callable[..., Any]:
    perform = inspect.getattr_static(found, "perform", None)
    if perform is None:
        raise NotRunnable(f"class {name} has no method perform")
    if isinstance(perform, classmethod | staticmethod):
        bound: Callable[..., Any] = found.perform  # type: ignore[attr-defined]
        return bound
    return _OfNewInstance(found)


class _OfNewInstance:
    """Calls `perform` of an instance that is made for each job."""

    def __init__(self, found: type) -> None:
        self._class = found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OfNewInstance) and other._class is self._class

    def __hash__(self) -> int:
        return hash(self._class)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._class().perform(*args, **kwargs)


def check_arguments(runnable: Runnable, call: Call) -> None:
    """Raise Refused when the function does not take these arguments: a retry would not change that."""
    try:
        signature = inspect.signature(runnable.function)
    except (TypeError, ValueError):
        # Functions of C may have none; then the call itself tells.
        return
    try:
        signature.bind(*call.args, **call.kwargs)
    except TypeError as error:
        raise Refused(f"{runnable.name} cannot be called so: {error}") from error
