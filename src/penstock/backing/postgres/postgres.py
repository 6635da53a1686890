"""The backing queue whose messages are rows in PostgreSQL, shared with other nodes and with plain SQL.

The messages are the database's; this node has some of them reserved (`reserved`). seq_id is the row's id: unique, never
used again, the same on all nodes, and the order is its order. Transient messages are rows like all others, and survive
like them.

The database answers later, so some verbs differ from other backings. `publish` returns -1. `is_empty` speaks of the
window, and asks for more when that is empty; what comes then is told through `drain_arrived`. `len` adds what the
database last said. `browse` and `fetch_at` find nothing at first, and ask for it (`is_looking`). `make`, `count`,
`purge_all` and `drop_rows` take a function that is called when they are done.

Invariants
  1. A token comes out of `drain_confirmed` once, after the COMMIT of its rows, or is refused, never both. It is refused
     where it is not known whether the rows were committed.
  2. What `reserved` promises.
  3. The note in the history says how the broker got rid of a message; none: it was acknowledged.
  4. `delete_and_terminate` after `drop_rows` or `leave_rows` asks nothing of the database any more.

A crash of the node leaves every committed message in the database; what was reserved for the node returns within
seconds, marked redelivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final, final

from penstock import limits
from penstock.backing.backing_queue import (
    NOT_DELIVERED,
    TIMEOUT_NONE,
    TIMEOUT_TIMED,
    Answered,
    BackingQueue,
    EntryVisitor,
    FoldVisitor,
    PropsPredicate,
    Purged,
)
from penstock.backing.outcomes import (
    ACKED,
    DEAD_LETTERED,
    DROPPED,
    EXPIRED,
    LOST,
    MOVED,
    NO_ACTOR,
    PURGED,
    REASON_NAMES,
    REASON_NONE,
    REJECTED,
)
from penstock.backing.postgres.envelopes import PgEnvelopes
from penstock.backing.postgres.link import PgQueueLink, PutRow
from penstock.backing.postgres.looks import Shown
from penstock.backing.postgres.reserved import PgReserved
from penstock.call_all import call_all
from penstock.errors import ChannelException
from penstock.message import ConfirmToken, Entry, Incoming, MessageProps, Run, refuse_all

# Names the implementation, also where there is no object of it.
KIND: Final = "postgres"
# What the history says of messages, by how they left. What was acknowledged has no note.
_NOTES: Final = {
    REJECTED: "rejected",
    EXPIRED: "expired",
    DEAD_LETTERED: "dead-lettered",
    DROPPED: "dropped",
    PURGED: "purged",
    LOST: "lost",
    MOVED: "moved",
}


@final
class WaitingPut:
    """A run that is on its way to the database."""

    def __init__(self, queue: PgBackingQueue, count: int, token: ConfirmToken | None) -> None:
        self._queue = queue
        self.count = count
        self.token = token
        self.ids: list[int] = []

    def done(self, ids: list[int] | None) -> None:
        if ids is not None:
            self.ids = ids
        self._queue.put_done(self, ids is not None)


@final
class PgBackingQueue(BackingQueue):
    KIND: ClassVar[str] = KIND
    IS_REMOTE: ClassVar[bool] = True

    def __init__(self, envelopes: PgEnvelopes, reserved: PgReserved, queue_link: PgQueueLink, is_new: bool) -> None:
        self._envelopes = envelopes
        self._reserved = reserved
        self._queue_link = queue_link
        reserved.queue_link = queue_link
        # The database is known to have the queue; and who waits for that.
        self._is_made = not is_new
        self._makers: list[Answered] = []
        # What is in the database stays there, or is gone already; and who waits for that.
        self._is_left = False
        self._droppers: list[Answered] = []
        self._owed: dict[ConfirmToken, None] = {}
        self._confirmed: list[ConfirmToken] = []
        self._ended = False

    # --- life -------------------------------------------------------------------------------------

    def set_takers(self, takers: Callable[[], bool]) -> None:
        self._reserved.takers = takers

    def drain_arrived(self) -> int:
        count, self._reserved.arrived_count = self._reserved.arrived_count, 0
        return count

    def is_congested(self) -> bool:
        return self._queue_link.is_congested()

    def ask_once(self, done: Answered) -> None:
        self._queue_link.ask_once(done)

    def is_made(self) -> bool:
        return self._is_made

    def make(self, done: Answered) -> None:
        if self._is_made:
            done(None)
            return
        self._makers.append(done)
        if len(self._makers) == 1:
            self._queue_link.make(self._made)

    def _made(self, error: ChannelException | None) -> None:
        self._is_made = error is None
        makers, self._makers = self._makers, []
        call_all([partial(done, error) for done in makers])

    def count(self, done: Answered) -> None:
        self._queue_link.count(done)

    def purge_all(self, done: Purged) -> None:
        self._reserved.give_window_back()
        self._reserved.looks.forget()
        self._queue_link.purge(done)

    def drop_rows(self, done: Answered) -> None:
        if self._is_left:
            done(None)
            return
        self._droppers.append(done)
        if len(self._droppers) == 1:
            self._queue_link.drop(self._dropped)

    def _dropped(self, error: ChannelException | None) -> None:
        self._is_left = error is None
        droppers, self._droppers = self._droppers, []
        call_all([partial(done, error) for done in droppers])

    def leave_rows(self) -> None:
        self._is_left = True
        # It is not known what became of what was put.
        owed = list(self._owed)
        self._owed.clear()
        try:
            refuse_all(owed)
        finally:
            self._queue_link.leave()

    def terminate(self) -> None:
        reserved = self._reserved
        reserved.give_window_back()
        self._queue_link.give_back([seq_id for seq_id, _ in reserved.release(list(reserved.pending))], True)
        self._ended = True
        self._queue_link.close()

    def delete_and_terminate(self) -> None:
        self._ended = True
        self._reserved.takers = None
        self._reserved.forget_all()
        # Nothing can be lost any more.
        self._confirmed.extend(self._owed)
        self._owed.clear()
        if not self._is_left:
            self._queue_link.drop(_nobody_waits)

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, incoming: Incoming, props: MessageProps | None, delivered: int = NOT_DELIVERED) -> int:
        row = self._envelopes.row
        was_delivered = delivered > NOT_DELIVERED
        rows = [row(own, body, props, was_delivered) for own, body, _ in incoming.entries_with(None)]
        return self._put(rows, None if props is None else props.confirm)

    def _put(self, rows: list[PutRow], confirm: ConfirmToken | None) -> int:
        waiting = WaitingPut(self, len(rows), confirm)
        if confirm is not None:
            self._owed[confirm] = None
        self._queue_link.put(rows, waiting.done)
        return waiting.ids[0] if waiting.ids else -1

    def put_done(self, waiting: WaitingPut, is_committed: bool) -> None:
        """The database has answered, or cannot be asked any more."""
        if waiting.ids:
            self._reserved.highest = max(self._reserved.highest, waiting.ids[-1])
            self._reserved.looks.forget()
        token = waiting.token
        if token is None or token not in self._owed:
            return
        del self._owed[token]
        if is_committed:
            self._confirmed.append(token)
        else:
            token.refuse()

    def drain_confirmed(self) -> list[ConfirmToken]:
        confirmed = self._confirmed
        if not confirmed:
            # Never the inner list: tokens of later runs would appear in the caller's hands.
            return []
        self._confirmed = []
        return confirmed

    def take_owed(self) -> list[ConfirmToken]:
        owed = [*self.drain_confirmed(), *self._owed]
        self._owed.clear()
        return owed

    # --- fetching ---------------------------------------------------------------------------------

    def fetch(self, count_max: int, bytes_max: int, ack_required: bool, actor: int = NO_ACTOR) -> Run | None:
        assert count_max >= 1
        return self._reserved.fetch(count_max, bytes_max, ack_required)

    def fetch_at(self, seq_ids: Sequence[int], actor: int = NO_ACTOR) -> list[tuple[int, Entry]]:
        return self._reserved.fetch_at(seq_ids)

    def drop(self, ack_required: bool, outcome: int = DROPPED, reason: int = REASON_NONE) -> int | None:
        run = self._reserved.fetch(1, 0, ack_required, outcome_note(outcome, reason))
        return None if run is None else run.first_seq_id

    def dropwhile(self, predicate: PropsPredicate) -> int:
        dropped = 0
        while self._reserved.fill() and predicate(self.head_props()):
            self._reserved.fetch(1, 0, False, outcome_note(EXPIRED, REASON_NONE))
            dropped += 1
        return dropped

    def fetchwhile(self, predicate: PropsPredicate, visit: EntryVisitor) -> int:
        fetched = 0
        while self._reserved.fill() and predicate(self.head_props()):
            run = self._reserved.fetch(1, 0, True)
            assert run is not None
            visit(run.first_seq_id, run.entries[0])
            fetched += 1
        return fetched

    def head_props(self) -> MessageProps | None:
        head = self._reserved.window.head() if self._reserved.fill() else None
        return None if head is None else head[2]

    def browse(self, from_seq_id: int, count_max: int, bytes_max: int) -> Run | None:
        assert count_max >= 1
        found = self._reserved.looks.at(self._queue_link, max(0, from_seq_id))
        if found is None:
            return None
        ready = [item for item in self._reserved.window.items() if item[0] >= from_seq_id]
        ready.extend([item for item in found if item[0] not in self._reserved.window])
        if not ready:
            self._reserved.is_browser_waiting = True
            return None
        ready.sort(key=_seq_id_of)
        first, _, redelivered = ready[0]
        entries: list[Entry] = []
        size = 0
        for seq_id, entry, mark in ready[:count_max]:
            size += len(entry[1]) - 1
            if seq_id != first + len(entries) or mark != redelivered or (entries and size > bytes_max):
                break
            entries.append(entry)
        return Run(first, entries, redelivered)

    def is_looking(self) -> bool:
        return self._reserved.looks.is_late()

    # --- settling ---------------------------------------------------------------------------------

    def ack(
        self, seq_ids: Sequence[int], outcome: int = ACKED, reason: int = REASON_NONE, actor: int = NO_ACTOR
    ) -> int:
        acked = [seq_id for seq_id, _ in self._reserved.release(seq_ids)]
        self._reserved.past.forget(acked)
        self._queue_link.finalize(acked, outcome_note(outcome, reason))
        return len(acked)

    def requeue(self, seq_ids: Sequence[int], failed: bool = True) -> int:
        return self._reserved.requeue(seq_ids, failed)

    def delivery_count(self, seq_id: int) -> int:
        return self._reserved.past.count(seq_id)

    def set_delivery_count(self, seq_id: int, count: int) -> None:
        if seq_id in self._reserved.pending:
            self._reserved.past.set_count(seq_id, count)

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        return self._reserved.past.doubtful(seq_ids)

    def doubt(self, seq_ids: Sequence[int]) -> None:
        self._reserved.past.doubt(seq_ids)

    def pending_ids(self) -> list[int]:
        return sorted(self._reserved.pending)

    def ackfold(self, visit: EntryVisitor, seq_ids: Sequence[int]) -> None:
        for seq_id in dict.fromkeys(seq_ids):
            entry = self._reserved.pending.get(seq_id)
            if entry is not None:
                visit(seq_id, entry)

    # --- all messages -----------------------------------------------------------------------------

    def purge(self) -> int:
        known = len(self)
        counts: list[int] = []

        def purged(count: int, error: ChannelException | None) -> None:
            counts.append(count)

        self.purge_all(purged)
        return counts[0] if counts else known

    def fold(self, visit: FoldVisitor) -> None:
        reserved: list[Shown] = [(seq_id, entry, True) for seq_id, entry in self._reserved.pending.items()]
        reserved.extend([(seq_id, entry, False) for seq_id, entry, _ in self._reserved.window.items()])
        reserved.sort(key=_seq_id_of)
        reserved.reverse()
        from_seq_id = 0
        while True:
            page = self._reserved.looks.at(self._queue_link, from_seq_id) or []
            for seq_id, entry, _ in page:
                while reserved and reserved[-1][0] < seq_id:
                    earlier = reserved.pop()
                    if not visit(earlier[0], earlier[1], earlier[2]):
                        return
                if not visit(seq_id, entry, False):
                    return
                from_seq_id = seq_id + 1
            if not page:
                break
        while reserved:
            last = reserved.pop()
            if not visit(last[0], last[1], last[2]):
                return

    def __len__(self) -> int:
        return len(self._reserved.window) + self._queue_link.ready_count()

    def is_empty(self) -> bool:
        return not self._reserved.fill()

    def depth(self) -> int:
        return len(self) + len(self._reserved.pending)

    def ready_bytes(self) -> int:
        return self._reserved.window.bytes + self._queue_link.ready_bytes()

    def pending_bytes(self) -> int:
        return self._reserved.pending_bytes

    # --- memory and looking in ----------------------------------------------------------------------

    def needs_timeout(self) -> int:
        return TIMEOUT_TIMED if self._owed else TIMEOUT_NONE

    def ram_bytes(self) -> int:
        reserved = self._reserved
        count = len(reserved.window) + len(reserved.pending)
        return (
            reserved.window.bytes
            + reserved.pending_bytes
            + self._queue_link.unsent_bytes()
            + reserved.looks.ram_bytes()
            + count * limits.MESSAGE_OVERHEAD_BYTES
        )

    def status(self) -> dict[str, int | float | str]:
        return {
            "kind": self.KIND,
            "len": len(self),
            "window": len(self._reserved.window),
            "pending_acks": len(self._reserved.pending),
            "unconfirmed": len(self._owed),
            "refill": self._reserved.refill_count(),
            "next_seq_id": self._reserved.highest + 1,
        }

    def check_invariants(self) -> None:
        self._reserved.check_invariants()
        given = [token for token in self._confirmed if token in self._owed]
        assert not given, "1: a token is due and still owed"


def _nobody_waits(error: ChannelException | None) -> None:
    return None


def outcome_note(outcome: int, reason: int) -> str | None:
    """What the history says: 'rejected', 'dead-lettered: expired', 'moved' …"""
    note = _NOTES.get(outcome)
    if note is None or reason == REASON_NONE or REASON_NAMES[reason] == note:
        return note
    return f"{note}: {REASON_NAMES[reason]}"


def _seq_id_of(item: Shown) -> int:
    return item[0]
