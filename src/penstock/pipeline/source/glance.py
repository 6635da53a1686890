"""A question that is not asked more often than it makes sense.

Spark asks an idle stream every ten milliseconds how far it can read. A folder can be looked at so often; a broker or a
database on the other side of a network has better things to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class Glance(Generic[T]):
    def __init__(self, ask: Callable[[], T], every_s: float) -> None:
        self._ask = ask
        self._every_s = every_s
        self._answers: list[T] = []
        self._asked_s = 0.0

    def now(self) -> T:
        """Return the answer of this moment."""
        answer = self._ask()
        self._answers = [answer]
        self._asked_s = time.monotonic()
        return answer

    def latest(self) -> T:
        """Return an answer that is at most `every_s` old."""
        if not self._answers or time.monotonic() - self._asked_s >= self._every_s:
            return self.now()
        return self._answers[0]
