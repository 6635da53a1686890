"""A queue as its features see it: what selections, intakes and those who carry the dead away may ask of it.

Owns: nothing but the way to its queue. It is made with the queue and lives as long.

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
from penstock.queues.dead_letters import Dead, reason_number
from penstock.queues.intake import Enqueuing

if TYPE_CHECKING:
    from penstock.queues.holding import Holding


@final
class QueueHost(Enqueuing):
    """One queue."""

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
        self.queue.forget(seq_ids, outcome, reason_number(reason))

    def unburied(self, dead: Sequence[Dead], reason: str) -> None:
        if not self.queue.deleted:
            self.queue.bury_again.keep([seq_id for seq_id, _ in dead if seq_id >= 0], reason)

    def enqueue(
        self,
        envelope: Envelope,
        bodies: Sequence[bytes],
        confirm: ConfirmToken | None,
        expiration_ms: int,
        delivered: bool,
    ) -> int:
        return self.queue.enqueue(envelope, bodies, confirm, expiration_ms, delivered)
