"""What was found out about segments that are complete, for all logs of this process.

To walk a segment costs a look at each of its headers, and a complete one never changes. Spark plans each query with a
new log, in a process that stays: with this the second query over a folder walks nothing but what is new.

A segment is known by the log's id, its number, and what the system says of its file, so that a file of another folder
or one that was replaced is another segment. Names are many where consumers live shortly, so they bound the memory; what
was walked first is given up.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from penstock.history.indexing import SegmentWalk

# Of queues and consumers. A walk without names counts as one that has some: its marks take room, too.
NAMES_MAX: Final = 200_000
NAMES_LEAST: Final = 100


class SegmentKey(NamedTuple):
    log_id: str
    number: int
    stamp: tuple[int, int, int]
    mark_bytes: int


class WalkedSegments:
    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._names = 0
        # The one that was walked first comes first.
        self._walks: dict[SegmentKey, SegmentWalk] = {}
        # Logs are used by several threads of a broker.
        self._lock = threading.Lock()

    def get(self, key: SegmentKey) -> SegmentWalk | None:
        return self._walks.get(key)

    def add(self, key: SegmentKey, walk: SegmentWalk) -> None:
        assert walk.is_complete
        with self._lock:
            self._drop(key)
            self._walks[key] = walk
            self._names += _weight(walk)
            while self._names > self._names_max and len(self._walks) > 1:
                self._drop(next(iter(self._walks)))

    def _drop(self, key: SegmentKey) -> None:
        walk = self._walks.pop(key, None)
        if walk is not None:
            self._names -= _weight(walk)


def _weight(walk: SegmentWalk) -> int:
    return NAMES_LEAST + walk.name_count


WALKED: Final = WalkedSegments()
