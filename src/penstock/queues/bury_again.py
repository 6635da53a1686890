"""Dead messages that nobody takes at the moment, to be offered again.

What it owns: numbers of pending messages of one queue, by the reason for which they died.

Life of the data: `keep` when the target has refused them (it is full, or there is no such exchange, and the queue was
told to lose nothing); after RETRY_MS they are buried again, in slices of AT_ONCE_MAX; they leave when the target takes
them. What is refused again waits behind the others.

Invariants
  1. Kept messages are pending in the queue's backing.
  2. While something is kept, the schedule wakes it.
  3. One call buries at most AT_ONCE_MAX messages, and never asks for the millisecond in which it was called: the broker
     reads sockets in between, however many wait.

A crash, and a restart, make them ready again, as all pending messages. It does not know where the dead go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from penstock.clock import Clock
from penstock.queues.expiry import Expiring, ExpirySchedule

RETRY_MS: Final = 1000
# Read and offered within one turn.
AT_ONCE_MAX: Final = 1000
# After a slice of many of which nothing was taken.
SLICE_MS: Final = 100


class BuryAgain(Expiring):
    """What one queue could not get rid of."""

    def __init__(self, bury: Callable[[Sequence[int], str], None], expiries: ExpirySchedule, clock: Clock) -> None:
        self._bury = bury
        self._expiries = expiries
        self._clock = clock
        self._kept: dict[str, deque[int]] = {}

    def __len__(self) -> int:
        return sum([len(seq_ids) for seq_ids in self._kept.values()])

    def keep(self, seq_ids: Sequence[int], reason: str) -> None:
        if seq_ids:
            self._kept.setdefault(reason, deque()).extend(seq_ids)
            self._expiries.arm(self, self._clock.wall_ms() + RETRY_MS)

    def expire_due(self, now_ms: int) -> None:
        was_taken = False
        for reason, seq_ids in list(self._kept.items()):
            first = [seq_ids.popleft() for _ in range(min(AT_ONCE_MAX, len(seq_ids)))]
            others_count = len(seq_ids)
            # What is refused comes back through `keep`, behind the others: whoever has a place is not to wait for it.
            self._bury(first, reason)
            was_taken = was_taken or len(seq_ids) - others_count < len(first)
            if not seq_ids:
                del self._kept[reason]
        if self._kept:
            wait_ms = 1 if was_taken else RETRY_MS if len(self) <= AT_ONCE_MAX else SLICE_MS
            self._expiries.arm(self, now_ms + wait_ms)

    def stop(self) -> None:
        self._kept.clear()
        self._expiries.disarm(self)
