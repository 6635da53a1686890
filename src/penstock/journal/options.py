"""The journal's sizes, intervals and durability. Tests use tiny numbers, so that a few messages cross each boundary.

`confirm_sync` says what a crash may take. "fsync" loses nothing that was reported durable. "os" survives a crash of the
process, but not of the machine. "none" survives neither, and reports everything as durable at once.
"""

from __future__ import annotations

from typing import Final, final

FSYNC: Final = "fsync"
OS: Final = "os"
NONE: Final = "none"


@final
class JournalOptions:
    __slots__ = (
        "batch_bytes_max",
        "cache_bytes",
        "confirm_sync",
        "idle_s",
        "segment_bytes",
        "sync_window_s",
        "view_bytes",
    )

    def __init__(
        self,
        segment_bytes: int = 64 * 1024 * 1024,
        batch_bytes_max: int = 1024 * 1024,
        sync_window_s: float = 0.01,
        cache_bytes: int = 8 * 1024 * 1024,
        confirm_sync: str = FSYNC,
        idle_s: float = 0.02,
        view_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        assert confirm_sync in (FSYNC, OS, NONE), confirm_sync
        assert segment_bytes > 0 and batch_bytes_max > 0 and cache_bytes >= 0 and view_bytes >= 0
        # A segment is left when a batch of `batch_bytes_max`, or one like the last, would no longer fit.
        self.segment_bytes = segment_bytes
        # Soft: with so much gathered a commit is due at once; a batch may be larger by one turn.
        self.batch_bytes_max = batch_bytes_max
        # How long rows without a waiter may wait: what a crash may take of them.
        self.sync_window_s = sync_window_s
        # Decoded batches that are kept for the next read.
        self.cache_bytes = cache_bytes
        # When a batch counts as durable: synced, written, or at once.
        self.confirm_sync = confirm_sync
        # So long after the last batch became durable the commit mark is written.
        self.idle_s = idle_s
        # Views of batches that are kept for single reads: 8 to 24 bytes for each message in them.
        self.view_bytes = view_bytes
