"""Last values: of the messages with one key only the newest is kept, and those that are left are handed out FIFO.

A new message replaces the shelved one of its key, which is dropped without a trace, as it was overwritten. A delivered
one cannot be taken away from its consumer; it is marked, and not wanted back when it is returned, also when the newer
one is gone by then. The newer one stands at its own position, at the end. Bodies are not compared: an equal value
replaces the old one, too. A message without a key is a plain FIFO message.

Invariants
  1. At most one message of each key is shelved.
  2. `_latest` has a message that is shelved or delivered and not superseded, under its key; and all such with a key.
  3. What is published later is newer. Among messages that come back without having been handed out from here, the one
     with the higher seq_id is.

A crash leaves in the backing what was there; older messages whose replacement was not synced come back, and are
replaced again at the start.
"""

from __future__ import annotations

from typing import final

from penstock.queues.selection.fifo_order import FifoOrder
from penstock.queues.selection.shelf import KeyReader, MessageKey, Shelved


@final
class LastValueOrder(FifoOrder):
    KNOWS_ALL = True
    IS_OF_THE_QUEUE = True

    def __init__(self, key_reader: KeyReader) -> None:
        super().__init__(key_reader)
        self._latest: dict[MessageKey, Shelved] = {}

    def added(self, item: Shelved, is_new: bool) -> Shelved | None:
        super().added(item, is_new)
        key = item.key
        if key is None:
            return None
        latest = self._latest.get(key)
        if latest is None or latest is item:
            self._latest[key] = item
            return None
        if not is_new and item.seq_id < latest.seq_id:
            return item
        self._latest[key] = item
        latest.superseded = True
        return None if latest.delivered else latest

    def removed(self, item: Shelved) -> None:
        self._forget(item)

    def settled(self, item: Shelved) -> None:
        self._forget(item)

    def _forget(self, item: Shelved) -> None:
        if item.key is not None and self._latest.get(item.key) is item:
            del self._latest[item.key]

    def returned(self, item: Shelved) -> bool:
        return not item.superseded

    def cleared(self) -> None:
        super().cleared()
        self._latest = {key: item for key, item in self._latest.items() if item.delivered}

    def check_invariants(self) -> None:
        shelved = [item for item in self.shelf.items.values() if item.key is not None]
        assert len({item.key for item in shelved}) == len(shelved), "1: two messages of a key"
        assert all([self._latest.get(item.key) is item for item in shelved if item.key is not None]), "2: shelved"
        assert all([item.key == key and not item.superseded for key, item in self._latest.items()]), "2: keys"
