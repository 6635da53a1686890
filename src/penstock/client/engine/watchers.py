"""Who waits for messages of which queue, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable

Wake = Callable[[], None]


class Watchers:
    """The waiting callers, by queue. Its own lock is never held for long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakes: dict[str, dict[int, Wake]] = {}
        self._number = 0
        # What was ready in the watched queues when it was last looked at.
        self._ready_then: dict[str, int] = {}

    def add(self, queue_names: list[str], wake: Wake) -> int:
        """Have `wake` called when these queues have something; a number for `remove`."""
        with self._lock:
            self._number += 1
            for name in queue_names:
                self._wakes.setdefault(name, {})[self._number] = wake
            return self._number

    def remove(self, number: int) -> None:
        with self._lock:
            for name in [name for name, wakes in self._wakes.items() if number in wakes]:
                del self._wakes[name][number]
                if not self._wakes[name]:
                    del self._wakes[name]
                    self._ready_then.pop(name, None)

    def wake_ready(self, ready_count: Callable[[str], int]) -> None:
        """Wake the consumers that wait for a queue that has more to give than before.

        That something is ready is not enough: in a queue with groups it may be for other consumers.
        """
        if not self._wakes:
            return
        with self._lock:
            wakes: list[Wake] = []
            for name, waiting in self._wakes.items():
                ready = ready_count(name)
                if ready > self._ready_then.get(name, 0):
                    wakes.extend(waiting.values())
                self._ready_then[name] = ready
        for wake in wakes:
            wake()

    def wake_all(self) -> None:
        with self._lock:
            wakes = [wake for waiting in self._wakes.values() for wake in waiting.values()]
        for wake in wakes:
            wake()
