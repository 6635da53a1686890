"""The journal: one append-only log for the node, committed in groups.

Rows gather in RAM: `publish`, `settle`, `define` and the others pack a row for a run of messages and extend lists,
without I/O. `commit` makes one batch of all that is gathered, writes it with one call and has it synced; when the
syncer answers, the waiters are told. While a sync is under way the next batch gathers. Batches are read back by place,
and go when their segment is removed.

A transaction is gathered by one caller without a commit in between, so it is in one batch, and a batch is there whole
or not at all: that is what makes a transaction atomic.

Invariants of rows
  1. LSNs are exclusive ends: everything below `durable_lsn` is durable, `next_lsn` is given out next. The LSN of an
     event is the batch's first + its index when all rows are written out one event at a time.
  2. Entries [entry, entry + count) of a row are those of messages [seq, seq + count).
  3. A route is named in the batch, a queue or consumer in the segment, by a NAME row before the first row that uses it.
     A consumer's number is never used twice between two starts.
  4. A run of settlements that goes on where the last one ended, with the same actor and arg, is one row. It is held
     open and packed when another row follows, so that rows stay in the order of their events.

Invariants of commits
  5. One write is in flight. A batch is written only when everything before it is durable: this is what tells a torn
     tail from rot (`replay`), and `durable_lsn` in a header equals its `first_lsn`.
  6. A waiter is called once, in the order of asking: True when everything gathered before it asked is durable.
  7. A failed write or sync is final (`failed`): nothing is written or reported durable any more. A full disk is not:
     the waiters get False, the batch is kept, nothing of it is left on disk, and later commits try again. Nor is a
     machine that is out of descriptors or memory (`stalled`): there the waiters keep waiting.
  8. Files given to `sync_first` are synced before the segment, by the same request. So is the folder, when the segment
     is new.
  9. A waiter that raises keeps no other one from its answer. Its error is handed to `waiter_failed`, or raised when all
     waiters were told.
 10. While a caller holds it open, the batch is not written, however large it is. Nor is it while a file that it refers
     to is being written (`is_behind`), unless it is urgent.
 11. A commit mark follows when the journal has gone idle, one for each idle time. No waiter waits for it.

Invariants of segments
 12. Nothing is appended to a segment of an earlier life: recovery replays what the last life has left (`replay`) and
     calls `start`, which begins a new one.
 13. Every byte that is read back was compared with a checksum.
 14. The newest segment whose name is durable is never removed.

A crash loses the gathering batch and any part of the one in flight; no waiter was told that they are durable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from errno import EDQUOT, EFBIG, ENOMEM, ENOSPC
from typing import Final

from penstock.clock import Clock
from penstock.disk.files import File, Files, is_temporary
from penstock.journal.entries import Entries, stretch_end
from penstock.journal.format.encoding import Stamp
from penstock.journal.format.layout import COMMIT_MARK, EVENTS_MAX, HEAP_BYTES_MAX, REFERENCE_BODY, ROW, ROW_BYTES
from penstock.journal.format.rows import (
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
from penstock.journal.names import Names
from penstock.journal.options import FSYNC, NONE, JournalOptions
from penstock.journal.place import BatchPlace
from penstock.journal.reading.batch_cache import BatchCache
from penstock.journal.segment import Segments, SegmentWriter
from penstock.journal.syncer import Syncer
from penstock.message import Entry, Envelope, Incoming

Waiter = Callable[[bool], None]
# count, route, entry, flags, arg: a PUBLISHED row without queue, seq and expiry.
Stretch = tuple[int, int, int, int, int]

# The highest count that fits in a row.
ROW_COUNT_MAX: Final = (1 << 31) - 1
# How often room is asked for before a batch is given up for now.
MAKE_ROOM_TRIES: Final = 2
# A batch of at most this size, for which one waits, may be synced on the spot.
SMALL_BYTES: Final = 16 * 1024
# When a batch that could not be written is tried again: soon while the machine is out of descriptors or memory, later
# while the disk is full and the batch is so large that building it again costs something.
STALLED_S: Final = 0.05
FULL_S: Final = 0.25


def do_nothing() -> None:
    return None


def no_room() -> bool:
    return False


def nothing_missing() -> bool:
    return False


class Journal:
    def __init__(
        self,
        files: Files,
        folder: str,
        syncer: Syncer,
        clock: Clock,
        options: JournalOptions,
        salt: Callable[[], int],
    ) -> None:
        assert sys.byteorder == "little", "the arrays of a batch are written as they are in memory"
        self._syncer = syncer
        self._clock = clock
        self._options = options
        self.names = Names()
        self.segments = Segments(files, folder, clock, salt)
        self.batches = BatchCache(files, folder, options.cache_bytes, options.view_bytes)
        # Called before a batch is built: stores write what the batch refers to, and call `sync_first`.
        self.before_write: list[Callable[[], None]] = []
        # Whether something that the batch refers to is still being written: only who is urgent does not wait for it.
        self.is_behind: Callable[[], bool] = nothing_missing
        # Called when the disk is full: makes room and returns True, or returns False.
        self.disk_full: Callable[[], bool] = no_room
        # Called with what a waiter raised; None: it is raised when all are told.
        self.waiter_failed: Callable[[Exception], None] | None = None
        self.in_flight = False
        self.failed: OSError | None = None
        # Why the batch could not be written when it was last tried, if it is to be tried again; for people.
        self.stalled: OSError | None = None
        self.durable_lsn = 0
        self.bytes_written = 0
        # The waiters of the gathering batch, and of the one in flight.
        self._waiters: list[Waiter] = []
        self._waiters_in_flight: list[Waiter] = []
        self._lsn_in_flight = 0
        self._sync_first: list[File] = []
        # When the gathering batch got its first row; with a full disk, when it was last tried.
        self._since_s = 0.0
        self._is_disk_full = False
        self._retry_s = 0.0
        # The batch as it was built for a write that failed, and what it was built for.
        self._built: tuple[list[bytes], int] | None = None
        self._built_for: tuple[int, int, int] = (-1, -1, -1)
        # Whether the segment is to be left behind the gathering batch.
        self._roll_after = False
        # When the last batch became durable that has no commit mark behind it; -1 when there is none.
        self._unmarked_since_s = -1.0
        self._is_committing = False
        # Those who gather what must be in one batch, and have not finished.
        self._holds = 0
        # LSN that the next event will get.
        self.next_lsn = 0
        # Called when an empty batch gets its first row, and when a sync has ended for which nothing else follows: the
        # end of a turn should come, and `commit_due_s` be asked. Must not commit.
        self.gathered: Callable[[], None] = do_nothing
        self.begin_batch()

    def start(self, next_segment: int, next_lsn: int) -> None:
        """Begin a new segment. Everything before `next_lsn` is durable."""
        assert self.segments.newest is None and self._is_empty
        self.next_lsn = next_lsn
        self.durable_lsn = next_lsn
        self.begin_batch()
        self.segments.start(next_segment, next_lsn)

    def close(self) -> None:
        """Give the files back. What is gathered is lost, as in a crash: commit before, and wait for it."""
        self.segments.close()
        self.batches.close()
        self._answer_all(False)

    def begin_batch(self) -> None:
        """Forget what is gathered and begin with nothing."""
        self.place = BatchPlace()
        self._first_lsn = self.next_lsn
        self._is_empty = True
        self._rows: list[bytes] = []
        self._entries = Entries()
        self._routes: dict[bytes, int] = {}
        # The publish before this one, for fan-out.
        self._last_incoming: Incoming | None = None
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

    def publish(self, queue_no: int, seq_id: int, incoming: Incoming, expiry_ms: int) -> int:
        """Add messages; return the index of their first entry. The same ones for another queue are not stored again."""
        self._begin_row(queue_no)
        if incoming is not self._last_incoming:
            self._last_stretches = self._add_stretches(incoming)
            self._last_incoming = incoming
        for count, route, entry, flags, priority in self._last_stretches:
            self._rows.append(ROW.pack(seq_id, queue_no, 0, count, route, entry, PUBLISHED, flags, priority, expiry_ms))
            seq_id += count
            self.next_lsn += count
        return self._last_stretches[0][2]

    def _add_stretches(self, incoming: Incoming) -> list[Stretch]:
        """Add the entries of messages; each stretch of them that shares what a row says is one row."""
        entries = incoming.entries
        if entries is None:
            envelope = incoming.envelope
            route = self._route(envelope.address)
            flags = SHARED_PROPS | PERSISTENT if envelope.persistent else SHARED_PROPS
            first = self._entries.add(envelope.properties, incoming.bodies)
            return [(incoming.count, route, first, flags, envelope.priority)]
        stretches: list[Sequence[Entry]] = []
        at = 0
        while at < len(entries):
            end = stretch_end(entries, at)
            # Names first, so that the entries of the run follow each other without a gap.
            self._route(entries[at][0].address)
            stretches.append(entries[at:end])
            at = end
        return [self._add_stretch(stretch) for stretch in stretches]

    def publish_timed(self, queue_no: int, seq_id: int, entries: Sequence[Entry]) -> int:
        """Add messages of which each has an envelope and an expiry of its own; return the index of the first entry."""
        self._begin_row(queue_no)
        # Names first, so that the entries follow each other without a gap.
        routes = [self._route(entry[0].address) for entry in entries]
        first = self._entries.add_each([entry[0].properties for entry in entries], [entry[1] for entry in entries])
        self._last_incoming = None
        at = first
        for route, (envelope, _, props) in zip(routes, entries, strict=True):
            flags = PERSISTENT if envelope.persistent else 0
            expiry_ms = -1 if props is None else props.expiry_ms
            self._rows.append(
                ROW.pack(seq_id, queue_no, 0, 1, route, at, PUBLISHED, flags, envelope.priority, expiry_ms)
            )
            seq_id += 1
            at += 1
        self.next_lsn += len(entries)
        return first

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
        entry = self._entries.add(envelope.properties, bodies)
        count = len(bodies)
        self._last_incoming = None
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
            if actor > 0 and actor not in self.names.named_actors and not self._name_actor_here(actor):
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
        self._begin_row(-1)
        entry = self._entries.add(b"", [text])
        self._rows.append(ROW.pack(0, -1, 0, 1, -1, entry, DEFINE, 0, 0, 0))
        self.next_lsn += 1

    def forget_queue(self, queue_no: int) -> None:
        self._begin_row(queue_no)
        self._rows.append(ROW.pack(0, queue_no, 0, 1, -1, -1, FORGET, 0, 0, 0))
        self.next_lsn += 1
        self.names.forget_queue(queue_no)

    @property
    def is_empty(self) -> bool:
        return self._is_empty

    @property
    def gathered_bytes(self) -> int:
        """Roughly what the batch will take on disk."""
        entries = self._entries
        return entries.props_bytes + entries.body_bytes + len(self._rows) * ROW_BYTES

    # --- rows and entries -------------------------------------------------------------------------

    def _begin_row(self, queue_no: int) -> None:
        """Before a row about a queue (-1: about none)."""
        if self._is_empty:
            self._is_empty = False
            self._since_s = self._clock.monotonic_s()
            self.gathered()
        if self._open_count > 0:
            self._pack_open()
        if queue_no >= 0 and queue_no not in self.names.named_queues:
            self.names.named_queues.add(queue_no)
            entry = self._entries.add(b"", [self.names.queues[queue_no]])
            self._rows.append(ROW.pack(queue_no, queue_no, 0, 1, -1, entry, NAME, 0, NAME_QUEUE, 0))
            self.next_lsn += 1

    def _name_actor_here(self, actor: int) -> bool:
        """Name a consumer before its first row in the segment; False when it is not known any more."""
        text = self.names.actors.get(actor)
        if text is None:
            return False
        self.names.named_actors.add(actor)
        entry = self._entries.add(b"", [text])
        self._rows.append(ROW.pack(actor, -1, 0, 1, -1, entry, NAME, 0, NAME_CONSUMER, 0))
        self.next_lsn += 1
        return True

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
        """Return the number of exchange and routing key in this batch."""
        route = self._routes.get(address)
        if route is None:
            route = len(self._routes)
            self._routes[address] = route
            entry = self._entries.add(b"", [address])
            self._rows.append(ROW.pack(route, -1, 0, 1, route, entry, NAME, 0, NAME_ROUTE, 0))
            self.next_lsn += 1
        return route

    def _add_stretch(self, entries: Sequence[Entry]) -> Stretch:
        """Entries with one address and priority."""
        envelope = entries[0][0]
        route = self._route(envelope.address)
        flags = PERSISTENT if envelope.persistent else 0
        bodies = [entry[1] for entry in entries]
        properties = [entry[0].properties for entry in entries]
        if properties.count(envelope.properties) == len(properties):
            flags |= SHARED_PROPS
            first = self._entries.add(envelope.properties, bodies)
        else:
            first = self._entries.add_each(properties, bodies)
        return len(bodies), route, first, flags, envelope.priority

    def encode(self, stamp: Stamp) -> tuple[list[bytes], int]:
        """The batch as a few pieces, and the checksum of its header. It can be encoded again, and can grow before."""
        if self._open_count > 0:
            self._pack_open()
        return self._entries.encode(stamp, self._first_lsn, self.next_lsn - self._first_lsn, self._rows)

    # --- waiting ----------------------------------------------------------------------------------

    def when_durable(self, done: Waiter) -> None:
        """Call `done` when everything gathered so far is durable (True), or when it will not be (False)."""
        if self.failed is not None:
            done(False)
        elif self._options.confirm_sync == NONE:
            done(True)
        elif not self._is_empty:
            self._waiters.append(done)
            if len(self._waiters) == 1:
                # What could wait for company cannot any more.
                self.gathered()
        elif self.durable_lsn < self.next_lsn:
            self._waiters_in_flight.append(done)
        else:
            # Nothing is in flight, or only a commit mark.
            done(True)

    def sync_first(self, file: File) -> None:
        """Sync this file before the gathering batch is reported durable."""
        if file not in self._sync_first:
            self._sync_first.append(file)

    # --- committing -------------------------------------------------------------------------------

    @property
    def wants_commit(self) -> bool:
        """Whether so much is gathered that a commit should not wait for the end of the turn."""
        return self.gathered_bytes >= self._options.batch_bytes_max

    def commit(self, urgent: bool = False) -> None:
        """End a turn: write what is gathered if it is awaited, if it is much, or if it has waited long."""
        if self.failed is not None:
            if not self._is_empty:
                self.begin_batch()
            return
        if self._is_committing:
            return
        self._is_committing = True
        try:
            while not self.in_flight and self._is_due(urgent):
                urgent = False
                if not self._write():
                    break
        finally:
            self._is_committing = False

    def hold(self) -> None:
        """Write nothing for now: what is gathered from here on, over several turns, belongs into one batch."""
        self._holds += 1

    def release(self) -> None:
        """All of it is gathered."""
        self._holds -= 1
        if self._holds == 0:
            self.gathered()

    def commit_due_s(self) -> float | None:
        """Return when `commit` has something to do although there is no waiter; None when it has not."""
        if self.failed is not None or self.in_flight or self._holds:
            return None
        if not self._is_empty:
            due_s = self._since_s + self._options.sync_window_s
            return max(due_s, self._retry_s) if self.stalled is not None else due_s
        if self._unmarked_since_s >= 0:
            return self._unmarked_since_s + self._options.idle_s
        return None

    def _is_due(self, urgent: bool) -> bool:
        if self.failed is not None or self._holds or (not urgent and self.is_behind()):
            return False
        if not self._is_empty and (urgent or (self._may_try() and (self._waiters or self.wants_commit))):
            return True
        due_s = self.commit_due_s()
        return due_s is not None and self._clock.monotonic_s() >= due_s

    def _may_try(self) -> bool:
        """Return whether the batch can be tried without waiting for its time."""
        if self.stalled is None:
            return True
        if self._is_disk_full and self._waiters and not self.wants_commit:
            # Building a small one again costs little, and waiters should hear soon.
            return True
        return self._clock.monotonic_s() >= self._retry_s

    def _write(self) -> bool:
        """Write the batch, or the commit mark when nothing is gathered; False when it was not written."""
        is_mark = self._is_empty
        no_room = OSError(ENOSPC, "no space left")
        for _ in range(MAKE_ROOM_TRIES + 1):
            try:
                pos = self._append(is_mark)
            except MemoryError:
                self._stall(OSError(ENOMEM, "out of memory"), is_mark)
                return False
            except OSError as error:
                if is_temporary(error):
                    self._stall(error, is_mark)
                    return False
                if error.errno not in (ENOSPC, EDQUOT):
                    self.fail(error)
                    return False
                if not self._cut():
                    return False
                if is_mark or not self.disk_full():
                    self._give_up_for_now(error, is_mark)
                    return False
                no_room = error
            else:
                self._written(pos, is_mark)
                return True
        self._give_up_for_now(no_room, is_mark)
        return False

    def _append(self, is_mark: bool) -> int:
        """Build the batch and write it; the position at which it stands."""
        if not is_mark:
            for prepare in self.before_write:
                prepare()
            if self._entries.body_bytes + self._entries.props_bytes > HEAP_BYTES_MAX:
                raise OSError(EFBIG, "a batch of more than 2 GiB was gathered")
            if self.next_lsn - self._first_lsn > EVENTS_MAX:
                raise OSError(EFBIG, f"a batch of more than {EVENTS_MAX} events was gathered")
        segment = self.segments.writer() if is_mark else self.segments.writer_for_batch(self._first_lsn)
        target = (segment.number, segment.pos, self.next_lsn)
        if self._built is not None and self._built_for == target and not is_mark:
            # It is what could not be written the last time.
            return segment.append(*self._built)
        built = self.encode(
            Stamp(
                COMMIT_MARK if is_mark else 0,
                segment.salt,
                segment.seed,
                segment.number,
                segment.pos,
                self.durable_lsn,
                self._clock.wall_ms() * 1000,
                segment.prev_crc,
            )
        )
        self._built = built
        self._built_for = target
        return segment.append(*built)

    def _written(self, pos: int, is_mark: bool) -> None:
        """The batch is in the file: let the next one gather, and have this one synced."""
        segment = self.segments.writer()
        self._built = None
        self.stalled = None
        self.bytes_written += segment.pos - pos
        self._lsn_in_flight = self.next_lsn
        to_sync = [segment.file]
        if is_mark:
            self._unmarked_since_s = -1.0
        else:
            self._unmarked_since_s = 0.0
            to_sync = [*self._sync_first, segment.file]
            self._next_batch(segment, pos)
        if self._options.confirm_sync == FSYNC:
            self.in_flight = True
            if segment.number > self.segments.named:
                to_sync = [self.segments.names(), *to_sync]
            if len(self._waiters_in_flight) == 1 and segment.pos - pos <= SMALL_BYTES:
                self._syncer.submit_small(to_sync, self._synced)
            else:
                self._syncer.submit(to_sync, self._synced)
        else:
            self._unmarked_since_s = -1.0
            self._durable()

    def _next_batch(self, segment: SegmentWriter, pos: int) -> None:
        """Everything that belongs to the batch goes with it; the next one begins with nothing."""
        self.place.segment = segment.number
        self.place.pos = pos
        self._is_disk_full = False
        self._waiters_in_flight = self._waiters
        self._waiters = []
        self._sync_first = []
        self.begin_batch()
        # The next one may be as large as they get, or as this one.
        room = max(self._options.batch_bytes_max, segment.pos - pos)
        if self._roll_after or segment.pos + room > self._options.segment_bytes:
            self._roll_after = False
            self._leave_segment()

    def _synced(self, error: OSError | None) -> None:
        """The syncer's answer."""
        self.in_flight = False
        if error is not None:
            self.fail(error)
            return
        self.segments.named = self.segments.writer().number
        self._durable()
        if self._is_committing:
            return
        if self._waiters or self.wants_commit:
            self.commit()
        else:
            # There may be a new `commit_due_s`.
            self.gathered()

    def _durable(self) -> None:
        self.durable_lsn = self._lsn_in_flight
        if self._unmarked_since_s >= 0:
            self._unmarked_since_s = self._clock.monotonic_s()
        waiters = self._waiters_in_flight
        self._waiters_in_flight = []
        self._tell(waiters, True)

    def _tell(self, waiters: list[Waiter], durable: bool) -> None:
        """Call each waiter, whatever the others do."""
        first: Exception | None = None
        for done in waiters:
            try:
                done(durable)
            except Exception as error:
                if self.waiter_failed is not None:
                    self.waiter_failed(error)
                elif first is None:
                    first = error
        if first is not None:
            raise first

    # --- failing ----------------------------------------------------------------------------------

    def fail(self, error: OSError) -> None:
        """The disk is not to be trusted any more: nothing is reported durable from now on."""
        self.failed = error
        self.stalled = None
        self._built = None
        self.begin_batch()
        self._answer_all(False)
        self.gathered()

    def _cut(self) -> bool:
        """Take away what a write that found no room has left."""
        try:
            self.segments.writer().cut()
        except OSError as error:
            self.fail(error)
            return False
        return True

    def _stall(self, error: OSError, is_mark: bool) -> None:
        """Keep the batch and its waiters: the machine is out of descriptors or memory."""
        if not self._cut():
            return
        self.stalled = error
        self._retry_s = self._clock.monotonic_s() + STALLED_S
        if is_mark:
            self._unmarked_since_s = self._retry_s

    def _give_up_for_now(self, error: OSError, is_mark: bool) -> None:
        """Keep the batch, and tell its waiters that it may never be durable: the disk is full."""
        if is_mark:
            # The next batch that is written says the same.
            self._unmarked_since_s = -1.0
            return
        self._is_disk_full = True
        self.stalled = error
        self._since_s = self._clock.monotonic_s()
        self._retry_s = self._since_s + (FULL_S if self.wants_commit else 0.0)
        waiters = self._waiters
        self._waiters = []
        self._tell(waiters, False)

    def _answer_all(self, durable: bool) -> None:
        waiters = self._waiters_in_flight + self._waiters
        self._waiters_in_flight = []
        self._waiters = []
        self._tell(waiters, durable)

    def _leave_segment(self) -> None:
        if self.segments.leave():
            self.names.begin_segment()

    # --- segments ---------------------------------------------------------------------------------

    def roll(self) -> None:
        """Let the next batch begin a new segment; what is gathered still goes to this one."""
        if self._is_empty:
            self._leave_segment()
        else:
            self._roll_after = True

    def named_segment(self) -> int:
        """Return the newest segment whose name is durable: those before it may be removed."""
        if self._options.confirm_sync != FSYNC and self.segments.named < self.segments.writer().number:
            self.segments.names().fdatasync()
            self.segments.named = self.segments.writer().number
        return self.segments.named

    def remove_segment(self, number: int) -> None:
        """Remove a segment that is no longer needed, before the `named_segment`."""
        self.batches.forget_segment(number)
        self.segments.remove(number)
