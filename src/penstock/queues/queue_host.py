"""A queue as its features see it: what selections, intakes and those who carry the dead away may ask of it.

Owns: the way to its queue, and which targets have messages of it that other targets did not take yet. It is made with
the queue and lives as long.

Life of the data: none of its own. Calls pass through.

Invariants
  1. Whatever a feature does to a queue goes through here or through the seams' own calls; features do not hold the
     backing of another queue.
  2. A deleted or crashed queue takes nothing: `enqueue` refuses, everything else does nothing.

A crash leaves nothing of it. It does not decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from penstock.message import ConfirmToken, Envelope
from penstock.queues.dead_letters import NOWHERE, Dead, DeadLetters, reason_number
from penstock.queues.intake import Enqueuing

if TYPE_CHECKING:
    from penstock.queues.holding import Holding


@final
class QueueHost(Enqueuing):
    """One queue."""

    # Messages that some of their targets have, and others did not take yet; ids of those that have them.
    _already_at: dict[int, frozenset[str]] | None = None

    def __init__(self, queue: Holding) -> None:
        self.queue = queue

    @property
    def name(self) -> str:
        return self.queue.name

    def bury(self, seq_ids: Sequence[int], reason: str) -> None:
        self.queue.bury(seq_ids, reason)

    def became_available(self, count: int) -> None:
        self.queue.consumers.notify_available(count)

    def wall_ms(self) -> int:
        return self.queue.wall_ms()

    def buried(self, seq_ids: Sequence[int], outcome: int, reason: str) -> None:
        self._forget_targets(seq_ids)
        self.queue.forget(seq_ids, outcome, reason_number(reason))

    def unburied(
        self,
        dead: Sequence[Dead],
        reason: str,
        carrier: DeadLetters,
        has_it: frozenset[str] = NOWHERE,
        rests_ms: int = 0,
    ) -> None:
        seq_ids = [seq_id for seq_id, _ in dead]
        if has_it:
            known = self._already_at = self._already_at or {}
            for seq_id in seq_ids:
                known[seq_id] = self.already_at(seq_id) | has_it
        self.queue.keep_dead(seq_ids, reason, carrier, rests_ms)

    def give_back(self, seq_ids: Sequence[int]) -> None:
        self._forget_targets(seq_ids)
        self.queue.give_back(seq_ids)

    def offer_again(self) -> None:
        if not self.queue.deleted:
            self.queue.bury_again.soon()

    def is_remote(self) -> bool:
        return self.queue.backing.IS_REMOTE

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        return self.queue.backing.doubtful(seq_ids)

    def doubt(self, seq_ids: Sequence[int]) -> None:
        self.queue.backing.doubt(seq_ids)

    def already_at(self, seq_id: int) -> frozenset[str]:
        return self._already_at.get(seq_id, NOWHERE) if self._already_at else NOWHERE

    def _forget_targets(self, seq_ids: Sequence[int]) -> None:
        if self._already_at:
            for seq_id in seq_ids:
                self._already_at.pop(seq_id, None)

    def enqueue(
        self,
        envelope: Envelope,
        bodies: Sequence[bytes],
        confirm: ConfirmToken | None,
        expiration_ms: int,
        delivered: int,
    ) -> int:
        return self.queue.enqueue(envelope, bodies, confirm, expiration_ms, delivered)
