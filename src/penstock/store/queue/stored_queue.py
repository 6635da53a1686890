"""What the node's store asks of a queue that it keeps on disk.

The store knows queues only as this class. The variable queue implements it and registers itself with the `NodeStore`;
from then on it is asked for its state at each checkpoint, and for help when a journal segment is to go.

A checkpoint calls `snapshot` and `flush` in one turn; then `files_to_sync`, a few files at a time, each followed some
turns later by `files_synced`; and `synced` when the checkpoint has its name. When a checkpoint is given up, files that
were handed out get `sync_given_up`, and the next checkpoint asks again.

Invariants
  1. `snapshot` is called only while no row is waiting to be written: every journal place of the queue is known.
  2. What `flush` wrote is all that the snapshot needs besides the journal and the shared store. `files_to_sync` hands
     out no more than this, however much is written while the checkpoint is under way.
  3. What a queue needs of the journal moves forward only: `journal_segment_needed` never gets smaller.

A crash between `flush` and `synced` leaves the older checkpoint, which needs none of what was flushed. A queue stays
registered after it was terminated, because the checkpoint of the clean stop comes after that; it leaves when it is
deleted, or when the queue that was opened again in its place registers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from penstock.disk.files import File
from penstock.native import mypyc_attr
from penstock.store.queue.queue_state import QueueState

# `journal_segment_needed` of a queue that needs no segment.
NO_SEGMENT: Final = 1 << 40
# Ready, ready and pending; persistent ones of these, and their payload bytes.
Counters = tuple[int, int, int, int]


@mypyc_attr(allow_interpreted_subclasses=True)
class StoredQueue(ABC):
    # Its number in the journal.
    queue_no: int

    @abstractmethod
    def snapshot(self) -> QueueState:
        """Return the state, true for every row below the journal's `next_lsn`. The caller does not change it."""

    @abstractmethod
    def flush(self) -> None:
        """Write buffers."""

    @abstractmethod
    def files_to_sync(self, count_max: int) -> list[File]:
        """Hand out some of the files that must be synced before the last snapshot counts; fewer: these are the last."""

    @abstractmethod
    def files_synced(self) -> None:
        """What was handed out last is synced: the handles may be closed. No checkpoint counts on it yet."""

    @abstractmethod
    def sync_given_up(self) -> None:
        """What was handed out last will not be synced: handles may be closed, and the next checkpoint asks again."""

    @abstractmethod
    def synced(self) -> None:
        """The checkpoint that has the last snapshot is published: what was flushed for it is there to stay."""

    @abstractmethod
    def counters(self) -> Counters:
        """Return how many messages the queue holds now."""

    @abstractmethod
    def journal_segment_needed(self) -> int:
        """Return the oldest journal segment that holds a body of a live message; NO_SEGMENT when there is none."""

    @abstractmethod
    def move_home(self, segment: int, count_max: int) -> bool:
        """Copy live bodies out of a journal segment, at most `count_max`; True while there are more."""
