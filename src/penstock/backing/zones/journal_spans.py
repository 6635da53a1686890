"""In which journal segments a queue's messages lie.

Messages of a queue are journaled in the order of their seq_ids. So one number per segment is enough: the first seq_id
that can be in it. A span goes when everything before the next one is gone or has moved out of the journal.

Invariants
  1. Seq_ids and segments both grow from span to span.
  2. A message at or behind the start of a span, whose body is in the journal, is in the span's segment or a later one.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import final


@final
class JournalSpans:
    def __init__(self) -> None:
        self._seq_ids: list[int] = []
        self._segments: list[int] = []

    def note(self, seq_id: int, segment: int) -> None:
        """From this message on they are in this segment, or in later ones."""
        if not self._segments or segment > self._segments[-1]:
            self._seq_ids.append(seq_id)
            self._segments.append(segment)

    def oldest_from(self, seq_id: int) -> int:
        """Return the oldest segment that messages from `seq_id` on can be in, -1 for none. Older ones are forgotten."""
        index = bisect_right(self._seq_ids, seq_id) - 1
        if index > 0:
            del self._seq_ids[:index]
            del self._segments[:index]
        return self._segments[0] if self._segments else -1

    def narrow(self, seq_id: int, segment: int) -> None:
        """This message was found in this segment, so those behind it are there or in later ones."""
        index = bisect_right(self._seq_ids, seq_id)
        if index == 0 or self._segments[index - 1] >= segment:
            return
        if self._seq_ids[index - 1] == seq_id:
            index -= 1
            del self._seq_ids[index]
            del self._segments[index]
        if index < len(self._segments) and self._segments[index] <= segment:
            self._seq_ids[index] = seq_id
        else:
            self._seq_ids.insert(index, seq_id)
            self._segments.insert(index, segment)

    def end_of(self, segment: int, next_seq_id: int) -> int:
        """Return the first seq_id that is in none of the segments up to this one."""
        index = bisect_right(self._segments, segment)
        return self._seq_ids[index] if index < len(self._seq_ids) else next_seq_id
