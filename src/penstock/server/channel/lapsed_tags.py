"""Delivery tags whose time has passed, about which the client may still say something.

Their deliveries went back to their queues because the client did not settle them in time. The client may not have
noticed: its ack or nack is on the way, or comes when its work is done at last. It must neither close the channel nor
touch the message, which another consumer has by then. A client may settle such a tag once. The lowest tags are
forgotten when there are too many ranges; a client that never answers makes one long range, since all its tags lapse.

Invariants
  1. Ranges do not overlap or touch, and are in order; both lists have the same length.
  2. There are at most RANGES_MAX ranges after each call.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, final

# Ranges of one channel. With more holes than this among late acknowledgements the oldest are forgotten.
RANGES_MAX: Final = 4_096


@final
class LapsedTags:
    """A set of tags, kept as ranges."""

    __slots__ = ("_firsts", "_lasts", "_ranges_max")

    def __init__(self, ranges_max: int = RANGES_MAX) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._ranges_max = ranges_max

    def __contains__(self, tag: int) -> bool:
        index = bisect_right(self._firsts, tag) - 1
        return index >= 0 and tag <= self._lasts[index]

    def add(self, first: int, last: int) -> None:
        """Tags that have not lapsed before."""
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]
        if len(self._firsts) > self._ranges_max:
            del self._firsts[0]
            del self._lasts[0]

    def discard(self, first: int, last: int) -> None:
        """Forget those of the tags that are here."""
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        if low >= high:
            return
        firsts: list[int] = []
        lasts: list[int] = []
        if self._firsts[low] < first:
            firsts.append(self._firsts[low])
            lasts.append(first - 1)
        if self._lasts[high - 1] > last:
            firsts.append(last + 1)
            lasts.append(self._lasts[high - 1])
        self._firsts[low:high] = firsts
        self._lasts[low:high] = lasts
        if len(self._firsts) > self._ranges_max:
            del self._firsts[0]
            del self._lasts[0]

    def ranges(self) -> list[tuple[int, int]]:
        return [(first, self._lasts[index]) for index, first in enumerate(self._firsts)]
