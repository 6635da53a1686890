"""The variable queue: in RAM as long as it is short, on disk as far as it is long, durable where it was asked for.

What it owns: what `variable_books` lists. The verbs of fetching are in `variable_fetching`, those of settling in
`variable_settling`; this is how messages come in, how much of them stays in RAM, and how the queue ends. It writes the
journal's rows about what happens to its messages; where bodies are is the business of `homes`, and what leaves RAM that
of `paging`.

Life of a message: publish puts a persistent one into the open batch of the journal, and every one at the tail. Fetch
takes it from the head; ack makes it gone. When there are too many in RAM, each publish pages some out.

Invariants
  1. Those of `variable_books`, `variable_fetching` and `variable_settling`.
  2. A persistent message of a durable queue has a PUBLISHED row before anything else happens to it, and one more row
     when it is gone.
  3. A token comes out of `drain_confirmed` when the batch with its run is durable; at once for what is not persistent.
  4. An OSError leaves all of this true, and every message ready or pending, or gone if the verb was to remove it. Only
     verbs that must read raise one: fetch and its kin, browse, fold, ackfold, purge. A body that cannot be read raises
     none in fetch, which sets its message aside, nor in browse and fold, which leave it out. What was not reached is as
     before: a fetch has taken nothing, a purge has removed nothing, dropwhile and fetchwhile have ended early. Publish,
     ack, requeue and paging keep in RAM what cannot be written; requeue keeps what cannot be read as it is.

Crash: persistent messages of durable queues come back as far as the journal was synced, all marked redelivered, with
their seq_ids; the next seq_id is higher than any of theirs. Transient messages are gone. It does not know consumers,
and decides nothing about expiry or length.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from penstock import limits
from penstock.backing import zone_views
from penstock.backing.backing_queue import (
    DOUBTFUL,
    NOT_DELIVERED,
    TIMEOUT_IDLE,
    TIMEOUT_NONE,
    TIMEOUT_TIMED,
    BackingQueue,
    FoldVisitor,
)
from penstock.backing.msg_status import MsgStatus
from penstock.backing.outcomes import NO_ACTOR
from penstock.backing.paging import INFINITE
from penstock.backing.put_back import put_back, retry
from penstock.backing.variable_settling import VariableSettling
from penstock.files import is_temporary
from penstock.message import ConfirmToken, Entry, Envelope, MessageProps

log: Final = logging.getLogger("penstock.store")

# What a position in RAM costs: a MsgStatus and its place.
POSITION_BYTES: Final = 320
# Neighbours that a fold looks at together.
FOLD_AT_ONCE: Final = 256


class VariableBackingQueue(VariableSettling):
    """One queue."""

    # --- life -------------------------------------------------------------------------------------

    def terminate(self) -> bytes:
        """The state is written by the checkpoint of the clean stop, which asks for it after this."""
        if not self.durable:
            self.delete_and_terminate()
            return b""
        try:
            # For whoever opens the queue again before the node stops.
            self.homes.give_back()
        except OSError as error:
            # What could not be written waits for the checkpoint, which fails in its own way.
            log.warning("%s was terminated, but not all of it could be written: %s", self.homes.folder, error)
        return b""

    def delete_and_terminate(self) -> None:
        try:
            self._release_ready()
        except OSError as error:
            # That must not keep a queue alive. Its large bodies stay until the next start counts who wants them.
            log.warning("%s is deleted, but not all that it refers to could be found: %s", self.homes.folder, error)
        self.zones.clear()
        self.zones.strays.remove(self.zones.strays.seq_ids())
        self.pending.remove(self.pending.seq_ids())
        self.live.remove(self.live.low, max(0, self.tail.next_seq_id - self.live.low))
        self.tail.persistent_count = self.tail.persistent_bytes = 0
        self.tail.forget_counts()
        self.aside.clear()
        self._owed.give_up()
        # The ways back from the zones: without them the queue is freed by reference counting.
        self.zones.lost = _nothing_lost
        self.zones.unreadable = _nothing_unreadable
        if self.durable:
            self._journal.forget_queue(self.queue_no)
            # Not before nothing can bring the queue back.
            self._journal.when_durable(self._forgotten)
        else:
            self.homes.delete_all()

    def _forgotten(self, durable: bool) -> None:
        if durable:
            self.homes.delete_all()

    # --- publishing -------------------------------------------------------------------------------

    def publish(
        self, envelope: Envelope, bodies: Sequence[bytes], props: MessageProps | None, delivered: int = NOT_DELIVERED
    ) -> int:
        first = self.tail.next_seq_id
        persistent = self.tail.publish(envelope, bodies, props, delivered > NOT_DELIVERED)
        if delivered == DOUBTFUL:
            self.doubt(range(first, first + len(bodies)))
        if props is not None and props.confirm is not None:
            self._owed.add(props.confirm, persistent)
        self._published(len(bodies))
        return first

    def publish_entries(self, entries: Sequence[Entry], confirm: ConfirmToken | None) -> int:
        first = self.tail.next_seq_id
        persistent = self.tail.publish_entries(entries)
        if confirm is not None:
            self._owed.add(confirm, persistent)
        self._published(len(entries))
        return first

    def publish_delivered(self, envelope: Envelope, bodies: Sequence[bytes], props: MessageProps | None) -> int:
        assert self.is_empty(), "publish_delivered needs a queue without ready messages"
        first = self.tail.next_seq_id
        persistent = self.tail.publish(envelope, bodies, props, False)
        if props is not None and props.confirm is not None:
            self._owed.add(props.confirm, persistent)
        # Before anything is paged out: nothing has to be read.
        q4 = self.zones.q4
        while q4:
            status = self.zones.take(q4[0].count)
            self._hand_out(status, status.entries(), True, NO_ACTOR)
        self._published(len(bodies))
        return first

    def _published(self, count: int) -> None:
        self.rates.ins += count
        if self.paging.is_over():
            self.paging.reduce(2 * count + 64)

    def is_duplicate(self, envelope: Envelope, body: bytes) -> bool:
        return False

    def drain_confirmed(self) -> list[ConfirmToken]:
        return self._owed.drain()

    # --- memory and time --------------------------------------------------------------------------

    def ram_bytes(self) -> int:
        strays = self.zones.strays
        in_ram = self.zones.ram_count + self.pending.ram_count() + strays.ram_count()
        payload = self.zones.ram_bytes + self.pending.ram_bytes + strays.ram_bytes
        positions = self.zones.positions() + self.pending.positions() + strays.positions()
        counts = len(self.tail.delivery_counts) + len(self.tail.doubtful)
        return (
            payload
            + in_ram * limits.MESSAGE_OVERHEAD_BYTES
            + positions * POSITION_BYTES
            + counts * limits.NUMBER_OVERHEAD_BYTES
        )

    def set_ram_duration_target(self, seconds: float) -> None:
        self.rates.update()
        self.paging.duration_s = seconds
        self._reduce_to_target(seconds != INFINITE)

    def set_ram_bytes_target(self, bytes_max: int) -> None:
        self.paging.bytes_target = bytes_max
        self.resume()

    def ram_duration(self) -> float:
        return self.rates.ram_duration(self.zones.ram_count, self.pending.ram_count())

    def needs_timeout(self) -> int:
        if self._owed.is_waiting():
            return TIMEOUT_TIMED
        if self.paging.unfinished or self.zones.strays.count or self.aside.is_due():
            return TIMEOUT_IDLE
        return TIMEOUT_NONE

    def timeout(self) -> None:
        if self._owed.is_waiting():
            self._journal.commit(urgent=True)
        self.resume()

    def resume(self) -> None:
        if self.zones.strays.count:
            retry(self.zones)
        if self.aside.is_due():
            # Through the queue: its consumers are to hear of what is ready again.
            self._callback(self.KIND, _put_aside_back)
        if self.paging.unfinished or self.paging.is_over():
            self.paging.reduce(self.paging.options.slice_count)

    def put_aside_back(self) -> None:
        """What could not be read is ready again, where it belongs; the next fetch tries to read it."""
        was_stalled = self.aside.is_stalled
        runs = self.pending.take_back(self.aside.take())
        put_back(self.zones, runs)
        self._arrived_count += len(self) if was_stalled else sum([status.count for status in runs])

    def stalled(self, error: OSError) -> None:
        self.aside.stall(self.homes.folder, error)

    def handle_pre_hibernate(self) -> None:
        try:
            self.homes.give_back()
        except OSError as error:
            log.warning("%s idles, but not all of it could be written: %s", self.homes.folder, error)

    def set_queue_mode(self, lazy: bool) -> None:
        self.paging.lazy = lazy
        self._reduce_to_target(lazy)

    def _reduce_to_target(self, is_limited: bool) -> None:
        """The target has changed. A smaller one is for positions, too, which nobody counts otherwise."""
        if is_limited:
            self.paging.reduce(self.paging.options.slice_count)
        else:
            self.resume()

    def msg_rates(self) -> tuple[float, float]:
        self.rates.update()
        return (self.rates.in_rate, self.rates.out_rate)

    # --- looking in -------------------------------------------------------------------------------

    def fold(self, visit: FoldVisitor) -> None:
        waiting = sorted([*self.pending.seq_ids(), *self.zones.strays.seq_ids()])
        index = 0
        runs = zone_views.neighbours_at(self.zones, 0, FOLD_AT_ONCE)
        while runs:
            for status in runs:
                seq_id = status.seq_id
                for entry in zone_views.bodies_of(self.zones, status):
                    while index < len(waiting) and waiting[index] < seq_id:
                        if not self._visit_waiting(waiting[index], visit):
                            return
                        index += 1
                    if entry is not None and not visit(seq_id, entry, False):
                        return
                    seq_id += 1
            runs = zone_views.neighbours_at(self.zones, runs[-1].last_seq_id() + 1, FOLD_AT_ONCE)
        for seq_id in waiting[index:]:
            if not self._visit_waiting(seq_id, visit):
                return

    def _visit_waiting(self, seq_id: int, visit: FoldVisitor) -> bool:
        """Show a message that stands in no zone: a pending one, or a stray."""
        pending = seq_id in self.pending
        try:
            entry = self.pending.entry(seq_id) if pending else self.zones.strays.entry(seq_id)
        except OSError as error:
            if is_temporary(error):
                raise
            # It cannot be read now.
            return True
        return entry is None or visit(seq_id, entry, pending)

    def status(self) -> dict[str, int | float | str]:
        zones = self.zones
        self.recount()
        return {
            "kind": self.KIND,
            "mode": "lazy" if self.paging.lazy else "default",
            "len": len(self),
            "q1": sum([status.count for status in zones.q1]),
            "q2": sum([status.count for status in zones.q2]),
            "delta": zones.delta_count,
            "q3": sum([status.count for status in zones.q3]),
            "q4": sum([status.count for status in zones.q4]),
            "positions": zones.positions(),
            "strays": zones.strays.count,
            "pending_acks": self.pending.count,
            "messages_ram": zones.ram_count + self.pending.ram_count() + zones.strays.ram_count(),
            "message_bytes_ram": zones.ram_bytes + self.pending.ram_bytes + zones.strays.ram_bytes,
            "messages_persistent": self.tail.persistent_count,
            "target_ram_count": self.paging.limit(),
            "ram_duration_target_s": -1.0 if self.paging.duration_s == INFINITE else self.paging.duration_s,
            "next_seq_id": self.tail.next_seq_id,
            "next_deliver_seq_id": zones.next_deliver_seq_id,
            "disk_reads": self.homes.reads,
            "disk_writes": self.homes.writes,
            "lost": self.lost_count,
            "unreadable": self.aside.count,
        }

    def check_invariants(self) -> None:
        zone_views.check_zones(self.zones)
        self.pending.check_invariants()
        self.zones.strays.check_invariants()
        if self.live.low < self.tail.next_seq_id:
            self.live.check_invariants()
        ready = [*zone_views.runs_in_ram(self.zones), *self.zones.strays.runs()]
        held = [seq_id for run in ready for seq_id in range(run.seq_id, run.seq_id + run.count)]
        assert len(held) == len(set(held)), "2: ready twice"
        assert all([self.live.is_live(seq_id) for seq_id in [*held, *self.pending.seq_ids()]]), "2: held, but gone"
        assert not [seq_id for seq_id in held if seq_id in self.pending], "2: ready and pending"
        assert self.depth() <= self.live.count(self.tail.next_seq_id), "2: more is held than is live"
        assert self.tail.persistent_count >= 0 and self.tail.persistent_bytes >= 0, "counters"


def _nothing_lost(status: MsgStatus) -> None:
    """A deleted queue has nothing to lose."""


def _nothing_unreadable(status: MsgStatus, error: OSError) -> None:
    """A deleted queue has nothing to read."""


def _put_aside_back(queue: BackingQueue) -> None:
    assert isinstance(queue, VariableBackingQueue)
    queue.put_aside_back()
