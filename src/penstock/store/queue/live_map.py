"""Which messages of a queue still matter: a low mark, and bit masks for what went out of order.

`low` is the number below which everything is gone. For each index segment in which messages went before those in front
of them there is an int whose bit i says that seq_id `segment * slots + i` is gone. A queue that is consumed in order
has no masks at all; the worst case is one bit per waiting message. A publish costs nothing: everything from `low` on is
live until it is removed. The masks are copied into each checkpoint, and replay brings them up to date.

Invariants
  1. Everything below `low` is gone, and `low` itself is not marked as gone.
  2. A mask has at least one bit, and none for a seq_id below `low`.
  3. Removing what is gone already changes nothing.
"""

from __future__ import annotations

from typing import final


@final
class LiveMap:
    __slots__ = ("_full", "_masks", "low", "slots")

    def __init__(self, slots: int, low: int = 0) -> None:
        # Seq_ids per index segment.
        self.slots = slots
        self.low = low
        self._masks: dict[int, int] = {}
        # The mask of a segment that is gone completely.
        self._full = (1 << slots) - 1

    def remove(self, seq_id: int, count: int) -> None:
        """Mark messages as gone."""
        end = seq_id + count
        low = self.low
        if seq_id <= low:
            if end > low:
                self.low = end
                if self._masks:
                    self._skip_gone(low)
            return
        slots = self.slots
        masks = self._masks
        while seq_id < end:
            segment = seq_id // slots
            offset = seq_id - segment * slots
            length = min(end - seq_id, slots - offset)
            masks[segment] = masks.get(segment, 0) | (((1 << length) - 1) << offset)
            seq_id += length

    def remove_all(self, other: LiveMap) -> None:
        """What is gone there is gone here."""
        assert self.slots == other.slots
        self.remove(self.low, other.low - self.low)
        for segment, mask in other._masks.items():
            drop = max(0, self.low - segment * self.slots)
            mask = mask >> drop << drop
            if mask:
                self._masks[segment] = self._masks.get(segment, 0) | mask
        if self._masks:
            self._skip_gone(self.low)

    def _skip_gone(self, before: int) -> None:
        """`low` has moved: forget the masks below it, and move on over what went earlier."""
        slots = self.slots
        masks = self._masks
        for segment in range(before // slots, self.low // slots):
            masks.pop(segment, None)
        while True:
            segment = self.low // slots
            mask = masks.get(segment)
            if mask is None:
                return
            offset = self.low - segment * slots
            rest = mask >> offset
            # Trailing ones.
            gone = (rest ^ (rest + 1)).bit_length() - 1
            self.low += gone
            if offset + gone < slots:
                rest >>= gone
                if rest:
                    masks[segment] = rest << (offset + gone)
                else:
                    del masks[segment]
                return
            del masks[segment]

    def is_live(self, seq_id: int) -> bool:
        """Return whether the message is not gone; whether it was published at all is not known here."""
        if seq_id < self.low:
            return False
        segment = seq_id // self.slots
        mask = self._masks.get(segment)
        return mask is None or not mask >> (seq_id - segment * self.slots) & 1

    def live_runs(self, start: int, end: int) -> list[tuple[int, int]]:
        """(seq_id, count) of what is live in start..end-1, in order."""
        runs: list[tuple[int, int]] = []
        seq_id = max(start, self.low)
        while seq_id < end:
            segment = seq_id // self.slots
            stop = min(end, (segment + 1) * self.slots)
            mask = self._masks.get(segment, 0)
            if mask == 0:
                _append(runs, seq_id, stop - seq_id)
            else:
                self._runs_of(runs, mask, segment * self.slots, seq_id, stop)
            seq_id = stop
        return runs

    def edges_near(self, start: int, end: int) -> int:
        """Return about how often live and gone numbers take turns within start..end-1. Costs little: it counts bits."""
        found = 0
        for segment in range(start // self.slots, (end - 1) // self.slots + 1):
            mask = self._masks.get(segment, 0)
            if mask:
                base = segment * self.slots
                mask = mask >> max(0, start - base) & ((1 << min(end - base, self.slots) - max(0, start - base)) - 1)
                found += (mask ^ mask >> 1).bit_count()
        return found

    def first_run(self, start: int, end: int) -> tuple[int, int]:
        """The first live numbers of start..end-1 that follow each other: from, and up to; (end, end) without any."""
        start = max(start, self.low)
        while start < end:
            segment = start // self.slots
            stop = min(end, (segment + 1) * self.slots)
            rest = self._masks.get(segment, 0) >> (start - segment * self.slots)
            # Trailing ones are gone, then trailing zeros are live.
            gone = (rest ^ (rest + 1)).bit_length() - 1
            start += gone
            if start < stop:
                rest >>= gone
                live = (rest & -rest).bit_length() - 1 if rest else stop - start
                return start, min(start + live, stop)
            start = stop
        return end, end

    def _runs_of(self, runs: list[tuple[int, int]], mask: int, base: int, seq_id: int, stop: int) -> None:
        rest = mask >> (seq_id - base)
        while seq_id < stop:
            # Trailing zeros are live, trailing ones are gone.
            live = (rest & -rest).bit_length() - 1 if rest else stop - seq_id
            live = min(live, stop - seq_id)
            if live:
                _append(runs, seq_id, live)
                seq_id += live
                rest >>= live
            gone = (rest ^ (rest + 1)).bit_length() - 1
            seq_id += gone
            rest >>= gone

    def count(self, next_seq_id: int) -> int:
        if next_seq_id <= self.low:
            return 0
        return next_seq_id - self.low - sum([mask.bit_count() for mask in self._masks.values()])

    def segment_is_gone(self, segment: int) -> bool:
        """No message of the segment is live, nor ever will be."""
        return (segment + 1) * self.slots <= self.low or self._masks.get(segment) == self._full

    def masks(self) -> dict[int, int]:
        """Return the masks, as a copy that does not change."""
        return dict(self._masks)

    def copy(self) -> LiveMap:
        twin = LiveMap(self.slots, self.low)
        twin._masks = dict(self._masks)
        return twin

    def take_over(self, other: LiveMap) -> None:
        """Take over the contents of another map."""
        assert self.slots == other.slots
        self.low = other.low
        self._masks = dict(other._masks)

    def set_mask(self, segment: int, mask: int) -> None:
        """Put back what `masks` gave; bits below `low` and beyond the segment are left out."""
        base = segment * self.slots
        mask &= self._full
        if base < self.low:
            drop = self.low - base
            mask = mask >> drop << drop
        if mask:
            self._masks[segment] = mask

    def check_invariants(self) -> None:
        assert self.is_live(self.low), "1: the low mark is gone itself"
        for segment, mask in self._masks.items():
            base = segment * self.slots
            assert mask, "2: an empty mask"
            assert mask <= self._full, "2: a bit beyond the segment"
            assert base >= self.low or not mask & ((1 << max(0, self.low - base)) - 1), "2: a bit below the low mark"


def _append(runs: list[tuple[int, int]], seq_id: int, count: int) -> None:
    """Append a run, joined with the one before if they touch."""
    if runs:
        first, length = runs[-1]
        if first + length == seq_id:
            runs[-1] = (first, length + count)
            return
    runs.append((seq_id, count))
