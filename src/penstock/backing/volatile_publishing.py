"""Publishing into a volatile queue: where its messages stand in RAM, and how they come in.

What it owns. Ready messages that were never fetched stand in a deque, in order; their seq_ids are not stored, since
they are consecutive and end at `_next_seq_id - 1`. Other ready messages are in a dict by seq_id, with a heap that has
their order, and every one of them is older than the whole deque: a requeued message was taken from the deque's head
before, and what is wanted by number takes all that stands before it out of the deque, once. Pending messages are in a
dict by seq_id. So a message that is published, fetched and acked once costs one append, one popleft and one dict entry,
and the work on a run is done by C code (extend, update), not by a loop in Python.

Life of the data: what is published stands at the end of the deque, and its confirm is due at once. How it leaves is in
`volatile_fetching` and `volatile`.

Invariants, of all three (`VolatileBackingQueue.check_invariants`)
  1. Every seq_id in `_older` and in `_pending` is lower than the first of `_fresh`.
  2. A seq_id is in at most one of the three.
  3. `_ready_bytes`, `_pending_bytes` and `_properties_bytes` equal the sums over what is held.
  4. `_marked` holds only seq_ids of `_fresh` and `_older`.
  5. `_older_ids` is a heap that has every seq_id of `_older`, and perhaps some that have left it, or some twice.

Crash: nothing is left. It does not page, does not throttle and keeps no rates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat

from penstock import limits
from penstock.backing.backing_queue import DOUBTFUL, NOT_DELIVERED, BackingQueue
from penstock.message import ConfirmToken, Entry, Envelope, MessageProps, large_properties_bytes


class VolatilePublishing(BackingQueue):
    """A queue that takes messages."""

    def __init__(self) -> None:
        # Ready, never fetched, oldest first.
        self._fresh: deque[Entry] = deque()
        # Ready before all of these: requeued, or passed by somebody who wanted one behind. By seq_id.
        self._older: dict[int, Entry] = {}
        # Their order: a heap.
        self._older_ids: list[int] = []
        # Whether the heap is sorted throughout, which browsers need.
        self._older_sorted = False
        # Fetched with ack_required, by seq_id.
        self._pending: dict[int, Entry] = {}
        # Ready messages whose next fetch must say redelivered.
        self._marked: set[int] = set()
        # How often messages came back, ready or pending ones; and which of them may have been moved before.
        self._counts: dict[int, int] = {}
        self._doubtful: dict[int, None] = {}
        self._next_seq_id = 0
        # Payload bytes, FRAME-END octets not counted.
        self._ready_bytes = 0
        self._pending_bytes = 0
        # Of properties that are not small, over ready and pending messages. 0 in most queues, which pay nothing for it.
        self._properties_bytes = 0
        # Tokens that the queue has not collected yet.
        self._confirmed: list[ConfirmToken] = []

    # --- publishing -------------------------------------------------------------------------------

    def publish(
        self, envelope: Envelope, bodies: Sequence[bytes], props: MessageProps | None, delivered: int = NOT_DELIVERED
    ) -> int:
        first = self._next_seq_id
        count = len(bodies)
        self._next_seq_id = first + count
        if count == 1:
            body = bodies[0]
            self._fresh.append((envelope, body, props))
            self._ready_bytes += len(body) - 1
        else:
            self._fresh.extend(zip(repeat(envelope), bodies, repeat(props), strict=False))
            self._ready_bytes += sum(map(len, bodies)) - count
        if len(envelope.properties) > limits.SMALL_PROPERTIES_BYTES:
            self._properties_bytes += len(envelope.properties) * count
        if delivered:
            self._marked.update(range(first, first + count))
            if delivered == DOUBTFUL:
                self._doubtful.update(dict.fromkeys(range(first, first + count)))
        if props is not None and props.confirm is not None:
            self._confirmed.append(props.confirm)
        return first

    def publish_entries(self, entries: Sequence[Entry], confirm: ConfirmToken | None) -> int:
        first = self._next_seq_id
        count = len(entries)
        self._next_seq_id = first + count
        self._fresh.extend(entries)
        self._ready_bytes += sum([len(entry[1]) for entry in entries]) - count
        self._properties_bytes += large_properties_bytes(entries)
        if confirm is not None:
            self._confirmed.append(confirm)
        return first

    def publish_delivered(self, envelope: Envelope, bodies: Sequence[bytes], props: MessageProps | None) -> int:
        assert not self._fresh and not self._older, "publish_delivered needs a queue without ready messages"
        first = self._next_seq_id
        self._next_seq_id = first + len(bodies)
        for seq_id, body in enumerate(bodies, first):
            self._pending[seq_id] = (envelope, body, props)
            self._pending_bytes += len(body) - 1
            self._properties_bytes += large_properties_bytes([self._pending[seq_id]])
        if props is not None and props.confirm is not None:
            self._confirmed.append(props.confirm)
        return first

    def _forget_past(self, seq_ids: Iterable[int]) -> None:
        """Messages are gone, and with them what is known of their past."""
        for seq_id in seq_ids:
            self._counts.pop(seq_id, None)
            self._doubtful.pop(seq_id, None)

    def is_duplicate(self, envelope: Envelope, body: bytes) -> bool:
        return False

    def drain_confirmed(self) -> list[ConfirmToken]:
        confirmed = self._confirmed
        if not confirmed:
            # Never the inner list: tokens of later runs would appear in the caller's hands.
            return []
        self._confirmed = []
        return confirmed
