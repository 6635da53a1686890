"""Which journal segments are kept, and how the others get free to go.

A segment is *history* when the newest checkpoint no longer replays it. History is kept up to a size and an age, because
people and programs read it. A segment is *needed* while a kept checkpoint replays it or refers to a body in it. It is
*unread* while it is out of retention, is not needed, and a named reader has not read it (`unread_history`).

After each checkpoint segments that are neither history to keep, nor needed, nor unread are removed. When only few bytes
of old segments are alive, or the journal has grown far beyond what is alive, their live bodies are copied to the stores
of their queues (`moving`); two checkpoints later the segments are no longer needed.

Invariants
  1. Segments are removed from the oldest on, without holes.
  2. A segment goes only when neither of the two kept checkpoints needs it: the older one is as good as the newer. With
     fewer than two nothing goes.
  3. The newest segment is never history.
  4. Bodies are moved in slices. A move that fails is given up, and decided anew after the next checkpoint.
  5. An unread segment goes only when all that are unread take more than `readers_bytes_max`, or the disk is
     low. Unread segments do not keep bodies of queues from moving, and do not ask for checkpoints.

A crash leaves a segment that could have gone; the checkpoints after the start decide again. Bodies that were copied and
not published with a checkpoint are garbage in the queue's store, and are copied again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, final

from penstock.clock import Clock
from penstock.journal.journal import Journal
from penstock.store.node.checkpoint import KEPT
from penstock.store.node.checkpointer import Checkpointer
from penstock.store.node.options import StoreOptions
from penstock.store.node.queue_registry import QueueRegistry
from penstock.store.node.removal_hold import nothing_is_held
from penstock.store.queue.stored_queue import NO_SEGMENT, StoredQueue
from penstock.store.retention.reader_cursors import LSN_MAX
from penstock.store.retention.unread_history import UnreadHistory

log: Final = logging.getLogger("penstock.store")

NOTHING: Final = -1
# Messages that one queue copies before the clock is looked at.
_MOVE_MESSAGES: Final = 256
# Below this share of live bytes a segment is worth copying out of.
_ALIVE_SHARE: Final = 0.25


@final
class Retention:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        registry: QueueRegistry,
        checkpointer: Checkpointer,
        unread: UnreadHistory,
        options: StoreOptions,
        is_held: Callable[[], bool] = nothing_is_held,
    ) -> None:
        """While `is_held` says so, all segments stay."""
        # The newest of the segments that bodies are moved out of: of this one and of all before it.
        self.moving = NOTHING
        # Something can go once more checkpoints have been published.
        self.wants_checkpoint = False
        # There is little room on the disk: history goes as soon as it can.
        self.disk_is_low = False
        # Why the last move was given up, or a segment could not be removed; empty when nothing went wrong.
        self.failure = ""
        # Size of the segments that are there for readers alone.
        self.unread_bytes = 0
        # Size of those that are out of retention, read, and still there.
        self.excess_bytes = 0
        self._journal = journal
        self._clock = clock
        self._registry = registry
        self._checkpointer = checkpointer
        self._unread = unread
        self._options = options
        self._is_held = is_held
        self._sizes: dict[int, int] = {}
        self._begun_ms: dict[int, int] = {}
        self._first_lsns: dict[int, int] = {}
        self._to_move: list[StoredQueue] = []

    def checkpoint_published(self) -> None:
        """Remove what may go now, and decide what to move."""
        self.failure = ""
        self.wants_checkpoint = False
        try:
            history = self._remove()
            out = self._count_out(history)
            self.excess_bytes = sum([self._size(number) for number in history[:out]])
            if out > 0 and self.moving == NOTHING:
                self._decide(history[:out])
        except Exception as error:
            self._fail(error, "")

    def step(self, deadline_s: float) -> None:
        assert self.moving != NOTHING
        try:
            while self._to_move:
                queue = self._to_move[-1]
                is_open = self._registry.open_queues.get(queue.queue_no) is queue
                if not is_open or not queue.move_home(self.moving, _MOVE_MESSAGES):
                    self._to_move.pop()
                if self._clock.monotonic_s() >= deadline_s:
                    return
        except Exception as error:
            self._fail(error, f"bodies could not be moved out of journal segments up to {self.moving}: ")
            self._to_move = []
        self.moving = NOTHING
        # The next checkpoint shows that the segment is no longer needed.
        self.wants_checkpoint = not self.failure

    def _fail(self, error: Exception, what: str) -> None:
        """Say what went wrong. Nothing is lost: what was not done is decided anew after the next checkpoint."""
        if not isinstance(error, OSError):
            log.error("journal segments stay for now", exc_info=error)
        self.failure = what + (str(error) or repr(error))

    # --- removing -----------------------------------------------------------------------------------------

    def _remove(self) -> list[int]:
        """Remove segments that are neither needed nor kept; return how much read history is left."""
        kept = self._checkpointer.kept
        segments = self._journal.segments.numbers()
        # Replay may begin behind the newest one, when the next batch is to begin a segment.
        end = min(kept[-1].replay_segment, self._journal.named_segment())
        history = [number for number in segments if number < end]
        out = self._count_out(history)
        self._unread.look(self.disk_is_low)
        if self._is_held():
            return history
        if len(kept) < KEPT:
            self.wants_checkpoint = out > 0
            return history
        needed = min([min(header.replay_segment, header.needed_segment) for header in kept])
        free = len([number for number in history[:out] if number < needed])
        gone = self._count_read(segments, free)
        for number in history[:gone]:
            self._journal.remove_segment(number)
            self._sizes.pop(number, None)
            self._begun_ms.pop(number, None)
            self._first_lsns.pop(number, None)
        self._unread.removed(min(self._first_lsn(segments, gone), self._journal.next_lsn))
        return history[free:]

    def _count_out(self, history: list[int]) -> int:
        """Return how many segments, from the oldest on, are beyond the size or the age up to which history is kept."""
        if self.disk_is_low:
            return len(history)
        left_bytes = sum([self._size(number) for number in history])
        too_old_ms = self._clock.wall_ms() - self._options.retention_s * 1000
        out = 0
        # A segment was left when the next one was begun.
        while out < len(history) and (
            left_bytes > self._options.retention_bytes or self._begin_ms(history[out] + 1) <= too_old_ms
        ):
            left_bytes -= self._size(history[out])
            out += 1
        return out

    def _count_read(self, segments: list[int], free: int) -> int:
        """How many of the first `free` segments go: no reader needs them, or unread ones take more than they may."""
        self.unread_bytes = sum([self._size(number) for number in segments[:free]])
        gone = 0
        while gone < free:
            is_unread = self._unread.is_unread(self._first_lsn(segments, gone + 1))
            if is_unread and self.unread_bytes <= self._options.readers_bytes_max and not self.disk_is_low:
                break
            self.unread_bytes -= self._size(segments[gone])
            gone += 1
        return gone

    def _first_lsn(self, segments: list[int], position: int) -> int:
        """The first LSN of a segment. When its head is unreadable: that of the next one, so that more is held."""
        for number in segments[position:]:
            first_lsn = self._first_lsns.get(number, -1)
            if first_lsn < 0:
                first_lsn = self._first_lsns[number] = self._journal.segments.first_lsn(number)
            if first_lsn >= 0:
                return first_lsn
        return LSN_MAX

    def _size(self, number: int) -> int:
        size = self._sizes.get(number)
        if size is None:
            size = self._sizes[number] = self._journal.segments.size_bytes(number)
        return size

    def _begin_ms(self, number: int) -> int:
        begun = self._begun_ms.get(number)
        if begun is None:
            begun = self._journal.segments.begun_ms(number)
            if begun < 0:
                # Nothing is known: as if it had been begun just now, so that it stays.
                begun = self._clock.wall_ms()
            self._begun_ms[number] = begun
        return begun

    # --- moving -------------------------------------------------------------------------------------------

    def _decide(self, out: list[int]) -> None:
        """These segments are out of retention and still there: wait for a checkpoint, or move, or leave them.

        All that are worth it are emptied together: each checkpoint lets segments go from the oldest on, so one that
        keeps a single message must not keep all that follow it.
        """
        registry = self._registry
        if registry.recovered:
            # Queues that are not open cannot be asked.
            return
        needed = {number: queue.journal_segment_needed() for number, queue in registry.open_queues.items()}
        first = min(needed.values(), default=NO_SEGMENT)
        if first > out[0]:
            # Those before are free as soon as the older checkpoint is gone.
            self.wants_checkpoint = True
        last = self._last_to_move([number for number in out if number >= first])
        if last == NOTHING:
            return
        needing = [queue for number, queue in registry.open_queues.items() if needed[number] <= last]
        if needing:
            self.moving = last
            self._to_move = needing

    def _last_to_move(self, out: list[int]) -> int:
        """Return the last of the segments to be emptied; NOTHING when that would cost more than it gives back.

        Copying is worth it while few of the bytes up to a segment are alive. If the journal has grown far beyond what
        is alive, as many are emptied as bring it back, whatever that costs.
        """
        if not out:
            return NOTHING
        in_segments = self._checkpointer.live_in_segments
        total = sum([self._size(number) for number in self._journal.segments.numbers()[:-1] if number >= out[0]])
        limit = 2 * (self._checkpointer.live_bytes + self._options.retention_bytes)
        last = NOTHING
        alive = size = 0
        for number in out:
            is_too_much = total - size > limit
            alive += in_segments.get(number, 0)
            size += self._size(number)
            if is_too_much or alive < _ALIVE_SHARE * size:
                last = number
        return last
