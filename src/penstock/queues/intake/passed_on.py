"""A message that a full queue refused and passes on as a dead letter, without ever having held it.

When the message came from another queue of this broker, that queue keeps it until the dead letter is safe: its token is
settled then, or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from penstock.backing.backing_queue import DOUBTFUL
from penstock.message import ConfirmToken
from penstock.queues.leaving.dead_letters import NOWHERE, Dead, DeadLetters, DeadLetterSource

if TYPE_CHECKING:
    from penstock.queues.queue import Queue


@final
class PassedOn(DeadLetterSource):
    """Stands for the queue, for one message that has no number there."""

    def __init__(self, queue: Queue, token: ConfirmToken | None, delivered: int) -> None:
        """`token`: of a move; None when no queue waits."""
        self._queue = queue
        self._token = token
        self._delivered = delivered

    @property
    def name(self) -> str:
        return self._queue.name

    def handed_over(self, seq_ids: Sequence[int], outcome: int, reason: str) -> None:
        if self._token is not None:
            self._token.settle()

    def refused(
        self,
        dead: Sequence[Dead],
        reason: str,
        carrier: DeadLetters,
        has_it: frozenset[str] = NOWHERE,
        rests_ms: int = 0,
    ) -> None:
        if self._token is not None:
            # It cannot wait here: what finds no exchange, or no room, is dropped, as it is when a client publishes it.
            # Its source does not mind, or it would not have moved it here (`Gate.has_room`). A target that is away, or
            # too much on its way, is no such reason.
            if rests_ms:
                self._token.refuse()
            else:
                self._token.settle()

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        return list(seq_ids) if self._delivered == DOUBTFUL else []
