"""A log whose segments' indexes are known already, or asked for once.

To make an index, all headers of a segment are read; a task that did so for its part of the segment would spend as much
time on it as on its rows. So the planner has the indexes anyway, and sends them along with the ranges.

An index that was made earlier is as good as a new one for the range that was planned with it: segments only grow.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.history.log import Log, LogState, ReaderState, SegmentIndex


class KnownIndexes(Log):
    """Another log, with a memory for indexes. Lives as long as one plan, or one task."""

    def __init__(self, log: Log, known: Iterable[SegmentIndex] = ()) -> None:
        self._log = log
        self._known = {index.number: index for index in known}

    @property
    def source(self) -> str:
        return self._log.source

    def state(self) -> LogState:
        return self._log.state()

    def index(self, number: int) -> SegmentIndex:
        if number not in self._known:
            self._known[number] = self._log.index(number)
        return self._known[number]

    def read(self, number: int, offset: int, size: int) -> bytes:
        return self._log.read(number, offset, size)

    def view(self, number: int, offset: int, size: int) -> memoryview:
        return self._log.view(number, offset, size)

    def shared_body(self, queue_no: int, address: int, size: int) -> bytes | None:
        return self._log.shared_body(queue_no, address, size)

    def set_cursor(self, name: str, lsn: int) -> None:
        self._log.set_cursor(name, lsn)

    def readers(self) -> list[ReaderState]:
        return self._log.readers()

    def forget_reader(self, name: str) -> bool:
        return self._log.forget_reader(name)

    def close(self) -> None:
        self._log.close()
