"""Work that moves messages from queue to queue, one piece after the other.

A move publishes, a publish may drop, a dropped message is dead-lettered, which is a move: chains and rings of queues
would recurse. So a move that comes up during another one waits for its turn. Everything is done before `add` returns to
the first caller, hence within one turn of the loop and one batch of the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Moves:
    """Of one vhost."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_moving = False

    def add(self, move: Callable[[], None]) -> None:
        """Do it now, or after those that are listed already."""
        self._waiting.append(move)
        if self._is_moving:
            return
        self._is_moving = True
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._is_moving = False
