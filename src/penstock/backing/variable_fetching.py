"""Fetching from a variable queue: how messages leave its head, and how they are looked at.

What it owns: nothing more than `variable_books`. Where a body is, and reading it, is the business of `zones` and
`homes`.

Life of the data: what is fetched leaves its zone as a run and is pending from then on, or gone if nobody will ack it.
What was read from the disk for a consumer leaves RAM with it, and is read again if it comes back. What is browsed stays
where it is. Rows say who got it, by the number that the caller gives.

Invariants
  1. Those of `variable_books`.
  2. Everything below `zones.next_deliver_seq_id` may have been handed out; what was taken by number from behind it has
     a delivery count. So a restart knows what to mark.
  3. An OSError leaves all of this true. A fetch has then taken nothing; dropwhile and fetchwhile have ended early.

Crash: what was handed out comes back marked redelivered, unless it is gone and that was synced. It does not know
consumers and decides nothing about expiry.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.backing import zone_views
from penstock.backing.backing_queue import EntryVisitor, PropsPredicate
from penstock.backing.msg_status import MsgStatus
from penstock.backing.outcomes import DROPPED, NO_ACTOR, REASON_EXPIRED, REASON_NONE, THE_QUEUE
from penstock.backing.picking import order_given, pick
from penstock.backing.put_back import head_in_ram, head_of
from penstock.backing.variable_books import VariableBooks
from penstock.journal import rows
from penstock.message import Entry, MessageProps, Run


class VariableFetching(VariableBooks):
    """A queue that can be fetched from."""

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
        """A run leaves the head for somebody: it is pending now, or gone."""
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
            # All messages of a run expire together.
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
                found = [self.homes.look_at(rest, 0)]
            else:
                found = zone_views.bodies_of(self.zones, rest)
            if None in found:
                found = found[: found.index(None)]
            entries.extend([entry for entry in found if entry is not None])
            if is_cut or len(found) < count or len(entries) >= count_max:
                break
        return entries
