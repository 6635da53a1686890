"""A message that is copied: it stays where it is, whatever becomes of the copy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from penstock.queues.leaving.dead_letters import NOWHERE, Dead, DeadLetters, DeadLetterSource
from penstock.queues.queue import Queue

log: Final = logging.getLogger("penstock.queue")


class Original(DeadLetterSource):
    """The queue that copies are made from."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def name(self) -> str:
        return self._queue.name

    def handed_over(self, seq_ids: Sequence[int], outcome: int, reason: str) -> None:
        """The copies are there."""

    def refused(
        self,
        dead: Sequence[Dead],
        reason: str,
        carrier: DeadLetters,
        has_it: frozenset[str] = NOWHERE,
        rests_ms: int = 0,
    ) -> None:
        log.warning(
            "%d messages of %s could not be copied; copy them again: %s",
            len(dead),
            ascii(self._queue.describe()),
            ", ".join([str(seq_id) for seq_id, _ in dead[:10]]),
        )
