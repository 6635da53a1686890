# unasync: written by hand in each face.
"""How this face of file:// calls the engine and waits for it. `client/sync/file/waiting.py` is the other one.

The engine blocks for as long as a sync takes, so it is called on a thread of the loop's pool. It never waits longer
than that: waiting for a message happens on the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

__all__ = ["Waker", "offload"]

T = TypeVar("T")


async def offload(work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """Do the work elsewhere. If the caller does not wait for its result any more when it is done, undo it."""
    job = _Job(work, undo)
    try:
        return await asyncio.to_thread(job.run)
    except asyncio.CancelledError:
        job.cancel()
        raise


class _Job(Generic[T]):
    """Work whose caller may be cancelled while it goes on."""

    def __init__(self, work: Callable[[], T], undo: Callable[[T], None] | None) -> None:
        self._work = work
        self._undo = undo
        self._lock = threading.Lock()
        self._results: list[T] = []
        self._is_cancelled = False

    def run(self) -> T:
        """On the thread."""
        result = self._work()
        with self._lock:
            self._results.append(result)
            is_cancelled = self._is_cancelled
        if is_cancelled and self._undo is not None:
            self._undo(result)
        return result

    def cancel(self) -> None:
        """On the loop."""
        with self._lock:
            self._is_cancelled = True
            results = self._results
        if self._undo is not None:
            for result in results:
                self._undo(result)


class Waker:
    """Can be woken from any thread, and waited for on the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            # The loop is closed: nothing waits on it.
            return

    async def wait(self, timeout_s: float) -> None:
        """Until it was woken since the last wait, or the time is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), max(0.0, timeout_s))
        self._event.clear()
