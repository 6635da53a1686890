"""The journal: one append-only log for the node, committed in groups.

This is what the rest of the broker sees: `Gathering` takes rows (publish, settle, define), `Committing` writes and
syncs them and tells who waits, and `Journal` adds the beginning and the end, the segments, and reading back.

Life of the data: recovery replays what the last life has left (`reader`) and calls `start`; from then on batches are
appended to a segment of their own, are read back by place, and go when their segment is removed.

Invariants
  1. Nothing is appended to a segment of an earlier life.
  2. Every byte that `read_batch`, `read_run` and `read_one` hand out was compared with a checksum.
  3. The newest segment is never removed.

A crash loses what was not reported durable, at most. The journal does not decide when turns end, which segments may go,
or what rows mean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from penstock.clock import Clock
from penstock.files import Files
from penstock.journal.batch import Decoded
from penstock.journal.batch_cache import BatchCache
from penstock.journal.committing import Committing
from penstock.journal.options import JournalOptions
from penstock.journal.segment_reader import segment_numbers
from penstock.journal.syncer import Syncer


class Journal(Committing):
    """Gathers, commits, and reads back."""

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
        super().__init__(files, folder, syncer, clock, options, salt)
        self._files = files
        self._folder = folder
        self._cache = BatchCache(files, folder, options.cache_bytes, options.view_bytes)

    def start(self, next_segment: int, next_lsn: int) -> None:
        """Begin a new segment. Everything before `next_lsn` is durable."""
        assert self._segments.newest is None and self._is_empty
        self.next_lsn = next_lsn
        self.durable_lsn = next_lsn
        self.begin_batch()
        self._segments.start(next_segment, next_lsn)

    def close(self) -> None:
        """Give the files back. What is gathered is lost, as in a crash: commit before, and wait for it."""
        self._segments.close()
        self._cache.close()
        self._answer_all(False)

    # --- segments ---------------------------------------------------------------------------------

    def roll(self) -> None:
        """Let the next batch begin a new segment; what is gathered still goes to this one."""
        if self._is_empty:
            self._leave_segment()
        else:
            self._roll_after = True

    def position(self) -> tuple[int, int]:
        """Segment and position of the next batch."""
        return self._segments.position()

    def segments(self) -> list[int]:
        """Numbers of the segments on disk, oldest first."""
        return segment_numbers(self._files, self._folder)

    def segment_bytes(self, number: int) -> int:
        """Size of a segment's file."""
        return self._segments.size_bytes(number)

    def segment_begun_ms(self, number: int) -> int:
        """Wall-clock time at which a segment was begun; -1 when its head is unreadable."""
        return self._segments.begun_ms(number)

    def segment_first_lsn(self, number: int) -> int:
        """LSN of a segment's first event, there or still to come; -1 when its head is unreadable."""
        return self._segments.first_lsn(number)

    def remove_segment(self, number: int) -> None:
        """Remove a segment that nobody needs; never the newest."""
        self._cache.forget_segment(number)
        self._segments.remove(number)

    # --- reading ----------------------------------------------------------------------------------

    def read_batch(self, segment: int, pos: int) -> Sequence[Decoded]:
        """The entries of a written batch by index, None for damaged ones; RottenBatch when it is unreadable."""
        assert segment >= 0, "a batch that was not written is in RAM"
        return self._cache.read(segment, pos)

    def read_run(self, segment: int, pos: int, first: int, count: int) -> Sequence[Decoded]:
        """Entries of a written batch that follow each other; None for damaged ones. Errors as above."""
        assert segment >= 0, "a batch that was not written is in RAM"
        return self._cache.read_run(segment, pos, first, count)

    def read_one(self, segment: int, pos: int, entry: int) -> Decoded:
        """One entry of a written batch, for who reads out of order; None when it is damaged. Errors as above."""
        assert segment >= 0, "a batch that was not written is in RAM"
        return self._cache.read_one(segment, pos, entry)
