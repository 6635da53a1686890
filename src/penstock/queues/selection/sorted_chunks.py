"""Keys in order: a small sorted container, for seq_ids and for sort keys.

Keys can be compared with each other (all numbers, or all tuples of one shape) and stand in sorted chunks of at most
`chunk_max` keys. An addition, mostly at the end, and a removal, mostly at the front, are two bisections and a shift of
some thousand bytes.

Invariants
  1. Keys are sorted over all chunks, and no key is there twice.
  2. No chunk is empty, and none has more than `chunk_max` keys.
  3. `_lasts` has the last key of each chunk.
  4. The length is the number of keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, Final, final

# What is sorted: seq_ids in one place, tuples in another. All keys of one container are of one kind.
Key = Any

CHUNK_MAX: Final = 1024


@final
class SortedChunks:
    __slots__ = ("_chunk_max", "_chunks", "_count", "_lasts")

    def __init__(self, chunk_max: int = CHUNK_MAX) -> None:
        assert chunk_max >= 2
        self._chunk_max = chunk_max
        self._chunks: list[list[Key]] = []
        self._lasts: list[Key] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        number = bisect_left(self._lasts, key)
        if number == len(self._lasts):
            return False
        chunk = self._chunks[number]
        return bool(chunk[bisect_left(chunk, key)] == key)

    def add(self, key: Key) -> None:
        """Put a key in its place. One that is there already stays there once."""
        lasts = self._lasts
        if not lasts:
            self._chunks.append([key])
            lasts.append(key)
            self._count = 1
            return
        if key > lasts[-1]:
            number = len(lasts) - 1
            chunk = self._chunks[number]
            if len(chunk) >= self._chunk_max:
                # Keys that only grow leave full chunks behind them.
                self._chunks.append([key])
                lasts.append(key)
            else:
                chunk.append(key)
                lasts[number] = key
            self._count += 1
            return
        number = bisect_left(lasts, key)
        chunk = self._chunks[number]
        index = bisect_left(chunk, key)
        if chunk[index] == key:
            return
        chunk.insert(index, key)
        self._count += 1
        if len(chunk) > self._chunk_max:
            half = len(chunk) // 2
            self._chunks.insert(number, chunk[:half])
            lasts.insert(number, chunk[half - 1])
            del chunk[:half]

    def add_all(self, keys: list[Key]) -> None:
        """Put keys in their places; they are sorted, and mostly belong behind all others."""
        lasts = self._lasts
        if not keys or (lasts and keys[0] <= lasts[-1]):
            for key in keys:
                self.add(key)
            return
        self._count += len(keys)
        start = 0
        if lasts:
            chunk = self._chunks[-1]
            start = min(len(keys), self._chunk_max - len(chunk))
            chunk.extend(keys[:start])
            lasts[-1] = chunk[-1]
        for at in range(start, len(keys), self._chunk_max):
            self._chunks.append(keys[at : at + self._chunk_max])
            lasts.append(self._chunks[-1][-1])

    def remove(self, key: Key) -> bool:
        """Take a key out; False when it is not there."""
        lasts = self._lasts
        if lasts:
            # Mostly it is the first one.
            chunk = self._chunks[0]
            if chunk[0] == key and len(chunk) > 1:
                del chunk[0]
                self._count -= 1
                return True
        number = bisect_left(lasts, key)
        if number == len(lasts):
            return False
        chunk = self._chunks[number]
        index = bisect_left(chunk, key)
        if chunk[index] != key:
            return False
        self._count -= 1
        del chunk[index]
        if not chunk:
            del self._chunks[number]
            del lasts[number]
        elif index == len(chunk):
            lasts[number] = chunk[-1]
        return True

    def first(self) -> Key:
        """Return the lowest key; None when there is none."""
        return self._chunks[0][0] if self._chunks else None

    def last(self) -> Key:
        """Return the highest key; None when there is none."""
        return self._lasts[-1] if self._lasts else None

    def after(self, key: Key) -> Key:
        """Return the lowest key above this one, which need not be there; None when there is none."""
        number = bisect_right(self._lasts, key)
        if number == len(self._lasts):
            return None
        chunk = self._chunks[number]
        return chunk[bisect_right(chunk, key)]

    def listed(self) -> list[Key]:
        """Return all keys, in order."""
        return [key for chunk in self._chunks for key in chunk]

    def lowest(self, count: int) -> list[Key]:
        """Return the `count` smallest keys, in order."""
        found: list[Key] = []
        for chunk in self._chunks:
            if len(found) >= count:
                break
            found.extend(chunk[: count - len(found)])
        return found

    def listed_from(self, key: Key, count: int) -> list[Key]:
        """Return the `count` smallest keys that are >= `key`, in order. Runs in O(count + log n)."""
        found: list[Key] = []
        number = bisect_left(self._lasts, key)
        while number < len(self._chunks) and len(found) < count:
            chunk = self._chunks[number]
            start = 0 if found else bisect_left(chunk, key)
            found.extend(chunk[start : start + count - len(found)])
            number += 1
        return found

    def clear(self) -> None:
        self._chunks.clear()
        self._lasts.clear()
        self._count = 0

    def check_invariants(self) -> None:
        keys = self.listed()
        for index in range(1, len(keys)):
            assert keys[index - 1] < keys[index], "1: not sorted, or a key is there twice"
        assert all([0 < len(chunk) <= self._chunk_max for chunk in self._chunks]), "2: an empty or too large chunk"
        assert [chunk[-1] for chunk in self._chunks] == self._lasts, "3: the last keys"
        assert len(keys) == self._count, "4: the length"
