"""The batch that is being gathered: rows, properties and bodies, until somebody commits them.

Everything here is done per run and without I/O: a row is packed, lists are extended. What grows with the number of
messages is left to C: the lengths and the heap are made of the whole lists when the batch is encoded.

Life of the data: a batch begins empty. `publish`, `settle` and the others add rows; `encode` makes bytes of it, as
often as it takes; `begin_batch` forgets it. A tx is gathered by one caller without a commit in between, so it is in one
batch, and a batch is there whole or not at all: that is what makes a tx atomic.

Invariants
  1. The LSN of an event is `first_lsn` + its index when all rows are written out one event at a time.
  2. Entries [entry, entry + count) of a row are those of messages [seq, seq + count).
  3. A route is named in the batch, a queue or consumer in the segment, by a NAME row before the first row that uses it.
     A consumer's number is never used twice between two starts.
  4. A run of settlements that goes on where the last one ended, with the same actor and arg, is one row. It is held
     open and packed when another row follows, so that rows stay in the order of their events.

A crash loses what is gathered: nothing of it was reported durable. It does not decide when to commit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

from penstock.journal.encoding import Stamp, encode_batch
from penstock.journal.format import REFERENCE_BODY, ROW, ROW_BYTES
from penstock.journal.place import BatchPlace
from penstock.journal.rows import (
    DEFINE,
    FORGET,
    NAME,
    NAME_CONSUMER,
    NAME_QUEUE,
    NAME_ROUTE,
    PERSISTENT,
    PUBLISHED,
    REFERENCE,
    SHARED_PROPS,
)
from penstock.message import Entry, Envelope

# count, route, entry, flags, arg, number: a PUBLISHED row without queue and seq.
Stretch = tuple[int, int, int, int, int, int]

# Bodies that are put together at a time.
FOLD_AFTER: Final = 4096
# Of the text that names a consumer.
ACTOR_NAME_BYTES_MAX: Final = 1024
# The highest number of a consumer that fits in a row, and the highest count.
ACTOR_MAX: Final = (1 << 31) - 1
ROW_COUNT_MAX: Final = (1 << 31) - 1


def do_nothing() -> None:
    return None


class Gathering:
    """Rows and entries of the open batch. The journal adds when and how they are written."""

    def __init__(self) -> None:
        # LSN that the next event will get.
        self.next_lsn = 0
        # Called when an empty batch gets its first row, and when a sync has ended for which nothing else follows: the
        # end of a turn should come, and `commit_due_s` be asked. Must not commit.
        self.gathered: Callable[[], None] = do_nothing
        self._queue_names: dict[int, bytes] = {}
        # Queues whose NAME row is in the segment already.
        self._named: set[int] = set()
        self._actor_names: dict[int, bytes] = {}
        self._named_actors: set[int] = set()
        self._last_actor = 0
        self.begin_batch()

    def begin_batch(self) -> None:
        """Forget what is gathered and begin with nothing."""
        self.place = BatchPlace()
        self._first_lsn = self.next_lsn
        self._is_empty = True
        self._rows: list[bytes] = []
        # Of those entries that have any.
        self._props: list[bytes] = []
        self._props_len = array("i")
        self._bodies: list[bytes] = []
        # Those before them, put together as they came, and how many they are: a large batch is not to be put together
        # when it is written, in one go.
        self._folded: list[bytes] = []
        self._folded_count = 0
        self._folded_len = array("i")
        self._props_bytes = 0
        self._body_bytes = 0
        self._routes: dict[bytes, int] = {}
        # The publish before this one, for fan-out.
        self._last_bodies: Sequence[bytes] | None = None
        self._last_envelope: Envelope | None = None
        self._last_entries: Sequence[Entry] | None = None
        self._last_copy: list[Entry] = []
        self._last_stretches: list[Stretch] = []
        # The settlement that may go on.
        self._open_kind = 0
        self._open_queue = -1
        self._open_seq = 0
        self._open_count = 0
        self._open_bytes = 0
        self._open_actor = 0
        self._open_arg = 0

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, queue_no: int, seq_id: int, envelope: Envelope, bodies: Sequence[bytes], expiry_ms: int) -> int:
        """Add a run; return the index of its first entry. The same bodies once more are not stored again."""
        self._begin_row(queue_no)
        count = len(bodies)
        if bodies is self._last_bodies and envelope is self._last_envelope and self._is_unchanged(bodies):
            _, route, entry, flags, _, _ = self._last_stretches[0]
        else:
            route = self._route(envelope.address)
            flags = SHARED_PROPS | PERSISTENT if envelope.persistent else SHARED_PROPS
            entry = self._add_run(envelope.properties, bodies)
            self._last_bodies = bodies
            self._last_envelope = envelope
            self._last_entries = None
            self._last_stretches = [(count, route, entry, flags, envelope.priority, expiry_ms)]
        self._rows.append(
            ROW.pack(seq_id, queue_no, 0, count, route, entry, PUBLISHED, flags, envelope.priority, expiry_ms)
        )
        self.next_lsn += count
        return entry

    def publish_entries(self, queue_no: int, seq_id: int, entries: Sequence[Entry]) -> int:
        """Add a run of messages that do not share one envelope; return the index of its first entry."""
        assert len(entries) > 0
        self._begin_row(queue_no)
        if entries is not self._last_entries or list(entries) != self._last_copy:
            stretches: list[Sequence[Entry]] = []
            at = 0
            while at < len(entries):
                end = _stretch_end(entries, at)
                # Names first, so that the entries of the run follow each other without a gap.
                self._route(entries[at][0].address)
                stretches.append(entries[at:end])
                at = end
            self._last_bodies = None
            self._last_entries = entries
            self._last_copy = list(entries)
            self._last_stretches = [self._add_stretch(stretch) for stretch in stretches]
        for count, route, entry, flags, priority, expiry_ms in self._last_stretches:
            self._rows.append(ROW.pack(seq_id, queue_no, 0, count, route, entry, PUBLISHED, flags, priority, expiry_ms))
            seq_id += count
            self.next_lsn += count
        return self._last_stretches[0][2]

    def publish_references(
        self,
        queue_no: int,
        seq_id: int,
        envelope: Envelope,
        addresses: Sequence[int],
        sizes: Sequence[int],
        expiry_ms: int,
    ) -> int:
        """Add a run whose bodies are in the shared store; return the index of its first entry."""
        self._begin_row(queue_no)
        route = self._route(envelope.address)
        flags = SHARED_PROPS | REFERENCE | (PERSISTENT if envelope.persistent else 0)
        bodies = [REFERENCE_BODY.pack(address, size) for address, size in zip(addresses, sizes, strict=True)]
        entry = self._add_run(envelope.properties, bodies)
        count = len(bodies)
        self._last_bodies = None
        self._last_entries = None
        self._rows.append(
            ROW.pack(seq_id, queue_no, 0, count, route, entry, PUBLISHED, flags, envelope.priority, expiry_ms)
        )
        self.next_lsn += count
        return entry

    # --- all else ---------------------------------------------------------------------------------

    def settle(
        self, kind: int, queue_no: int, seq_id: int, count: int, size_bytes: int, actor: int = 0, arg: int = 0
    ) -> None:
        """Messages [seq_id, seq_id + count) of the queue were settled; the payload bytes are theirs together.

        `actor` has or had them, `arg` is the reason: see `rows`.
        """
        if (
            kind == self._open_kind
            and queue_no == self._open_queue
            and seq_id == self._open_seq + self._open_count
            and actor == self._open_actor
            and arg == self._open_arg
            and 0 < self._open_count <= ROW_COUNT_MAX - count
        ):
            self._open_count += count
            self._open_bytes += size_bytes
        else:
            self._begin_row(queue_no)
            if actor > 0 and actor not in self._named_actors and not self._name_actor_here(actor):
                actor = 0
            self._open_kind = kind
            self._open_queue = queue_no
            self._open_seq = seq_id
            self._open_count = count
            self._open_bytes = size_bytes
            self._open_actor = actor
            self._open_arg = arg
        self.next_lsn += count

    def define(self, text: bytes) -> None:
        """A change of the definitions."""
        self._begin_row(-1)
        entry = self._add_run(b"", [text])
        self._rows.append(ROW.pack(0, -1, 0, 1, -1, entry, DEFINE, 0, 0, 0))
        self.next_lsn += 1

    def name_queue(self, queue_no: int, text: bytes) -> None:
        """What the number stands for. It is written when the number is used, once in each segment."""
        assert queue_no >= 0
        if self._queue_names.get(queue_no) != text:
            self._queue_names[queue_no] = text
            self._named.discard(queue_no)

    def forget_queue(self, queue_no: int) -> None:
        """The queue is deleted with everything in it."""
        self._begin_row(queue_no)
        self._rows.append(ROW.pack(0, queue_no, 0, 1, -1, -1, FORGET, 0, 0, 0))
        self.next_lsn += 1
        del self._queue_names[queue_no]
        self._named.discard(queue_no)

    def name_actor(self, text: bytes) -> int:
        """A number for a consumer; its name is written when the number is used, once in each segment."""
        assert len(text) <= ACTOR_NAME_BYTES_MAX
        if self._last_actor == ACTOR_MAX:
            return 0
        self._last_actor += 1
        self._actor_names[self._last_actor] = text
        return self._last_actor

    def forget_actor(self, actor: int) -> None:
        """The consumer is gone, and no row will name it again. A number that is not known is ignored."""
        self._actor_names.pop(actor, None)
        self._named_actors.discard(actor)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is gathered."""
        return self._is_empty

    @property
    def gathered_bytes(self) -> int:
        """Roughly what the batch will take on disk."""
        return self._props_bytes + self._body_bytes + len(self._rows) * ROW_BYTES

    # --- rows and entries -------------------------------------------------------------------------

    def _begin_row(self, queue_no: int) -> None:
        """Before a row about a queue (-1: about none)."""
        if self._is_empty:
            self._is_empty = False
            self._begin_gathering()
        if self._open_count > 0:
            self._pack_open()
        if queue_no >= 0 and queue_no not in self._named:
            self._named.add(queue_no)
            entry = self._add_run(b"", [self._queue_names[queue_no]])
            self._rows.append(ROW.pack(queue_no, queue_no, 0, 1, -1, entry, NAME, 0, NAME_QUEUE, 0))
            self.next_lsn += 1

    def _name_actor_here(self, actor: int) -> bool:
        """Name a consumer before its first row in the segment; False when it is not known any more."""
        text = self._actor_names.get(actor)
        if text is None:
            return False
        self._named_actors.add(actor)
        entry = self._add_run(b"", [text])
        self._rows.append(ROW.pack(actor, -1, 0, 1, -1, entry, NAME, 0, NAME_CONSUMER, 0))
        self.next_lsn += 1
        return True

    def _begin_gathering(self) -> None:
        self.gathered()

    def _pack_open(self) -> None:
        self._rows.append(
            ROW.pack(
                self._open_seq,
                self._open_queue,
                self._open_actor,
                self._open_count,
                -1,
                -1,
                self._open_kind,
                0,
                self._open_arg,
                self._open_bytes,
            )
        )
        self._open_count = 0

    def _route(self, address: bytes) -> int:
        """The number of exchange and routing key in this batch."""
        route = self._routes.get(address)
        if route is None:
            route = len(self._routes)
            self._routes[address] = route
            entry = self._add_run(b"", [address])
            self._rows.append(ROW.pack(route, -1, 0, 1, route, entry, NAME, 0, NAME_ROUTE, 0))
            self.next_lsn += 1
        return route

    def _add_run(self, properties: bytes, bodies: Sequence[bytes]) -> int:
        """Entries of which the first has the properties."""
        entry = self._next_entry()
        self._bodies.extend(bodies)
        if properties:
            self._props.append(properties)
        self._props_len.append(len(properties))
        count = len(bodies)
        if count > 1:
            self._props_len.frombytes(bytes(4 * (count - 1)))
        self._props_bytes += len(properties)
        self._body_bytes += sum(map(len, bodies))
        return entry

    def _next_entry(self) -> int:
        """The number of the entry that is added next."""
        if len(self._bodies) >= FOLD_AFTER:
            self._folded.append(b"".join(self._bodies))
            self._folded_len.extend(map(len, self._bodies))
            self._folded_count += len(self._bodies)
            self._bodies = []
        return self._folded_count + len(self._bodies)

    def _add_stretch(self, entries: Sequence[Entry]) -> Stretch:
        """Entries with one address, priority and expiry."""
        envelope, _, props = entries[0]
        route = self._route(envelope.address)
        flags = PERSISTENT if envelope.persistent else 0
        bodies = [entry[1] for entry in entries]
        properties = [entry[0].properties for entry in entries]
        if properties.count(envelope.properties) == len(properties):
            flags |= SHARED_PROPS
            first = self._add_run(envelope.properties, bodies)
        else:
            first = self._next_entry()
            self._bodies.extend(bodies)
            self._props.extend(properties)
            self._props_len.extend(map(len, properties))
            self._props_bytes += sum(map(len, properties))
            self._body_bytes += sum(map(len, bodies))
        expiry_ms = -1 if props is None else props.expiry_ms
        return len(bodies), route, first, flags, envelope.priority, expiry_ms

    def _is_unchanged(self, bodies: Sequence[bytes]) -> bool:
        """Whether a list that was seen before still holds what was stored; lists can be used again."""
        first = self._last_stretches[0][2] - self._folded_count
        return first >= 0 and self._bodies[first : first + len(bodies)] == list(bodies)

    # --- bytes ------------------------------------------------------------------------------------

    def encode(self, stamp: Stamp) -> tuple[list[bytes], int]:
        """The batch as a few pieces, and the checksum of its header. It can be encoded again, and can grow before."""
        if self._open_count > 0:
            self._pack_open()
        events = self.next_lsn - self._first_lsn
        body_len = array("i", self._folded_len)
        body_len.extend(map(len, self._bodies))
        bodies = self._folded + self._bodies
        return encode_batch(stamp, self._first_lsn, events, self._rows, self._props, self._props_len, bodies, body_len)


def _stretch_end(entries: Sequence[Entry], start: int) -> int:
    """Where the entries that can share a row with the first one end."""
    envelope, _, props = entries[start]
    expiry_ms = -1 if props is None else props.expiry_ms
    at = start + 1
    while at < len(entries):
        other, _, other_props = entries[at]
        if other is not envelope and (
            other.address != envelope.address
            or other.priority != envelope.priority
            or other.persistent != envelope.persistent
        ):
            break
        if other_props is not props and (-1 if other_props is None else other_props.expiry_ms) != expiry_ms:
            break
        at += 1
    return at
