"""How many messages a full queue drops at a time: a large one that comes in may have to push out a million small ones.

The rule asks for a `budget` whenever the queue is over its limits, drops so many, and says `behind` when that was not
enough. Then it is called once in each turn, with a slice of AT_ONCE_MAX, until it has made room. Publishers go on
meanwhile: what they are asked for grows with what they bring, so that a queue that is behind does not fall back
further.

Invariants
  1. One call drops at most AT_ONCE_MAX messages, and DROPS_PER_MESSAGE for each one that came since the last call.
  2. While the rule is behind, a publish drops only what pays for itself: DROPS_PER_MESSAGE for each message, and one
     for each BYTES_PER_DROP that the queue has grown by. However many publishes a turn has, the slice is one.
  3. A queue that drops by count is never behind because of what was published: each message makes up for itself.

A crash leaves the queue over its limits; it makes room after the start, in slices too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from penstock.queues.delayed.next_turn import NextTurn
from penstock.queues.leaving.expiry import ExpirySchedule

if TYPE_CHECKING:
    from penstock.queues.queue import Queue

# One that has to be moved to a dead-letter exchange takes some 30 µs.
AT_ONCE_MAX: Final = 250
# More than one, so that a queue that is behind catches up.
DROPS_PER_MESSAGE: Final = 2
# About what a small message costs besides its body: dropping it makes room in RAM for as much.
BYTES_PER_DROP: Final = 256


@final
class DropPace:
    def __init__(self, queue: Queue, make_room: Callable[[], None], expiries: ExpirySchedule) -> None:
        self._queue = queue
        self._make_room = make_room
        self._later = NextTurn(self._go_on, expiries)
        # What the queue had taken when the rule looked last, and what it held when it was left behind.
        self._published_count = queue.published_count
        self._bytes_before = 0

    def looked(self) -> None:
        """The queue is within its limits."""
        self._published_count = self._queue.published_count

    def budget(self) -> int:
        """Return how many messages may be dropped now."""
        published = self._queue.published_count - self._published_count
        self.looked()
        budget = DROPS_PER_MESSAGE * published
        if not self._later.is_awaited:
            return budget + AT_ONCE_MAX
        bytes_now = self._bytes()
        grown_bytes = max(0, bytes_now - self._bytes_before)
        self._bytes_before = bytes_now
        return budget + min(grown_bytes // BYTES_PER_DROP, AT_ONCE_MAX)

    def behind(self) -> None:
        """It was not enough."""
        self._bytes_before = self._bytes()
        self._later.soon(self._queue.wall_ms())

    def _bytes(self) -> int:
        backing = self._queue.backing
        return backing.ready_bytes() + backing.pending_bytes()

    def _go_on(self, now_ms: int) -> None:
        if not self._queue.deleted and not self._queue.crashed:
            self._make_room()

    def stop(self) -> None:
        """The queue is deleted."""
        self._later.stop()
        self._make_room = _stopped


def _stopped() -> None:
    """Stands in for the rule of a queue that is gone."""
