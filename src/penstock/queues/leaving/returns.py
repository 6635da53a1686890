"""What a requeue means where deliveries are counted: the next try, a later try, or the end.

The rules are how often a message is delivered at most (x-delivery-limit), and how long to wait before the next try
(x-delayed-retry-*). The backing counts how often each message came back. With a delay the message leaves the queue for
its companion, with its count in the header x-delivery-count, and comes back when it is due; the backing is told that
count with its next delivery. When very many come back at once, those that leave the queue do so in slices; the others
wait, pending, and come back once more in the turns that follow.

Invariants
  1. A message is delivered at most limit + 1 times, also when its dead-letter target takes it only after a restart.
  2. A delay is at least `min_ms` and at most `max_ms`, and grows with the count: linearly.
  3. One call has at most AT_ONCE_MAX messages leave the queue, and none while some are put off: these go first. What is
     put off is not counted before its slice comes.

A clean stop keeps the counts, and counts what was put off. A crash keeps those that were synced; those of delayed
messages are in their headers. Messages that were put off are ready again, as all that is pending.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.backing.backing_queue import BackingQueue
from penstock.backing.outcomes import THE_QUEUE
from penstock.message import Entry, Envelope, Run
from penstock.queues.delayed.next_turn import NextTurn
from penstock.queues.leaving.dead_letters import DELIVERY_LIMIT, Dead
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.selection.selection import SelectionHost

# x-delayed-retry-type: which returns are delayed.
RETRY_DISABLED: Final = "disabled"
RETRY_ALL: Final = "all"
RETRY_FAILED: Final = "failed"
RETRY_RETURNED: Final = "returned"

# Read, stamped and moved within one turn.
AT_ONCE_MAX: Final = 250

# Brings messages back to the queue: (numbers, whether their consumer was lost).
Requeue = Callable[[Sequence[int], bool], None]


class Counting(ABC):
    """The header in which a message carries how often it was delivered before."""

    @abstractmethod
    def count_of(self, envelope: Envelope) -> int:
        """Deliveries before it came into this queue; 0 when it says nothing."""

    @abstractmethod
    def stamped(self, envelope: Envelope, count: int) -> Envelope:
        """Return the same with another count."""


class Retry(ABC):
    """Where messages wait for their next try."""

    @abstractmethod
    def is_open(self) -> bool:
        """Return whether messages can wait there now; if not, they go back to the queue at once."""

    @abstractmethod
    def wait(self, dead: Sequence[Dead], counts: Sequence[int]) -> None:
        """Move pending messages of the queue there, each with its count; they are settled here in this turn."""


@final
class Returns:
    def __init__(
        self,
        host: SelectionHost,
        backing: BackingQueue,
        counting: Counting,
        limit: int,
        retry: Retry | None,
        retry_type: str,
        requeue: Requeue,
        expiries: ExpirySchedule,
    ) -> None:
        self._host = host
        self._backing = backing
        self._counting = counting
        # -1: as often as it takes.
        self._limit = limit
        self._retry = retry
        self._retry_type = retry_type
        self._requeue = requeue
        self._later = NextTurn(self._go_on, expiries)
        # Pending messages that have come back and were too many for one turn, with whether their consumer was lost.
        self._put_off: deque[tuple[int, bool]] = deque()

    def change(self, limit: int, retry: Retry | None, retry_type: str) -> None:
        """Go by other rules from now on; also for messages that were put off, and for the counts that there are."""
        self._limit = limit
        self._retry = retry
        self._retry_type = retry_type

    def moved(self, backing: BackingQueue) -> None:
        """The messages are in another backing now."""
        self._backing = backing

    def is_idle(self) -> bool:
        """Return whether no message was put off."""
        return not self._put_off

    def returned(self, seq_ids: Sequence[int], lost: bool) -> list[int]:
        """Count, and say which messages go back to the queue now. The others are on their way elsewhere."""
        is_delayed = self._retry is not None and self._is_delayed(lost) and self._retry.is_open()
        # While some are put off, others do not overtake them.
        budget = 0 if self._later.is_awaited else AT_ONCE_MAX
        back: list[int] = []
        over: list[int] = []
        later: list[int] = []
        for seq_id in dict.fromkeys(seq_ids):
            is_over = 0 <= self._limit <= self._backing.delivery_count(seq_id)
            if (is_over or is_delayed) and len(over) + len(later) >= budget:
                self._put_off.append((seq_id, lost))
                continue
            (over if is_over else later if is_delayed else back).append(seq_id)
        if over:
            self._host.dead_letter(over, DELIVERY_LIMIT)
        if later:
            self._wait(later)
        if self._put_off:
            self._later.soon(self._host.wall_ms())
        return back

    def kept(self, seq_ids: Sequence[int]) -> None:
        """No target takes messages that are over their limit: count their last return, so that a start knows it."""
        backing = self._backing
        backing.note_returned([seq_id for seq_id in seq_ids if backing.delivery_count(seq_id) <= self._limit])

    def recovered(self) -> list[int]:
        """Take the messages that were over their limit at the last stop, and had no place to go: their numbers.

        They are pending, and not handed out again. What cannot be read now stays ready.
        """
        if self._limit < 0:
            return []
        over = self._backing.returned_over(self._limit)
        taken: list[int] = []
        try:
            for start in range(0, len(over), AT_ONCE_MAX):
                found = self._backing.fetch_at(over[start : start + AT_ONCE_MAX], THE_QUEUE)
                taken.extend([seq_id for seq_id, _ in found])
        except OSError as error:
            self._backing.stalled(error)
        return taken

    def _wait(self, seq_ids: list[int]) -> None:
        assert self._retry is not None
        dead: list[Dead] = []
        self._backing.ackfold(lambda seq_id, entry: dead.append((seq_id, entry)), seq_ids)
        self._retry.wait(dead, [self._backing.delivery_count(seq_id) + 1 for seq_id, _ in dead])

    def _go_on(self, now_ms: int) -> None:
        """The next slice of what was put off: of those that were lost, or of those that were not."""
        put_off = self._put_off
        seq_ids: list[int] = []
        lost = put_off[0][1] if put_off else False
        while put_off and put_off[0][1] == lost and len(seq_ids) < AT_ONCE_MAX:
            seq_ids.append(put_off.popleft()[0])
        try:
            self._requeue(seq_ids, lost)
        finally:
            if put_off:
                self._later.soon(now_ms)

    def _is_delayed(self, lost: bool) -> bool:
        if self._retry_type == RETRY_ALL:
            return True
        return lost if self._retry_type == RETRY_RETURNED else not lost

    def count_put_off(self) -> None:
        """The broker stops before the slice of these has come: they are ready at the next start, and count."""
        self._backing.note_returned([seq_id for seq_id, _ in self._put_off])
        self._put_off.clear()

    def stop(self) -> None:
        """The queue is deleted."""
        self._later.stop()

    def stamped(self, run: Run) -> Run:
        """A run of redelivered messages with their counts in the headers."""
        entries: list[Entry] = []
        for index, (envelope, body, props) in enumerate(run.entries):
            seq_id = run.first_seq_id + index
            count = self._backing.delivery_count(seq_id)
            if count == 0:
                # It comes back from a wait, and says how often it was delivered before. What is delivered for the first
                # time is not asked: any client can write a header.
                count = self._counting.count_of(envelope)
                if count:
                    self._backing.set_delivery_count(seq_id, count)
            entries.append((self._counting.stamped(envelope, count) if count else envelope, body, props))
        return Run(run.first_seq_id, entries, run.redelivered)
