"""Syncs small batches on the spot where the disk is quick, and has all others synced elsewhere.

Handing a sync to another process and hearing of it takes two wake-ups, which on a good SSD is longer than the sync. A
client that waits for each confirm before it publishes again feels all of it. So a batch for which nobody else's work
would wait is synced by the loop itself, as long as the disk answers within a fraction of a millisecond; the first sync
that takes longer ends that for a while. See docs/decisions/0007.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.clock import Clock
from penstock.files import File
from penstock.journal.syncer import SyncDone, Syncer

# What a turn of the loop may be held up by: about as much as the work of a turn.
QUICK_S = 0.0005
# After a sync that took longer, all are handed over for so long.
RELUCTANT_S = 1.0


class QuickSyncer(Syncer):
    """Between the journal and the syncer that the server has."""

    def __init__(self, slow: Syncer, clock: Clock) -> None:
        self._slow = slow
        self._clock = clock
        # Not before this time is a sync done on the spot.
        self._quick_from_s = 0.0

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        self._slow.submit(files, done)

    def submit_small(self, files: Sequence[File], done: SyncDone) -> None:
        begun_s = self._clock.monotonic_s()
        if begun_s < self._quick_from_s:
            self._slow.submit(files, done)
            return
        error: OSError | None = None
        try:
            for file in files:
                file.fdatasync()
        except OSError as failed:
            error = failed
        now_s = self._clock.monotonic_s()
        if now_s - begun_s > QUICK_S:
            self._quick_from_s = now_s + RELUCTANT_S
        done(error)

    def close(self) -> None:
        self._slow.close()
