# unasync: written by hand in each face.
"""How this face of file:// calls the engine and waits for it. `client/aio/file/waiting.py` is the other one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Waker", "offload"]

T = TypeVar("T")


def offload(work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """Do the work, here and now: there is nobody to be kept waiting."""
    return work()


class Waker:
    """Can be woken from any thread, and waited for."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def wait(self, timeout_s: float) -> None:
        """Until it was woken since the last wait, or the time is over."""
        self._event.wait(max(0.0, timeout_s))
        self._event.clear()
