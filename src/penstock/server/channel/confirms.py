"""Publisher confirms of one channel: which publishes are settled, and how few frames say so.

`flush`, at the end of the turn, turns settled publishes into acks: one with multiple=true for everything below the
oldest unsettled publish, single ones for what lies above it, nacks one by one.

Invariants
  1. Each publish number is reported exactly once, as ack or as nack.
  2. multiple=true is only used for a number below which nothing is unsettled and nothing waits to be nacked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from penstock.message import ConfirmToken


@final
class PublishedRun(ConfirmToken):
    """A run of publishes on its way to being confirmed."""

    __slots__ = ("count", "first", "ledger", "refused", "settled")

    def __init__(self, ledger: ConfirmLedger, first: int, count: int, waiting: int) -> None:
        super().__init__(waiting)
        # None once it was told: messages keep their token, which must not keep a channel that has long been closed.
        self.ledger: ConfirmLedger | None = ledger
        self.first = first
        self.count = count
        self.settled = False
        self.refused = False

    def complete(self) -> None:
        ledger = self.ledger
        if ledger is not None:
            self.ledger = None
            self.settled = True
            ledger.settled(self)

    def refuse(self) -> None:
        self.refused = True
        self.complete()


@final
class ConfirmLedger:
    __slots__ = ("_next", "_open", "_ready", "_when_ready")

    def __init__(self, when_ready: Callable[[], None]) -> None:
        # Called when `flush` has something to say, once until it was asked.
        self._when_ready = when_ready
        self._next = 1
        # Runs in the order of publishing; settled ones leave when they reach the left end.
        self._open: deque[PublishedRun] = deque()
        self._ready: list[PublishedRun] = []

    def open_count(self) -> int:
        """Return how many runs of publishes have no answer yet."""
        return len(self._open)

    def open_run(self, count: int, waiting: int) -> PublishedRun:
        """Number a run of publishes that `waiting` queues must confirm; with 0 the caller completes it."""
        run = PublishedRun(self, self._next, count, waiting)
        self._next += count
        self._open.append(run)
        return run

    def settled(self, run: PublishedRun) -> None:
        if not self._ready:
            self._when_ready()
        self._ready.append(run)

    def flush(self) -> list[tuple[int, bool, bool]]:
        """What to send: (number, multiple, is_ack) in order."""
        ready = self._ready
        if not ready:
            return []
        self._ready = []
        waiting = self._open
        while waiting and waiting[0].settled:
            waiting.popleft()
        oldest = waiting[0].first if waiting else self._next
        out: list[tuple[int, bool, bool]] = []
        last_below = 0
        count_below = 0
        for run in ready:
            if run.refused:
                return _one_by_one(ready)
            if run.first < oldest:
                last_below = max(last_below, run.first + run.count - 1)
                count_below += run.count
        if count_below:
            out.append((last_below, count_below > 1, True))
        for run in ready:
            if run.first > oldest:
                out.extend(_singles(run))
        return out


def _one_by_one(runs: list[PublishedRun]) -> list[tuple[int, bool, bool]]:
    out: list[tuple[int, bool, bool]] = []
    for run in runs:
        out.extend(_singles(run))
    return out


def _singles(run: PublishedRun) -> list[tuple[int, bool, bool]]:
    return [(number, False, not run.refused) for number in range(run.first, run.first + run.count)]
