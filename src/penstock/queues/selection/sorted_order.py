"""Sorted: messages are handed out by the value of a header, and in the order of arrival where values are equal.

First come messages without a value (Qpid's rule), then numbers by value, then strings by code points; equal values by
seq_id. So a message that came back is at its old place. All messages are shelved as they are published, since the
lowest may come last. Beyond the shelf's limit messages wait in the backing, and take part when there is room: a longer
queue is sorted in its first part only.

Invariants
  1. `_sorted` has exactly one key for each shelved message.
  2. A message that comes in where a consumer with a filter has looked already is looked at nevertheless.

A crash leaves the messages in the backing, in the order of arrival; they are sorted anew.
"""

from __future__ import annotations

from typing import Final, final

from penstock.queues.consumers.consumer import Consumer
from penstock.queues.consumers.cursors import Cursors
from penstock.queues.selection.order import Looks, Order
from penstock.queues.selection.shelf import KeyReader, MessageKey, Shelved
from penstock.queues.selection.sorted_chunks import SortedChunks

# What comes first of all, then what is compared among its kind only, then the seq_id.
SortKey = tuple[int, str | int | float, int]

WITHOUT_VALUE: Final = 0
NUMBER: Final = 1
STRING: Final = 2
BEFORE_ALL: Final[SortKey] = (-1, 0, 0)


@final
class SortedOrder(Order):
    KNOWS_ALL = True

    def __init__(self, key_reader: KeyReader) -> None:
        super().__init__(key_reader)
        self._sorted = SortedChunks()
        self._cursors = Cursors(self._sorted, BEFORE_ALL)

    def choose(self, consumer: Consumer | None, looks: Looks) -> Shelved | None:
        if consumer is not None and consumer.filter is not None:
            return self._choose_filtered(consumer, looks)
        if looks.left <= 0:
            return None
        looks.left -= 1
        key: SortKey | None = self._sorted.first()
        return None if key is None else self.shelf.items[key[2]]

    def _choose_filtered(self, consumer: Consumer, looks: Looks) -> Shelved | None:
        cursor = self._cursors.of(consumer)
        chosen_by = consumer.filter
        assert chosen_by is not None
        while looks.left > 0:
            key: SortKey | None = cursor.next_in(self._sorted)
            if key is None:
                return None
            looks.left -= 1
            item = self.shelf.items[key[2]]
            if chosen_by.accepts(item.seq_id, item.envelope):
                return item
            cursor.passed(key)
        return None

    def has_for(self, consumer: Consumer) -> bool:
        if consumer.filter is None:
            return len(self._sorted) > 0
        return self._cursors.has_more(consumer)

    def ids_in_order(self) -> list[int]:
        return [key[2] for key in self._sorted.listed()]

    def first_ids(self, count: int) -> list[int]:
        return [key[2] for key in self._sorted.lowest(count)]

    def added(self, item: Shelved, is_new: bool) -> Shelved | None:
        key = sort_key(item.key, item.seq_id)
        self._sorted.add(key)
        self._cursors.added(key)
        return None

    def removed(self, item: Shelved) -> None:
        self._sorted.remove(sort_key(item.key, item.seq_id))

    def handed_out(self, item: Shelved, consumer: Consumer | None, ack_required: bool) -> None:
        self._sorted.remove(sort_key(item.key, item.seq_id))

    def cleared(self) -> None:
        self._sorted.clear()
        self._cursors.cleared()

    def consumer_gone(self, consumer: Consumer) -> None:
        self._cursors.drop(consumer)

    def check_invariants(self) -> None:
        self._sorted.check_invariants()
        assert sorted(self.ids_in_order()) == self.shelf.ids.listed(), "1: sort keys and messages"


def sort_key(value: MessageKey | None, seq_id: int) -> SortKey:
    if value is None:
        return (WITHOUT_VALUE, 0, seq_id)
    if isinstance(value, str):
        return (STRING, value, seq_id)
    return (NUMBER, value, seq_id)
