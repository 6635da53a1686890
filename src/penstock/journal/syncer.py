"""Who makes written bytes durable.

A sync blocks, so the core does not do it: it hands the files to a `Syncer` and is called back. The server has one that
asks a process of its own (a thread would starve under a busy loop); simulations have one that syncs when they say so.

Invariants
  1. At most one request is under way.
  2. Files are synced in the order given, and `done` is called once, on the thread that called `submit`.
  3. After a failure nothing of that file is ever reported as synced again: the caller stops using it.

A crash before the answer may leave any part of what was written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from penstock.disk.files import File
from penstock.native import mypyc_attr

# Receives None, or what went wrong.
SyncDone = Callable[[OSError | None], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Syncer(ABC):
    """Syncs files somewhere else."""

    @abstractmethod
    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        """Sync the data of each file, in order; call `done` when all are synced or one failed."""

    def submit_small(self, files: Sequence[File], done: SyncDone) -> None:
        """As `submit`, for little data, when there is no other work: it may be synced on the spot."""
        self.submit(files, done)

    @abstractmethod
    def close(self) -> None:
        """Wait for what is under way, and stop."""


class InlineSyncer(Syncer):
    """Syncs at once, on the caller's thread: for tools that have nothing else to do."""

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        done(sync_each(files))

    def close(self) -> None:
        return None


def sync_each(files: Sequence[File]) -> OSError | None:
    """Sync the data of files, in order, up to the first that fails; return why it did."""
    try:
        for file in files:
            file.fdatasync()
    except OSError as error:
        return error
    return None
