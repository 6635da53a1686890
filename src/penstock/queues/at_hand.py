"""Messages of a queue, reached for by number: what people do with a queue, past all consumers.

What it owns: the queue's arrival samples.

Life of the data: `take` makes ready messages pending, and the caller's, who settles each of them: `Queue.drop_taken`
when it is elsewhere or deleted, `bury` to have it moved on, `give_back` when it stays after all. `append` puts what was
edited at the tail.

Invariants
  1. Only ready messages are taken; what is with a consumer stays there.
  2. Nobody's counters change: neither deliveries nor acknowledgements are counted.

A crash leaves taken messages that were not settled ready, as all pending ones. It does not publish
elsewhere and does not know who asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.backing.backing_queue import NOT_DELIVERED
from penstock.backing.nothing_yet import NOTHING_YET
from penstock.backing.outcomes import PURGED, THE_QUEUE
from penstock.message import ConfirmToken, Envelope
from penstock.queues.arrivals import Arrivals
from penstock.queues.holding import Holding


class AtHand(Holding):
    """A queue whose messages can be reached by number."""

    # None before the first sample, and where numbers do not tell who came first.
    arrivals: Arrivals | None = None
    # What was published when the last sample was taken.
    _sampled_count: int = -1

    # --- taking -----------------------------------------------------------------------------------------

    def take(self, seq_ids: Sequence[int]) -> list[int]:
        """Take ready messages; the numbers of those that could be had, in the order given."""
        if self.deleted or self.crashed or not seq_ids:
            return []
        if self.selection is not None:
            taken = self.selection.take(seq_ids)
        else:
            taken = [seq_id for seq_id, _ in self.backing.fetch_at(seq_ids, THE_QUEUE)]
        # Another message may be at the head now, and may expire.
        self._arm()
        return taken

    def append(
        self, envelope: Envelope, body: bytes, confirm: ConfirmToken | None = None, delivered: int = NOT_DELIVERED
    ) -> int:
        """Put a message at the tail, past all gates; its seq_id, -1 when it was not kept or is not known yet."""
        if self.intake is not None:
            return self.intake.enter(envelope, [body], confirm, delivered)
        return self.enqueue(envelope, [body], confirm, envelope.expiration_ms, delivered)

    def purge_first(self, count: int) -> int:
        """Drop the first ready messages; how many there were."""
        purged = 0
        if self.selection is not None:
            purged = self.backing.ack(self.selection.take(self.selection.first_shelved(count)), PURGED)
        if self.selection is None or not self.selection.leaves_ready():
            while purged < count and self.backing.drop(False, PURGED) is not None:
                purged += 1
        self._expiry.forget_if_empty()
        return purged

    def pause(self) -> None:
        """Hand out nothing from now on."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.consumers.notify_available(self.ready_count())

    # --- when they came -----------------------------------------------------------------------------------

    def recovered(self) -> None:
        super().recovered()
        if "x-max-priority" not in self.arguments and self.backing is not NOTHING_YET:
            self.arrivals = Arrivals(self._next_seq_id())

    def sample_arrivals(self, now_ms: int) -> None:
        """Called about once a second."""
        if self._sampled_count == self.published_count or self.crashed or "x-max-priority" in self.arguments:
            return
        if self.backing is NOTHING_YET:
            return
        self._sampled_count = self.published_count
        if self.arrivals is None:
            self.arrivals = Arrivals()
        self.arrivals.sample(self._next_seq_id(), now_ms)

    def arrived_ms(self, seq_id: int) -> int:
        """When a message came, roughly; -1 when nobody knows."""
        if self.arrivals is None:
            # No tick since the queue was made: what is there came just now, unless numbers tell nothing.
            return -1 if "x-max-priority" in self.arguments else self.wall_ms()
        return self.arrivals.arrived_ms(seq_id, self.wall_ms())

    def _next_seq_id(self) -> int:
        return int(self.backing.status()["next_seq_id"])
