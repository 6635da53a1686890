"""Message groups: the messages of one group go to one consumer at a time, in order (Qpid's shared and standard groups).

Shared: a group is a key. It is bound to a consumer while that has at least one delivered, unsettled message of it, and
free when all are settled. A message without a key is of the default group.
Standard: a group is one of 255 buckets of keys. It is bound to the first consumer that takes from it, until that one
leaves and has settled or returned what it had. Messages without a key are of no group: every consumer may take them.

A consumer is given the first message among the free groups and its own, which binds the group; `settled` and `returned`
may free it. basic.get is one more consumer, which binds a group only while a message that it got is unsettled.

Invariants
  1. Each shelved message waits in exactly one group, that of its key.
  2. The delivered messages of a group, unless it is open, are all with the owner it is bound to.
  3. A group that is bound has delivered messages, or is bound for life.
  4. A group with waiting messages is listed: with its owner if it is bound, else among the free ones.
  5. A consumer without a filter gets the messages of a group in the order of seq_ids. One with a filter gets those that
     it accepts in that order, and may leave others behind.

Costs: O(log n) for each message, however many groups and messages wait. A consumer with a filter walks over messages.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from penstock.queues.consumers.consumer import Consumer
from penstock.queues.selection.group_cursors import GroupCursor
from penstock.queues.selection.message_group import NO_NUMBERS, GroupHeap, MessageGroup
from penstock.queues.selection.order import Looks, Order
from penstock.queues.selection.shelf import KeyReader, MessageKey, Shelved
from penstock.queues.selection.sorted_chunks import SortedChunks

# Where messages without a key belong in a queue with shared groups; Qpid's name.
DEFAULT_GROUP: Final = "qpid.no-group"
BUCKETS_MAX: Final = 255
# The key under which messages are kept that are of no group.
NO_BUCKET: Final = -1


class GroupOrder(Order):
    """What shared and standard groups have in common."""

    MAY_BE_FREED = True
    HANDS_PAST = True
    # Whether a consumer keeps a group until it leaves.
    BINDS_FOR_LIFE = False

    def __init__(self, key_reader: KeyReader) -> None:
        super().__init__(key_reader)
        self._groups: dict[MessageKey, MessageGroup] = {}
        self._by_serial: dict[int, MessageGroup] = {}
        self._next_serial = 0
        self._free = GroupHeap(self._by_serial)
        # Heaps of consumers that have a group; None is basic.get.
        self._own: dict[Consumer | None, GroupHeap] = {}
        self._cursors: dict[Consumer, GroupCursor] = {}

    def group_key(self, key: MessageKey | None) -> MessageKey:
        return DEFAULT_GROUP if key is None else key

    # --- choosing -------------------------------------------------------------------------------------

    def choose(self, consumer: Consumer | None, looks: Looks) -> Shelved | None:
        if consumer is not None and consumer.filter is not None:
            return self._choose_filtered(consumer, looks)
        if looks.left <= 0:
            return None
        looks.left -= 1
        group = self._first_group(consumer)
        return None if group is None else self.shelf.items[group.listed_seq_id]

    def _first_group(self, consumer: Consumer | None) -> MessageGroup | None:
        """Of the groups that the consumer may take from, the one whose first message comes first."""
        free = self._free.top()
        heap = self._own.get(consumer)
        if heap is None:
            return free
        own = heap.top()
        if own is None or (free is not None and free.listed_seq_id < own.listed_seq_id):
            return free
        return own

    def _choose_filtered(self, consumer: Consumer, looks: Looks) -> Shelved | None:
        cursor = self._cursors.get(consumer)
        if cursor is None:
            cursor = self._cursors[consumer] = GroupCursor(self._by_serial)
        chosen_by = consumer.filter
        assert chosen_by is not None
        while looks.left > 0:
            seq_id = cursor.next_again(consumer)
            is_again = seq_id is not None
            if seq_id is None:
                seq_id = self.shelf.ids.after(cursor.position)
                if seq_id is None:
                    return None
            looks.left -= 1
            item = self.shelf.items[seq_id]
            assert item.group is not None
            if item.group.is_for(consumer) and chosen_by.accepts(seq_id, item.envelope):
                return item
            if is_again:
                cursor.passed_again()
            else:
                cursor.position = seq_id
        return None

    def has_for(self, consumer: Consumer) -> bool:
        if consumer.filter is None:
            return self._first_group(consumer) is not None
        if not len(self.shelf):
            return False
        cursor = self._cursors.get(consumer)
        return cursor is None or cursor.has_again() or self.shelf.ids.last() > cursor.position

    # --- what happens to messages -----------------------------------------------------------------------

    def added(self, item: Shelved, is_new: bool) -> Shelved | None:
        group = item.group
        if group is None:
            group = item.group = self._group_of(item.key)
        seq_id = item.seq_id
        if group.waiting is NO_NUMBERS:
            group.waiting = SortedChunks()
            self._by_serial[group.serial] = group
        group.waiting.add(seq_id)
        if group.listed is None or seq_id < group.listed_seq_id:
            self._list(group)
        for cursor in self._cursors.values():
            cursor.look_again(group, seq_id)
        return None

    def _group_of(self, message_key: MessageKey | None) -> MessageGroup:
        key = self.group_key(message_key)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = MessageGroup(key, self._next_serial, key == NO_BUCKET and self.BINDS_FOR_LIFE)
            self._next_serial += 1
        return group

    def _list(self, group: MessageGroup) -> None:
        """Put a group with waiting messages where it belongs."""
        (self._own[group.owner] if group.bound else self._free).list(group)

    def removed(self, item: Shelved) -> None:
        group = item.group
        assert group is not None
        item.group = None
        group.waiting.remove(item.seq_id)
        self._forget_if_idle(group)

    def hand_past(self, item: Shelved, consumer: Consumer | None, ack_required: bool) -> bool:
        if consumer is not None and consumer.filter is not None:
            return False
        group = item.group = self._group_of(item.key)
        # Nothing of it waits if the shelf has nothing for the consumer; what waits goes first.
        if not group.is_for(consumer) or len(group.waiting):
            return False
        self._give(group, consumer, ack_required)
        return True

    def handed_out(self, item: Shelved, consumer: Consumer | None, ack_required: bool) -> None:
        group = item.group
        assert group is not None and group.is_for(consumer), "2: a message of another's group"
        group.waiting.remove(item.seq_id)
        self._give(group, consumer, ack_required)

    def _give(self, group: MessageGroup, consumer: Consumer | None, ack_required: bool) -> None:
        """The consumer has one more message of a group, which it may have to itself from now on."""
        group.outstanding += 1
        for_life = self.BINDS_FOR_LIFE and consumer is not None
        if group.bound or group.is_open or not (ack_required or for_life):
            return
        group.bound = True
        group.owner = consumer
        group.bound_for_life = for_life
        heap = self._own.get(consumer)
        if heap is None:
            heap = self._own[consumer] = GroupHeap(self._by_serial)
        heap.bound_count += 1
        group.listed = None
        if len(group.waiting):
            heap.list(group)

    def settled(self, item: Shelved) -> None:
        group = item.group
        assert group is not None
        item.group = None
        self._one_less(group)
        self._forget_if_idle(group)

    def returned(self, item: Shelved) -> bool:
        # It stays in its group, which must not be forgotten meanwhile: it is added in a moment.
        assert item.group is not None
        self._one_less(item.group)
        return True

    def _one_less(self, group: MessageGroup) -> None:
        """A delivered message is settled, or comes back."""
        group.outstanding -= 1
        self._free_if_done(group)

    def _free_if_done(self, group: MessageGroup) -> None:
        if not group.bound or group.outstanding or group.bound_for_life:
            return
        heap = self._own[group.owner]
        heap.bound_count -= 1
        if heap.bound_count == 0:
            del self._own[group.owner]
        group.bound = False
        group.owner = None
        group.listed = None
        if len(group.waiting):
            self._free.list(group)
            self.freed += len(group.waiting)
            for cursor in self._cursors.values():
                cursor.look_again(group, group.listed_seq_id)

    def _forget_if_idle(self, group: MessageGroup) -> None:
        if not group.bound and not group.outstanding and not len(group.waiting):
            del self._groups[group.key]
            if group.waiting is not NO_NUMBERS:
                del self._by_serial[group.serial]

    def cleared(self) -> None:
        for cursor in self._cursors.values():
            cursor.clear()
        for group in list(self._groups.values()):
            group.waiting.clear()
            group.listed = None
            self._forget_if_idle(group)

    def consumer_gone(self, consumer: Consumer) -> None:
        self._cursors.pop(consumer, None)
        if not self.BINDS_FOR_LIFE:
            return
        for group in list(self._groups.values()):
            if group.bound_for_life and group.owner is consumer:
                # What it has not settled keeps the group from others, so that nothing overtakes what may come back.
                group.bound_for_life = False
                self._free_if_done(group)
                self._forget_if_idle(group)

    def check_invariants(self) -> None:
        waiting: list[int] = []
        for group in self._groups.values():
            group.waiting.check_invariants()
            waiting.extend(group.waiting.listed())
            for seq_id in group.waiting.listed():
                assert self.shelf.items[seq_id].group is group, "1: a message waits in another group"
            assert group.bound or group.is_open or not group.outstanding, "2: delivered, and bound to nobody"
            assert not group.bound or group.outstanding or group.bound_for_life, "3: bound for nothing"
            if len(group.waiting):
                assert group.listed is (self._own[group.owner] if group.bound else self._free), "4: listed elsewhere"
                assert group.listed_seq_id <= group.waiting.first(), "4: listed behind its first message"
            assert group.bound or group.outstanding or len(group.waiting), "a group of nothing"
        assert sorted(waiting) == self.shelf.ids.listed(), "1: waiting messages and the shelf"
        had_some = {group for group in self._groups.values() if group.waiting is not NO_NUMBERS}
        assert set(self._by_serial.values()) == had_some, "1: groups by number"
        for owner, heap in self._own.items():
            bound = [group for group in self._groups.values() if group.bound and group.owner is owner]
            assert heap.bound_count == len(bound) > 0, "4: a heap of nobody's groups"


class SharedGroupOrder(GroupOrder):
    """A group is bound while messages of it are delivered and not settled."""


class StandardGroupOrder(GroupOrder):
    """A bucket of groups is bound as long as its consumer lives."""

    BINDS_FOR_LIFE = True

    def group_key(self, key: MessageKey | None) -> MessageKey:
        if key is None:
            return NO_BUCKET
        return crc32(f"{key}".encode("utf-8", "backslashreplace")) % BUCKETS_MAX
