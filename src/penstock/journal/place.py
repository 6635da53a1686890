"""Where a batch of the journal is: one object per batch, shared by everything that was gathered into it.

So one assignment tells all of it where it can be read. A queue position is a place and the index of an entry in it.

Invariants
  1. `segment` is -1 until the bytes were written; until then the batch cannot be read, and RAM holds its messages.
  2. A place is filled in at most once. That of a batch that could not be written stays -1 for ever.
"""

from __future__ import annotations

from typing import final


@final
class BatchPlace:
    __slots__ = ("pos", "segment")

    def __init__(self, segment: int = -1, pos: int = -1) -> None:
        self.segment = segment
        # Byte offset in the segment.
        self.pos = pos
