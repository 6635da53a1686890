"""The levels of a priority queue: which are open, and whose seq_ids are whose.

A seq_id of the queue (outer) and one of a level (inner) are related by outer = (max_priority - level) << 48 | inner.
Levels that rank higher get the lower numbers, so the order of outer seq_ids is the order of fetching. 256 levels of
2^48 messages fit into the positive half of 64 bits.

Invariants
  1. `open` holds every level of `_by_number` once, the highest first, with what is added to its seq_ids.
  2. An outer seq_id belongs to one level, or to none.

Nothing here survives a crash; the levels' own files say which of them exist. It opens nothing and moves no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from penstock.backing.backing_queue import BackingQueue, EntryVisitor, FoldVisitor
from penstock.message import ConfirmToken, Entry

LEVEL_SHIFT: Final = 48
INNER_MASK: Final = (1 << LEVEL_SHIFT) - 1


def inner_id(queue_id: str, level: int) -> str:
    """What a level of a queue is called by the inner backing."""
    return f"{queue_id}-{level:03d}"


@final
class Levels:
    __slots__ = ("_by_number", "max_priority", "open")

    def __init__(self, max_priority: int) -> None:
        self.max_priority = max_priority
        # In the order of fetching: (what is added to its seq_ids, backing).
        self.open: list[tuple[int, BackingQueue]] = []
        # None = not open.
        self._by_number: list[BackingQueue | None] = [None] * (max_priority + 1)

    def add(self, level: int, backing: BackingQueue) -> None:
        assert self._by_number[level] is None
        self._by_number[level] = backing
        self.open.append((self.base(level), backing))
        self.open.sort(key=_base_of)

    def at(self, level: int) -> BackingQueue | None:
        return self._by_number[level]

    def base(self, level: int) -> int:
        return (self.max_priority - level) << LEVEL_SHIFT

    def of_base(self, base: int) -> int:
        return self.max_priority - (base >> LEVEL_SHIFT)

    def of_priority(self, priority: int) -> int:
        """What is above the maximum counts as the maximum."""
        return priority if priority < self.max_priority else self.max_priority

    def of_seq_id(self, seq_id: int) -> BackingQueue | None:
        """Return the open level that an outer seq_id belongs to, if there is one."""
        level = self.of_base(seq_id)
        return self._by_number[level] if 0 <= level <= self.max_priority else None

    def split(self, seq_ids: Sequence[int]) -> list[tuple[BackingQueue, Sequence[int]]]:
        """Each level that is meant, with its inner seq_ids in the order given. Those of no level are left out."""
        if isinstance(seq_ids, range) and seq_ids and seq_ids[0] >> LEVEL_SHIFT == seq_ids[-1] >> LEVEL_SHIFT:
            # Nearly always: what is settled is a run, or a part of one.
            backing = self.of_seq_id(seq_ids[0])
            base = seq_ids[0] & ~INNER_MASK
            inner = range(seq_ids[0] - base, seq_ids[-1] - base + seq_ids.step, seq_ids.step)
            return [] if backing is None else [(backing, inner)]
        by_base: dict[int, list[int]] = {}
        for seq_id in seq_ids:
            by_base.setdefault(seq_id & ~INNER_MASK, []).append(seq_id & INNER_MASK)
        found: list[tuple[BackingQueue, Sequence[int]]] = []
        for base, ids in by_base.items():
            backing = self.of_seq_id(base)
            if backing is not None:
                found.append((backing, ids))
        return found

    def check_invariants(self) -> None:
        bases = [base for base, _ in self.open]
        assert bases == sorted(set(bases)), "1: the highest level first, each once"
        assert len(bases) == len([one for one in self._by_number if one is not None]), "1: every level"
        assert all([self.of_seq_id(base) is backing for base, backing in self.open]), "2: the level of a seq_id"


@final
class LevelVisitor:
    """Shows the messages of one level with the seq_ids of the queue."""

    __slots__ = ("_base", "_visit")

    def __init__(self, base: int, visit: EntryVisitor) -> None:
        self._base = base
        self._visit = visit

    def show(self, seq_id: int, entry: Entry) -> None:
        self._visit(self._base | seq_id, entry)


@final
class LevelFold:
    """The part of a fold that goes through one level."""

    __slots__ = ("_base", "_visit", "stopped")

    def __init__(self, base: int, visit: FoldVisitor) -> None:
        self._base = base
        self._visit = visit
        self.stopped = False

    def show(self, seq_id: int, entry: Entry, pending: bool) -> bool:
        self.stopped = not self._visit(self._base | seq_id, entry, pending)
        return not self.stopped


@final
class SplitConfirm(ConfirmToken):
    """Stands for a token in each level that its messages went to; `waiting` counts the levels."""

    __slots__ = ("whole",)

    def __init__(self, whole: ConfirmToken, levels: int) -> None:
        super().__init__(levels)
        self.whole = whole

    def settle(self) -> None:
        """One level has its part safely; not told to a whole that was refused."""
        if self.is_last():
            self.whole.settle()

    def is_last(self) -> bool:
        """Count a level that has its part safely; return whether the whole is safe by that."""
        if self.waiting == 0:
            return False
        self.waiting -= 1
        return self.waiting == 0

    def refuse(self) -> None:
        """One level could not keep its part: the whole is refused, once, and never confirmed."""
        if self.waiting > 0:
            self.waiting = 0
            self.whole.refuse()


def _base_of(level: tuple[int, BackingQueue]) -> int:
    return level[0]
