"""The shelf: messages that were taken out of the backing and are still ready, as far as clients can see.

A run from the head of the backing is pending there as soon as it is shelved. The shelf has what must be known of each
message to choose it (`Shelved`), without its body; bodies stay in the backing, which may page them out. What becomes of
a removed message in the backing is the caller's matter.

Invariants
  1. `items` and `ids` have the same messages, each once.
  2. `size_bytes` is the sum of their payloads.
  3. No more than `messages_max` are on it, except for some that came back.
  4. Where messages expire anywhere, `due` has each message that expires, once, with its expiry.

A crash leaves its messages ready in the backing, as pending ones are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from penstock import limits
from penstock.backing.backing_queue import BackingQueue
from penstock.backing.outcomes import THE_QUEUE
from penstock.message import Entry, Envelope, Run
from penstock.queues.delayed.timetable import Timetable
from penstock.queues.selection.message_group import MessageGroup
from penstock.queues.selection.sorted_chunks import SortedChunks

# A group, a last value, a sort key.
MessageKey = str | int | float
# What the order looks at in a message: a header, mostly. None: the message has none.
KeyReader = Callable[[Envelope], str | int | float | None]


@final
class Shelved:
    """A message without its body."""

    __slots__ = ("delivered", "envelope", "expiry_ms", "group", "key", "redelivered", "seq_id", "size", "superseded")

    def __init__(
        self, seq_id: int, envelope: Envelope, size: int, expiry_ms: int, redelivered: bool, key: MessageKey | None
    ) -> None:
        self.seq_id = seq_id
        self.envelope = envelope
        # Payload bytes.
        self.size = size
        # Wall-clock milliseconds; -1 = never.
        self.expiry_ms = expiry_ms
        # What its next delivery says.
        self.redelivered = redelivered
        self.key = key
        # Handed out and not settled: not on the shelf now.
        self.delivered = False
        # Where messages are grouped.
        self.group: MessageGroup | None = None
        # A newer message of its key came while it was delivered.
        self.superseded = False


@final
class Shelf:
    def __init__(
        self,
        backing: BackingQueue,
        key_reader: KeyReader | None,
        expire_anywhere: bool,
        messages_max: int = limits.SHELF_MESSAGES_MAX,
    ) -> None:
        self._backing = backing
        self._key_reader = key_reader
        self.messages_max = messages_max
        self.items: dict[int, Shelved] = {}
        self.ids = SortedChunks()
        self.size_bytes = 0
        self.due: Timetable | None = Timetable() if expire_anywhere else None
        # The key of the envelope that was read last: messages of a run share theirs.
        self._last_envelope: Envelope | None = None
        self._last_key: MessageKey | None = None

    def __len__(self) -> int:
        return len(self.items)

    def room(self) -> int:
        """Return how many more may be fetched."""
        return self.messages_max - len(self.items)

    def can_grow(self) -> bool:
        """Return whether there is something to fetch, and room for it."""
        return len(self.items) < self.messages_max and not self._backing.is_empty()

    def fetch_run(self, count_max: int) -> Run | None:
        """Take messages from the head of the backing; None when there are none."""
        return self._backing.fetch(count_max, limits.PULL_BYTES_MAX, True, THE_QUEUE)

    def shelved_of(self, run: Run) -> list[Shelved]:
        """What is to be known of messages that were fetched; they are not on the shelf before they are `put` there."""
        items: list[Shelved] = []
        seq_id = run.first_seq_id
        for entry in run.entries:
            items.append(self._shelved(seq_id, entry, run.redelivered))
            seq_id += 1
        return items

    def read_pending(self, seq_ids: Sequence[int]) -> list[Shelved]:
        """Return messages that were delivered before the shelf was there; those that are not pending are left out."""
        return [self._shelved(seq_id, entry, True) for seq_id, entry in self.read(seq_ids)]

    def _shelved(self, seq_id: int, entry: Entry, redelivered: bool) -> Shelved:
        envelope, body, props = entry
        expiry_ms = -1 if props is None else props.expiry_ms
        return Shelved(seq_id, envelope, len(body) - 1, expiry_ms, redelivered, self.key_of(envelope))

    def key_of(self, envelope: Envelope) -> MessageKey | None:
        """Return what the order looks at; None where it looks at nothing."""
        if self._key_reader is None:
            return None
        if envelope is not self._last_envelope:
            key = self._key_reader(envelope)
            # A number that does not equal itself has no place in any order.
            self._last_key = key if key == key else None
            self._last_envelope = envelope
        return self._last_key

    def put(self, item: Shelved) -> None:
        seq_id = item.seq_id
        assert seq_id not in self.items, "a message is shelved once"
        self.items[seq_id] = item
        self.ids.add(seq_id)
        self.size_bytes += item.size
        if self.due is not None and item.expiry_ms >= 0:
            self.due.add(item.expiry_ms, seq_id, 1)

    def put_all(self, items: list[Shelved]) -> None:
        """Put messages there that were taken from the head of the backing together."""
        self.items.update([(item.seq_id, item) for item in items])
        self.ids.add_all([item.seq_id for item in items])
        self.size_bytes += sum([item.size for item in items])
        if self.due is not None:
            for item in items:
                if item.expiry_ms >= 0:
                    self.due.add(item.expiry_ms, item.seq_id, 1)

    def remove(self, item: Shelved) -> None:
        seq_id = item.seq_id
        del self.items[seq_id]
        self.ids.remove(seq_id)
        self.size_bytes -= item.size
        if self.due is not None and item.expiry_ms >= 0:
            self.due.remove(item.expiry_ms, seq_id)

    def clear(self) -> None:
        self.items.clear()
        self.ids.clear()
        self.size_bytes = 0
        if self.due is not None:
            self.due.clear()

    def read(self, seq_ids: Sequence[int]) -> list[tuple[int, Entry]]:
        """Return the messages with their bodies, in the order given; those that are no longer pending are left out."""
        found: list[tuple[int, Entry]] = []

        def visit(seq_id: int, entry: Entry) -> None:
            found.append((seq_id, entry))

        self._backing.ackfold(visit, seq_ids)
        return found

    def first(self) -> Shelved | None:
        seq_id: int | None = self.ids.first()
        return None if seq_id is None else self.items[seq_id]

    def check_invariants(self) -> None:
        self.ids.check_invariants()
        assert self.ids.listed() == sorted(self.items), "1: numbers and messages"
        assert all([item.seq_id == seq_id for seq_id, item in self.items.items()]), "1: a message under another number"
        assert sum([item.size for item in self.items.values()]) == self.size_bytes, "2: bytes"
        if self.due is not None:
            self.due.check_invariants()
            expiring = [item for item in self.items.values() if item.expiry_ms >= 0]
            assert len(self.due) == len(expiring), "4: how many expire"
            assert all([self.due.has(item.expiry_ms, item.seq_id) for item in expiring]), "4: expiries"
