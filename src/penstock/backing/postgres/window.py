"""The window of a queue in PostgreSQL: messages that are reserved for this node and not handed out yet.

Invariants
  1. `take` hands out in the order of ids; a run has consecutive ids and one mark.
  2. `bytes` is the sum of the payloads.
  3. The heap has every id that is reserved, and perhaps some that have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, final

from penstock.message import Entry, Run

# Ids in the heap that have left: so many more than others are worth a cleaning.
STALE_IDS_MAX: Final = 64


@final
class PgWindow:
    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._ids: list[int] = []
        # Of these: whose next delivery is not the first, and who was handed out since it was reserved.
        self._marked: set[int] = set()
        self._seen: set[int] = set()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, seq_id: int) -> bool:
        return seq_id in self._entries

    def add(self, seq_id: int, entry: Entry, redelivered: bool, seen: bool) -> None:
        """`seen`: a consumer had it, and it came back."""
        assert seq_id not in self._entries
        self._entries[seq_id] = entry
        heappush(self._ids, seq_id)
        self.bytes += len(entry[1]) - 1
        if redelivered:
            self._marked.add(seq_id)
        if seen:
            self._seen.add(seq_id)

    def first(self) -> int:
        """Return the lowest id; there is one."""
        ids = self._ids
        while ids[0] not in self._entries:
            heappop(ids)
        return ids[0]

    def head(self) -> Entry | None:
        return self._entries[self.first()] if self._entries else None

    def take(self, count_max: int, bytes_max: int) -> Run | None:
        """Messages from the head that follow each other and have the same mark."""
        if not self._entries:
            return None
        first = self.first()
        redelivered = first in self._marked
        entries: list[Entry] = []
        size = 0
        while len(entries) < count_max:
            seq_id = first + len(entries)
            entry = self._entries.get(seq_id)
            if entry is None or (seq_id in self._marked) != redelivered:
                break
            grown = size + len(entry[1]) - 1
            if entries and grown > bytes_max:
                break
            size = grown
            del self._entries[seq_id]
            entries.append(entry)
        self._left(range(first, first + len(entries)), size)
        return Run(first, entries, redelivered)

    def take_at(self, seq_id: int) -> Entry | None:
        entry = self._entries.pop(seq_id, None)
        if entry is not None:
            self._left([seq_id], len(entry[1]) - 1)
        return entry

    def take_all(self) -> tuple[list[int], list[int]]:
        """Empty the window; return the ids of messages that no consumer has seen, and of the others."""
        unseen = sorted([seq_id for seq_id in self._entries if seq_id not in self._seen])
        seen = sorted(self._seen)
        self._entries.clear()
        self._ids.clear()
        self._marked.clear()
        self._seen.clear()
        self.bytes = 0
        return unseen, seen

    def items(self) -> list[tuple[int, Entry, bool]]:
        """What is there, in order, each with its mark."""
        return [(seq_id, self._entries[seq_id], seq_id in self._marked) for seq_id in sorted(self._entries)]

    def _left(self, seq_ids: Sequence[int], size: int) -> None:
        self.bytes -= size
        if self._marked:
            self._marked.difference_update(seq_ids)
            self._seen.difference_update(seq_ids)
        if len(self._ids) > 2 * len(self._entries) + STALE_IDS_MAX:
            self._ids = sorted(self._entries)

    def check_invariants(self) -> None:
        ids = self._ids
        assert self.bytes == sum([len(entry[1]) - 1 for entry in self._entries.values()]), "2: bytes"
        assert self._entries.keys() <= set(ids), "3: a message that the heap does not have"
        assert all([ids[(index - 1) // 2] <= ids[index] for index in range(1, len(ids))]), "3: not a heap"
        assert self._marked <= self._entries.keys(), "1: a mark without its message"
        assert self._seen <= self._marked, "1: handed out before, and not marked"
