"""The tail of a variable queue: how published messages get in.

A publish becomes a row in the open batch of the journal if it is persistent and the queue durable, and a run at the
tail of q4 or q1. Large bodies go to the shared store before the row that refers to them. Neighbours that lie side by
side are joined into one run. seq_ids count up from where the last life of the queue ended.

Invariants
  1. A seq_id is given once. Messages of one call get neighbouring ones, in order.
  2. A persistent message has its row in the open batch when the call returns, and its body there or in the shared
     store.
  3. A run is joined to the last one only if both lie in one place, side by side, and expire together.
  4. No publish raises OSError: nothing is written here that could not wait (`Homes.open_shared` was called before).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from penstock.backing.variable.homes import Homes
from penstock.backing.zones.journal_spans import JournalSpans
from penstock.backing.zones.msg_status import NOWHERE, MsgStatus
from penstock.backing.zones.zones import Zones
from penstock.message import Entry, Incoming, MessageProps, large_properties_bytes
from penstock.store.queue import places

# Runs at the tail are joined up to this size: fewer objects, and still little to hold on to when most of it was taken.
JOINED_COUNT_MAX: Final = 1024
JOINED_BYTES_MAX: Final = 128 * 1024


@final
class Tail:
    def __init__(self, homes: Homes, zones: Zones, queue_no: int) -> None:
        self.next_seq_id = 0
        # Live persistent messages, ready and pending.
        self.persistent_count = 0
        self.persistent_bytes = 0
        self.delivery_counts = zones.delivery_counts
        # Messages that may have been moved elsewhere before: these, each with a delivery count, and all below.
        self.doubtful: dict[int, None] = {}
        self.doubtful_below = 0
        self._homes = homes
        self._zones = zones
        self._queue_no = queue_no
        self._durable = queue_no >= 0
        self._journal = homes.journal
        # In which segments of the journal the messages lie, and the last batch that had one of them.
        self.spans = JournalSpans()
        self._last_place = NOWHERE

    def publish(self, incoming: Incoming, props: MessageProps | None, delivered: bool) -> bool:
        """Append messages; True when some are persistent."""
        first = self.next_seq_id
        count = incoming.count
        self.next_seq_id = first + count
        if delivered:
            self._mark_delivered(first, count)
        persistent_count = incoming.persistent_count() if self._durable else 0
        entries = incoming.entries_with(props)
        size_each, size, heavy = incoming.size_each, incoming.size_bytes, incoming.heavy_bytes
        if incoming.largest_bytes() >= self._homes.embed_below > 0:
            if incoming.entries is None and size_each >= 0:
                self._append_large(first, entries, props, size_each, size, persistent_count > 0, delivered, heavy)
            else:
                self._append_each(first, entries, delivered)
        elif incoming.is_timed:
            if persistent_count == count:
                self._append_timed(first, entries)
            else:
                self._append_each(first, entries, delivered)
        elif persistent_count == count:
            expiry_ms = -1 if props is None else props.expiry_ms
            entry = self._journal.publish(self._queue_no, first, incoming, expiry_ms)
            lsn = self._journal.next_lsn - count
            self._append_journaled(first, entries, props, size_each, size, entry, delivered, heavy, lsn)
        elif persistent_count == 0:
            self._append(first, entries, props, size_each, size, places.QUEUE_STORE, delivered, heavy)
        else:
            self._append_each(first, entries, delivered)
        return persistent_count > 0

    def _append(
        self,
        first: int,
        entries: list[Entry],
        props: MessageProps | None,
        size_each: int,
        size: int,
        persist_to: int,
        delivered: bool,
        heavy: int,
    ) -> None:
        """Messages that are in RAM only, at the tail."""
        count = len(entries)
        zones = self._zones
        tail = zones.q1 if zones.q3 else zones.q4
        if tail:
            last = tail[-1]
            if (
                last.msg_in_store == places.MEMORY
                and _joins(last, first, props, size, delivered)
                and last.persist_to == persist_to
            ):
                _join(last, entries, size_each, size, heavy > 0)
                zones.count_published(count, size, heavy)
                return
        status = MsgStatus(first, count, entries, props, size_each, size, persist_to)
        status.is_heavy = heavy > 0
        status.is_delivered = delivered
        tail.append(status)
        zones.count_published(count, size, heavy)

    def _append_journaled(
        self,
        first: int,
        entries: list[Entry],
        props: MessageProps | None,
        size_each: int,
        size: int,
        entry: int,
        delivered: bool,
        heavy: int,
        lsn: int,
    ) -> None:
        """Small persistent messages that are in the journal's open batch, from an entry and an LSN on."""
        count = len(entries)
        zones = self._zones
        place = self._journal.place
        self.persistent_count += count
        self.persistent_bytes += size
        tail = zones.q1 if zones.q3 else zones.q4
        if tail:
            last = tail[-1]
            if (
                last.place is place
                and last.msg_in_store == places.JOURNAL
                and last.entry + last.count == entry
                and _joins(last, first, props, size, delivered)
            ):
                _join(last, entries, size_each, size, heavy > 0)
                zones.count_published(count, size, heavy)
                return
        if place is not self._last_place:
            self._last_place = place
            self.spans.note(first, self._journal.segments.position()[0])
        status = MsgStatus(first, count, entries, props, size_each, size, places.QUEUE_STORE)
        status.msg_id = lsn
        status.is_heavy = heavy > 0
        status.is_persistent = True
        status.msg_in_store = places.JOURNAL
        status.place = place
        status.entry = entry
        status.is_delivered = delivered
        tail.append(status)
        zones.count_published(count, size, heavy)

    def _append_large(
        self,
        first: int,
        entries: list[Entry],
        props: MessageProps | None,
        size_each: int,
        size: int,
        persistent: bool,
        delivered: bool,
        heavy: int,
    ) -> None:
        if not persistent:
            self._append(first, entries, props, size_each, size, places.MSG_STORE, delivered, heavy)
            return
        count = len(entries)
        journal = self._journal
        status = MsgStatus(first, count, entries, props, size_each, size, places.MSG_STORE)
        status.is_heavy = heavy > 0
        status.is_persistent = True
        status.addresses = self._homes.keep_large(entries)
        status.msg_in_store = places.MSG_STORE
        sizes = [len(entry[1]) - 1 for entry in entries]
        journal.publish_references(
            self._queue_no, first, entries[0][0], status.addresses, sizes, -1 if props is None else props.expiry_ms
        )
        status.msg_id = journal.next_lsn - count
        self.persistent_count += count
        self.persistent_bytes += size
        status.is_delivered = delivered
        self._zones.tail().append(status)
        self._zones.count_published(count, size, heavy)

    def _append_each(self, first: int, entries: Sequence[Entry], delivered: bool) -> None:
        """Messages that differ in what must happen to them."""
        for offset, entry in enumerate(entries):
            self._append_one(first + offset, entry, self._durable and entry[0].persistent, delivered)

    def _append_timed(self, first: int, entries: Sequence[Entry]) -> None:
        """Small persistent messages with an expiry each: rows of their own, but one place."""
        entry_no = self._journal.publish_timed(self._queue_no, first, entries)
        lsn = self._journal.next_lsn - len(entries)
        for offset, entry in enumerate(entries):
            size = len(entry[1]) - 1
            heavy = large_properties_bytes([entry])
            self._append_journaled(
                first + offset, [entry], entry[2], size, size, entry_no + offset, False, heavy, lsn + offset
            )

    def _append_one(self, seq_id: int, entry: Entry, persistent: bool, delivered: bool) -> None:
        envelope, body, props = entry
        size = len(body) - 1
        heavy = large_properties_bytes([entry])
        if self._homes.is_large(envelope, size):
            self._append_large(seq_id, [entry], props, size, size, persistent, delivered, heavy)
        elif persistent:
            expiry_ms = -1 if props is None else props.expiry_ms
            entry_no = self._journal.publish(self._queue_no, seq_id, Incoming(envelope, [body]), expiry_ms)
            lsn = self._journal.next_lsn - 1
            self._append_journaled(seq_id, [entry], props, size, size, entry_no, delivered, heavy, lsn)
        else:
            self._append(seq_id, [entry], props, size, size, places.QUEUE_STORE, delivered, heavy)

    def forget_counts(self) -> None:
        """All messages are gone."""
        self.delivery_counts.clear()
        self.doubtful.clear()

    def _mark_delivered(self, first: int, count: int) -> None:
        for seq_id in range(first, first + count):
            self.delivery_counts.setdefault(seq_id, 0)


def _joins(last: MsgStatus, first: int, props: MessageProps | None, size: int, delivered: bool) -> bool:
    """Return whether a run can become longer by what is published now."""
    msg = last.msg
    if msg is None or len(msg) >= JOINED_COUNT_MAX or last.size_bytes + size > JOINED_BYTES_MAX:
        return False
    expiry_ms = -1 if props is None else props.expiry_ms
    return (
        last.seq_id + last.count == first
        and last.start + last.count == len(msg)
        and last.is_delivered == delivered
        and last.expiry_ms() == expiry_ms
    )


def _join(last: MsgStatus, entries: list[Entry], size_each: int, size: int, is_heavy: bool) -> None:
    assert last.msg is not None
    last.msg.extend(entries)
    last.count += len(entries)
    last.size_bytes += size
    last.is_heavy = last.is_heavy or is_heavy
    # A run that came back may have a list of sizes, which is too short now; the bodies tell.
    last.sizes = None
    if last.size_each != size_each:
        last.size_each = -1
