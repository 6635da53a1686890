"""The variable queue: in RAM as long as it is short, on disk as far as it is long, durable where it was asked for.

The ready messages stand in `zones`, which they enter through `tail`; the pending ones are in `pending_acks`; `live_map`
knows what is not gone. `homes` knows where a body is and reads it, `paging` decides what leaves RAM, and the queue
writes the journal's rows about its messages.

Publish puts a persistent message into the open batch of the journal, and every message at the tail. Fetch takes it from
the head as part of a run: it is pending from then on, or gone if it needs no ack. What was read from the disk for a
consumer leaves RAM with it, and is read again if it comes back. Ack makes it gone; requeue puts it back where its
seq_id belongs (`put_back`), with one more delivery counted. When there are too many messages in RAM, each publish pages
some out.

Invariants
  1. Those of `zones`, `pending_acks` and `live_map`.
  2. Ready and pending messages are live; what is gone is neither.
  3. A persistent message of a durable queue has a PUBLISHED row before anything else happens to it, and one more row
     when it is gone. An outcome changes that row's kind and nothing else.
  4. Everything below `zones.next_deliver_seq_id` may have been handed out; what was taken by number from behind it has
     a delivery count. So a restart knows what to mark as redelivered.
  5. A token is settled when the batch with its run is durable; of what is not persistent, `drain_confirmed` has it.
  6. A file goes when nothing in it is live; that of a durable queue not before a checkpoint has said so.
  7. An OSError leaves all of this true, and every message ready or pending, or gone if the verb was to remove it. Only
     verbs that must read raise one: fetch and its kin, browse, fold, ackfold, purge. A body that cannot be read raises
     none in fetch, which sets its message aside, nor in browse and fold, which leave it out. What was not reached is as
     before: a fetch has taken nothing, a purge has removed nothing (nor has a slice of one), dropwhile and fetchwhile
     have ended early. Publish,
     ack, requeue and paging keep in RAM what cannot be written; requeue keeps what cannot be read as it is.

After a crash the persistent messages of durable queues come back as far as the journal was synced, all marked
redelivered, with their seq_ids; the next seq_id is higher than any of theirs. An ack, a purge or a requeue whose row
was not synced is undone. Transient messages are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final, final

from penstock import limits
from penstock.backing.backing_queue import (
    DOUBTFUL,
    NOT_DELIVERED,
    TIMEOUT_IDLE,
    TIMEOUT_NONE,
    TIMEOUT_TIMED,
    Answered,
    AsyncCallback,
    BackingQueue,
    EntryVisitor,
    FoldVisitor,
    PropsPredicate,
)
from penstock.backing.outcomes import ACKED, DROPPED, NO_ACTOR, REASON_EXPIRED, REASON_NONE, THE_QUEUE
from penstock.backing.variable.body_ahead import BodyAhead
from penstock.backing.variable.homes import Homes
from penstock.backing.variable.large_bodies import LargeBodies
from penstock.backing.variable.leftovers import Leftovers, leftovers_of
from penstock.backing.variable.owed_confirms import OwedConfirms
from penstock.backing.variable.paging import INFINITE, Paging, PagingOptions
from penstock.backing.variable.pending_acks import PendingAcks
from penstock.backing.variable.picking import order_given, pick
from penstock.backing.variable.purge_rows import note_purged
from penstock.backing.variable.put_back import head_in_ram, head_of, put_back, retry
from penstock.backing.variable.rates import Rates
from penstock.backing.variable.set_aside import SetAside
from penstock.backing.variable.status import status_of
from penstock.backing.variable.tail import Tail
from penstock.backing.zones import zone_views
from penstock.backing.zones.msg_status import MsgStatus, Settled, shared_runs
from penstock.backing.zones.zones import Zones
from penstock.call_all import call_all
from penstock.clock import Clock
from penstock.journal.format import rows
from penstock.message import ConfirmToken, Entry, Incoming, MessageProps, Run
from penstock.store.queue.live_map import LiveMap

log: Final = logging.getLogger("penstock.store")

# What a position in RAM costs: a MsgStatus and its place.
POSITION_BYTES: Final = 320


@final
class VariableBackingQueue(BackingQueue):
    KIND: ClassVar[str] = "variable"

    def __init__(
        self, homes: Homes, queue_no: int, clock: Clock, options: PagingOptions, callback: AsyncCallback
    ) -> None:
        """`queue_no` is the queue's number in the journal, -1 for a queue that is not durable."""
        self.queue_no = queue_no
        self.durable = homes.is_durable = queue_no >= 0
        self.homes = homes
        self.live = LiveMap(homes.slots)
        self.pending = PendingAcks(homes)
        ahead_count, ahead_bytes = options.read_ahead_count, options.read_ahead_bytes
        self.zones = Zones(homes, self.live, self.pending, self._lost, self._unreadable, ahead_count, ahead_bytes)
        self.tail = Tail(homes, self.zones, queue_no)
        self.rates = Rates(clock)
        self.paging = Paging(options, self.rates, self.zones, self.pending)
        # Messages that could not be read any more.
        self.lost_count = 0
        # Those that cannot be read now.
        self.aside = SetAside(clock)
        # Who is to be told when the disk can be asked again, or has answered.
        self._waiting: list[Answered] = []
        # Messages that have become ready by themselves, and were not reported yet.
        self._arrived_count = 0
        # A purge in slices removes what stands below.
        self._purge_below = 0
        # Whether it was deleted so that nothing brings it back, and whether what it left is given back, too.
        self._is_forgotten = not self.durable
        self._is_cleared = False
        self._callback = callback
        self._journal = homes.journal
        self._owed = OwedConfirms(homes.journal)
        homes.ahead = BodyAhead(partial(callback, self.KIND, _body_came))
        homes.leaving = BodyAhead(partial(callback, self.KIND, _leaving_came))
        homes.shown = BodyAhead(partial(callback, self.KIND, _body_came), is_shared=True)
        self.large = LargeBodies(homes, self.zones, self.pending)
        if self.durable:
            homes.open_shared()

    # --- life -------------------------------------------------------------------------------------

    def terminate(self) -> None:
        """The state is written by the checkpoint of the clean stop, which asks for it after this."""
        self._owed.take()
        if not self.durable:
            self.delete_and_terminate()
            return
        try:
            # The queue may be opened again before the node stops.
            self.homes.give_back()
        except OSError as error:
            # What could not be written waits for the checkpoint, which fails in its own way.
            log.warning("%s was terminated, but not all of it could be written: %s", self.homes.folder, error)

    def delete_and_terminate(self) -> None:
        leftovers = leftovers_of(self.zones, self.live, self.pending, self._cleared)
        self.zones.clear()
        self.live.remove(self.live.low, max(0, self.tail.next_seq_id - self.live.low))
        self.tail.persistent_count = self.tail.persistent_bytes = 0
        self.tail.forget_counts()
        self.aside.clear()
        self.large.forget()
        self._look_again()
        self._owed.give_up()
        # The ways back from the zones: without them the queue is freed by reference counting.
        self.zones.lost = _nothing_lost
        self.zones.unreadable = _nothing_unreadable
        if self.durable:
            self._journal.forget_queue(self.queue_no)
            # Not before nothing can bring the queue back.
            self._journal.when_durable(self._forgotten)
            self.homes.node.registry.forget(self.queue_no)
        self._give_back(leftovers)

    def _give_back(self, leftovers: Leftovers) -> None:
        """Some of it now, the rest in the turns to come."""
        left = self.paging.options.at_once
        while left > 0:
            count = leftovers.release_some(left)
            if count == 0:
                return
            left -= count
        self.homes.release_later(leftovers.release_some)

    def _cleared(self) -> None:
        self._is_cleared = True
        self._delete_files()

    def _forgotten(self, durable: bool) -> None:
        self._is_forgotten = durable
        self._delete_files()

    def _delete_files(self) -> None:
        if self._is_forgotten and self._is_cleared:
            self.homes.delete_all()

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, incoming: Incoming, props: MessageProps | None, delivered: int = NOT_DELIVERED) -> int:
        first = self.tail.next_seq_id
        persistent = self.tail.publish(incoming, props, delivered > NOT_DELIVERED)
        if delivered == DOUBTFUL:
            self.doubt(range(first, first + incoming.count))
        if props is not None and props.confirm is not None:
            self._owed.add(props.confirm, persistent)
        self._published(incoming.count)
        return first

    def _published(self, count: int) -> None:
        self.rates.ins += count
        if self.paging.is_over():
            self.paging.reduce(2 * count + 64)

    def drain_confirmed(self) -> list[ConfirmToken]:
        return self._owed.drain()

    def take_owed(self) -> list[ConfirmToken]:
        return self._owed.take()

    # --- taking ------------------------------------------------------------------------------------

    def fetch(self, count_max: int, bytes_max: int, ack_required: bool, actor: int = NO_ACTOR) -> Run | None:
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
        self._hand_out(status, entries, ack_required, actor)
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
                self._hand_out(status, more, ack_required, actor)
                entries = entries + more
        if ack_required and self.pending.ram_count() > self.paging.options.slack and self.paging.is_over():
            self.paging.reduce(2 * len(entries))
        return Run(first, entries, redelivered)

    def waits_for_disk(self) -> bool:
        zones = self.zones
        if zones.q4 or not zones.q3:
            return False
        # A stray may have to be let in first, which reads what it must.
        return self.aside.is_stalled or (not zones.strays.count and self.homes.is_reading(zones.q3[0]))

    def ask_once(self, done: Answered) -> None:
        if self.waits_for_disk():
            self._waiting.append(done)
        else:
            done(None)

    def body_came(self) -> None:
        """The reading of the body at the head is over: consumers and a basic.get that waited for it look again."""
        self._arrived_count += len(self)
        self._look_again()

    def may_browse(self, from_seq_id: int) -> bool:
        return zone_views.has_from(self.zones, from_seq_id)

    def waits_to_browse(self, from_seq_id: int) -> bool:
        return self.large.await_shown(from_seq_id)

    def head_is_large(self) -> bool:
        return self.large.is_at_head()

    def await_body(self, seq_ids: Sequence[int], done: Answered) -> int:
        return self.large.await_leaving(seq_ids, done)

    def _look_again(self) -> None:
        waiting, self._waiting = self._waiting, []
        call_all([partial(done, None) for done in waiting])

    def fetch_at(self, seq_ids: Sequence[int], actor: int = NO_ACTOR) -> list[tuple[int, Entry]]:
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
            self._made_pending(status, entries, actor)
        if found and self.pending.ram_count() > self.paging.options.slack and self.paging.is_over():
            self.paging.reduce(2 * len(found))
        return order_given(seq_ids, found)

    def _handed_out(self, status: MsgStatus) -> None:
        """A run leaves the head."""
        end = status.seq_id + status.count
        zones = self.zones
        if end > zones.next_deliver_seq_id:
            zones.next_deliver_seq_id = end
        self.rates.outs += status.count

    def _hand_out(self, status: MsgStatus, entries: list[Entry], ack_required: bool, actor: int) -> None:
        """Take a run from the head: it is pending now, or gone."""
        self._handed_out(status)
        if ack_required:
            self._made_pending(status, entries, actor)
        else:
            self._gone(status, rows.FETCHED, REASON_NONE, actor)

    def _made_pending(self, status: MsgStatus, entries: list[Entry] | None, actor: int) -> None:
        if status.is_persistent:
            self._journal.settle(rows.DELIVERED, self.queue_no, status.seq_id, status.count, status.size_bytes, actor)
        self.rates.ack_ins += status.count
        if status.is_read_back and actor != THE_QUEUE:
            # A consumer may keep it for long, and mostly acks it. What the queue takes it passes on soon.
            status.forget_bodies()
            entries = None
        self.pending.record(status, entries)

    def drop(self, ack_required: bool, outcome: int = DROPPED, reason: int = REASON_NONE) -> int | None:
        head = head_of(self.zones)
        if head is None:
            return None
        status = self._take_unread(head, 1)
        self._handed_out(status)
        seq_id = status.seq_id
        if ack_required:
            self._made_pending(status, None if status.msg is None else status.entries(), THE_QUEUE)
        else:
            self._gone(status, outcome, reason)
        return seq_id

    def _take_unread(self, head: MsgStatus, count: int) -> MsgStatus:
        """Remove messages from the front of the run at the head, be it a stray or not, wherever their bodies are."""
        strays = self.zones.strays
        if strays.count and head.seq_id in strays:
            return strays.take_back(range(head.seq_id, head.seq_id + count))[0]
        return self.zones.take(count)

    def dropwhile(self, predicate: PropsPredicate) -> int:
        dropped = 0
        while True:
            head = head_of(self.zones)
            if head is None or not predicate(self.head_props()):
                return dropped
            status = self._take_unread(head, head.count)
            dropped += status.count
            self.rates.outs += status.count
            self._gone(status, rows.EXPIRED, REASON_EXPIRED)

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
            run = self.fetch(1, 0, True, THE_QUEUE)
            assert run is not None
            visit(run.first_seq_id, run.entries[0])
            fetched += 1

    # --- looking -----------------------------------------------------------------------------------

    def head_props(self) -> MessageProps | None:
        head = head_of(self.zones)
        if head is None:
            return None
        return head.msg_props if head.msg is None else head.msg[head.start][2]

    def browse(self, from_seq_id: int, count_max: int, bytes_max: int) -> Run | None:
        assert count_max >= 1
        return zone_views.browse(self.zones, from_seq_id, count_max, bytes_max)

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

    def pending_ids(self) -> list[int]:
        return self.pending.seq_ids()

    def ackfold(self, visit: EntryVisitor, seq_ids: Sequence[int]) -> None:
        # Neighbours are read together: one read for all of them, and one envelope where they share it.
        for run in self.pending.parts(seq_ids if isinstance(seq_ids, range) else list(dict.fromkeys(seq_ids))):
            seq_id = run.seq_id
            for entry in zone_views.bodies_of(self.zones, run):
                if entry is not None:
                    visit(seq_id, entry)
                seq_id += 1

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
            # Read before anything is given back: an error leaves everything as it is.
            ready = zone_views.runs_in_ram(self.zones)
            shared = self._shared_ready(ready)
            ready.extend(strays.give_up().runs())
            low = self.live.low
            length = self.tail.next_seq_id - low
            if self.tail.persistent_count > 0:
                note_purged(self._journal, self.queue_no, self.live, low, length, self.tail.persistent_bytes)
            self.tail.persistent_count = self.tail.persistent_bytes = 0
            self.zones.clear()
            self.live.remove(low, length)
            self.tail.forget_counts()
            self.homes.sweep(self.live)
            self._give_back(Leftovers(self.homes, ready, PendingAcks(self.homes), shared, None, _nothing_left))
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

    def begin_purge(self) -> bool:
        self._purge_below = self.tail.next_seq_id
        zones = self.zones
        at_once = self.paging.options.at_once
        if self.pending.count:
            runs = len(zones.q1) + len(zones.q2) + len(zones.q3) + len(zones.q4) + zones.strays.positions()
            return runs + zones.delta_count > at_once
        # Only for large bodies the delta has to be read.
        return zones.delta_count > at_once and any(list(self.homes.index_segments.values()))

    def purge_some(self, count_max: int) -> int:
        purged = 0
        while purged < count_max:
            head = head_of(self.zones)
            if head is None or head.seq_id >= self._purge_below:
                # These were ready, until they could not be read.
                return purged + self._settle(self.pending.remove(self.aside.take()), rows.PURGED)
            try:
                count = min(head.count, count_max - purged, self._purge_below - head.seq_id)
                status = self._take_unread(head, count)
            except OSError:
                if not purged:
                    raise
                return purged
            purged += status.count
            self._gone(status, rows.PURGED)
        return purged

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
            self.homes.sweep(self.live)
            self.homes.sweep_between(self.live, settled)
        return total

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

    def _shared_ready(self, in_ram: list[MsgStatus]) -> list[MsgStatus]:
        """What is ready with its bodies in a shared store; reads the delta for it."""
        if not self.homes.has_shared():
            return []
        shared = shared_runs([*in_ram, *self.zones.strays.runs()])
        if any(list(self.homes.index_segments.values())):
            shared.extend(shared_runs(zone_views.delta_runs(self.zones)))
        return shared

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
            + self.homes.ram_bytes()
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
        if self.homes.ram_bytes():
            return TIMEOUT_IDLE
        return TIMEOUT_NONE

    def timeout(self) -> None:
        if self._owed.is_waiting():
            self._journal.commit(urgent=True)
        self.resume()

    def resume(self) -> None:
        self.homes.look_at_bodies()
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
        self._look_again()

    def drain_arrived(self) -> int:
        count, self._arrived_count = self._arrived_count, 0
        return count

    def stalled(self, error: OSError) -> None:
        self.aside.stall(self.homes.folder, error)

    def set_queue_mode(self, lazy: bool) -> None:
        self.paging.lazy = lazy
        self._reduce_to_target(lazy)

    def _reduce_to_target(self, is_limited: bool) -> None:
        """Page out after the target has changed. A smaller target is for positions, too, which are not counted
        otherwise."""
        if is_limited:
            self.paging.reduce(self.paging.options.slice_count)
        else:
            self.resume()

    # --- looking in -------------------------------------------------------------------------------

    def fold(self, visit: FoldVisitor) -> None:
        zone_views.fold(self.zones, self.pending, visit)

    def status(self) -> dict[str, int | float | str]:
        return status_of(self)

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


def _nothing_left() -> None:
    """A purged queue has nothing to do when it has given its references back."""


def _nothing_lost(status: MsgStatus) -> None:
    """A deleted queue has nothing to lose."""


def _nothing_unreadable(status: MsgStatus, error: OSError) -> None:
    """A deleted queue has nothing to read."""


def _body_came(queue: BackingQueue) -> None:
    assert isinstance(queue, VariableBackingQueue)
    queue.body_came()


def _leaving_came(queue: BackingQueue) -> None:
    assert isinstance(queue, VariableBackingQueue)
    queue.large.leaving_came()


def _put_aside_back(queue: BackingQueue) -> None:
    assert isinstance(queue, VariableBackingQueue)
    queue.put_aside_back()
