"""The variable queue: in RAM as long as it is short, on disk as far as it is long, durable where it was asked for.

What it owns: the ready messages (`zones`, entered through `tail`), the pending ones (`pending_acks`), the map of what
is not gone, and the confirms that it owes. It writes the journal's rows about what happens to its messages; where
bodies are is the business of `homes`, and what leaves RAM that of `paging`.

Life of a message: publish puts a persistent one into the open batch of the journal, and every one at the tail. Fetch
takes it from the head; ack makes it gone. When there are too many in RAM, each publish pages some out.

Invariants
  1. Those of `zones`, `pending_acks` and `live_map`.
  2. Ready and pending messages are live; what is gone is neither.
  3. A persistent message of a durable queue has a PUBLISHED row before anything else happens to it, and one more row
     when it is gone.
  4. A token comes out of `drain_confirmed` when the batch with its run is durable; at once for what is not persistent.
  5. An OSError leaves all of this true, and every message ready or pending, or gone if the verb was to remove it. Only
     verbs that must read raise one: fetch and its kin, browse, fold, ackfold, purge. What was not reached then is as
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
    TIMEOUT_IDLE,
    TIMEOUT_NONE,
    TIMEOUT_TIMED,
    AsyncCallback,
    BackingQueue,
    DropResult,
    EntryVisitor,
    FoldVisitor,
    PropsPredicate,
)
from penstock.backing.homes import Homes
from penstock.backing.msg_status import MsgStatus
from penstock.backing.owed_confirms import OwedConfirms
from penstock.backing.paging import INFINITE, Paging, PagingOptions
from penstock.backing.pending_acks import PendingAcks, Settled
from penstock.backing.picking import order_given, pick
from penstock.backing.put_back import head_in_ram, head_of, put_back, retry
from penstock.backing.rates import Rates
from penstock.backing.tail import Tail
from penstock.backing.zones import Zones
from penstock.clock import Clock
from penstock.journal import rows
from penstock.message import ConfirmToken, Entry, Envelope, MessageProps, Run
from penstock.store.live_map import LiveMap

log: Final = logging.getLogger("penstock.store")

# What a position in RAM costs: a MsgStatus and its place.
POSITION_BYTES: Final = 320
# Neighbours that a fold looks at together.
FOLD_AT_ONCE: Final = 256


class VariableBackingQueue(BackingQueue):
    """One queue."""

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
            homes, self.live, self.pending, self._lost, options.read_ahead_count, options.read_ahead_bytes
        )
        self.tail = Tail(homes, self.zones, queue_no)
        self.rates = Rates(clock)
        self.paging = Paging(options, self.rates, self.zones, self.pending)
        # Messages that could not be read any more.
        self.lost_count = 0
        self.terminated = False
        self._journal = homes.journal
        self._owed = OwedConfirms(homes.journal, self.KIND, callback)
        # Index segments below were looked at, and their files removed when nothing was left.
        self._swept_segment = 0
        if self.durable:
            homes.open_shared()

    # --- life -------------------------------------------------------------------------------------

    def terminate(self) -> bytes:
        """The state is written by the checkpoint of the clean stop, which asks for it after this."""
        self.terminated = True
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
        self.tail.delivery_counts.clear()
        self._owed.give_up()
        self.terminated = True
        if self.durable:
            self._journal.forget_queue(self.queue_no)
            # Not before nothing can bring the queue back.
            self._journal.when_durable(self._forgotten)
        else:
            self.homes.delete_all()

    def _forgotten(self, durable: bool) -> None:
        if durable:
            self.homes.delete_all()

    def _release_ready(self) -> None:
        """Give back the references to the shared stores of what is ready."""
        ready = zone_views.runs_in_ram(self.zones)
        if any(list(self.homes.index_segments.values())):
            # Read before anything is given back: an error leaves everything as it is.
            ready.extend(zone_views.delta_runs(self.zones))
        for status in ready:
            self.homes.release(status, 0, status.count)

    # --- publishing -------------------------------------------------------------------------------

    def publish(
        self, envelope: Envelope, bodies: Sequence[bytes], props: MessageProps | None, delivered: bool = False
    ) -> int:
        first = self.tail.next_seq_id
        persistent = self.tail.publish(envelope, bodies, props, delivered)
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
            self._hand_out(status, status.entries(), True)
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

    # --- fetching ---------------------------------------------------------------------------------

    def fetch(self, count_max: int, bytes_max: int, ack_required: bool) -> Run | None:
        assert count_max >= 1
        zones = self.zones
        head = head_in_ram(zones) if zones.strays.count else zones.head_in_ram()
        if head is None:
            return None
        status = zones.take(head.count_within(count_max, bytes_max))
        first = status.seq_id
        redelivered = status.is_delivered
        entries = status.entries()
        bytes_left = bytes_max - status.size_bytes
        self._hand_out(status, entries, ack_required)
        q4 = zones.q4
        if q4 and len(entries) < count_max:
            while q4 and len(entries) < count_max:
                head = q4[0]
                if (
                    head.seq_id != first + len(entries)
                    or head.is_delivered != redelivered
                    or head.size_of(0) > bytes_left
                ):
                    break
                status = zones.take(head.count_within(count_max - len(entries), bytes_left))
                more = status.entries()
                bytes_left -= status.size_bytes
                self._hand_out(status, more, ack_required)
                entries = entries + more
        if ack_required and self.pending.ram_count() > self.paging.options.slack and self.paging.is_over():
            self.paging.reduce(2 * len(entries))
        return Run(first, entries, redelivered)

    def fetch_at(self, seq_ids: Sequence[int]) -> list[tuple[int, Entry]]:
        found: dict[int, Entry] = {}
        border = self.zones.next_deliver_seq_id
        counts = self.tail.delivery_counts
        for status in pick(self.zones, sorted(set(seq_ids))):
            seq_id = status.seq_id
            entries = status.entries()
            for entry in entries:
                found[seq_id] = entry
                if seq_id >= border:
                    counts.setdefault(seq_id, 0)
                seq_id += 1
            self.rates.outs += status.count
            self._made_pending(status, entries)
        if found and self.pending.ram_count() > self.paging.options.slack and self.paging.is_over():
            self.paging.reduce(2 * len(found))
        return order_given(seq_ids, found)

    def _hand_out(self, status: MsgStatus, entries: list[Entry], ack_required: bool) -> None:
        """A run leaves the head: it is pending now, or gone."""
        count = status.count
        end = status.seq_id + count
        zones = self.zones
        if end > zones.next_deliver_seq_id:
            zones.next_deliver_seq_id = end
        self.rates.outs += count
        if ack_required:
            self._made_pending(status, entries)
        else:
            self._gone(status, rows.FETCHED)

    def _made_pending(self, status: MsgStatus, entries: list[Entry]) -> None:
        if status.is_persistent:
            self._journal.settle(rows.DELIVERED, self.queue_no, status.seq_id, status.count, status.size_bytes)
        self.rates.ack_ins += status.count
        self.pending.record(status, entries)

    def _gone(self, status: MsgStatus, kind: int) -> None:
        """A run that was ready does not exist any more."""
        self.homes.release(status, 0, status.count)
        self._settle([(status.seq_id, status.count, status.size_bytes, status.is_persistent)], kind)

    def _settle(self, settled: list[Settled], kind: int) -> int:
        """Messages are gone: write it down. Returns how many."""
        total = 0
        tail = self.tail
        for first, count, size, persistent in settled:
            total += count
            self.live.remove(first, count)
            if persistent:
                self._journal.settle(kind, self.queue_no, first, count, size)
                tail.persistent_count -= count
                tail.persistent_bytes -= size
            if tail.delivery_counts:
                for seq_id in range(first, first + count):
                    tail.delivery_counts.pop(seq_id, None)
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

    def drop(self, ack_required: bool) -> DropResult | None:
        run = self.fetch(1, 0, ack_required)
        if run is None:
            return None
        return DropResult(run.first_seq_id, run.entries[0][0])

    def dropwhile(self, predicate: PropsPredicate) -> int:
        dropped = 0
        zones = self.zones
        while True:
            head = head_of(zones)
            # All messages of a run expire together.
            if head is None or not predicate(self.head_props()):
                return dropped
            if zones.strays.count and head.seq_id in zones.strays:
                status = zones.strays.take_back(range(head.seq_id, head.seq_id + head.count))[0]
            else:
                status = zones.take(head.count)
            dropped += status.count
            self.rates.outs += status.count
            self._gone(status, rows.EXPIRED)

    def fetchwhile(self, predicate: PropsPredicate, visit: EntryVisitor) -> int:
        fetched = 0
        while True:
            head = head_of(self.zones)
            if head is None or not predicate(self.head_props()):
                return fetched
            seq_id = head.seq_id
            head = head_in_ram(self.zones)
            if head is None or head.seq_id != seq_id:
                # That one was damaged. The next is to be judged by its own props.
                continue
            run = self.fetch(1, 0, True)
            assert run is not None
            visit(run.first_seq_id, run.entries[0])
            fetched += 1

    def head_props(self) -> MessageProps | None:
        head = head_of(self.zones)
        if head is None:
            return None
        return head.msg_props if head.msg is None else head.msg[head.start][2]

    def browse(self, from_seq_id: int, count_max: int, bytes_max: int) -> Run | None:
        assert count_max >= 1
        while True:
            runs = zone_views.neighbours_at(self.zones, from_seq_id, count_max)
            for stray in self.zones.strays.runs() if self.zones.strays.count else []:
                if stray.last_seq_id() >= from_seq_id and (not runs or stray.seq_id < runs[0].seq_id):
                    runs = [stray]
                    break
            if not runs:
                return None
            first = max(from_seq_id, runs[0].seq_id)
            entries = self._looked_at(runs, first, count_max, bytes_max)
            if entries:
                return Run(first, entries, runs[0].is_delivered)
            # It is damaged. So may be those behind it: one at a time, until there is one that is not.
            from_seq_id = first + 1
            count_max = 1

    def _looked_at(self, runs: list[MsgStatus], first: int, count_max: int, bytes_max: int) -> list[Entry]:
        """Messages of neighbouring runs, up to the first damaged one."""
        entries: list[Entry] = []
        bytes_left = bytes_max
        for status in runs:
            at = first + len(entries)
            rest = status if at == status.seq_id else status.part_for(at, status.last_seq_id() + 1 - at)
            if entries and (rest.is_delivered != runs[0].is_delivered or rest.size_of(0) > bytes_left):
                break
            count = rest.count_within(count_max - len(entries), bytes_left)
            is_cut = count < rest.count
            if is_cut:
                rest = rest.part_for(at, count)
            bytes_left -= rest.size_bytes
            if count_max == 1 and rest.msg is None:
                # Who asks for one message jumps; who walks asks for more.
                found = [self.homes.read_one(rest, 0)]
            else:
                found = zone_views.bodies_of(self.zones, rest)
            if None in found:
                found = found[: found.index(None)]
            entries.extend([entry for entry in found if entry is not None])
            if is_cut or len(found) < count or len(entries) >= count_max:
                break
        return entries

    # --- settling ---------------------------------------------------------------------------------

    def ack(self, seq_ids: Sequence[int]) -> int:
        acked = self._settle(self.pending.remove(seq_ids), rows.ACKED)
        self.rates.ack_outs += acked
        return acked

    def requeue(self, seq_ids: Sequence[int]) -> int:
        runs = self.pending.take_back(seq_ids)
        requeued = 0
        counts = self.tail.delivery_counts
        for status in runs:
            requeued += status.count
            for seq_id in range(status.seq_id, status.seq_id + status.count):
                counts[seq_id] = counts.get(seq_id, 0) + 1
            if status.is_persistent:
                self._journal.settle(rows.REQUEUED, self.queue_no, status.seq_id, status.count, status.size_bytes)
        put_back(self.zones, runs)
        self.rates.ack_outs += requeued
        if self.paging.is_over():
            self.paging.reduce(2 * requeued + 64)
        return requeued

    def delivery_count(self, seq_id: int) -> int:
        """How often the message was handed out and came back."""
        return self.tail.delivery_counts.get(seq_id, 0)

    def ackfold(self, visit: EntryVisitor, seq_ids: Sequence[int]) -> None:
        for seq_id in dict.fromkeys(seq_ids):
            entry = self.pending.entry(seq_id)
            if entry is not None:
                visit(seq_id, entry)

    # --- all messages -----------------------------------------------------------------------------

    def purge(self) -> int:
        purged = len(self)
        if purged == 0:
            return 0
        strays = self.zones.strays
        if self.pending.count == 0:
            self._release_ready()
            strays.remove(strays.seq_ids())
            size = self.tail.persistent_bytes
            low = self.live.low
            length = self.tail.next_seq_id - low
            had_persistent = self.tail.persistent_count > 0
            self.tail.persistent_count = self.tail.persistent_bytes = 0
            self.zones.clear()
            self.live.remove(low, length)
            if had_persistent:
                self._journal.settle(rows.PURGED, self.queue_no, low, length, size)
            self.tail.delivery_counts.clear()
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
        return purged

    def purge_acks(self) -> int:
        return self._settle(self.pending.remove(self.pending.seq_ids()), rows.DROPPED)

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
        entry = self.pending.entry(seq_id) if pending else self.zones.strays.entry(seq_id)
        return entry is None or visit(seq_id, entry, pending)

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

    # --- memory and time --------------------------------------------------------------------------

    def ram_bytes(self) -> int:
        strays = self.zones.strays
        in_ram = self.zones.ram_count + self.pending.ram_count() + strays.ram_count()
        payload = self.zones.ram_bytes + self.pending.ram_bytes + strays.ram_bytes
        return payload + in_ram * limits.MESSAGE_OVERHEAD_BYTES + self.zones.positions() * POSITION_BYTES

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
        return TIMEOUT_IDLE if self.paging.unfinished or self.zones.strays.count else TIMEOUT_NONE

    def timeout(self) -> None:
        if self._owed.is_waiting():
            self._journal.commit(urgent=True)
        self.resume()

    def resume(self) -> None:
        if self.zones.strays.count:
            retry(self.zones)
        if self.paging.unfinished or self.paging.is_over():
            self.paging.reduce(self.paging.options.slice_count)

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
