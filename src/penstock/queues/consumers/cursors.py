"""Where consumers with filters stand: each looks at a message once, and again only when it came back.

A cursor is the place up to which a consumer has looked, in an order of keys that the owner keeps (seq_ids for FIFO,
sort keys for a sorted queue), with the keys before that place that were put there since. A message that a filter
refuses is passed for good. One that it accepts stays in front of the cursor until it has left the shelf: it may not
have been handed out. Qpid moves a cursor back for a returned message, and looks at everything behind it once more; here
the message alone is looked at again.

Invariants
  1. Every key that is neither after `position` nor in `again` was refused by the filter.
  2. `again` is a heap. It may have keys that are gone; they are thrown out when they come to the top, or when they are
     too many.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from penstock.queues.consumers.consumer import Consumer
from penstock.queues.selection.sorted_chunks import Key, SortedChunks

# Keys that are gone, of which a cursor may know, however few messages there are.
REMAINS_MIN: Final = 64


@final
class Cursor:
    """One consumer's place."""

    __slots__ = ("again", "position")

    def __init__(self, position: Key) -> None:
        self.position = position
        self.again: list[Key] = []

    def next_in(self, keys: SortedChunks) -> Key:
        """Return the key to look at now, or None; it stays so until it is passed, or gone."""
        again = self.again
        while again:
            if again[0] in keys:
                return again[0]
            heappop(again)
        return keys.after(self.position)

    def passed(self, key: Key) -> None:
        """The consumer does not want the message that `next_in` named."""
        if self.again:
            heappop(self.again)
        else:
            self.position = key


@final
class Cursors:
    def __init__(self, keys: SortedChunks, start: Key) -> None:
        self._keys = keys
        self._start = start
        self._by_consumer: dict[Consumer, Cursor] = {}

    def of(self, consumer: Consumer) -> Cursor:
        cursor = self._by_consumer.get(consumer)
        if cursor is None:
            cursor = self._by_consumer[consumer] = Cursor(self._start)
        return cursor

    def drop(self, consumer: Consumer) -> None:
        self._by_consumer.pop(consumer, None)

    def has_more(self, consumer: Consumer) -> bool:
        """Return whether there may be something that the consumer has not looked at."""
        cursor = self._by_consumer.get(consumer)
        if cursor is None:
            return len(self._keys) > 0
        return bool(cursor.again) or (len(self._keys) > 0 and self._keys.last() > cursor.position)

    def added(self, key: Key) -> None:
        """A key came into the order, perhaps where some have looked already."""
        for cursor in self._by_consumer.values():
            if key <= cursor.position:
                heappush(cursor.again, key)
                if len(cursor.again) > 2 * len(self._keys) + REMAINS_MIN:
                    cursor.again = [known for known in set(cursor.again) if known in self._keys]
                    heapify(cursor.again)

    def cleared(self) -> None:
        for cursor in self._by_consumer.values():
            cursor.again = []
