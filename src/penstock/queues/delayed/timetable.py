"""Which messages are due when: a million of them in a few bytes each.

Entries (due time, first seq_id, count) are sorted by due time and seq_id, in chunks of at most `chunk_max` entries. A
chunk is three flat arrays, 20 bytes per entry, and separators between the chunks lead to the right one by bisection. So
an addition or a removal is two bisections and a shift of some thousand bytes, and messages that follow each other and
are due together cost one entry. Removal is immediate, by due time and number: nothing stays behind that a later `add`
of the same number could wake.

Invariants
  1. Entries are sorted by (due, first seq_id), over all chunks; entries of one due time do not overlap.
  2. No chunk is empty, and none has more than `chunk_max` entries.
  3. Separator i is greater than all of chunk i, and not greater than the first entry of chunk i + 1.
  4. The length is the sum of all counts.

The caller sees to it that a number is not in it twice with different due times.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, final

# The latest due time that there is.
DUE_MS_MAX: Final = (1 << 63) - 1
# Messages of one entry.
RUN_MAX: Final = (1 << 32) - 1
# Entries per chunk, measured with a million random due times: smaller ones mean more separators, larger ones more bytes
# to shift.
CHUNK_MAX: Final = 512


@final
class Chunk:
    """Neighbouring entries, as columns."""

    __slots__ = ("counts", "dues", "firsts")

    def __init__(self, dues: array[int], firsts: array[int], counts: array[int]) -> None:
        self.dues = dues
        self.firsts = firsts
        self.counts = counts

    def split(self, index: int) -> Chunk:
        """Cut off what is from `index` on."""
        rear = Chunk(self.dues[index:], self.firsts[index:], self.counts[index:])
        self.delete(index, len(self.dues))
        return rear

    def insert(self, index: int, due_ms: int, first_seq_id: int, count: int) -> None:
        self.dues.insert(index, due_ms)
        self.firsts.insert(index, first_seq_id)
        self.counts.insert(index, count)

    def delete(self, start: int, stop: int) -> None:
        del self.dues[start:stop]
        del self.firsts[start:stop]
        del self.counts[start:stop]

    def absorb(self, rear: Chunk) -> None:
        """Append a chunk that follows this one."""
        # Copies: an array that only shrank and grew by single entries keeps the memory of its largest size.
        self.dues = self.dues + rear.dues
        self.firsts = self.firsts + rear.firsts
        self.counts = self.counts + rear.counts


@final
class Timetable:
    def __init__(self, chunk_max: int = CHUNK_MAX) -> None:
        assert chunk_max >= 4
        self._chunk_max = chunk_max
        self._chunks: list[Chunk] = []
        # Separator i stands between chunk i and chunk i + 1.
        self._separator_dues: array[int] = array("q")
        self._separator_firsts: array[int] = array("q")
        self._count = 0

    def __len__(self) -> int:
        """How many messages are in it."""
        return self._count

    # --- in -------------------------------------------------------------------------------------------

    def add(self, due_ms: int, first_seq_id: int, count: int) -> None:
        """Messages that follow each other are due together. None of them may be in it already."""
        assert 0 <= due_ms <= DUE_MS_MAX and first_seq_id >= 0 and 1 <= count <= RUN_MAX
        self._count += count
        if not self._chunks:
            self._chunks.append(Chunk(array("q", [due_ms]), array("q", [first_seq_id]), array("I", [count])))
            return
        number = self._chunk_number(due_ms, first_seq_id)
        chunk = self._chunks[number]
        index = position(chunk.dues, chunk.firsts, due_ms, first_seq_id)
        if index and chunk.dues[index - 1] == due_ms:
            before = chunk.counts[index - 1]
            if chunk.firsts[index - 1] + before == first_seq_id and before + count <= RUN_MAX:
                chunk.counts[index - 1] = before + count
                return
        if len(chunk.dues) >= self._chunk_max:
            # Due times that only grow fill each chunk; others find room in both halves.
            is_last = number + 1 == len(self._chunks) and index == self._chunk_max
            half = self._chunk_max - 1 if is_last else self._chunk_max // 2
            self._insert_chunk(number + 1, chunk.split(half))
            if index > half:
                chunk = self._chunks[number + 1]
                index -= half
        chunk.insert(index, due_ms, first_seq_id, count)

    def _chunk_number(self, due_ms: int, seq_id: int) -> int:
        """Return the chunk in which an entry that begins there is, or belongs."""
        return position(self._separator_dues, self._separator_firsts, due_ms, seq_id)

    def _insert_chunk(self, number: int, chunk: Chunk) -> None:
        self._chunks.insert(number, chunk)
        self._separator_dues.insert(number - 1, chunk.dues[0])
        self._separator_firsts.insert(number - 1, chunk.firsts[0])

    def _delete_chunk(self, number: int) -> None:
        del self._chunks[number]
        if self._chunks:
            # What was before the chunk and what was behind it are neighbours now; the first has nothing before it.
            separator = number - 1 if number else 0
            del self._separator_dues[separator]
            del self._separator_firsts[separator]

    # --- out ------------------------------------------------------------------------------------------

    def has(self, due_ms: int, seq_id: int) -> bool:
        """Return whether the message is in it, with this due time."""
        return self._find(due_ms, seq_id)[1] >= 0

    def remove(self, due_ms: int, seq_id: int) -> bool:
        """Take a message off; False when it is not in it with this due time."""
        number, index = self._find(due_ms, seq_id)
        if index < 0:
            return False
        self._count -= 1
        chunk = self._chunks[number]
        first = chunk.firsts[index]
        count = chunk.counts[index]
        if count == 1:
            chunk.delete(index, index + 1)
            self._tidy(number)
        elif seq_id == first:
            chunk.firsts[index] = first + 1
            chunk.counts[index] = count - 1
        else:
            chunk.counts[index] = seq_id - first
            rest = first + count - seq_id - 1
            if rest:
                self._count -= rest
                self.add(due_ms, seq_id + 1, rest)
        return True

    def _find(self, due_ms: int, seq_id: int) -> tuple[int, int]:
        """Chunk and index of the entry that has the message; the index is -1 when there is none."""
        if not self._chunks:
            return 0, -1
        number = self._chunk_number(due_ms, seq_id)
        chunk = self._chunks[number]
        index = position(chunk.dues, chunk.firsts, due_ms, seq_id) - 1
        if index < 0:
            # The separator in front is lower than the first entry that is left behind it.
            return number, -1
        if chunk.dues[index] != due_ms or seq_id >= chunk.firsts[index] + chunk.counts[index]:
            return number, -1
        return number, index

    def _tidy(self, number: int) -> None:
        """Entries were taken out of the middle: no empty chunks, and few small ones."""
        left = len(self._chunks[number].dues)
        if left == 0:
            self._delete_chunk(number)
        elif left <= self._chunk_max // 4 and not (number and self._merge(number - 1)):
            self._merge(number)

    def _merge(self, number: int) -> bool:
        """Make one of a chunk and the next, when that one has room for as many again."""
        if number + 1 == len(self._chunks):
            return False
        front = self._chunks[number]
        rear = self._chunks[number + 1]
        if len(front.dues) + len(rear.dues) > self._chunk_max // 2:
            return False
        front.absorb(rear)
        self._delete_chunk(number + 1)
        return True

    def next_due_ms(self) -> int:
        """Return the earliest due time; -1 when nothing waits."""
        return self._chunks[0].dues[0] if self._chunks else -1

    def pop_due(self, now_ms: int, count_max: int) -> list[int]:
        """Take off what is due, at most `count_max`; seq_ids in the order of (due, seq_id)."""
        popped: list[int] = []
        while self._chunks and len(popped) < count_max:
            chunk = self._chunks[0]
            dues = chunk.dues
            firsts = chunk.firsts
            counts = chunk.counts
            due = bisect_right(dues, now_ms)
            index = 0
            while index < due and len(popped) < count_max:
                first = firsts[index]
                count = counts[index]
                room = count_max - len(popped)
                if count > room:
                    popped.extend(range(first, first + room))
                    firsts[index] = first + room
                    counts[index] = count - room
                    break
                if count == 1:
                    popped.append(first)
                else:
                    popped.extend(range(first, first + count))
                index += 1
            if index < len(dues):
                chunk.delete(0, index)
                break
            self._delete_chunk(0)
        self._count -= len(popped)
        return popped

    def due(self, now_ms: int, count_max: int) -> list[int]:
        """Return what `pop_due` would take off; nothing is changed."""
        found: list[int] = []
        for chunk in self._chunks:
            stop = bisect_right(chunk.dues, now_ms)
            for index in range(stop):
                first = chunk.firsts[index]
                count = min(chunk.counts[index], count_max - len(found))
                if count == 1:
                    found.append(first)
                else:
                    found.extend(range(first, first + count))
                if len(found) == count_max:
                    return found
            if stop < len(chunk.dues):
                break
        return found

    def clear(self) -> None:
        self._chunks.clear()
        self._separator_dues = array("q")
        self._separator_firsts = array("q")
        self._count = 0

    # --- looking in -------------------------------------------------------------------------------------

    def upcoming(self, count_max: int, from_due_ms: int = 0, from_seq_id: int = 0) -> list[tuple[int, int]]:
        """(due, seq_id) of what comes next, from a position on, which need not exist; nothing is changed.

        The page after the last one begins at (due of its last, seq_id of its last + 1).
        """
        found: list[tuple[int, int]] = []
        if not self._chunks:
            return found
        number = self._chunk_number(from_due_ms, from_seq_id)
        chunk = self._chunks[number]
        # The entry before may reach over the position.
        index = max(0, position(chunk.dues, chunk.firsts, from_due_ms, from_seq_id) - 1)
        while len(found) < count_max:
            if index == len(chunk.dues):
                number += 1
                if number == len(self._chunks):
                    break
                chunk = self._chunks[number]
                index = 0
            due_ms = chunk.dues[index]
            first = chunk.firsts[index]
            stop = first + chunk.counts[index]
            if due_ms == from_due_ms:
                first = max(first, from_seq_id)
            if due_ms >= from_due_ms:
                stop = min(stop, first + count_max - len(found))
                found.extend([(due_ms, seq_id) for seq_id in range(first, stop)])
            index += 1
        return found

    def check_invariants(self) -> None:
        total = 0
        last_due = last_end = -1
        assert len(self._separator_dues) == len(self._separator_firsts) == max(0, len(self._chunks) - 1), "3: how many"
        for number, chunk in enumerate(self._chunks):
            assert 0 < len(chunk.dues) <= self._chunk_max, "2: a chunk that is empty, or too large"
            assert len(chunk.dues) == len(chunk.firsts) == len(chunk.counts), "2: columns that differ"
            if number:
                separator = (self._separator_dues[number - 1], self._separator_firsts[number - 1])
                assert (last_due, last_end - 1) < separator, "3: a separator that is too low"
                assert separator <= (chunk.dues[0], chunk.firsts[0]), "3: a separator that is too high"
            for index, due_ms in enumerate(chunk.dues):
                first = chunk.firsts[index]
                assert due_ms > last_due or (due_ms == last_due and first >= last_end), "1: not sorted, or overlapping"
                last_due = due_ms
                last_end = first + chunk.counts[index]
                total += chunk.counts[index]
        assert total == self._count, "4: the length"


def position(dues: array[int], firsts: array[int], due_ms: int, seq_id: int) -> int:
    """Behind all that begin at (due_ms, seq_id) or before it, in two sorted columns."""
    start = bisect_left(dues, due_ms)
    if start == len(dues) or dues[start] != due_ms:
        return start
    return bisect_right(firsts, seq_id, start, bisect_right(dues, due_ms, start))
