"""How results of I/O reach a queue: on the broker's thread, in order, and never after its end.

A backing hands work to its `AsyncCallbackTo` from any thread. The work changes the backing, so it is run where
everything else of the queue runs; then publishers are told what has become safe. A bug in such work costs this queue
and no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.backing.backing_queue import BackingWork
from penstock.queues.queue import Queue

log = logging.getLogger("penstock.queue")

# Runs a function on the broker's thread: at once when called there, later when called on another.
Post = Callable[[Callable[[], None]], None]


def run_now(work: Callable[[], None]) -> None:
    """For a broker whose backings use no other thread."""
    work()


class AsyncCallbackTo:
    """Leads to one queue, until its end. Not by its name: another queue may have that by now."""

    __slots__ = ("_post", "_queue")

    def __init__(self, post: Post) -> None:
        self._post = post
        self._queue: Queue | None = None

    def lead_to(self, queue: Queue) -> None:
        """The queue is made. It cuts this way when it ends."""
        self._queue = queue
        queue.way_back = self.lead_nowhere

    def lead_nowhere(self) -> None:
        self._queue = None

    def __call__(self, kind: str, work: BackingWork) -> None:
        self._post(lambda: self._run(kind, work))

    def _run(self, kind: str, work: BackingWork) -> None:
        queue = self._queue
        # Work that arrives late is dropped: there is nothing left that it could change.
        if queue is None or queue.deleted or queue.crashed:
            return
        try:
            queue.backing.invoke(kind, work)
            queue.settle_confirms()
            queue.arrived()
        except Exception:
            log.exception("%s has crashed", ascii(queue.describe()))
            queue.crash()
