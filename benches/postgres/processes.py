"""Producers and consumers in processes of their own, which begin together."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final

# Until all are connected.
SECONDS_TO_BEGIN: Final = 60.0
# After the time that they were to take.
SECONDS_TO_END: Final = 60.0
# From the word to the beginning, so that all have heard it.
SECONDS_OF_NOTICE: Final = 0.1

# A part gets its link and its arguments, and returns what it has counted.
Part = Callable[..., Any]


class Link:
    """A part's end of the pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ready(self) -> float:
        """Say that everything is connected; returns the common start (a value of time.monotonic), at that time."""
        self._connection.send(("ready", None))
        start: float = self._connection.recv()
        while (left := start - time.monotonic()) > 0:
            time.sleep(left)
        return start

    def tell(self, value: Any) -> None:
        self._connection.send(("told", value))


class PartFailed(Exception):
    """A process of a case has failed; the text is its traceback."""


def _run(part: Part, connection: Connection, arguments: Sequence[Any]) -> None:
    try:
        connection.send(("done", part(Link(connection), *arguments)))
    except BaseException:
        connection.send(("failed", traceback.format_exc()))


class Troupe:
    """The processes of one measurement. Leaving the `with` ends them."""

    def __init__(self, parts: Sequence[tuple[Part, Sequence[Any]]]) -> None:
        # New interpreters: nothing of this process, its connections and its server, is shared with them.
        context = multiprocessing.get_context("spawn")
        self._links: list[Connection] = []
        self._processes: list[Any] = []
        for part, arguments in parts:
            ours, theirs = context.Pipe()
            process = context.Process(target=_run, args=(part, theirs, arguments), daemon=True)
            process.start()
            theirs.close()
            self._links.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Troupe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        for link in self._links:
            link.close()

    def begin(self) -> float:
        """When all are ready, the common start."""
        for number in range(len(self._links)):
            self.hear(number, "ready", SECONDS_TO_BEGIN)
        start = time.monotonic() + SECONDS_OF_NOTICE
        for link in self._links:
            link.send(start)
        return start

    def results(self, seconds: float) -> list[Any]:
        """What the parts return; they take about so long."""
        return [self.hear(number, "done", seconds + SECONDS_TO_END) for number in range(len(self._links))]

    def hear(self, number: int, expected: str, seconds: float) -> Any:
        link = self._links[number]
        if not link.poll(seconds):
            raise PartFailed(f"process {number} of the case said nothing for {seconds:.0f} s")
        try:
            kind, value = link.recv()
        except EOFError:
            raise PartFailed(f"process {number} of the case has ended without a word") from None
        if kind != expected:
            raise PartFailed(str(value) if kind == "failed" else f"process {number} said {kind}, not {expected}")
        return value
