"""The store's share of the event loop: a commit in each turn, work in the background, and a clock when all is quiet.

The journal is written at the end of a turn. Rows for which a waiter waits are written at once; others may wait a little
for company, up to a timer. Checkpoints and the like are cut into slices, which follow such turns and come by themselves
when there are none. A turn in which nothing went to the store costs it nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.clock import Clock
from penstock.store.node.node_store import NodeStore
from penstock.store.retention.retention import NOTHING

log = logging.getLogger("penstock.store")

# How often the background is asked for work when nothing else happens; and when it has some: a slice takes 2 ms.
IDLE_S = 0.25
BACKGROUND_S = 0.004


class StoreTurns:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        node: NodeStore,
        turn_soon: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """`failed` is called once, when the disk has failed for good."""
        self._loop = loop
        self._clock = clock
        self._node = node
        self._journal = node.journal
        self._turn_soon = turn_soon
        self._failed = failed
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._stopped = False
        # Why the journal was not written when it was last tried.
        self._stalled: OSError | None = None
        # What the background last complained about.
        self._alarm = ""
        # What was said about the readers of history; each is named once, until it has got on.
        self._reader_warnings: dict[str, str] = {}
        # Whether there may be something to do: rows or bodies came, a sync has ended, the timer went off.
        self._is_woken = True
        node.journal.gathered = self._wake
        node.shared_stores.woken = self._wake

    def _wake(self) -> None:
        self._is_woken = True
        self._turn_soon()

    def commit(self) -> None:
        if self._is_woken or not self._journal.is_empty:
            self._journal.commit()

    def end_turn(self) -> None:
        if self._stopped or (not self._is_woken and self._journal.is_empty):
            return
        self._is_woken = False
        self._node.end_turn()
        error = self._node.failed
        if error is not None:
            self.stop()
            self._failed(error)
            return
        stalled = self._journal.stalled
        if (stalled is None) != (self._stalled is None):
            self._stalled = stalled
            if stalled is None:
                log.warning("the journal is written again")
            else:
                log.warning("the journal cannot be written now, and is tried again: %s", stalled)
        if self._node.alarm != self._alarm:
            self._alarm = self._node.alarm
            log.warning("work in the background: %s", self._alarm or "all is well again")
        if self._node.unread.warnings is not self._reader_warnings:
            self._warn_of_readers(self._node.unread.warnings)
        self._arm()

    def _warn_of_readers(self, warnings: dict[str, str]) -> None:
        for about, text in warnings.items():
            if about not in self._reader_warnings:
                log.warning("history: %s", text)
        self._reader_warnings = warnings

    def _arm(self) -> None:
        """One timer, for whatever is due first."""
        now_s = self._clock.monotonic_s()
        is_busy = self._node.checkpointer.is_running or self._node.retention.moving != NOTHING
        due_s = now_s + (BACKGROUND_S if is_busy else IDLE_S)
        if self._node.is_behind() or self._node.has_leftovers():
            due_s = now_s
        commit_due_s = self._journal.commit_due_s()
        if commit_due_s is not None and not self._journal.in_flight:
            due_s = min(due_s, commit_due_s)
        if self._timer is not None:
            if now_s < self._timer_due_s <= due_s:
                return
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._loop.call_later(max(0.0, due_s - now_s), self._due)

    def _due(self) -> None:
        self._timer = None
        self._wake()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
