"""Something that one act of a client has begun and that takes several turns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from penstock import limits
from penstock.clock import Clock
from penstock.native import mypyc_attr
from penstock.queues.settling import Settling


@mypyc_attr(allow_interpreted_subclasses=True)
class Sliced(Settling):
    """Done one part after another, until nothing is left of it."""

    def __init__(self) -> None:
        self._when_over: list[Callable[[], None]] = []

    @abstractmethod
    def is_over(self) -> bool:
        """Return whether nothing is left to be done."""

    @abstractmethod
    def begin(self) -> None:
        """It takes more than one turn: who could tell is told."""

    @abstractmethod
    def do_next(self) -> int:
        """Do the next part; return how many messages that was worth. A bug costs the client's connection its life."""

    @abstractmethod
    def end(self) -> None:
        """Behind the last part: answer, tell who was told, and call `take_calls`."""

    def do_some(self, clock: Clock) -> None:
        """Do a slice: at least one part, and no more than a turn has time for."""
        until_s = clock.monotonic_s() + limits.SETTLE_TURN_S
        count = 0
        while not self.is_over() and count < limits.SETTLE_MESSAGES_MAX:
            count += self.do_next()
            if clock.monotonic_s() >= until_s:
                break

    def finish(self) -> None:
        while not self.is_over():
            self.do_next()
        self.end()

    def when_over(self, call: Callable[[], None]) -> None:
        self._when_over.append(call)

    def take_calls(self) -> list[Callable[[], None]]:
        """What is to be called behind the last part; each is given once."""
        calls, self._when_over = self._when_over, []
        return calls
