"""A selection over a shelf: everything but the order, which is an object of its own.

Messages are shelved when a caller looks for them and finds nothing nearer (`fetch`, `take`), or as they are published,
where the order must know all of them or messages expire anywhere. Those that a consumer may have as they come out of
the backing are not shelved at all, where the order allows it (`Order.HANDS_PAST`). The shelf is a first part of the
queue: whatever is in the backing comes behind it. With priorities something may be published in front; then that is
shelved too. Consumers get runs where the order gives neighbours, else single messages.

Invariants, besides those of `selection`
  1. A message is on the shelf or in `_delivered`, never in both, and not ready in the backing.
  2. One call looks at LOOKS_PER_FETCH messages, or little more; a fetch that gave up goes on where it was.
  3. The backing and the host are called when shelf and order agree: they may call back.
  4. A message that is gone from the backing is dropped when it would be handed out.
  5. Consumers that found the shelf full are told when there is room. Where others may free what is on it, the shelf is
     full with SHELF_MESSAGES_AHEAD; it grows, step by step, up to SHELF_MESSAGES_MAX, while one of them gets nothing.
  6. History: what is shelved is the queue's. The backing is told who is given a message, and when it comes back.

A crash leaves shelved and delivered messages ready in the backing. After `published(-1, n)` everything that must be
known is shelved anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from penstock import limits
from penstock.backing.backing_queue import BackingQueue
from penstock.backing.outcomes import DROPPED, FETCHED, LOST, NO_ACTOR, PURGED, REASON_NONE, THE_QUEUE
from penstock.message import Entry, Run
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.leaving.dead_letters import EXPIRED
from penstock.queues.selection.order import Looks, Order
from penstock.queues.selection.selection import Selection, SelectionHost
from penstock.queues.selection.shelf import Shelf, Shelved


@final
class ShelfSelection(Selection):
    def __init__(
        self,
        host: SelectionHost,
        backing: BackingQueue,
        order: Order,
        expire_anywhere: bool = False,
        has_priorities: bool = False,
        messages_max: int = limits.SHELF_MESSAGES_MAX,
        looks_max: int = limits.LOOKS_PER_FETCH,
        messages_ahead: int = limits.SHELF_MESSAGES_AHEAD,
    ) -> None:
        self._host = host
        self._backing = backing
        self._order = order
        self._knows_all = order.KNOWS_ALL or expire_anywhere
        self._messages_max = messages_max
        looks_all = self._knows_all or not order.MAY_BE_FREED
        self._messages_ahead = messages_max if looks_all else min(messages_ahead, messages_max)
        self._shelf = Shelf(backing, order.key_reader, expire_anywhere, self._messages_ahead)
        order.attach(self._shelf)
        self._delivered: dict[int, Shelved] = {}
        self._expire_anywhere = expire_anywhere
        # Whether messages may be published in front of what is shelved; also found out by seeing it.
        self._has_priorities = has_priorities
        self._looks_max = looks_max
        # What is ready in the backing has this seq_id or a higher one.
        self._backing_from = 0
        # A consumer found nothing on a full shelf, with more behind it.
        self._found_full = False
        # What was shelved since then: that one has not seen it.
        self._shelved_since = 0
        # When `expire` was called last and left some for later; -1 when it left nothing.
        self._expiring_ms = -1
        # Consumers that found nothing on a shelf that may become larger, since when; None is basic.get.
        self._starving: dict[Consumer | None, int] = {}

    # --- handing out ----------------------------------------------------------------------------------

    def fetch(self, consumer: Consumer | None, count_max: int, bytes_max: int, ack_required: bool) -> Run | None:
        looks = Looks(self._looks_max)
        expired: list[int] = []
        if self._knows_all:
            looks.to_shelve -= self._shelve(looks.to_shelve)
        run: Run | None = None
        actor = NO_ACTOR if consumer is None else consumer.actor
        while run is None:
            chosen = self._choose(consumer, count_max, bytes_max, ack_required, looks, expired)
            if chosen:
                run = self._read(chosen, ack_required, actor)
                continue
            fetched = self._fetch_further(consumer, count_max, looks)
            if fetched is None:
                break
            run = self._hand_past(consumer, fetched, count_max, bytes_max, ack_required)
        if expired:
            self._host.dead_letter(expired, EXPIRED)
        if self._starving and run is not None:
            self._starving.pop(consumer, None)
        self._tell()
        return run

    def _choose(
        self,
        consumer: Consumer | None,
        count_max: int,
        bytes_max: int,
        ack_required: bool,
        looks: Looks,
        expired: list[int],
    ) -> list[Shelved]:
        """Return neighbours that the consumer gets, off the shelf. What has expired is put off it too."""
        now_ms = self._host.wall_ms()
        order = self._order
        shelf = self._shelf
        chosen: list[Shelved] = []
        size = 0
        while len(chosen) < count_max:
            item = order.choose(consumer, looks)
            if item is None:
                break
            if 0 <= item.expiry_ms <= now_ms:
                self._take_off(item)
                expired.append(item.seq_id)
                continue
            if chosen:
                last = chosen[-1]
                if (
                    item.seq_id != last.seq_id + 1
                    or item.redelivered != last.redelivered
                    or size + item.size > bytes_max
                ):
                    break
            size += item.size
            shelf.remove(item)
            item.delivered = True
            order.handed_out(item, consumer, ack_required)
            chosen.append(item)
        return chosen

    def _fetch_further(self, consumer: Consumer | None, count_max: int, looks: Looks) -> Run | None:
        """Nothing on the shelf: take some more out of the backing, if the budget and the shelf allow it."""
        if looks.left <= 0 or looks.to_shelve <= 0 or self._backing.is_empty():
            return None
        room = self._shelf.room()
        if room <= 0:
            self._finds_it_full(consumer)
            return None
        # At first as many as the consumer takes, where they may all be for it.
        is_first = self._order.HANDS_PAST and looks.to_shelve == self._looks_max
        wanted = count_max if is_first else limits.PULL_MESSAGES_MAX
        run = self._shelf.fetch_run(min(wanted, looks.to_shelve, room, limits.PULL_MESSAGES_MAX))
        if run is not None:
            looks.to_shelve -= len(run.entries)
            self._backing_from = run.first_seq_id + len(run.entries)
        return run

    def _hand_past(
        self, consumer: Consumer | None, fetched: Run, count_max: int, bytes_max: int, ack_required: bool
    ) -> Run | None:
        """Give the consumer what it may have from the front of new messages, and shelve the others."""
        items = self._shelf.shelved_of(fetched)
        first = fetched.first_seq_id
        count = 0
        if self._order.HANDS_PAST and not self._has_any(range(first, first + len(items))):
            now_ms = self._host.wall_ms()
            size = 0
            for item in items:
                size += item.size
                if count == count_max or (count and size > bytes_max) or 0 <= item.expiry_ms <= now_ms:
                    break
                if not self._order.hand_past(item, consumer, ack_required):
                    break
                item.delivered = True
                count += 1
        if count < len(items):
            self._put_new(items[count:])
            if self._found_full:
                self._shelved_since += len(items) - count
        if not count:
            return None
        self._given(items[:count], ack_required, NO_ACTOR if consumer is None else consumer.actor)
        return Run(first, fetched.entries[:count], fetched.redelivered)

    def _has_any(self, seq_ids: range) -> bool:
        """Return whether one of the numbers is known already: it was requeued, and is pending again."""
        if self._shelf.items and not self._shelf.items.keys().isdisjoint(seq_ids):
            return True
        return bool(self._delivered) and not self._delivered.keys().isdisjoint(seq_ids)

    def _read(self, chosen: list[Shelved], ack_required: bool, actor: int) -> Run | None:
        """The run of what was chosen, up to a message that is gone; None when the first is. The rest goes back."""
        first = chosen[0].seq_id
        try:
            found = self._shelf.read(range(first, first + len(chosen)))
        except BaseException:
            self._put_back(chosen)
            raise
        entries: list[Entry] = [entry for _, entry in found]
        if len(found) < len(chosen):
            count = 0
            while count < len(found) and found[count][0] == first + count:
                count += 1
            self._lost(chosen[count])
            self._put_back(chosen[count + 1 :])
            if count == 0:
                return None
            del chosen[count:]
            del entries[count:]
        self._given(chosen, ack_required, actor)
        return Run(first, entries, chosen[0].redelivered)

    def _given(self, items: list[Shelved], ack_required: bool, actor: int) -> None:
        """Neighbours were handed out to a consumer."""
        seq_ids = range(items[0].seq_id, items[-1].seq_id + 1)
        if ack_required:
            delivered = self._delivered
            for item in items:
                delivered[item.seq_id] = item
            self._backing.note_given(seq_ids, actor)
        else:
            self._backing.ack(seq_ids, FETCHED, REASON_NONE, actor)
            for item in items:
                self._order.settled(item)

    def _lost(self, item: Shelved) -> None:
        """A message that was handed out cannot be read: it is gone, or damaged."""
        self._order.settled(item)
        self._backing.ack([item.seq_id], LOST)

    def _put_back(self, items: list[Shelved]) -> None:
        """Messages that were handed out were not delivered after all."""
        for item in items:
            if self._order.returned(item):
                self._put(item, False)

    def has_for(self, consumer: Consumer) -> bool:
        if self._order.has_for(consumer) or self._shelf.can_grow():
            return True
        if not self._backing.is_empty():
            self._finds_it_full(consumer)
        return False

    def _finds_it_full(self, consumer: Consumer | None) -> None:
        """The consumer is told when there is room. If it gets nothing until then, the shelf becomes larger."""
        self._found_full = True
        if consumer not in self._starving and self._shelf.messages_max < self._messages_max:
            now_ms = self._host.wall_ms()
            self._starving[consumer] = now_ms
            self._host.wake_at(now_ms + limits.SHELF_STEP_MS)

    def _feed_starving(self, now_ms: int) -> None:
        """Let the shelf grow by a step, if a consumer has waited long enough for something on it."""
        since_ms = min(self._starving.values())
        # One in the future: the clock was set back.
        if since_ms <= now_ms < since_ms + limits.SHELF_STEP_MS:
            return
        self._shelf.messages_max = min(self._messages_max, self._shelf.messages_max + limits.SHELF_STEP_MESSAGES)
        # Those that still find nothing are noted anew.
        self._starving.clear()

    # --- shelving -------------------------------------------------------------------------------------

    def _shelve(self, count_max: int) -> int:
        """Take messages out of the backing, as far as there is room; how many were taken."""
        taken = 0
        while taken < count_max and self._shelf.can_grow():
            run = self._shelf.fetch_run(min(count_max - taken, self._shelf.room(), limits.PULL_MESSAGES_MAX))
            if run is None:
                break
            items = self._shelf.shelved_of(run)
            taken += len(items)
            self._backing_from = items[-1].seq_id + 1
            self._put_new(items)
        if self._found_full:
            self._shelved_since += taken
        return taken

    def _put_new(self, items: list[Shelved]) -> None:
        shelf = self._shelf
        order = self._order
        seq_ids = range(items[0].seq_id, items[-1].seq_id + 1)
        if not shelf.items.keys().isdisjoint(seq_ids):
            # They were requeued, and are pending again now.
            items = [item for item in items if item.seq_id not in shelf.items]
        if self._delivered:
            for seq_id in seq_ids:
                known = self._delivered.pop(seq_id, None)
                if known is not None:
                    order.settled(known)
        shelf.put_all(items)
        given_up: list[int] = []
        for item in items:
            unwanted = order.added(item, True)
            if unwanted is not None:
                self._take_off(unwanted)
                given_up.append(unwanted.seq_id)
        if given_up:
            self._backing.ack(given_up, DROPPED)

    def _put(self, item: Shelved, is_new: bool) -> Shelved | None:
        """Onto the shelf; a message that is not wanted any more because of that is off it, and returned."""
        item.delivered = False
        self._shelf.put(item)
        unwanted = self._order.added(item, is_new)
        if unwanted is not None:
            self._take_off(unwanted)
        return unwanted

    def _take_off(self, item: Shelved) -> None:
        """Off the shelf, and not to a consumer."""
        self._shelf.remove(item)
        self._order.removed(item)

    def _shelve_in_front(self) -> None:
        """What is ready in front of shelved messages is shelved too, as far as there is room."""
        last: int | None = self._shelf.ids.last()
        while last is not None and self._backing_from <= last and self._shelf.can_grow():
            head = self._backing.browse(0, 1, 0)
            if head is None:
                break
            self._backing_from = head.first_seq_id
            if head.first_seq_id < last:
                self._shelve(min(limits.PULL_MESSAGES_MAX, last - head.first_seq_id))

    def published(self, first_seq_id: int, count: int) -> None:
        if 0 <= first_seq_id < self._backing_from:
            self._has_priorities = True
        if self._has_priorities or first_seq_id < 0:
            # Anywhere: what is published together may have several priorities.
            self._backing_from = 0
        if self._knows_all:
            # Also what found no room before; after a start that is everything.
            self._shelve(limits.SHELF_MESSAGES_MAX)
        else:
            self._shelve_in_front()
        self._tell()

    def adopt(self, other: ShelfSelection) -> None:
        """Take over what another selection of the queue has shelved: the queue has another order now.

        What was delivered by the other one is not known here, and is dealt with when it is settled or comes back.
        """
        given_up: list[int] = []
        for item in other.give_up():
            key = self._shelf.key_of(item.envelope)
            adopted = Shelved(item.seq_id, item.envelope, item.size, item.expiry_ms, item.redelivered, key)
            unwanted = self._put(adopted, True)
            if unwanted is not None:
                given_up.append(unwanted.seq_id)
        # What is ready in the backing may stand anywhere.
        self._backing_from = 0
        if given_up:
            self._backing.ack(given_up, DROPPED)
        if self._knows_all:
            self._shelve(limits.SHELF_MESSAGES_MAX)
        self._tell()

    def give_up(self) -> list[Shelved]:
        """Return everything on the shelf, the lowest number first. It is not used afterwards."""
        items = self._shelf.items
        return [items[seq_id] for seq_id in self._shelf.ids.listed()]

    # --- what becomes of it ---------------------------------------------------------------------------

    def settled(self, seq_ids: Sequence[int]) -> None:
        for seq_id in seq_ids:
            item = self._delivered.pop(seq_id, None)
            if item is not None:
                self._order.settled(item)
        self._tell()

    def returned(self, seq_ids: Sequence[int]) -> list[int]:
        unwanted: list[int] = []
        strangers: list[int] = []
        for seq_id in seq_ids:
            item = self._delivered.pop(seq_id, None)
            if item is None:
                if seq_id not in self._shelf.items:
                    strangers.append(seq_id)
            elif self._order.returned(item):
                self._return(item, unwanted)
            else:
                self._order.settled(item)
                unwanted.append(seq_id)
        back = [seq_id for seq_id in seq_ids if seq_id in self._shelf.items]
        if strangers:
            for item in self._shelf.read_pending(strangers):
                self._return(item, unwanted)
                # Its number may be another one now than that which it was given back by.
                if item.seq_id in self._shelf.items:
                    back.append(item.seq_id)
        self._backing.note_returned(back)
        self._shelve_in_front()
        self._tell()
        return unwanted

    def _return(self, item: Shelved, unwanted: list[int]) -> None:
        item.redelivered = True
        replaced = self._put(item, False)
        if replaced is not None:
            unwanted.append(replaced.seq_id)

    def consumer_gone(self, consumer: Consumer) -> None:
        self._starving.pop(consumer, None)
        self._order.consumer_gone(consumer)
        self._tell()

    def _tell(self) -> None:
        """Have consumers notified of what they can get now and could not get before."""
        shelf = self._shelf
        if shelf.messages_max > self._messages_ahead > len(shelf) and not self._starving:
            shelf.messages_max = self._messages_ahead
        freed = self._order.freed
        self._order.freed = 0
        if self._found_full and (self._shelved_since or self._shelf.can_grow()):
            freed += self._shelved_since + min(max(self._shelf.room(), 0), len(self._backing))
            self._found_full = False
            self._shelved_since = 0
        if freed:
            self._host.became_available(freed)

    # --- by number --------------------------------------------------------------------------------------

    def take(self, seq_ids: Sequence[int]) -> list[int]:
        items = self._shelf.items
        behind = [seq_id for seq_id in seq_ids if seq_id not in items]
        had = {seq_id for seq_id, _ in self._backing.fetch_at(behind, THE_QUEUE)} if behind else set()
        found: list[int] = []
        for seq_id in seq_ids:
            item = items.get(seq_id)
            if item is not None:
                self._take_off(item)
                found.append(seq_id)
            elif seq_id in had:
                had.discard(seq_id)
                found.append(seq_id)
        self._tell()
        return found

    def expire(self, now_ms: int) -> None:
        expired: list[int] = []
        due = self._shelf.due
        if due is not None:
            expired = due.pop_due(now_ms, self._looks_max)
            for seq_id in expired:
                self._take_off(self._shelf.items[seq_id])
        else:
            head = self._shelf.first()
            while head is not None and 0 <= head.expiry_ms <= now_ms and len(expired) < self._looks_max:
                self._take_off(head)
                expired.append(head.seq_id)
                head = self._shelf.first()
        self._expiring_ms = now_ms if len(expired) >= self._looks_max else -1
        if self._starving:
            self._feed_starving(now_ms)
        if expired:
            self._host.dead_letter(expired, EXPIRED)
        self._tell()

    def next_expiry_ms(self) -> int:
        due = self._shelf.due
        if due is not None:
            due_ms = due.next_due_ms()
        else:
            head = self._shelf.first()
            due_ms = -1 if head is None else head.expiry_ms
        # What was left for later is not done in the same millisecond: sockets are read in between.
        if due_ms >= 0:
            due_ms = max(due_ms, self._expiring_ms + 1)
        if not self._starving:
            return due_ms
        step_ms = min(self._starving.values()) + limits.SHELF_STEP_MS
        return step_ms if due_ms < 0 else min(due_ms, step_ms)

    def purge(self) -> int:
        seq_ids = self._shelf.ids.listed()
        self._shelf.clear()
        self._order.cleared()
        purged = self._backing.ack(seq_ids, PURGED) if seq_ids else 0
        self._tell()
        return purged

    # --- looking in -------------------------------------------------------------------------------------

    def ready_count(self) -> int:
        return len(self._shelf)

    def ready_bytes(self) -> int:
        return self._shelf.size_bytes

    def shelved_ids(self) -> list[int]:
        return self._order.ids_in_order()

    def first_shelved(self, count: int) -> list[int]:
        return self._order.first_ids(count)

    def shelved_from(self, seq_id: int, count: int) -> list[int]:
        return self._shelf.ids.listed_from(seq_id, count)

    def has(self, seq_id: int) -> bool:
        return seq_id in self._shelf.items

    def is_redelivered(self, seq_id: int) -> bool:
        item = self._shelf.items.get(seq_id)
        return item is not None and item.redelivered

    def is_needed(self) -> bool:
        return self._order.IS_OF_THE_QUEUE or self._expire_anywhere or len(self._shelf) > 0

    def check_invariants(self) -> None:
        self._shelf.check_invariants()
        self._order.check_invariants()
        assert not self._delivered.keys() & self._shelf.items.keys(), "1: shelved and delivered"
        assert all([item.delivered for item in self._delivered.values()]), "1: delivered"
        assert not any([item.delivered for item in self._shelf.items.values()]), "1: shelved"
        ready: list[int] = []

        def visit(seq_id: int, entry: Entry, pending: bool) -> bool:
            if not pending:
                ready.append(seq_id)
            return True

        self._backing.fold(visit)
        assert not self._delivered.keys() & set(ready), "1: delivered, and ready in the backing"
        assert not self._shelf.items.keys() & set(ready), "1: shelved, and ready in the backing"
        assert sorted(self.shelved_ids()) == self._shelf.ids.listed(), "the order and the shelf"
