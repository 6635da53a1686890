"""The volatile backing queue: everything in RAM, nothing survives a crash or a clean stop.

A run is safe as soon as it is held, so its confirm is due at once.

Ready messages that were never fetched stand in a deque, in order; their seq_ids are not stored, since they are
consecutive and end at `_next_seq_id - 1`. Other ready messages are in a dict by seq_id, with a heap that has their
order, and every one of them is older than the whole deque: a requeued message was taken from the deque's head before,
and what is wanted by number takes all that stands before it out of the deque, once. Pending messages are in a dict by
seq_id. So a message that is published, fetched and acked once costs one append, one popleft and one dict entry, and the
work on a run is done by C code (extend, update), not by a loop in Python.

Invariants, which `check_invariants` asserts
  1. Every seq_id in `_older` and in `_pending` is lower than the first of `_fresh`.
  2. A seq_id is in at most one of the three.
  3. `_ready_bytes`, `_pending_bytes` and `_properties_bytes` equal the sums over what is held.
  4. `_marked` holds only seq_ids of `_fresh` and `_older`. A run ends where the marks change: it is redelivered as a
     whole or not at all.
  5. `_older_ids` is a heap that has every seq_id of `_older`, and perhaps some that have left it, or some twice. They
     are cleaned out when they are the most of it, so that the cost of cleaning is spread over what was taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import ClassVar, Final

from penstock import limits
from penstock.backing.backing_queue import (
    DOUBTFUL,
    NOT_DELIVERED,
    AsyncCallback,
    BackingQueue,
    BackingQueues,
    EntryVisitor,
    FoldVisitor,
    PropsPredicate,
    Recovery,
)
from penstock.backing.outcomes import ACKED, DROPPED, NO_ACTOR, REASON_NONE
from penstock.message import ConfirmToken, Entry, Incoming, MessageProps, Run, large_properties_bytes
from penstock.native import mypyc_attr

# Numbers in the heap that have left it: so many more than others are worth a cleaning.
STALE_IDS_MAX: Final = 64


@mypyc_attr(allow_interpreted_subclasses=True)
class VolatileBackingQueue(BackingQueue):
    KIND: ClassVar[str] = "volatile"

    def __init__(self) -> None:
        self._fresh: deque[Entry] = deque()
        # Ready before all of these: requeued, or passed when one behind was taken by number. By seq_id.
        self._older: dict[int, Entry] = {}
        self._older_ids: list[int] = []
        # Whether the heap is sorted throughout, which browsers need.
        self._older_sorted = False
        # Fetched with ack_required, by seq_id.
        self._pending: dict[int, Entry] = {}
        # Ready messages whose next fetch must say redelivered.
        self._marked: set[int] = set()
        # How often messages came back, ready or pending ones; and which of them may have been moved before.
        self._counts: dict[int, int] = {}
        self._doubtful: dict[int, None] = {}
        self._next_seq_id = 0
        # Payload bytes, FRAME-END octets not counted.
        self._ready_bytes = 0
        self._pending_bytes = 0
        # Of properties that are not small, over ready and pending messages. 0 in most queues, which pay nothing for it.
        self._properties_bytes = 0
        # Tokens that the queue has not collected yet.
        self._confirmed: list[ConfirmToken] = []

    # --- life -------------------------------------------------------------------------------------

    def terminate(self) -> None:
        self.delete_and_terminate()

    def delete_and_terminate(self) -> None:
        self.purge()
        self.ack(list(self._pending))

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, incoming: Incoming, props: MessageProps | None, delivered: int = NOT_DELIVERED) -> int:
        first = self._next_seq_id
        count = incoming.count
        self._next_seq_id = first + count
        self._fresh.extend(incoming.entries_with(props))
        self._ready_bytes += incoming.size_bytes
        self._properties_bytes += incoming.heavy_bytes
        if delivered:
            self._marked.update(range(first, first + count))
            if delivered == DOUBTFUL:
                self._doubtful.update(dict.fromkeys(range(first, first + count)))
        if props is not None and props.confirm is not None:
            self._confirmed.append(props.confirm)
        return first

    def _forget_past(self, seq_ids: Iterable[int]) -> None:
        """Messages are gone, and with them what is known of their past."""
        for seq_id in seq_ids:
            self._counts.pop(seq_id, None)
            self._doubtful.pop(seq_id, None)

    def drain_confirmed(self) -> list[ConfirmToken]:
        confirmed = self._confirmed
        if not confirmed:
            # Never the inner list: tokens of later runs would appear in the caller's hands.
            return []
        self._confirmed = []
        return confirmed

    def take_owed(self) -> list[ConfirmToken]:
        return self.drain_confirmed()

    # --- taking ------------------------------------------------------------------------------------

    def fetch(self, count_max: int, bytes_max: int, ack_required: bool, actor: int = NO_ACTOR) -> Run | None:
        assert count_max >= 1
        if self._older:
            return self._fetch_older(count_max, bytes_max, ack_required)
        fresh = self._fresh
        count = len(fresh)
        if count == 0:
            return None
        first = self._next_seq_id - count
        if self._ready_bytes > bytes_max:
            # By the average size, so that few have to be given back; the exact bound is kept below.
            count = bytes_max * count // self._ready_bytes + 1
        if count > count_max:
            count = count_max
        if self._marked:
            count = self._same_mark_count(first, count)
        entries, size = self._take_fresh(count, bytes_max)
        redelivered = False
        if self._marked and first in self._marked:
            redelivered = True
            self._marked.difference_update(range(first, first + len(entries)))
        self._ready_bytes -= size
        if ack_required:
            if len(entries) == 1:
                self._pending[first] = entries[0]
            else:
                self._pending.update(zip(range(first, first + len(entries)), entries, strict=False))
            self._pending_bytes += size
        else:
            self._gone(first, entries)
        return Run(first, entries, redelivered)

    def _gone(self, first: int, entries: list[Entry]) -> None:
        if self._properties_bytes:
            self._properties_bytes -= large_properties_bytes(entries)
        if self._counts or self._doubtful:
            self._forget_past(range(first, first + len(entries)))

    def _take_fresh(self, count: int, bytes_max: int) -> tuple[list[Entry], int]:
        """Pop up to `count` from the head, bounded by bytes after the first; with their payload bytes."""
        fresh = self._fresh
        popleft = fresh.popleft
        if count == 1:
            entry = popleft()
            return [entry], len(entry[1]) - 1
        entries = [popleft() for _ in range(count)]
        size = sum([len(entry[1]) for entry in entries]) - count
        if size > bytes_max:
            # Give back what does not fit: large ones among small ones.
            while size > bytes_max and len(entries) > 1:
                entry = entries.pop()
                fresh.appendleft(entry)
                size -= len(entry[1]) - 1
        return entries, size

    def _same_mark_count(self, first: int, count: int) -> int:
        """Return how many from the head share the head's mark: a run is redelivered as a whole or not at all."""
        marked = first in self._marked
        for offset in range(1, count):
            if (first + offset in self._marked) != marked:
                return offset
        return count

    def _fetch_older(self, count_max: int, bytes_max: int, ack_required: bool) -> Run:
        older = self._older
        marked = self._marked
        first = self._first_older()
        entries: list[Entry] = []
        redelivered = first in marked
        size = 0
        while len(entries) < count_max:
            seq_id = first + len(entries)
            entry = older.get(seq_id)
            if entry is None or (seq_id in marked) != redelivered:
                break
            grown = size + len(entry[1]) - 1
            if entries and grown > bytes_max:
                break
            size = grown
            del older[seq_id]
            entries.append(entry)
        if redelivered:
            marked.difference_update(range(first, first + len(entries)))
        self._clean_ids()
        self._ready_bytes -= size
        if ack_required:
            self._pending.update(zip(range(first, first + len(entries)), entries, strict=False))
            self._pending_bytes += size
        else:
            self._gone(first, entries)
        return Run(first, entries, redelivered)

    def _first_older(self) -> int:
        """Return the lowest seq_id of the older ones; there is one."""
        ids = self._older_ids
        while ids[0] not in self._older:
            heappop(ids)
            self._older_sorted = False
        return ids[0]

    def fetch_at(self, seq_ids: Sequence[int], actor: int = NO_ACTOR) -> list[tuple[int, Entry]]:
        wanted = dict.fromkeys(seq_ids)
        head = self._next_seq_id - len(self._fresh)
        within = [seq_id for seq_id in wanted if head <= seq_id < self._next_seq_id]
        if within:
            self._pass(head, max(within) + 1)
        found: list[tuple[int, Entry]] = []
        size = 0
        for seq_id in wanted:
            entry = self._older.pop(seq_id, None)
            if entry is not None:
                found.append((seq_id, entry))
                size += len(entry[1]) - 1
        self._pending.update(found)
        self._pending_bytes += size
        self._ready_bytes -= size
        if self._marked:
            self._marked.difference_update(wanted)
        self._clean_ids()
        return found

    def _pass(self, head: int, stop: int) -> None:
        """What stands before `stop` leaves the fresh ones. It is younger than all older ones: a heap stays one."""
        popleft = self._fresh.popleft
        self._older.update([(seq_id, popleft()) for seq_id in range(head, stop)])
        self._older_ids.extend(range(head, stop))

    def _clean_ids(self) -> None:
        """Messages have left the older ones. Their numbers go when they are the most."""
        if len(self._older_ids) > 2 * len(self._older) + STALE_IDS_MAX:
            self._sort_older()

    def _sort_older(self) -> None:
        self._older_ids = sorted(self._older)
        self._older_sorted = True

    def drop(self, ack_required: bool, outcome: int = DROPPED, reason: int = REASON_NONE) -> int | None:
        run = self.fetch(1, 0, ack_required)
        return None if run is None else run.first_seq_id

    def dropwhile(self, predicate: PropsPredicate) -> int:
        dropped = 0
        while not self.is_empty() and predicate(self.head_props()):
            self.fetch(1, 0, False)
            dropped += 1
        return dropped

    def fetchwhile(self, predicate: PropsPredicate, visit: EntryVisitor) -> int:
        fetched = 0
        while not self.is_empty() and predicate(self.head_props()):
            run = self.fetch(1, 0, True)
            assert run is not None
            visit(run.first_seq_id, run.entries[0])
            fetched += 1
        return fetched

    # --- looking -----------------------------------------------------------------------------------

    def head_props(self) -> MessageProps | None:
        if self._older:
            return self._older[self._first_older()][2]
        if self._fresh:
            return self._fresh[0][2]
        return None

    def browse(self, from_seq_id: int, count_max: int, bytes_max: int) -> Run | None:
        assert count_max >= 1
        head = self._next_seq_id - len(self._fresh)
        if from_seq_id < head and self._older:
            older = self._browse_older(from_seq_id, count_max, bytes_max)
            if older is not None:
                return older
        start = max(from_seq_id, head)
        count = min(count_max, self._next_seq_id - start)
        if count <= 0:
            return None
        if self._marked:
            count = self._same_mark_count(start, count)
        entries = [self._fresh[index] for index in range(start - head, start - head + count)]
        return Run(start, within_bytes(entries, bytes_max), start in self._marked)

    def _browse_older(self, from_seq_id: int, count_max: int, bytes_max: int) -> Run | None:
        if not self._older_sorted:
            # A sorted list is a heap too; browsers come back for more, and it mostly stays sorted meanwhile.
            self._sort_older()
        ids = self._older_ids
        older = self._older
        index = bisect_left(ids, from_seq_id)
        while index < len(ids) and ids[index] not in older:
            index += 1
        if index == len(ids):
            return None
        first = ids[index]
        redelivered = first in self._marked
        entries: list[Entry] = []
        while len(entries) < count_max:
            seq_id = first + len(entries)
            entry = older.get(seq_id)
            if entry is None or (seq_id in self._marked) != redelivered:
                break
            entries.append(entry)
        return Run(first, within_bytes(entries, bytes_max), redelivered)

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

    def pending_ids(self) -> list[int]:
        return sorted(self._pending)

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


@mypyc_attr(allow_interpreted_subclasses=True)
class VolatileBackingQueues(BackingQueues):
    """Volatile queues share nothing and leave nothing behind."""

    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        return [Recovery(False) for _ in queue_ids]

    def stop(self) -> None:
        return None

    def open(self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback) -> BackingQueue:
        return VolatileBackingQueue()

    def delete_crashed(self, queue_id: str) -> None:
        return None


def _seq_id_of(item: tuple[int, Entry, bool]) -> int:
    return item[0]


def within_bytes(entries: list[Entry], bytes_max: int) -> list[Entry]:
    """Return the first entry, and those after it as long as their bodies fit."""
    size = len(entries[0][1]) - 1
    for index in range(1, len(entries)):
        size += len(entries[index][1]) - 1
        if size > bytes_max:
            return entries[:index]
    return entries
