"""One syncer for several callers.

A `Syncer` takes one request at a time. The journal and the checkpoint share this one, which keeps requests that come
while another is under way and passes them on in order. A caller with many files asks for a few at a time, so that the
journal, which has publishers waiting, waits for those few only. `finish_inline` is for the stop: it ends the syncer
underneath, and from then on syncs at once on the caller's thread.

Invariants
  1. The syncer underneath has at most one request.
  2. Requests are answered in the order in which they came, each once.
  3. A request whose answer got lost counts as failed. It is never synced a second time: after a failure the second sync
     would say that all is well.

A crash loses the requests; no caller was told that they were synced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import final

from penstock.disk.files import File
from penstock.journal.syncer import InlineSyncer, SyncDone, Syncer


@final
class SharedSyncer(Syncer):
    """Queues requests for another syncer."""

    def __init__(self, inner: Syncer) -> None:
        self._inner = inner
        self._waiting: deque[tuple[list[File], SyncDone]] = deque()
        self._under_way: SyncDone | None = None
        # Counts answers that are awaited, so that one that comes too late is told apart.
        self._number = 0
        self._is_passing_on = False
        # From `finish_inline` on; and how the last request that was under way has failed, if it has.
        self._is_ending = False
        self._failed: OSError | None = None

    @property
    def is_busy(self) -> bool:
        return self._under_way is not None or bool(self._waiting)

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        self._waiting.append((list(files), done))
        self._pass_on()

    def submit_small(self, files: Sequence[File], done: SyncDone) -> None:
        if self._under_way is None and not self._waiting:
            self._under_way = done
            self._number += 1
            self._inner.submit_small(files, partial(self._answer, self._number))
        else:
            self.submit(files, done)

    def close(self) -> None:
        self._inner.close()

    def finish_inline(self) -> None:
        """Get the last answer, and need no help from now on."""
        inner = self._inner
        self._inner = InlineSyncer()
        self._is_ending = True
        inner.close()
        if self._under_way is not None:
            self._answer(self._number, OSError("the syncer ended without an answer"))
        self._pass_on()

    def _pass_on(self) -> None:
        # A syncer may answer before `submit` returns, and whoever is answered may submit: this is a loop and not a
        # recursion.
        if self._is_passing_on:
            return
        self._is_passing_on = True
        try:
            while self._waiting and self._under_way is None:
                files, done = self._waiting.popleft()
                if self._failed is not None:
                    # What has kept the syncer from answering would keep this thread, too.
                    done(self._failed)
                    continue
                self._under_way = done
                self._number += 1
                self._inner.submit(files, partial(self._answer, self._number))
        finally:
            self._is_passing_on = False

    def _answer(self, number: int, error: OSError | None) -> None:
        done = self._under_way
        if done is None or number != self._number:
            return
        self._under_way = None
        if self._is_ending and error is not None:
            self._failed = error
        try:
            done(error)
        finally:
            # Whatever the answer does to its receiver, the next request does not wait for ever.
            self._pass_on()
