"""The books of a variable queue: its parts, how much it holds, and writing down what is gone.

What it owns: the ready messages (`zones`, entered through `tail`), the pending ones (`pending_acks`), the map of what
is not gone, and the confirms that it owes. The verbs are in the classes behind this one: `variable_fetching`,
`variable_settling`, `variable`.

Life of the data: a message is in the books from its publish on. When it is gone, however that came, `_settle` takes it
out of the map and writes the journal's row, with the outcome that it was given. Files in which nothing is left are
given up.

Invariants
  1. Those of `zones`, `pending_acks` and `live_map`.
  2. Ready and pending messages are live; what is gone is neither.
  3. A persistent message of a durable queue has one row that says that it is gone.
  4. A file goes when nothing in it is live; that of a durable queue not before a checkpoint has said so.

Crash: what was gone may be back, as far as its row was not synced. It neither takes nor gives messages, and does not
page.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.backing import zone_views
from penstock.backing.backing_queue import AsyncCallback, BackingQueue
from penstock.backing.homes import Homes
from penstock.backing.msg_status import MsgStatus
from penstock.backing.outcomes import NO_ACTOR, REASON_NONE
from penstock.backing.owed_confirms import OwedConfirms
from penstock.backing.paging import Paging, PagingOptions
from penstock.backing.pending_acks import PendingAcks, Settled
from penstock.backing.rates import Rates
from penstock.backing.set_aside import SetAside
from penstock.backing.tail import Tail
from penstock.backing.zones import Zones
from penstock.clock import Clock
from penstock.journal import rows
from penstock.store.live_map import LiveMap

log: Final = logging.getLogger("penstock.store")


class VariableBooks(BackingQueue):
    """What one queue holds, and where that is noted."""

    KIND = "variable"

    def __init__(
        self, homes: Homes, queue_no: int, clock: Clock, options: PagingOptions, callback: AsyncCallback
    ) -> None:
        """`queue_no` is the queue's number in the journal, -1 for a queue that is not durable."""
        self.queue_no = queue_no
        self.durable = homes.is_durable = queue_no >= 0
        self.homes = homes
        self.live = LiveMap(homes.slots)
        self.pending = PendingAcks(homes)
        self.zones = Zones(
            homes,
            self.live,
            self.pending,
            self._lost,
            self._unreadable,
            options.read_ahead_count,
            options.read_ahead_bytes,
        )
        self.tail = Tail(homes, self.zones, queue_no)
        self.rates = Rates(clock)
        self.paging = Paging(options, self.rates, self.zones, self.pending)
        # Messages that could not be read any more.
        self.lost_count = 0
        # Those that cannot be read now.
        self.aside = SetAside(clock)
        # Messages that have become ready by themselves, and that nobody was told of.
        self._arrived_count = 0
        self._callback = callback
        self._journal = homes.journal
        self._owed = OwedConfirms(homes.journal, self.KIND, callback)
        # Index segments below were looked at, and their files removed when nothing was left.
        self._swept_segment = 0
        if self.durable:
            homes.open_shared()

    # --- how much there is -------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.zones.ready_count + self.zones.strays.count

    def is_empty(self) -> bool:
        return self.zones.ready_count == 0 and self.zones.strays.count == 0

    def depth(self) -> int:
        return len(self) + self.pending.count

    def ready_bytes(self) -> int:
        self.recount()
        return self.zones.ready_bytes + self.zones.strays.size_bytes

    def recount(self) -> None:
        """After slots were damaged, once there is no delta: count what there is."""
        zones = self.zones
        if not zones.recount_due or zones.delta_count:
            return
        zones.recount_due = False
        ready = zone_views.runs_in_ram(zones)
        zones.ready_bytes = sum([status.size_bytes for status in ready])
        kept = [status for status in ready if status.is_persistent]
        kept.extend([*self.pending.persistent_runs(), *zones.strays.persistent_runs()])
        self.tail.persistent_count = sum([status.count for status in kept])
        self.tail.persistent_bytes = sum([status.size_bytes for status in kept])

    def pending_bytes(self) -> int:
        return self.pending.size_bytes

    # --- what is gone ------------------------------------------------------------------------------

    def _gone(self, status: MsgStatus, kind: int, reason: int = REASON_NONE, actor: int = NO_ACTOR) -> None:
        """A run that was ready does not exist any more."""
        self.homes.release(status, 0, status.count)
        self._settle([(status.seq_id, status.count, status.size_bytes, status.is_persistent)], kind, reason, actor)

    def _settle(self, settled: list[Settled], kind: int, reason: int = REASON_NONE, actor: int = NO_ACTOR) -> int:
        """Messages are gone: write it down. Returns how many."""
        total = 0
        tail = self.tail
        for first, count, size, persistent in settled:
            total += count
            self.live.remove(first, count)
            if persistent:
                self._journal.settle(kind, self.queue_no, first, count, size, actor, reason)
                tail.persistent_count -= count
                tail.persistent_bytes -= size
            if tail.delivery_counts:
                for seq_id in range(first, first + count):
                    tail.delivery_counts.pop(seq_id, None)
                    tail.doubtful.pop(seq_id, None)
        if self.homes.index_segments or self.homes.store_segments:
            self.sweep()
            self._sweep_between(settled)
        return total

    def sweep(self) -> None:
        """Give up the files of stretches in which nothing is left. A checkpoint has to say so before they go."""
        segment = self.live.low // self.live.slots
        if segment > self._swept_segment:
            self._swept_segment = segment
            for number in {*self.homes.index_segments, *self.homes.store_segments}:
                if self.live.segment_is_gone(number):
                    self.homes.doom_segment(number)
            if not self.durable:
                self.homes.delete_segments(self.homes.doomed())

    def _sweep_between(self, settled: list[Settled]) -> None:
        """The same for stretches that are gone before those in front of them."""
        low = self.live.low
        slots = self.live.slots
        homes = self.homes
        for first, count, _, _ in settled:
            if first + count <= low:
                continue
            for number in range(first // slots, (first + count - 1) // slots + 1):
                if self.live.segment_is_gone(number) and (
                    number in homes.index_segments or number in homes.store_segments
                ):
                    homes.doom_segment(number)
                    if not self.durable:
                        homes.delete_segments(homes.doomed())

    def _lost(self, status: MsgStatus) -> None:
        """Messages are damaged on disk: they are named, and taken out of the books."""
        self.lost_count += status.count
        persistent = self.durable and status.is_persistent
        log.error(
            "%d messages from seq_id %d on in %s are lost: their bytes on disk are damaged",
            status.count,
            status.seq_id,
            self.homes.folder,
        )
        self.homes.release(status, 0, status.count)
        self._settle([(status.seq_id, status.count, status.size_bytes, persistent)], rows.LOST)

    def _unreadable(self, status: MsgStatus, error: OSError) -> None:
        """Messages that were ready cannot be read now: they are pending, without a consumer, until the next try."""
        self.aside.add(status, self.homes.folder, error)
        self.pending.record(status, None)

    def drain_arrived(self) -> int:
        count, self._arrived_count = self._arrived_count, 0
        return count

    def _release_ready(self) -> None:
        """Give back the references to the shared stores of what is ready."""
        ready = zone_views.runs_in_ram(self.zones)
        if any(list(self.homes.index_segments.values())):
            # Read before anything is given back: an error leaves everything as it is.
            ready.extend(zone_views.delta_runs(self.zones))
        for status in ready:
            self.homes.release(status, 0, status.count)
