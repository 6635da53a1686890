"""The volatile backing queue: everything in RAM, nothing survives.

What it owns: what `volatile_publishing` lists and explains, where messages come in; `volatile_fetching` is how they are
taken. This is how they are settled, and what is done with all of them.

Life of a message: publish -> fresh -> fetch -> pending -> ack, and it is gone. A requeued one is among the older ones
until it is fetched again.

Invariants
  1. Those of `volatile_publishing`, which `check_invariants` asserts.
  2. Those of `volatile_fetching`.

Crash: nothing is left. A clean stop leaves nothing either, so a run is safe as soon as it is held and its confirm
is due at once. It does not page, does not throttle and keeps no rates: the queue and the memory alarm do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappush

from penstock import limits
from penstock.backing.backing_queue import (
    AsyncCallback,
    BackingQueue,
    BackingQueues,
    EntryVisitor,
    FoldVisitor,
    Recovery,
)
from penstock.backing.outcomes import ACKED, NO_ACTOR, REASON_NONE
from penstock.backing.volatile_fetching import VolatileFetching
from penstock.message import Entry, large_properties_bytes


class VolatileBackingQueue(VolatileFetching):
    """All in memory."""

    KIND = "volatile"

    # --- life -------------------------------------------------------------------------------------

    def terminate(self) -> bytes:
        self.delete_and_terminate()
        return b""

    def delete_and_terminate(self) -> None:
        self.purge()
        self.purge_acks()

    # --- settling ---------------------------------------------------------------------------------

    def ack(
        self, seq_ids: Sequence[int], outcome: int = ACKED, reason: int = REASON_NONE, actor: int = NO_ACTOR
    ) -> int:
        pop = self._pending.pop
        acked = 0
        size = 0
        count_properties = self._properties_bytes > 0
        for seq_id in seq_ids:
            entry = pop(seq_id, None)
            if entry is not None:
                acked += 1
                size += len(entry[1])
                if count_properties:
                    self._properties_bytes -= large_properties_bytes([entry])
        self._pending_bytes -= size - acked
        if self._counts or self._doubtful:
            self._forget_past(seq_ids)
        return acked

    def requeue(self, seq_ids: Sequence[int], failed: bool = True) -> int:
        returned: list[tuple[int, Entry]] = []
        size = 0
        for seq_id in seq_ids:
            entry = self._pending.pop(seq_id, None)
            if entry is not None:
                returned.append((seq_id, entry))
                size += len(entry[1]) - 1
        self._pending_bytes -= size
        self._ready_bytes += size
        ids = [item[0] for item in returned]
        self._marked.update(ids)
        if failed:
            self._count_returned(ids)
        self._older_sorted = False
        if len(ids) > len(self._older):
            # Many come back, as when a channel closes: one heapify is cheaper than a push for each.
            self._older_ids.extend(ids)
            heapify(self._older_ids)
        else:
            for seq_id in ids:
                heappush(self._older_ids, seq_id)
        self._older.update(returned)
        return len(returned)

    def _count_returned(self, seq_ids: Sequence[int]) -> None:
        counts = self._counts
        for seq_id in seq_ids:
            counts[seq_id] = counts.get(seq_id, 0) + 1

    def note_returned(self, seq_ids: Sequence[int]) -> None:
        self._count_returned([seq_id for seq_id in seq_ids if seq_id in self._pending])

    def delivery_count(self, seq_id: int) -> int:
        return self._counts.get(seq_id, 0)

    def set_delivery_count(self, seq_id: int, count: int) -> None:
        if seq_id in self._pending:
            self._counts[seq_id] = count

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        return [seq_id for seq_id in seq_ids if seq_id in self._doubtful] if self._doubtful else []

    def doubt(self, seq_ids: Sequence[int]) -> None:
        self._doubtful.update(dict.fromkeys(seq_ids))

    def ackfold(self, visit: EntryVisitor, seq_ids: Sequence[int]) -> None:
        for seq_id in dict.fromkeys(seq_ids):
            entry = self._pending.get(seq_id)
            if entry is not None:
                visit(seq_id, entry)

    # --- all messages -----------------------------------------------------------------------------

    def purge(self) -> int:
        purged = len(self)
        self._fresh.clear()
        self._older.clear()
        self._older_ids.clear()
        self._marked.clear()
        self._forget_all_but(self._pending)
        self._ready_bytes = 0
        if self._properties_bytes:
            self._properties_bytes = large_properties_bytes(list(self._pending.values()))
        return purged

    def purge_acks(self) -> int:
        purged = len(self._pending)
        if self._properties_bytes:
            self._properties_bytes -= large_properties_bytes(list(self._pending.values()))
        self._forget_past(list(self._pending))
        self._pending.clear()
        self._pending_bytes = 0
        return purged

    def _forget_all_but(self, kept: dict[int, Entry]) -> None:
        self._counts = {seq_id: count for seq_id, count in self._counts.items() if seq_id in kept}
        self._doubtful = {seq_id: None for seq_id in self._doubtful if seq_id in kept}

    def fold(self, visit: FoldVisitor) -> None:
        older: list[tuple[int, Entry, bool]] = [(seq_id, entry, False) for seq_id, entry in self._older.items()]
        older.extend([(seq_id, entry, True) for seq_id, entry in self._pending.items()])
        older.sort(key=_seq_id_of)
        for seq_id, entry, pending in older:
            if not visit(seq_id, entry, pending):
                return
        head = self._next_seq_id - len(self._fresh)
        for index, entry in enumerate(self._fresh):
            if not visit(head + index, entry, False):
                return

    def __len__(self) -> int:
        return len(self._fresh) + len(self._older)

    def is_empty(self) -> bool:
        return not self._fresh and not self._older

    def depth(self) -> int:
        return len(self._fresh) + len(self._older) + len(self._pending)

    def ready_bytes(self) -> int:
        return self._ready_bytes

    def pending_bytes(self) -> int:
        return self._pending_bytes

    # --- memory and looking in ----------------------------------------------------------------------

    def ram_bytes(self) -> int:
        payload_bytes = self._ready_bytes + self._pending_bytes
        past_bytes = (len(self._counts) + len(self._doubtful)) * limits.NUMBER_OVERHEAD_BYTES
        return payload_bytes + self._properties_bytes + past_bytes + self.depth() * limits.MESSAGE_OVERHEAD_BYTES

    def msg_rates(self) -> tuple[float, float]:
        return (0.0, 0.0)

    def status(self) -> dict[str, int | float | str]:
        return {
            "kind": self.KIND,
            "len": len(self),
            "fresh": len(self._fresh),
            "older": len(self._older),
            "pending_acks": len(self._pending),
            "next_seq_id": self._next_seq_id,
        }

    def check_invariants(self) -> None:
        head = self._next_seq_id - len(self._fresh)
        ids = self._older_ids
        assert all([seq_id < head for seq_id in self._older]), "1: a message stands before the fresh ones"
        assert all([seq_id < head for seq_id in self._pending]), "1: a pending message is older than the fresh ones"
        assert not self._pending.keys() & self._older.keys(), "2: a message is ready and pending"
        held = [*self._fresh, *self._older.values(), *self._pending.values()]
        pending = sum([len(entry[1]) - 1 for entry in self._pending.values()])
        assert sum([len(entry[1]) - 1 for entry in held]) - pending == self._ready_bytes, "3: ready bytes"
        assert pending == self._pending_bytes, "3: pending bytes"
        assert large_properties_bytes(held) == self._properties_bytes, "3: properties"
        marks = [seq_id for seq_id in self._marked if seq_id not in self._older]
        assert all([head <= seq_id < self._next_seq_id for seq_id in marks]), "4: marks"
        assert self._older.keys() <= set(ids), "5: a message that the heap does not have"
        assert all([ids[(index - 1) // 2] <= ids[index] for index in range(1, len(ids))]), "5: not a heap"
        assert not self._older_sorted or ids == sorted(ids), "the flag of the sorted heap"


class VolatileBackingQueues(BackingQueues):
    """Volatile queues share nothing and leave nothing behind."""

    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        return [Recovery(False, b"") for _ in queue_ids]

    def stop(self) -> None:
        return None

    def open(self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback) -> BackingQueue:
        return VolatileBackingQueue()

    def delete_crashed(self, queue_id: str) -> None:
        return None


def _seq_id_of(item: tuple[int, Entry, bool]) -> int:
    return item[0]
