"""Pending messages that could not be handed over, to be offered again.

A target has refused them (it is full, its database is away, or there is no such exchange, and the queue was told to
lose nothing), or too many were on their way. After RETRY_MS they are offered again, in slices of AT_ONCE_MAX; messages
that are refused again wait behind the others.

Invariants
  1. Kept messages are pending in the queue's backing.
  2. While something is kept, the schedule wakes it.
  3. One call carries at most AT_ONCE_MAX messages, and never asks for the millisecond in which it was called: the
     broker reads sockets in between, however many wait.
  4. Nothing is read while its carrier could take nothing, nor while a target is left alone.

After a crash or a restart they are ready again, as all pending messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from penstock.clock import Clock
from penstock.queues.leaving.dead_letters import DeadLetters
from penstock.queues.leaving.expiry import Expiring, ExpirySchedule

RETRY_MS: Final = 1000
# Read and offered within one turn.
AT_ONCE_MAX: Final = 1000
# After a slice of many of which nothing was taken.
SLICE_MS: Final = 100

# Carries pending messages away: (numbers, reason, who does it).
Carry = Callable[[Sequence[int], str, DeadLetters], None]


class DeadLetterRetry(Expiring):
    def __init__(self, carry: Carry, expiries: ExpirySchedule, clock: Clock) -> None:
        self._carry = carry
        self._expiries = expiries
        self._clock = clock
        self._kept: dict[tuple[DeadLetters, str], deque[int]] = {}
        # Until when nothing is tried, and for how long that was.
        self._rests_until_ms = 0
        self._rests_ms = 0

    def __len__(self) -> int:
        return sum([len(seq_ids) for seq_ids in self._kept.values()])

    def keep(self, seq_ids: Sequence[int], reason: str, carrier: DeadLetters, rests_ms: int = 0) -> None:
        """`rests_ms`: a target is left alone for so long."""
        if seq_ids:
            self._kept.setdefault((carrier, reason), deque()).extend(seq_ids)
            now_ms = self._clock.wall_ms()
            if rests_ms:
                self._rests_until_ms = now_ms + rests_ms
                self._rests_ms = rests_ms
            self._expiries.arm(self, now_ms + (rests_ms or RETRY_MS))

    def soon(self) -> None:
        """There is room again."""
        if self._kept:
            self._rests_until_ms = 0
            self._expiries.arm(self, self._clock.wall_ms() + 1)

    def expire_due(self, now_ms: int) -> None:
        left_ms = self._rests_until_ms - now_ms
        # More than that is left only when the clock was set back.
        if self._kept and 0 < left_ms <= self._rests_ms:
            self._expiries.arm(self, now_ms + left_ms)
            return
        was_taken = False
        for (carrier, reason), seq_ids in list(self._kept.items()):
            if not carrier.is_open():
                continue
            first = [seq_ids.popleft() for _ in range(min(AT_ONCE_MAX, len(seq_ids)))]
            others_count = len(seq_ids)
            # What is refused comes back through `keep`, behind the others, so that those with a target need not wait.
            self._carry(first, reason, carrier)
            was_taken = was_taken or len(seq_ids) - others_count < len(first)
            if not seq_ids:
                self._kept.pop((carrier, reason), None)
        if self._kept:
            wait_ms = 1 if was_taken else RETRY_MS if len(self) <= AT_ONCE_MAX else SLICE_MS
            self._expiries.arm(self, now_ms + wait_ms)

    def stop(self) -> None:
        self._kept.clear()
        self._expiries.disarm(self)
