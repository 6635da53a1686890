"""When and how the gathered batch is written, and who is told.

What it owns. Who waits for the gathering batch and for the one in flight, the files that are to be synced first, and
the state that follows a failure. It drives the newest segment (`segment`) and the syncer.

Life of the data: rows gather in RAM; `commit` builds one batch of them, writes it with one call and has it synced; when
the syncer answers, the waiters are told. While a sync is under way the next batch gathers.

Invariants
  1. One write is in flight. A batch is written only when everything before it is durable: this is what tells a torn
     tail from rot (`reader`), and `durable_lsn` in a header equals its `first_lsn`.
  2. A waiter is called once, in the order of asking: True when everything gathered before it asked is durable.
  3. A failed write or sync is final (`failed`): nothing is written or reported durable any more. A full disk is not:
     the waiters get False, the batch is kept, nothing of it is left on disk, and later commits try again. Nor is a
     machine that is out of descriptors or memory (`stalled`): there the waiters keep waiting.
  4. Files given to `sync_first` are synced before the segment, by the same request. So is the folder, when the segment
     is new.
  5. LSNs are exclusive ends: everything below `durable_lsn` is durable, `next_lsn` is given out next.
  6. A waiter that raises keeps no other one from its answer. Its error is handed to `waiter_failed`, or raised when
     everybody was told.
  7. While somebody holds it, the batch is not written, however large it is and whoever waits.
  8. A commit mark follows when the journal has gone idle, one for each idle time, and nobody waits for it.

A crash loses the gathering batch and any part of the one in flight; nobody was told that they are durable. It does not
decide when turns end.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import EDQUOT, EFBIG, ENOMEM, ENOSPC
from typing import Final

from penstock.clock import Clock
from penstock.files import File, Files, is_temporary
from penstock.journal.encoding import Stamp
from penstock.journal.format import COMMIT_MARK, EVENTS_MAX, HEAP_BYTES_MAX
from penstock.journal.gathering import Gathering
from penstock.journal.options import FSYNC, NONE, JournalOptions
from penstock.journal.segment import Segments, SegmentWriter
from penstock.journal.syncer import Syncer

Waiter = Callable[[bool], None]

# How often room is asked for before a batch is given up for now.
MAKE_ROOM_TRIES: Final = 2
# A batch of at most this size, for which one waits, may be synced on the spot.
SMALL_BYTES: Final = 16 * 1024
# When a batch that could not be written is tried again: soon while the machine is out of descriptors or memory, later
# while the disk is full and the batch is so large that building it again costs something.
STALLED_S: Final = 0.05
FULL_S: Final = 0.25


def no_room() -> bool:
    return False


class Committing(Gathering):
    """Gathers, writes, syncs, and tells."""

    def __init__(
        self,
        files: Files,
        folder: str,
        syncer: Syncer,
        clock: Clock,
        options: JournalOptions,
        salt: Callable[[], int],
    ) -> None:
        super().__init__()
        self._syncer = syncer
        self._clock = clock
        self._options = options
        self._segments = Segments(files, folder, clock, salt)
        # Called before a batch is built: stores write what the batch refers to, and call `sync_first`.
        self.before_write: list[Callable[[], None]] = []
        # Called when the disk is full: makes room and returns True, or returns False.
        self.disk_full: Callable[[], bool] = no_room
        # Called with what a waiter raised; None: it is raised when all are told.
        self.waiter_failed: Callable[[Exception], None] | None = None
        self.in_flight = False
        self.failed: OSError | None = None
        # Why the batch could not be written when it was last tried, if it is to be tried again; for people.
        self.stalled: OSError | None = None
        self.durable_lsn = 0
        # Of all batches since the start.
        self.bytes_written = 0
        # Who waits for the gathering batch, and for the one in flight.
        self._waiters: list[Waiter] = []
        self._waiters_in_flight: list[Waiter] = []
        self._lsn_in_flight = 0
        self._sync_first: list[File] = []
        # When the gathering batch got its first row; with a full disk, when it was last tried.
        self._since_s = 0.0
        self._is_disk_full = False
        # Not before this time is the batch tried again.
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

    def _begin_gathering(self) -> None:
        self._since_s = self._clock.monotonic_s()
        self.gathered()

    # --- committing -------------------------------------------------------------------------------

    @property
    def wants_commit(self) -> bool:
        """Whether so much is gathered that a commit should not wait for the end of the turn."""
        return self.gathered_bytes >= self._options.batch_bytes_max

    def commit(self, urgent: bool = False) -> None:
        """End of a turn: write what is gathered if somebody waits for it, if it is much, or if it has waited long."""
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
        """When `commit` has something to do although nobody waits; None when it has not."""
        if self.failed is not None or self.in_flight or self._holds:
            return None
        if not self._is_empty:
            due_s = self._since_s + self._options.sync_window_s
            return max(due_s, self._retry_s) if self.stalled is not None else due_s
        if self._unmarked_since_s >= 0:
            return self._unmarked_since_s + self._options.idle_s
        return None

    def _is_due(self, urgent: bool) -> bool:
        if self.failed is not None or self._holds:
            return False
        if not self._is_empty and (urgent or (self._may_try() and (self._waiters or self.wants_commit))):
            return True
        due_s = self.commit_due_s()
        return due_s is not None and self._clock.monotonic_s() >= due_s

    def _may_try(self) -> bool:
        """Whether the batch can be tried without waiting for its time."""
        if self.stalled is None:
            return True
        if self._is_disk_full and self._waiters and not self.wants_commit:
            # Building a small one again costs little, and those who wait should hear soon.
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
            if self._body_bytes + self._props_bytes > HEAP_BYTES_MAX:
                raise OSError(EFBIG, "a batch of more than 2 GiB was gathered")
            if self.next_lsn - self._first_lsn > EVENTS_MAX:
                raise OSError(EFBIG, f"a batch of more than {EVENTS_MAX} events was gathered")
        segment = self._segments.writer() if is_mark else self._segments.writer_for_batch(self._first_lsn)
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
        segment = self._segments.writer()
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
            if self._segments.has_new_name:
                self._segments.has_new_name = False
                to_sync = [self._segments.names(), *to_sync]
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

    def _cut(self) -> bool:
        """Take away what a write that found no room has left."""
        try:
            self._segments.writer().cut()
        except OSError as error:
            self.fail(error)
            return False
        return True

    def _stall(self, error: OSError, is_mark: bool) -> None:
        """The machine is out of descriptors or memory. The batch is kept, and so are those who wait for it."""
        if not self._cut():
            return
        self.stalled = error
        self._retry_s = self._clock.monotonic_s() + STALLED_S
        if is_mark:
            self._unmarked_since_s = self._retry_s

    def _give_up_for_now(self, error: OSError, is_mark: bool) -> None:
        """There is no room. The batch is kept; those who wait are told that it may never be durable."""
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
        if self._segments.leave():
            # Names are repeated in the next one.
            self._named.clear()
            self._named_actors.clear()
