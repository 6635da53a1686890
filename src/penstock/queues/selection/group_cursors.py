"""Where consumers with filters stand in a queue of groups: like `cursors`, but groups come and go for a consumer.

A consumer has the seq_id up to which it has looked, and the groups in which there is something to look at before that:
a message of the group came back, or the group was another consumer's when this one passed its messages, and is free
now. Such a group is an entry (seq_id, serial of the group). When the consumer looks, the entry moves on within the
group until it reaches the cursor's position.

Invariants
  1. A waiting message up to `position` was refused by the filter, or is of a group that was another's when it was
     passed and has not been freed since, or is at or behind the entry of its group.
  2. A group has one entry that counts, in `again_from`; others in the heap are remains.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, final

from penstock.queues.consumers.consumer import Consumer
from penstock.queues.selection.message_group import MessageGroup

# Remains that a cursor may have, however few the groups are.
REMAINS_MIN: Final = 64


@final
class GroupCursor:
    __slots__ = ("_again", "_again_from", "_by_serial", "position")

    def __init__(self, by_serial: dict[int, MessageGroup]) -> None:
        self.position = -1
        self._by_serial = by_serial
        self._again: list[tuple[int, int]] = []
        self._again_from: dict[int, int] = {}

    def look_again(self, group: MessageGroup, seq_id: int) -> None:
        """There may be something in a group from a seq_id on, where the consumer has looked already."""
        if seq_id > self.position:
            return
        known = self._again_from.get(group.serial)
        if known is not None and known <= seq_id:
            return
        self._again_from[group.serial] = seq_id
        heappush(self._again, (seq_id, group.serial))
        if len(self._again) > 2 * len(self._by_serial) + REMAINS_MIN:
            alive = {serial: first for serial, first in self._again_from.items() if serial in self._by_serial}
            self._again_from = alive
            self._again = [(first, serial) for serial, first in alive.items()]
            heapify(self._again)

    def next_again(self, consumer: Consumer) -> int | None:
        """Return the first seq_id that is to be looked at again; None when only what is behind `position` is left."""
        again = self._again
        while again:
            seq_id, serial = again[0]
            if self._again_from.get(serial) != seq_id:
                heappop(again)
                continue
            group = self._by_serial.get(serial)
            # Another's group: when it is freed, it is exposed anew.
            waiting: int | None = None
            if group is not None and group.is_for(consumer):
                waiting = group.waiting.after(seq_id - 1)
            if waiting is None or waiting > self.position:
                heappop(again)
                del self._again_from[serial]
            elif waiting == seq_id:
                return seq_id
            else:
                self._again_from[serial] = waiting
                heapreplace(again, (waiting, serial))
        return None

    def passed_again(self) -> None:
        """The filter refuses what `next_again` named."""
        seq_id, serial = self._again[0]
        self._again_from[serial] = seq_id + 1
        heapreplace(self._again, (seq_id + 1, serial))

    def has_again(self) -> bool:
        return len(self._again) > 0

    def clear(self) -> None:
        """Nothing is waiting any more."""
        self._again.clear()
        self._again_from.clear()
