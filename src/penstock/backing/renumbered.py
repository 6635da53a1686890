"""A backing whose messages have got other numbers while some of them were with consumers.

When a queue changes its backing in place, all its messages are published again and get new seq_ids; clients still
acknowledge what they have under the old ones. This wrapper stands before the new backing. It adds `shift` to the new
seq_ids, so that they are above every old one, and knows the new number of each message that was pending.

Invariants
  1. An old seq_id stands for at most one message, and for none once that was acked or requeued by it: a message that
     came back goes by its new number. Inner numbers are never used twice, so that one which is left over means nothing.
  2. What comes out of a verb has new numbers, which are above all old ones.

It holds no messages. After a restart it is gone, and with it the clients that knew the old numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from penstock.backing.backing_queue import (
    NOT_DELIVERED,
    Answered,
    BackingQueue,
    BackingWork,
    EntryVisitor,
    FoldVisitor,
    PropsPredicate,
    Purged,
)
from penstock.backing.outcomes import ACKED, DROPPED, NO_ACTOR, REASON_NONE
from penstock.message import ConfirmToken, Entry, Incoming, MessageProps, Run

# Above every seq_id of a priority queue; and so often can a queue be renumbered before 64 bits are full.
GENERATION_SHIFT: Final = 57
GENERATIONS_MAX: Final = 15


class RenumberedBackingQueue(BackingQueue):
    KIND: ClassVar[str] = "renumbered"

    def __init__(self, inner: BackingQueue, generation: int, former: dict[int, int]) -> None:
        """`former`: the new seq_ids, as the inner backing has them, of pending messages, by their old ones."""
        assert 1 <= generation <= GENERATIONS_MAX
        self.inner = inner
        self.generation = generation
        self._shift = generation << GENERATION_SHIFT
        self._former = former
        # A message that was renumbered before has more than one old number.
        self._has_aliases = len(set(former.values())) < len(former)

    def _inside(self, seq_ids: Sequence[int]) -> Sequence[int]:
        """Return the inner numbers; those of nothing are left out."""
        shift = self._shift
        if isinstance(seq_ids, range) and (not seq_ids or min(seq_ids[0], seq_ids[-1]) >= shift):
            return range(seq_ids.start - shift, seq_ids.stop - shift, seq_ids.step)
        found: list[int] = []
        for seq_id in seq_ids:
            if seq_id >= shift:
                found.append(seq_id - shift)
            else:
                inner = self._former.get(seq_id)
                if inner is not None:
                    found.append(inner)
        return found

    def _one(self, seq_id: int) -> int:
        """Return the inner number of one message; -1, which is none's, for an old one that is not known any more."""
        return seq_id - self._shift if seq_id >= self._shift else self._former.get(seq_id, -1)

    def _forget(self, seq_ids: Sequence[int]) -> None:
        if self._former:
            for seq_id in seq_ids:
                if seq_id < self._shift:
                    inner = self._former.pop(seq_id, None)
                    if inner is not None and self._has_aliases:
                        for alias in [each for each, other in self._former.items() if other == inner]:
                            del self._former[alias]

    def former_ids(self) -> dict[int, int]:
        """Return the old numbers that still stand for a message, with its new one."""
        return {seq_id: inner + self._shift for seq_id, inner in self._former.items()}

    def _shifted(self, run: Run | None) -> Run | None:
        if run is not None:
            run.first_seq_id += self._shift
        return run

    # --- life -------------------------------------------------------------------------------------

    def invoke(self, kind: str, work: BackingWork) -> None:
        if kind == self.KIND:
            work(self)
        else:
            self.inner.invoke(kind, work)

    def set_takers(self, takers: Callable[[], bool]) -> None:
        self.inner.set_takers(takers)

    def drain_arrived(self) -> int:
        return self.inner.drain_arrived()

    def stalled(self, error: OSError) -> None:
        self.inner.stalled(error)

    def waits_for_disk(self) -> bool:
        return self.inner.waits_for_disk()

    def is_looking(self) -> bool:
        return self.inner.is_looking()

    def is_congested(self) -> bool:
        return self.inner.is_congested()

    def ask_once(self, done: Answered) -> None:
        self.inner.ask_once(done)

    def purge_all(self, done: Purged) -> None:
        self.inner.purge_all(done)

    def terminate(self) -> None:
        self.inner.terminate()

    def delete_and_terminate(self) -> None:
        self.inner.delete_and_terminate()

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, incoming: Incoming, props: MessageProps | None, delivered: int = NOT_DELIVERED) -> int:
        return self.inner.publish(incoming, props, delivered) + self._shift

    def discard(self, incoming: Incoming) -> None:
        self.inner.discard(incoming)

    def drain_confirmed(self) -> list[ConfirmToken]:
        return self.inner.drain_confirmed()

    def take_owed(self) -> list[ConfirmToken]:
        return self.inner.take_owed()

    # --- fetching ---------------------------------------------------------------------------------

    def fetch(self, count_max: int, bytes_max: int, ack_required: bool, actor: int = NO_ACTOR) -> Run | None:
        return self._shifted(self.inner.fetch(count_max, bytes_max, ack_required, actor))

    def fetch_at(self, seq_ids: Sequence[int], actor: int = NO_ACTOR) -> list[tuple[int, Entry]]:
        found = self.inner.fetch_at(self._inside(seq_ids), actor)
        return [(seq_id + self._shift, entry) for seq_id, entry in found]

    def drop(self, ack_required: bool, outcome: int = DROPPED, reason: int = REASON_NONE) -> int | None:
        dropped = self.inner.drop(ack_required, outcome, reason)
        return None if dropped is None else dropped + self._shift

    def dropwhile(self, predicate: PropsPredicate) -> int:
        return self.inner.dropwhile(predicate)

    def fetchwhile(self, predicate: PropsPredicate, visit: EntryVisitor) -> int:
        shift = self._shift
        return self.inner.fetchwhile(predicate, lambda seq_id, entry: visit(seq_id + shift, entry))

    def head_props(self) -> MessageProps | None:
        return self.inner.head_props()

    def browse(self, from_seq_id: int, count_max: int, bytes_max: int) -> Run | None:
        return self._shifted(self.inner.browse(max(from_seq_id - self._shift, 0), count_max, bytes_max))

    # --- settling ---------------------------------------------------------------------------------

    def ack(
        self, seq_ids: Sequence[int], outcome: int = ACKED, reason: int = REASON_NONE, actor: int = NO_ACTOR
    ) -> int:
        acked = self.inner.ack(self._inside(seq_ids), outcome, reason, actor)
        self._forget(seq_ids)
        return acked

    def requeue(self, seq_ids: Sequence[int], failed: bool = True) -> int:
        requeued = self.inner.requeue(self._inside(seq_ids), failed)
        self._forget(seq_ids)
        return requeued

    def delivery_count(self, seq_id: int) -> int:
        return self.inner.delivery_count(self._one(seq_id))

    def set_delivery_count(self, seq_id: int, count: int) -> None:
        self.inner.set_delivery_count(self._one(seq_id), count)

    def returned_over(self, count: int) -> list[int]:
        return [seq_id + self._shift for seq_id in self.inner.returned_over(count)]

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        return [seq_id + self._shift for seq_id in self.inner.doubtful(self._inside(seq_ids))]

    def doubt(self, seq_ids: Sequence[int]) -> None:
        self.inner.doubt(self._inside(seq_ids))

    def pending_ids(self) -> list[int]:
        return [seq_id + self._shift for seq_id in self.inner.pending_ids()]

    def ackfold(self, visit: EntryVisitor, seq_ids: Sequence[int]) -> None:
        shift = self._shift
        self.inner.ackfold(lambda seq_id, entry: visit(seq_id + shift, entry), self._inside(seq_ids))

    # --- who has what -----------------------------------------------------------------------------

    def name_actor(self, text: bytes) -> int:
        return self.inner.name_actor(text)

    def forget_actor(self, actor: int) -> None:
        self.inner.forget_actor(actor)

    def note_given(self, seq_ids: Sequence[int], actor: int) -> None:
        self.inner.note_given(self._inside(seq_ids), actor)

    def note_returned(self, seq_ids: Sequence[int]) -> None:
        self.inner.note_returned(self._inside(seq_ids))

    # --- all messages -----------------------------------------------------------------------------

    def purge(self) -> int:
        return self.inner.purge()

    def begin_purge(self) -> bool:
        return self.inner.begin_purge()

    def purge_some(self, count_max: int) -> int:
        return self.inner.purge_some(count_max)

    def fold(self, visit: FoldVisitor) -> None:
        shift = self._shift
        self.inner.fold(lambda seq_id, entry, is_pending: visit(seq_id + shift, entry, is_pending))

    def __len__(self) -> int:
        return len(self.inner)

    def is_empty(self) -> bool:
        return self.inner.is_empty()

    def depth(self) -> int:
        return self.inner.depth()

    def ready_bytes(self) -> int:
        return self.inner.ready_bytes()

    def pending_bytes(self) -> int:
        return self.inner.pending_bytes()

    # --- memory and time ----------------------------------------------------------------------------

    def ram_bytes(self) -> int:
        return self.inner.ram_bytes()

    def set_ram_duration_target(self, seconds: float) -> None:
        self.inner.set_ram_duration_target(seconds)

    def set_ram_bytes_target(self, bytes_max: int) -> None:
        self.inner.set_ram_bytes_target(bytes_max)

    def ram_duration(self) -> float:
        return self.inner.ram_duration()

    def needs_timeout(self) -> int:
        return self.inner.needs_timeout()

    def timeout(self) -> None:
        self.inner.timeout()

    def resume(self) -> None:
        self.inner.resume()

    def set_queue_mode(self, lazy: bool) -> None:
        self.inner.set_queue_mode(lazy)

    # --- looking in -----------------------------------------------------------------------------------

    def status(self) -> dict[str, int | float | str]:
        status = dict(self.inner.status())
        status["kind"] = self.KIND
        status["next_seq_id"] = int(status["next_seq_id"]) + self._shift
        return status

    def check_invariants(self) -> None:
        self.inner.check_invariants()
        assert not any([seq_id >= self._shift for seq_id in self._former]), "2: a new number among the old ones"
