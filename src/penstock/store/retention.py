"""Which journal segments are kept, and how the others get free to go.

Words: a segment is *history* when the newest checkpoint no longer replays it. History is kept up to a size and an age,
because people and programs read it. A segment is *needed* while a kept checkpoint replays it or refers to a body in it.

What it owns: the decision, after each checkpoint, which segments to remove; and, one segment at a time, moving the
bodies home that keep an old segment alive.

Life of a segment: written; history; out of retention; when only few of its bytes are alive, or the journal has grown
far beyond what is alive, its live bodies are copied to the stores of their queues (`moving`); two checkpoints later
nobody needs it; removed.

Invariants
  1. Segments are removed from the oldest on, without holes.
  2. A segment goes only when neither of the two kept checkpoints needs it: the older one is as good as the newer. With
     fewer than two nothing goes.
  3. The newest segment is never history.
  4. Bodies are moved in slices. A move that fails is given up, and decided anew after the next checkpoint.

A crash leaves a segment that could have gone; the checkpoints after the start decide again. Bodies that were copied and
not published with a checkpoint are garbage in the queue's store, and are copied again. It does not know who reads
history.
"""

from __future__ import annotations

from typing import Final, final

from penstock.clock import Clock
from penstock.journal.journal import Journal
from penstock.store.checkpoint import KEPT
from penstock.store.checkpointer import Checkpointer
from penstock.store.options import StoreOptions
from penstock.store.queue_registry import QueueRegistry
from penstock.store.stored_queue import StoredQueue

NOTHING: Final = -1
# Messages that one queue copies before the clock is looked at.
_MOVE_MESSAGES: Final = 256
# Below this share of live bytes a segment is worth copying out of.
_ALIVE_SHARE: Final = 0.25


@final
class Retention:
    """Removes history, and makes it removable."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        registry: QueueRegistry,
        checkpointer: Checkpointer,
        options: StoreOptions,
    ) -> None:
        # The segment that bodies are moved out of.
        self.moving = NOTHING
        # Something can go once more checkpoints have been published.
        self.wants_checkpoint = False
        # There is little room on the disk: history goes as soon as it can.
        self.disk_is_low = False
        # Why the last move was given up, or a segment could not be removed; empty when nothing went wrong.
        self.failure = ""
        self._journal = journal
        self._clock = clock
        self._registry = registry
        self._checkpointer = checkpointer
        self._options = options
        self._sizes: dict[int, int] = {}
        self._begun_ms: dict[int, int] = {}
        self._to_move: list[StoredQueue] = []

    def checkpoint_published(self) -> None:
        """Remove what may go now, and decide what to move."""
        self.failure = ""
        self.wants_checkpoint = False
        try:
            history = self._remove()
            if history and self.moving == NOTHING and self._is_out(history, 0):
                self._decide(history[0])
        except OSError as error:
            self.failure = str(error)

    def step(self, deadline_s: float) -> None:
        """Move some bodies home."""
        assert self.moving != NOTHING
        try:
            while self._to_move:
                queue = self._to_move[-1]
                is_open = self._registry.open_queues.get(queue.queue_no) is queue
                if not is_open or not queue.move_home(self.moving, _MOVE_MESSAGES):
                    self._to_move.pop()
                if self._clock.monotonic_s() >= deadline_s:
                    return
        except OSError as error:
            self.failure = f"bodies could not be moved out of journal segment {self.moving}: {error}"
            self._to_move = []
        self.moving = NOTHING
        # Whoever needed the segment says in the next checkpoint that this is over.
        self.wants_checkpoint = not self.failure

    # --- removing -----------------------------------------------------------------------------------------

    def _remove(self) -> list[int]:
        """Remove what nobody needs and nobody wants to keep; return what history is left."""
        kept = self._checkpointer.kept
        # Without the newest: replay may begin behind it, when the next batch is to begin a segment.
        history = [number for number in self._journal.segments()[:-1] if number < kept[-1].replay_segment]
        if len(kept) < KEPT:
            self.wants_checkpoint = bool(history) and self._is_out(history, 0)
            return history
        needed = min([min(header.replay_segment, header.needed_segment) for header in kept])
        position = 0
        while position < len(history) and history[position] < needed and self._is_out(history, position):
            self._journal.remove_segment(history[position])
            self._sizes.pop(history[position], None)
            self._begun_ms.pop(history[position], None)
            position += 1
        return history[position:]

    def _is_out(self, history: list[int], position: int) -> bool:
        """Whether a segment is beyond the size or the age up to which history is kept."""
        if self.disk_is_low:
            return True
        if sum([self._size(number) for number in history[position:]]) > self._options.retention_bytes:
            return True
        # It was left when the next one was begun.
        left_ms = self._begin_ms(history[position] + 1)
        return self._clock.wall_ms() - left_ms >= self._options.retention_s * 1000

    def _size(self, number: int) -> int:
        size = self._sizes.get(number)
        if size is None:
            size = self._sizes[number] = self._journal.segment_bytes(number)
        return size

    def _begin_ms(self, number: int) -> int:
        begun = self._begun_ms.get(number)
        if begun is None:
            begun = self._journal.segment_begun_ms(number)
            if begun < 0:
                # Nothing is known: as if it had been begun just now, so that it stays.
                begun = self._clock.wall_ms()
            self._begun_ms[number] = begun
        return begun

    # --- moving -------------------------------------------------------------------------------------------

    def _decide(self, segment: int) -> None:
        """The oldest segment is out of retention and still there: wait for a checkpoint, or move, or leave it."""
        registry = self._registry
        if registry.recovered:
            # Queues that are not open cannot be asked.
            return
        needing = [queue for queue in registry.open_queues.values() if queue.journal_segment_needed() <= segment]
        if not needing:
            self.wants_checkpoint = True
            return
        alive = self._checkpointer.live_in_segments.get(segment, 0)
        total = sum([self._size(number) for number in self._journal.segments()[:-1]])
        limit = 2 * (self._checkpointer.live_bytes + self._options.retention_bytes)
        if alive < _ALIVE_SHARE * self._size(segment) or total > limit:
            self.moving = segment
            self._to_move = needing
