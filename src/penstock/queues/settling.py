"""What a queue sees of a settlement that takes several turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from penstock.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Settling(ABC):
    """One client has settled so many deliveries, or purges so many messages, that they are worked off in slices."""

    @abstractmethod
    def finish(self) -> None:
        """Settle the rest now: what comes next must not happen before."""

    def leave(self) -> None:
        """The queue is about to be deleted: do what must not be lost with it."""
        self.finish()

    @abstractmethod
    def when_over(self, call: Callable[[], None]) -> None:
        """Have something called behind the last slice."""
