"""How messages leave a queue unread: as dead letters where there is a place for them, else for good.

Carriers see the queue as a `DeadLetterSource`, and its selection sees it as a host. Nothing leaves a deleted or crashed
queue here.

A dead letter whose body is large and on disk leaves when the body was read beside the loop, and those behind it leave
after it. Until then it is pending: a broker that stops meanwhile has it ready at the next start. A deletion does not
wait, and reads what is left at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from penstock import limits
from penstock.backing.outcomes import DROPPED, MOVED, REASON_NONE, THE_QUEUE
from penstock.clock import Clock
from penstock.errors import ChannelException
from penstock.queues.leaving.dead_letter_retry import DeadLetterRetry
from penstock.queues.leaving.dead_letters import (
    DELIVERY_LIMIT,
    NOWHERE,
    Dead,
    DeadLetters,
    DeadLetterSource,
    outcome_of_dropped,
    reason_number,
)
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.leaving.head_expiry import DEAD_AT_ONCE
from penstock.queues.selection.selection import SelectionHost

if TYPE_CHECKING:
    from penstock.queues.queue import Queue


@final
class Leaving(DeadLetterSource, SelectionHost):
    def __init__(self, queue: Queue, expiries: ExpirySchedule, clock: Clock) -> None:
        self._queue = queue
        self._expiries = expiries
        self._clock = clock
        # Dead letters that no target takes now: they stay pending, and are offered again.
        self._again: DeadLetterRetry | None = None
        # Messages that some of their targets have, and others did not take yet; ids of those that have them.
        self._already_at: dict[int, frozenset[str]] = {}
        # What leaves when a large body was read: the first ones, or one behind them, wait for it.
        self._unread: deque[tuple[Sequence[int], str, DeadLetters]] = deque()

    @property
    def name(self) -> str:
        return self._queue.name

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def wake_at(self, due_ms: int) -> None:
        self._queue.expiry.arm_at(due_ms)

    def became_available(self, count: int) -> None:
        self._queue.consumers.notify_available(count)

    def dead_letter(self, seq_ids: Sequence[int], reason: str) -> None:
        """Pending messages leave unread."""
        queue = self._queue
        if queue.deleted or queue.crashed:
            return
        if queue.dead_letters is None:
            queue.backing.ack(seq_ids, outcome_of_dropped(reason), reason_number(reason))
            return
        self._carry_away(seq_ids, reason, queue.dead_letters)

    def dead_letter_read(self, dead: Sequence[Dead], reason: str) -> None:
        """Pending messages that were read already leave unread."""
        queue = self._queue
        if queue.dead_letters is None or queue.deleted or queue.crashed or self._unread:
            # Behind those that wait for a large body.
            self.dead_letter([seq_id for seq_id, _ in dead], reason)
        else:
            queue.dead_letters.dead_letter(self, dead, reason)

    def drop_head(self, count: int, reason: str) -> int:
        """The first ready messages leave unread; how many there were, at most `count`."""
        queue = self._queue
        if queue.selection is not None:
            seq_ids = queue.selection.take(queue.selection.first_shelved(count))
            if seq_ids:
                self.dead_letter(seq_ids, reason)
                return len(seq_ids)
        backing = queue.backing
        if queue.dead_letters is None:
            # One by one: `dropwhile` asks once for all messages of a run.
            dropped = 0
            outcome = outcome_of_dropped(reason)
            while dropped < count and backing.drop(False, outcome, reason_number(reason)) is not None:
                dropped += 1
        elif backing.head_is_large():
            seq_id = backing.drop(True)
            dropped = 0 if seq_id is None else 1
            if seq_id is not None:
                self._carry_away([seq_id], reason, queue.dead_letters)
        else:
            run = backing.fetch(min(count, DEAD_AT_ONCE), limits.PULL_BYTES_MAX, True, THE_QUEUE)
            dropped = 0 if run is None else len(run.entries)
            if run is not None:
                dead = [(run.first_seq_id + index, entry) for index, entry in enumerate(run.entries)]
                self.dead_letter_read(dead, reason)
        # Another message is at the head, and may expire.
        if queue.expiry.may_expire:
            queue.expiry.arm()
        return dropped

    def _carry_away(self, seq_ids: Sequence[int], reason: str, carrier: DeadLetters) -> None:
        self._unread.append((seq_ids, reason, carrier))
        if len(self._unread) == 1:
            self._carry_unread()

    def _carry_unread(self, error: ChannelException | None = None) -> None:
        """Carry away what can be, in order, up to a large body that is still to be read; called again when it was."""
        queue, unread = self._queue, self._unread
        while unread and not queue.deleted and not queue.crashed:
            seq_ids, reason, carrier = unread[0]
            first = queue.backing.await_body(seq_ids, self._carry_unread)
            if first < 0:
                unread.popleft()
                self._carry_read(seq_ids, reason, carrier)
                continue
            count = list(seq_ids).index(first)
            if not count:
                return
            unread[0] = (seq_ids[count:], reason, carrier)
            self._carry_read(seq_ids[:count], reason, carrier)

    def carry_rest(self) -> None:
        """The queue is to be deleted: what waits for a body does not wait any longer."""
        unread = self._unread
        while unread:
            self._carry_read(*unread.popleft())

    def _carry_read(self, seq_ids: Sequence[int], reason: str, carrier: DeadLetters) -> None:
        dead: list[Dead] = []
        self._queue.backing.ackfold(lambda seq_id, entry: dead.append((seq_id, entry)), seq_ids)
        if dead:
            carrier.dead_letter(self, dead, reason)

    def handed_over(self, seq_ids: Sequence[int], outcome: int, reason: str) -> None:
        self._forget_targets(seq_ids)
        self.forget(seq_ids, outcome, reason_number(reason))

    def forget(self, seq_ids: Sequence[int], outcome: int = MOVED, reason: int = REASON_NONE) -> None:
        """Pending messages are elsewhere now, or given up."""
        if not self._queue.deleted and not self._queue.crashed:
            self._queue.backing.ack(seq_ids, outcome, reason)

    def refused(
        self,
        dead: Sequence[Dead],
        reason: str,
        carrier: DeadLetters,
        has_it: frozenset[str] = NOWHERE,
        rests_ms: int = 0,
    ) -> None:
        seq_ids = [seq_id for seq_id, _ in dead]
        if has_it:
            for seq_id in seq_ids:
                self._already_at[seq_id] = self.already_at(seq_id) | has_it
        self._keep(seq_ids, reason, carrier, rests_ms)

    def _keep(self, seq_ids: Sequence[int], reason: str, carrier: DeadLetters, rests_ms: int) -> None:
        queue = self._queue
        if queue.deleted or queue.crashed:
            return
        if reason == DELIVERY_LIMIT and queue.returns is not None:
            queue.returns.kept(seq_ids)
        if self._again is None:
            self._again = DeadLetterRetry(self._carry_away, self._expiries, self._clock)
        self._again.keep(seq_ids, reason, carrier, rests_ms)

    def keep_away(self, over: Sequence[int]) -> None:
        """Messages that came back once too often before the start are on their way out again."""
        if over and self._queue.dead_letters is not None:
            self._keep(over, DELIVERY_LIMIT, self._queue.dead_letters, 0)
        elif over:
            self.dead_letter(over, DELIVERY_LIMIT)

    def give_back(self, seq_ids: Sequence[int]) -> None:
        """Pending messages stay after all, at their positions."""
        self._forget_targets(seq_ids)
        queue = self._queue
        if not seq_ids or queue.deleted or queue.crashed:
            return
        if queue.selection is not None:
            queue.backing.ack(queue.selection.returned(seq_ids), DROPPED)
        else:
            queue.backing.requeue(seq_ids, failed=False)
        queue.expiry.arm()
        queue.consumers.notify_available(len(seq_ids))

    def offer_again(self) -> None:
        if self._again is not None and not self._queue.deleted:
            self._again.soon()

    def is_remote(self) -> bool:
        return self._queue.backing.IS_REMOTE

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        return self._queue.backing.doubtful(seq_ids)

    def doubt(self, seq_ids: Sequence[int]) -> None:
        self._queue.backing.doubt(seq_ids)

    def already_at(self, seq_id: int) -> frozenset[str]:
        return self._already_at.get(seq_id, NOWHERE)

    def moved(self) -> None:
        """The messages have other numbers now: which targets have some of them is not known any more."""
        self._already_at.clear()

    def _forget_targets(self, seq_ids: Sequence[int]) -> None:
        if self._already_at:
            for seq_id in seq_ids:
                self._already_at.pop(seq_id, None)

    def kept_count(self) -> int:
        """Dead that are to be offered again."""
        return 0 if self._again is None else len(self._again)

    def ram_bytes(self) -> int:
        return self.kept_count() * limits.NUMBER_OVERHEAD_BYTES

    def stop(self) -> None:
        """The queue leaves use: nothing is offered again."""
        self._unread.clear()
        if self._again is not None:
            self._again.stop()
