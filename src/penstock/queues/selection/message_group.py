"""A group of messages, which one consumer gets at a time, and heaps of such groups by their first waiting message.

A `GroupHeap` finds, among the groups that are free or those of one consumer, the one whose first message comes first. A
group is listed in one heap at a time; when it changes hands it is listed elsewhere, and its entry in the old heap is
thrown away when it comes to the top, or when such remains are too many.

Invariants
  1. The entry of a group that counts is (`listed_seq_id`, `serial`) in the heap `listed`; all others are remains.
  2. A group with waiting messages is listed, and `listed_seq_id` is not above its first waiting message.
  3. A heap has at most twice as many entries as there are groups, and some.
  4. A group that is not bound has no delivered messages, unless it is open.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, final

from penstock.queues.consumers.consumer import Consumer
from penstock.queues.selection.sorted_chunks import SortedChunks

# Remains that a heap may have, however few the groups are.
REMAINS_MIN: Final = 64
# Nothing is ever added to it.
NO_NUMBERS: Final = SortedChunks()


@final
class MessageGroup:
    """Messages of one key, or of one bucket of keys."""

    __slots__ = (
        "bound",
        "bound_for_life",
        "is_open",
        "key",
        "listed",
        "listed_seq_id",
        "outstanding",
        "owner",
        "serial",
        "waiting",
    )

    def __init__(self, key: str | int | float, serial: int, is_open: bool) -> None:
        self.key = key
        # Tells it from all others, also from a group of the same key that is gone.
        self.serial = serial
        # Messages that belong to no group: every consumer may take them at any time.
        self.is_open = is_open
        # Seq_ids on the shelf. A group that never had any there shares an empty list.
        self.waiting = NO_NUMBERS
        # Delivered and not settled.
        self.outstanding = 0
        # Whether one consumer has it, and which; None is basic.get.
        self.bound = False
        self.owner: Consumer | None = None
        # Bound also while nothing is outstanding.
        self.bound_for_life = False
        self.listed: GroupHeap | None = None
        self.listed_seq_id = -1

    def is_for(self, consumer: Consumer | None) -> bool:
        """Return whether the consumer may take from it now."""
        return not self.bound or self.owner is consumer


@final
class GroupHeap:
    """Groups by their first waiting message."""

    __slots__ = ("_by_serial", "_entries", "bound_count")

    def __init__(self, by_serial: dict[int, MessageGroup]) -> None:
        # All groups there are; shared with the order.
        self._by_serial = by_serial
        self._entries: list[tuple[int, int]] = []
        # Groups that are bound to the consumer whose heap this is; kept by the order.
        self.bound_count = 0

    def list(self, group: MessageGroup) -> None:
        """The group is to be found here from now on. It has waiting messages."""
        first: int = group.waiting.first()
        group.listed = self
        group.listed_seq_id = first
        heappush(self._entries, (first, group.serial))
        if len(self._entries) > 2 * len(self._by_serial) + REMAINS_MIN:
            self._throw_out_remains()

    def _throw_out_remains(self) -> None:
        self._entries = [entry for entry in set(self._entries) if self._counts(entry) is not None]
        heapify(self._entries)

    def _counts(self, entry: tuple[int, int]) -> MessageGroup | None:
        """Return the group, when this is the entry that counts."""
        group = self._by_serial.get(entry[1])
        if group is None or group.listed is not self or group.listed_seq_id != entry[0]:
            return None
        return group

    def top(self) -> MessageGroup | None:
        """Return the group whose first waiting message comes first; None when no group here has any."""
        entries = self._entries
        by_serial = self._by_serial
        while entries:
            seq_id, serial = entries[0]
            group = by_serial.get(serial)
            if group is None or group.listed is not self or group.listed_seq_id != seq_id:
                heappop(entries)
                continue
            first: int | None = group.waiting.first()
            if first is None:
                heappop(entries)
                group.listed = None
            elif first != group.listed_seq_id:
                group.listed_seq_id = first
                heapreplace(entries, (first, group.serial))
            else:
                return group
        return None
