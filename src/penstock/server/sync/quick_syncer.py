"""Syncs small batches on the spot where the disk is quick, and has all others synced elsewhere.

Handing a sync to another process and hearing of it takes two wake-ups, which on a good SSD is longer than the sync. A
client that waits for each confirm before it publishes again feels all of it. So a batch for which no other work would
wait is synced by the loop itself, as long as the disk answers within a fraction of a millisecond.

The disk shows that it is quick where a slow one costs the loop nothing: small batches are handed over, and timed, until
one of them is answered soon. The first sync on the spot that takes long begins this anew, behind a pause that doubles
each time, so a disk that is slow now and then holds up the loop less and less often. See docs/decisions/0007.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.clock import Clock
from penstock.disk.files import File
from penstock.journal.syncer import SyncDone, Syncer, sync_each

# What a turn of the loop may be held up by: about as much as the work of a turn.
QUICK_S = 0.0005
# A sync that was handed over is as quick as that when it is answered within this time: there are two wake-ups in it.
HANDED_OVER_QUICK_S = 0.002
# After a sync that took longer, all are handed over for so long; longer each time, up to the second figure.
RELUCTANT_S = 1.0
RELUCTANT_MAX_S = 64.0
# As many quick ones in a row, and the next slow one is an exception again.
QUICK_ROW = 10_000


class QuickSyncer(Syncer):
    def __init__(self, slow: Syncer, clock: Clock) -> None:
        self._slow = slow
        self._clock = clock
        self._is_quick = False
        # Not before this time can the disk show that it is quick.
        self._quick_from_s = 0.0
        self._reluctant_s = RELUCTANT_S
        self._quick_count = 0

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        self._slow.submit(files, done)

    def submit_small(self, files: Sequence[File], done: SyncDone) -> None:
        begun_s = self._clock.monotonic_s()
        if not self._is_quick:
            self._slow.submit(files, partial(self._handed_over, begun_s, done))
            return
        error = sync_each(files)
        now_s = self._clock.monotonic_s()
        if now_s - begun_s > QUICK_S:
            self._was_slow(now_s)
        else:
            self._quick_count += 1
            if self._quick_count == QUICK_ROW:
                self._reluctant_s = RELUCTANT_S
        done(error)

    def _was_slow(self, now_s: float) -> None:
        self._is_quick = False
        self._quick_count = 0
        self._quick_from_s = now_s + self._reluctant_s
        self._reluctant_s = min(self._reluctant_s * 2, RELUCTANT_MAX_S)

    def _handed_over(self, begun_s: float, done: SyncDone, error: OSError | None) -> None:
        now_s = self._clock.monotonic_s()
        if error is None and begun_s >= self._quick_from_s and now_s - begun_s <= HANDED_OVER_QUICK_S:
            self._is_quick = True
        done(error)

    def close(self) -> None:
        self._slow.close()
