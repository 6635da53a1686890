"""What happens when a queue is full: one small class for each rule.

    DropHead             the oldest ready messages go, as dead letters if there is a place (RabbitMQ's default)
    RefusePublish        a new message is refused: nack to a publisher that asked (reject-publish)
    RefusePublishDlx     the same, and the refused message is dead-lettered (reject-publish-dlx)
    Ring                 like DropHead, but unacknowledged messages count too, and may be the ones that go (Qpid)
    ProducerFlowControl  publishers wait until the queue is down to 80 % of its limit (Qpid)
    FlowToDisk           above the limit the queue keeps as little as possible in memory (Qpid)

Invariants
  1. After a publish, and once consumers that wait have been served, a queue that drops holds no more than its limits;
     where very many have to go for that, they go in slices, in the turns that follow (`drop_pace`).
  2. Messages that a waiting consumer has credit for are not dropped: they go to it first, as in a broker that delivers
     straight to consumers.
  3. A refused message is not in the queue, and its token was refused once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from penstock.message import ConfirmToken, Entry, Envelope
from penstock.queues.intake.drop_pace import DropPace
from penstock.queues.intake.intake import Gate, Overflow
from penstock.queues.intake.passed_on import PassedOn
from penstock.queues.leaving.dead_letters import MAXLEN

if TYPE_CHECKING:
    from penstock.queues.leaving.expiry import ExpirySchedule
    from penstock.queues.queue import Queue

# Qpid's: flow resumes at this share of the limit.
RESUME_SHARE: Final = 0.8


@final
class RoomLimits:
    """x-max-length and x-max-length-bytes; -1 = none."""

    __slots__ = ("bytes_max", "count_max")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.count_max = count_max
        self.bytes_max = bytes_max

    def is_over(self, count: int, size_bytes: int, share: float = 1.0) -> bool:
        return 0 <= self.count_max * share < count or 0 <= self.bytes_max * share < size_bytes


@final
class DropHead(Overflow):
    """Drops the oldest ready messages."""

    def __init__(self, queue: Queue, room: RoomLimits, expiries: ExpirySchedule) -> None:
        self._queue = queue
        self._room = room
        self._pace = DropPace(queue, self.make_room, expiries)
        # While it hands messages out: their delivery may publish again.
        self._is_busy = False

    def make_room(self) -> None:
        queue = self._queue
        if self._is_busy:
            return
        if not self._room.is_over(queue.ready_count(), queue.ready_bytes()):
            self._pace.looked()
            return
        self._is_busy = True
        try:
            queue.serve_waiting(queue.ready_count())
        finally:
            self._is_busy = False
        # A dropped message may come round to this queue and find it full. It is dropped by the call for it then, and
        # moved on when it is its turn: here that would never end.
        budget = self._pace.budget()
        while self._room.is_over(queue.ready_count(), queue.ready_bytes()):
            surplus = 1 if self._room.count_max < 0 else queue.ready_count() - self._room.count_max
            if budget <= 0:
                self._pace.behind()
                return
            dropped = queue.leaving.drop_head(min(max(surplus, 1), budget), MAXLEN)
            if dropped == 0:
                return
            budget -= dropped

    def stop(self) -> None:
        self._pace.stop()


@final
class Ring(Overflow):
    """Drops the oldest messages, also unacknowledged ones."""

    def __init__(self, queue: Queue, room: RoomLimits, expiries: ExpirySchedule) -> None:
        self._queue = queue
        self._room = room
        self._pace = DropPace(queue, self.make_room, expiries)
        # Dropped, with their size, and still pending: the dead are carried away later in the turn, or nobody has taken
        # them yet. They do not count, and are not dropped twice.
        self._leaving: dict[int, int] = {}

    def make_room(self) -> None:
        queue, backing = self._queue, self._queue.backing
        self._forget_the_gone()
        count = backing.depth() - len(self._leaving)
        size_bytes = backing.ready_bytes() + backing.pending_bytes() - sum(self._leaving.values())
        if not self._room.is_over(count, size_bytes):
            self._pace.looked()
            return
        pending: list[int] = []
        ready: list[int] = []
        left = [count, size_bytes]
        budget = self._pace.budget()

        def choose(seq_id: int, entry: Entry, is_pending: bool) -> bool:
            if seq_id not in self._leaving:
                size = len(entry[1]) - 1
                self._leaving[seq_id] = size
                left[0] -= 1
                left[1] -= size
                (pending if is_pending else ready).append(seq_id)
            return len(pending) + len(ready) < budget and self._room.is_over(left[0], left[1])

        if budget > 0:
            backing.fold(choose)
        if self._room.is_over(left[0], left[1]):
            self._pace.behind()
        if pending:
            if queue.selection is not None:
                queue.selection.take(pending)
            queue.leaving.dead_letter(pending, MAXLEN)
        wanted = len(ready)
        while wanted > 0:
            dropped = queue.leaving.drop_head(wanted, MAXLEN)
            if dropped == 0:
                return
            wanted -= dropped

    def stop(self) -> None:
        self._pace.stop()

    def _forget_the_gone(self) -> None:
        if not self._leaving:
            return
        leaving, self._leaving = self._leaving, {}

        def note(seq_id: int, entry: Entry) -> None:
            self._leaving[seq_id] = leaving[seq_id]

        self._queue.backing.ackfold(note, list(leaving))


class RefusePublish(Gate):
    """Refuses what does not fit."""

    def __init__(self, queue: Queue, room: RoomLimits) -> None:
        self._queue = queue
        self._room = room

    def admit(self, envelope: Envelope, body: bytes, confirm: ConfirmToken | None, delivered: int) -> bool:
        if self.fits(body):
            return True
        self.refused((envelope, body, None), confirm, delivered)
        return False

    def has_room(self, body: bytes, may_vanish: bool) -> bool:
        return self.fits(body)

    def fits(self, body: bytes) -> bool:
        """Return whether the message is within the limits, once consumers that wait have been served."""
        queue = self._queue
        size = len(body) - 1
        if not self._room.is_over(queue.ready_count() + 1, queue.ready_bytes() + size):
            return True
        queue.serve_waiting(queue.ready_count())
        return not self._room.is_over(queue.ready_count() + 1, queue.ready_bytes() + size)

    def refused(self, entry: Entry, confirm: ConfirmToken | None, delivered: int) -> None:
        """Refuse a message, and tell its publisher."""
        if confirm is not None:
            confirm.refuse()


@final
class RefusePublishDlx(RefusePublish):
    """Refuses, and dead-letters what it refused."""

    def has_room(self, body: bytes, may_vanish: bool) -> bool:
        dead_letters = self._queue.dead_letters
        if dead_letters is None:
            return self.fits(body)
        # What it refuses goes on as a dead letter, and is not offered once more. Where dead letters are kept until
        # their targets have them, the queue a message comes from has to keep it: this one has no place for it.
        return may_vanish or not dead_letters.at_least_once or self.fits(body)

    def passes_on(self, body: bytes) -> bool:
        return self._queue.dead_letters is not None and not self.fits(body)

    def refused(self, entry: Entry, confirm: ConfirmToken | None, delivered: int) -> None:
        dead_letters = self._queue.dead_letters
        moved = confirm if confirm is not None and confirm.is_of_a_move() else None
        if dead_letters is not None:
            # It never was in the queue: there is no number to acknowledge.
            dead_letters.dead_letter(PassedOn(self._queue, moved, delivered), [(-1, entry)], MAXLEN)
        if dead_letters is None or moved is None:
            super().refused(entry, confirm, delivered)


@final
class ProducerFlowControl(Overflow):
    """Has publishers wait."""

    def __init__(self, queue: Queue, room: RoomLimits) -> None:
        self._queue = queue
        self._room = room

    def make_room(self) -> None:
        if self._room.is_over(self._queue.ready_count(), self._queue.ready_bytes()):
            self._queue.congestion = self

    def is_relieved(self) -> bool:
        if self._room.is_over(self._queue.ready_count(), self._queue.ready_bytes(), RESUME_SHARE):
            return False
        self._queue.congestion = None
        return True


@final
class FlowToDisk(Overflow):
    """Keeps the queue out of memory while it is long."""

    def __init__(self, queue: Queue, room: RoomLimits) -> None:
        self._queue = queue
        self._room = room
        self._is_lazy = False

    def make_room(self) -> None:
        queue = self._queue
        share = RESUME_SHARE if self._is_lazy else 1.0
        is_over = self._room.is_over(queue.ready_count(), queue.ready_bytes(), share)
        if is_over != self._is_lazy:
            self._is_lazy = is_over
            queue.backing.set_queue_mode(is_over)
