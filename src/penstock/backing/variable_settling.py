"""Settling in a variable queue: what becomes of messages that were handed out, and of all of them at once.

What it owns: nothing more than `variable_books`.

Life of the data: an ack makes pending messages gone; a requeue puts them back where their seq_ids belong (`put_back`),
with one more delivery counted. A purge makes gone what is ready. What the queue has taken, gives to consumers and gets
back is written down, and changes nothing.

Invariants
  1. Those of `variable_books`.
  2. A message that came back says redelivered when it is fetched again.
  3. An OSError leaves all of this true. Only ackfold and purge raise one: a purge has then removed nothing. Requeue
     keeps in RAM what cannot be written, and keeps what cannot be read as it is.
  4. An outcome changes the row's kind and nothing else.

Crash: an ack, a purge or a requeue whose row was not synced is undone; what comes back is marked redelivered. It does
not know who has the messages: it writes the numbers that it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.backing import zone_views
from penstock.backing.backing_queue import EntryVisitor
from penstock.backing.outcomes import ACKED, NO_ACTOR, REASON_NONE, THE_QUEUE
from penstock.backing.put_back import put_back
from penstock.backing.variable_fetching import VariableFetching
from penstock.journal import rows
from penstock.journal.journal import ROW_COUNT_MAX

# With more runs than this a purge is one row, if its numbers are no further apart than that.
PURGED_RUNS_MAX: Final = 1024
PURGED_SPAN_MAX: Final = 1 << 24
# As many as a row can count.
PURGED_ROW_MAX: Final = ROW_COUNT_MAX


class VariableSettling(VariableFetching):
    """A queue in which messages can be settled."""

    # --- what is pending ---------------------------------------------------------------------------

    def ack(
        self, seq_ids: Sequence[int], outcome: int = ACKED, reason: int = REASON_NONE, actor: int = NO_ACTOR
    ) -> int:
        acked = self._settle(self.pending.remove(seq_ids), outcome, reason, actor)
        self.rates.ack_outs += acked
        return acked

    def requeue(self, seq_ids: Sequence[int], failed: bool = True) -> int:
        runs = self.pending.take_back(seq_ids)
        requeued = 0
        actor = NO_ACTOR if failed else THE_QUEUE
        for status in runs:
            requeued += status.count
            self._count_returned(range(status.seq_id, status.seq_id + status.count), 1 if failed else 0)
            if status.is_persistent:
                self._journal.settle(
                    rows.REQUEUED, self.queue_no, status.seq_id, status.count, status.size_bytes, actor
                )
        put_back(self.zones, runs)
        self.rates.ack_outs += requeued
        if self.paging.is_over():
            self.paging.reduce(2 * requeued + 64)
        return requeued

    def _count_returned(self, seq_ids: range, times: int) -> None:
        counts = self.tail.delivery_counts
        for seq_id in seq_ids:
            counts[seq_id] = counts.get(seq_id, 0) + times

    def delivery_count(self, seq_id: int) -> int:
        return self.tail.delivery_counts.get(seq_id, 0)

    def set_delivery_count(self, seq_id: int, count: int) -> None:
        if seq_id in self.pending:
            self.tail.delivery_counts[seq_id] = count

    def returned_over(self, count: int) -> list[int]:
        return sorted([seq_id for seq_id, times in self.tail.delivery_counts.items() if times > count])

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        below = self.tail.doubtful_below
        known = self.tail.doubtful
        if not below and not known:
            return []
        return [seq_id for seq_id in seq_ids if seq_id < below or seq_id in known]

    def doubt(self, seq_ids: Sequence[int]) -> None:
        counts = self.tail.delivery_counts
        for seq_id in seq_ids:
            counts.setdefault(seq_id, 0)
            self.tail.doubtful[seq_id] = None

    def ackfold(self, visit: EntryVisitor, seq_ids: Sequence[int]) -> None:
        # Neighbours are read together: one read for all of them, and one envelope where they share it.
        for run in self.pending.parts(seq_ids if isinstance(seq_ids, range) else list(dict.fromkeys(seq_ids))):
            seq_id = run.seq_id
            for entry in zone_views.bodies_of(self.zones, run):
                if entry is not None:
                    visit(seq_id, entry)
                seq_id += 1

    def purge_acks(self) -> int:
        self.aside.clear()
        return self._settle(self.pending.remove(self.pending.seq_ids()), rows.DROPPED)

    # --- who has what ------------------------------------------------------------------------------

    def name_actor(self, text: bytes) -> int:
        return self._journal.names.name_actor(text) if self.durable else NO_ACTOR

    def forget_actor(self, actor: int) -> None:
        self._journal.names.forget_actor(actor)

    def note_given(self, seq_ids: Sequence[int], actor: int) -> None:
        self._note(rows.GIVEN, seq_ids, actor)

    def note_returned(self, seq_ids: Sequence[int]) -> None:
        for run in self.pending.parts(seq_ids):
            self._count_returned(range(run.seq_id, run.seq_id + run.count), 1)
        self._note(rows.RETURNED, seq_ids, NO_ACTOR)

    def _note(self, kind: int, seq_ids: Sequence[int], actor: int) -> None:
        """A row for history. The messages stay where they are."""
        if self.durable:
            for run in self.pending.parts(seq_ids):
                if run.is_persistent:
                    self._journal.settle(kind, self.queue_no, run.seq_id, run.count, run.size_bytes, actor)

    # --- what is ready -----------------------------------------------------------------------------

    def purge(self) -> int:
        purged = len(self) + self.aside.count
        if purged == 0:
            return 0
        strays = self.zones.strays
        if self.pending.count == 0:
            self._release_ready()
            strays.remove(strays.seq_ids())
            low = self.live.low
            length = self.tail.next_seq_id - low
            if self.tail.persistent_count > 0:
                self._note_purged(low, length)
            self.tail.persistent_count = self.tail.persistent_bytes = 0
            self.zones.clear()
            self.live.remove(low, length)
            self.tail.forget_counts()
            self.sweep()
            return purged
        ready = [*zone_views.runs_in_ram(self.zones), *zone_views.delta_runs(self.zones)]
        for status in [*ready, *strays.take_back(strays.seq_ids())]:
            self._gone(status, rows.PURGED)
        self.zones.clear()
        # What the delta did not show: damaged slots, and transient messages of an earlier life.
        for first, count in self.live.live_runs(self.live.low, self.tail.next_seq_id):
            for seq_id in range(first, first + count):
                if seq_id not in self.pending:
                    self.live.remove(seq_id, 1)
                    self.zones.recount_due = True
        # These were ready, until they could not be read.
        self._settle(self.pending.remove(self.aside.take()), rows.PURGED)
        return purged

    def _note_purged(self, low: int, length: int) -> None:
        """Write that everything is gone: a row for each run of messages, or one for all when there are very many.

        A row counts its messages in 31 bits. What is left of a queue may lie further apart than that, or be more.
        """
        runs = self.live.live_runs(low, low + length)
        if len(runs) > PURGED_RUNS_MAX and length <= PURGED_SPAN_MAX:
            runs = [(low, length)]
        size = self.tail.persistent_bytes
        for first, count in runs:
            end = first + count
            while first < end:
                part = min(end - first, PURGED_ROW_MAX)
                self._journal.settle(rows.PURGED, self.queue_no, first, part, size)
                first += part
                # The bytes of all stand in the first row.
                size = 0
