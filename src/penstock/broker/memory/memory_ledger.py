"""What everything that clients can make grow takes in memory, added up a little at a time.

Holders are queues with messages, and connections. A look goes over a bounded number of them: first those that were
touched since the last look, then those that were not looked at for the longest time. So a broker with few holders is
added up whole at each look, and one with a hundred thousand costs no more; what grows is touched, and is seen first.
The more has arrived since the last look, the more are asked.

Invariants
  1. `total_bytes` is the sum of what was seen last of each holder.
  2. One look asks at most `looks_max` holders, or as many as together weigh that much.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Protocol

# Asked in one look: about a millisecond. No message is delivered meanwhile, so that many are asked only where much has
# arrived: with 1,000 quiet connections, asking them all ten times a second made one message in a hundred late.
LOOKS_MAX: Final = 1_000
# Asked in any case, and one more for so many bytes that have arrived since.
LOOKS_MIN: Final = 100
BYTES_PER_LOOK: Final = 16 * 1024


class MemoryHolder(Protocol):
    """Something that takes memory as clients like."""

    def ram_bytes(self) -> int:
        """Roughly what it takes now."""

    def look_weight(self) -> int:
        """Return how much it costs to ask; 1 for a queue."""


class MemoryLedger:
    def __init__(self, looks_max: int = LOOKS_MAX) -> None:
        self.total_bytes = 0
        self._looks_max = looks_max
        # The holder that was not asked for the longest time comes first.
        self._known: OrderedDict[MemoryHolder, int] = OrderedDict()
        # In the order in which they were touched.
        self._touched: OrderedDict[MemoryHolder, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, holder: MemoryHolder) -> None:
        self._known.setdefault(holder, 0)

    def remove(self, holder: MemoryHolder) -> None:
        """It is gone, with all that it held."""
        self.total_bytes -= self._known.pop(holder, 0)
        self._touched.pop(holder, None)

    def holders(self) -> list[MemoryHolder]:
        return list(self._known)

    def touch(self, holders: Iterable[MemoryHolder]) -> None:
        """They have grown, and are asked first."""
        for holder in holders:
            if holder in self._known:
                self._touched[holder] = None

    def look(self, arrived_bytes: int | None = None) -> list[MemoryHolder]:
        """Ask some holders again; return which. So much has come from clients since the last look; None: unknown."""
        looked: list[MemoryHolder] = []
        left = self._looks_max
        if arrived_bytes is not None:
            left = min(left, LOOKS_MIN + arrived_bytes // BYTES_PER_LOOK)
        while left > 0 and self._touched:
            left -= self._ask(self._touched.popitem(last=False)[0], looked)
        while left > 0 and len(looked) < len(self._known):
            left -= self._ask(next(iter(self._known)), looked)
        return looked

    def _ask(self, holder: MemoryHolder, looked: list[MemoryHolder]) -> int:
        now = holder.ram_bytes()
        self.total_bytes += now - self._known[holder]
        self._known[holder] = now
        self._known.move_to_end(holder)
        looked.append(holder)
        return holder.look_weight()

    def largest(self, count_max: int) -> list[MemoryHolder]:
        """Return those that held something, the largest first."""
        known = [(size, index, holder) for index, (holder, size) in enumerate(self._known.items()) if size > 0]
        known.sort(reverse=True)
        return [holder for _, _, holder in known[:count_max]]
