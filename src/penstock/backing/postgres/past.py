"""How often messages that this node has reserved in PostgreSQL were delivered before.

The row counts reservations, this node counts what came back since it has the row. A message that was reserved before
may have been on its way to another queue when its node ended: it is doubtful.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final


@final
class PgPast:
    """Of the messages of one queue that this node holds. Most of them have no past, and no entry here."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._doubtful: set[int] = set()

    def reserved(self, seq_id: int, deliveries: int) -> None:
        """The row came; `deliveries` includes this reservation."""
        if deliveries > 1:
            self._counts[seq_id] = deliveries - 1
            self._doubtful.add(seq_id)

    def returned(self, seq_ids: Sequence[int]) -> None:
        for seq_id in seq_ids:
            self._counts[seq_id] = self._counts.get(seq_id, 0) + 1

    def forget(self, seq_ids: Sequence[int]) -> None:
        """They are gone, or the database has them again."""
        if self._counts or self._doubtful:
            for seq_id in seq_ids:
                self._counts.pop(seq_id, None)
                self._doubtful.discard(seq_id)

    def clear(self) -> None:
        self._counts.clear()
        self._doubtful.clear()

    def count(self, seq_id: int) -> int:
        return self._counts.get(seq_id, 0)

    def set_count(self, seq_id: int, count: int) -> None:
        self._counts[seq_id] = count

    def doubt(self, seq_ids: Sequence[int]) -> None:
        self._doubtful.update(seq_ids)

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        return [seq_id for seq_id in seq_ids if seq_id in self._doubtful] if self._doubtful else []
