"""Messages that expire: when the head of a queue must go, and how far a fetch may reach.

A message expires at the head only, never in the middle (RabbitMQ's rule; a selection may expire anywhere). What a queue
knows of the expiries among its messages is enough not to look at all of them.

Invariants
  1. While `may_expire` is False, no message of the queue has an expiry: plain queues are spared the look at the clock.
  2. While `disordered` is False, no message expires before one in front of it.
  3. The schedule wakes the queue not later than its head expires.
  4. After `drop` the head has not expired, unless `drop` said that there is more to do.
  5. The schedule is never asked for the millisecond in which `drop` was called last: when a hundred thousand messages
     expire at once, the broker reads sockets between two slices.

A crash leaves the expiry with each message: `recovered` begins with "some may expire, in any order".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.backing.backing_queue import BackingQueue, PropsPredicate
from penstock.message import MessageProps
from penstock.queues.leaving.dead_letters import EXPIRED, Dead
from penstock.queues.leaving.expiry import Expiring, ExpirySchedule

if TYPE_CHECKING:
    from penstock.queues.queue import Queue

# Later than every expiry: that of a message which has none.
NEVER_MS: Final = 1 << 62
# Dead letters that are read and moved at once; the next ones follow in the next turn.
DEAD_AT_ONCE: Final = 1000


class HeadExpiry(Expiring):
    __slots__ = (
        "_dropped_ms",
        "_expiries",
        "_has_priorities",
        "_latest_ms",
        "_queue",
        "armed_ms",
        "armed_number",
        "backing",
        "disordered",
        "expired_count",
        "has_recovered",
        "is_suspended",
        "may_expire",
    )

    def __init__(self, queue: Queue, backing: BackingQueue, expiries: ExpirySchedule, has_priorities: bool) -> None:
        self.armed_ms = self.armed_number = -1
        # None when the queue is out of use.
        self._queue: Queue | None = queue
        self.backing = backing
        self._expiries = expiries
        # With priorities what is published later may stand in front.
        self._has_priorities = has_priorities
        # A message with an expiry may be ready or pending.
        self.may_expire = False
        # One may expire before another in front of it.
        self.disordered = False
        # Messages of the broker's last run may be there; whether and when they expire is not known here.
        self.has_recovered = False
        # While what was just published is handed out, however short its life is.
        self.is_suspended = False
        # The latest expiry among the messages since then.
        self._latest_ms = 0
        # The time that the last call of `drop` was given.
        self._dropped_ms = -1
        self.expired_count = 0

    def expire_due(self, now_ms: int) -> None:
        """A message may have expired."""
        queue = self._queue
        if queue is None or queue.deleted or queue.crashed:
            return
        if queue.selection is not None:
            queue.selection.expire(now_ms)
        if queue.intake is not None:
            queue.intake.came_back()
        if self.may_expire and self._drop(queue, now_ms):
            self.arm_at(now_ms)
        else:
            self.arm()
            # Consumers that came while the expired ones stood in front were sent away.
            queue.consumers.notify_available(queue.ready_count())

    def note(self, expiry_ms: int) -> None:
        """A message that expires is about to be published."""
        if not self.may_expire or self.backing.depth() == 0:
            self.may_expire = True
            # What is there already does not expire, and stands in front.
            self.disordered = self.backing.depth() > 0 or self._has_priorities
        elif expiry_ms < self._latest_ms:
            self.disordered = True
            return
        self._latest_ms = expiry_ms

    def note_lasting(self) -> None:
        """A message without an expiry is about to be published behind some that may have one."""
        self._latest_ms = NEVER_MS

    def recovered(self) -> None:
        """There are messages that were not published here: some of them may expire, in any order."""
        self.may_expire = self.has_recovered = True
        self._latest_ms = NEVER_MS

    def moved(self, backing: BackingQueue, has_priorities: bool) -> None:
        """The messages are in another backing now."""
        self.backing = backing
        self._has_priorities = has_priorities
        self.recovered()
        self.forget_if_empty()

    def drop_head(self) -> bool:
        """Take expired messages from the head; True when there are more than one turn can take."""
        queue = self._queue
        if queue is not None:
            now_ms = queue.wall_ms()
            if self._drop(queue, now_ms):
                self.arm_at(now_ms)
                return True
        return False

    def _drop(self, queue: Queue, now_ms: int) -> bool:
        if self.is_suspended:
            return False
        self._dropped_ms = now_ms

        def expired(props: MessageProps | None) -> bool:
            return props is not None and 0 <= props.expiry_ms <= now_ms

        died = 0
        if queue.dead_letters is None:
            self.expired_count += self.backing.dropwhile(expired)
        else:
            died = self._take_dead(queue, expired)
            # A large body is not read here. What is behind it comes after it.
            while died < DEAD_AT_ONCE and self.backing.head_is_large() and expired(self.backing.head_props()):
                seq_id = self.backing.drop(True)
                assert seq_id is not None
                queue.leaving.dead_letter([seq_id], EXPIRED)
                died += 1 + self._take_dead(queue, expired)
            self.expired_count += died
        self.forget_if_empty()
        return died >= DEAD_AT_ONCE

    def _take_dead(self, queue: Queue, expired: PropsPredicate) -> int:
        """Dead-letter expired messages at the head, up to one with a large body on disk; return how many."""
        dead: list[Dead] = []

        def expired_within_budget(props: MessageProps | None) -> bool:
            # Asked once for a run: the last one may be longer than what is left.
            return len(dead) < DEAD_AT_ONCE and expired(props) and not self.backing.head_is_large()

        count = self.backing.fetchwhile(expired_within_budget, lambda seq_id, entry: dead.append((seq_id, entry)))
        if dead:
            queue.leaving.dead_letter_read(dead, EXPIRED)
        return count

    def forget_if_empty(self) -> None:
        # What is unacknowledged may come back, and may expire then.
        if self.backing.depth() == 0:
            self.may_expire = False
            self.disordered = False
            self.has_recovered = False

    def arm(self) -> None:
        """Have the queue woken when its head expires, or a message that its selection has."""
        queue = self._queue
        if queue is not None and queue.selection is not None:
            due_ms = queue.selection.next_expiry_ms()
            if due_ms >= 0:
                self.arm_at(due_ms)
        if self.may_expire:
            head = self.backing.head_props()
            if head is not None and head.expiry_ms >= 0:
                self._expiries.arm(self, head.expiry_ms)

    def arm_at(self, due_ms: int) -> None:
        self._expiries.arm(self, due_ms if due_ms != self._dropped_ms else due_ms + 1)

    def disarm(self) -> None:
        """The queue goes out of use, and is not to be woken again."""
        self.may_expire = False
        self._expiries.disarm(self)
        self._queue = None
