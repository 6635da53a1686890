"""Which keys were seen lately: the window of a queue that refuses duplicates.

Slots stand in the order in which their keys came, each with the time until which its key counts. The window lasts as a
companion queue, with one message for each slot in the same order. So slots leave at the head only, as messages leave a
queue, and each call that lets slots go says how many: the caller drops as many messages from the head of the companion.
After a restart the keys are added again from the companion queue. When very many keys expire at once they leave a few
at a time, with each key that comes, and in slices of what the caller asks for (`expire`).

How the two stay in step when keys have different times: a key whose time is over is not known any more, wherever its
slot is; but the slot stays until those before it have left. So a slot of a long time may keep short ones behind it,
and is the first to go when there are too many: the price for a window that is a queue.

Invariants
  1. There are at most `count_max` slots.
  2. Slots leave in the order in which they came. The sum of what `add`, `expire` and `forget` returned, and the slots
     that are there, make up all slots that were added.
  3. For each key in a slot, `_latest` has its latest slot, and nothing else. An earlier slot that leaves takes
     nothing with it.
  4. One `add` lets at most EXPIRED_PER_ADD slots go, besides those that make room.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

# More than one, so that a window that was full of expired keys gets small again.
EXPIRED_PER_ADD: Final = 4


@final
class Slot:
    """A key that was seen."""

    __slots__ = ("expiry_ms", "key")

    def __init__(self, key: bytes, expiry_ms: int) -> None:
        self.key = key
        # From then on the key is not known any more; -1: as long as the slot is there.
        self.expiry_ms = expiry_ms

    def is_over(self, now_ms: int) -> bool:
        return 0 <= self.expiry_ms <= now_ms


@final
class DedupWindow:
    def __init__(self, count_max: int) -> None:
        assert count_max >= 1
        self._count_max = count_max
        self._slots: deque[Slot] = deque()
        self._latest: dict[bytes, Slot] = {}

    def resize(self, count_max: int) -> None:
        """Have room for another number of slots. There must be no more of them now: `forget` some first."""
        assert len(self._slots) <= count_max >= 1
        self._count_max = count_max

    def __len__(self) -> int:
        """How many slots there are: messages in the companion queue."""
        return len(self._slots)

    def is_known(self, key: bytes, now_ms: int) -> bool:
        """Return whether the key was seen within the window. Changes nothing."""
        slot = self._latest.get(key)
        return slot is not None and not slot.is_over(now_ms)

    def add(self, key: bytes, now_ms: int, expiry_ms: int) -> int:
        """A key was seen, and counts until `expiry_ms` (-1: until it is pushed out); how many slots left.

        The caller appends the key to the companion queue first, and then drops so many from its head: when the time of
        the key is over already, its own slot may be among them.
        """
        slot = Slot(key, expiry_ms)
        self._slots.append(slot)
        self._latest[key] = slot
        expired = self.expire(now_ms, EXPIRED_PER_ADD)
        pushed_out = 0
        if len(self._slots) > self._count_max:
            pushed_out = self.forget(len(self._slots) - self._count_max)
            # The one that was pushed out may have kept some that are over.
            expired += self.expire(now_ms, EXPIRED_PER_ADD - expired)
        return expired + pushed_out

    def expire(self, now_ms: int, count_max: int) -> int:
        """Let slots at the head go whose time is over, so many at most; how many."""
        left = 0
        while left < count_max and self._slots and self._slots[0].is_over(now_ms):
            self._leave()
            left += 1
        return left

    def forget(self, count: int) -> int:
        """Let the oldest slots go, whatever their time; how many there were."""
        left = min(count, len(self._slots))
        for _ in range(left):
            self._leave()
        return left

    def _leave(self) -> None:
        slot = self._slots.popleft()
        if self._latest[slot.key] is slot:
            del self._latest[slot.key]

    def next_expiry_ms(self) -> int:
        """When `expire` has something to do; -1 when never, as things stand."""
        return self._slots[0].expiry_ms if self._slots else -1

    def check_invariants(self) -> None:
        assert len(self._slots) <= self._count_max, "1: too many slots"
        latest: dict[bytes, Slot] = {}
        for slot in self._slots:
            latest[slot.key] = slot
        assert latest.keys() == self._latest.keys(), "3: a key without a slot, or a slot without its key"
        for key, slot in latest.items():
            assert self._latest[key] is slot, "3: not the latest slot of a key"
