"""Fetching from a volatile queue: how messages leave its head, and how they are looked at.

What it owns: nothing more than `volatile_publishing`, where the state is explained.

Life of the data: fetch takes from the older ones as long as there are any, then from the fresh ones; what is to be
acked is pending from then on, the rest is gone. `fetch_at` makes older ones of the fresh messages that it passes.

Invariants
  1. Those of `volatile_publishing`.
  2. A run is redelivered as a whole or not at all: it ends where the marks change.
  3. Numbers that have left the older ones are cleaned out of the heap when they are the most of it, so that the cost of
     cleaning is spread over what was taken.

Crash: nothing is left. It does not know consumers and decides nothing about expiry.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop
from typing import Final

from penstock.backing.backing_queue import EntryVisitor, PropsPredicate
from penstock.backing.outcomes import DROPPED, NO_ACTOR, REASON_NONE
from penstock.backing.volatile_publishing import VolatilePublishing
from penstock.message import Entry, MessageProps, Run, large_properties_bytes

# Numbers in the heap that have left it: so many more than others are worth a cleaning.
STALE_IDS_MAX: Final = 64


class VolatileFetching(VolatilePublishing):
    """A queue that can be fetched from."""

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
        """A run was taken that will not be acked."""
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
        """How many from the head share the head's mark: a run is redelivered as a whole or not at all."""
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
        """The lowest seq_id of the older ones; there is one."""
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


def within_bytes(entries: list[Entry], bytes_max: int) -> list[Entry]:
    """The first entry, and those after it as long as their bodies fit."""
    size = len(entries[0][1]) - 1
    for index in range(1, len(entries)):
        size += len(entries[index][1]) - 1
        if size > bytes_max:
            return entries[:index]
    return entries
