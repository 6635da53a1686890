"""First in, first out: the order of a queue from whose middle a message was taken, or whose consumers have filters.

A consumer without a filter gets the first message of the shelf; one with a filter the first that it accepts and has not
refused before. A message that came back is at its old position, and is offered there to every consumer, also to those
that have looked beyond it.

Invariants
  1. A consumer gets what it accepts in the order of seq_ids, except for messages that came back behind its back.
  2. A filter is asked once about a message, and once more for each time the message came back, or was accepted and
     did not fit.
"""

from __future__ import annotations

from penstock.backing.backing_queue import BackingQueue
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.consumers.cursors import Cursors
from penstock.queues.selection.order import Looks, Order
from penstock.queues.selection.selection import SelectionHost
from penstock.queues.selection.shelf import KeyReader, Shelf, Shelved
from penstock.queues.selection.shelf_selection import ShelfSelection


class FifoOrder(Order):
    IS_OF_THE_QUEUE = False

    _cursors: Cursors

    def __init__(self, key_reader: KeyReader | None = None) -> None:
        super().__init__(key_reader)

    def attach(self, shelf: Shelf) -> None:
        super().attach(shelf)
        self._cursors = Cursors(shelf.ids, -1)

    def choose(self, consumer: Consumer | None, looks: Looks) -> Shelved | None:
        if consumer is not None and consumer.filter is not None:
            return self._choose_filtered(consumer, looks)
        if looks.left <= 0:
            return None
        looks.left -= 1
        return self.shelf.first()

    def _choose_filtered(self, consumer: Consumer, looks: Looks) -> Shelved | None:
        cursor = self._cursors.of(consumer)
        chosen_by = consumer.filter
        assert chosen_by is not None
        while looks.left > 0:
            seq_id: int | None = cursor.next_in(self.shelf.ids)
            if seq_id is None:
                return None
            looks.left -= 1
            item = self.shelf.items[seq_id]
            if chosen_by.accepts(seq_id, item.envelope):
                return item
            cursor.passed(seq_id)
        return None

    def has_for(self, consumer: Consumer) -> bool:
        if consumer.filter is None:
            return len(self.shelf) > 0
        return self._cursors.has_more(consumer)

    def added(self, item: Shelved, is_new: bool) -> Shelved | None:
        self._cursors.added(item.seq_id)
        return None

    def cleared(self) -> None:
        self._cursors.cleared()

    def consumer_gone(self, consumer: Consumer) -> None:
        self._cursors.drop(consumer)


def fifo_selection(host: SelectionHost, backing: BackingQueue, has_priorities: bool = False) -> ShelfSelection:
    """For a queue that has no order of its own."""
    return ShelfSelection(host, backing, FifoOrder(), has_priorities=has_priorities)
