"""Bugs that were put in on purpose, to see whether the simulation and the damage tests notice.

Each is a small patch of the engine that is applied while a test runs and taken back afterwards. The docstring of its
function says what is wrong with it; README.md lists them. A mutant that nobody notices is a hole in the tests, not in
the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from penstock.backing import put_back, variable_queues
from penstock.backing.variable import VariableBackingQueue
from penstock.files import Files
from penstock.journal import reader
from penstock.journal.batch import BatchView
from penstock.journal.committing import Committing
from penstock.journal.journal import Journal
from penstock.journal.rows import ACKED
from penstock.journal.segment import Segments
from penstock.journal.segment_reader import SegmentReader
from penstock.store import recovery
from penstock.store.checkpointer import Checkpointer
from penstock.store.compaction import Compaction
from penstock.store.last_batch import LastBatch
from penstock.store.node_store import NodeStore
from penstock.store.queue_index import QueueIndex
from penstock.store.replaying import Replaying
from penstock.store.retention import Retention
from penstock.store.shared_stores import SharedStores
from penstock.store.stored_queue import NO_SEGMENT

Patch = Any
MUTANTS: dict[str, Callable[[], Patch]] = {}
# Those that only damaged bytes can show.
OF_DAMAGE: set[str] = set()


def mutant(function: Callable[[], Patch]) -> Callable[[], Patch]:
    MUTANTS[function.__name__] = function
    return function


def of_damage(function: Callable[[], Patch]) -> Callable[[], Patch]:
    OF_DAMAGE.add(function.__name__)
    return mutant(function)


def changed(owner: object, name: str, make: Callable[[Any], Any]) -> Patch:
    """Replace a method or function by what `make` makes of it."""
    return patch.object(owner, name, make(getattr(owner, name)))


# --- confirms ---------------------------------------------------------------------------------------


@mutant
def confirm_before_sync() -> Patch:
    """A batch counts as durable as soon as it is written."""

    def make(original: Any) -> Any:
        def written(self: Any, pos: int, is_mark: bool) -> None:
            original(self, pos, is_mark)
            self._durable()

        return written

    return changed(Committing, "_written", make)


@mutant
def failed_sync_is_ignored() -> Patch:
    """The syncer says that it failed, and the journal goes on."""
    return changed(Committing, "_synced", lambda original: lambda self, error: original(self, None))


@mutant
def bodies_not_synced_before_their_batch() -> Patch:
    """The shared store is written before the batch that refers to it, but not synced."""

    def before_write(self: Any) -> None:
        for (_, persistent), store in self._stores.items():
            if persistent:
                store.flush()

    return patch.object(SharedStores, "before_write", before_write)


# --- names and order on disk --------------------------------------------------------------------------


class FilesWithoutFolderSync:
    """Files that forget to sync folders."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def sync_dir(self, path: str) -> None:
        return None


@mutant
def segment_name_not_synced() -> Patch:
    """A new journal segment is written to although its name may be lost."""

    def make(original: Any) -> Any:
        def create(self: Any, number: int, first_lsn: int, prev_crc: int) -> Any:
            files, self._files = self._files, FilesWithoutFolderSync(self._files)
            try:
                return original(self, number, first_lsn, prev_crc)
            finally:
                self._files = files

        return create

    return changed(Segments, "_create", make)


@mutant
def checkpoint_named_before_its_sync() -> Patch:
    """A checkpoint gets its name without having been synced."""

    def finish_draft(self: Any) -> None:
        draft = self._draft
        draft.header.next_queue_no = self._registry.names.next_number
        draft.header.next_segment = self._journal.segments()[-1] + 1
        draft.finish()
        self.phase = 3
        self._draft_synced(None)

    return patch.object(Checkpointer, "_finish_draft", finish_draft)


@mutant
def checkpoint_before_the_journal() -> Patch:
    """A checkpoint is published although rows that it contains are not durable."""

    def make(original: Any) -> Any:
        def take(self: Any, deadline_s: float) -> None:
            original(self, deadline_s)
            if self.phase == 3 and not self._to_take and not self._to_sync:
                self.phase = 4

        return take

    return changed(Checkpointer, "_take", make)


@mutant
def queue_files_not_synced_for_the_checkpoint() -> Patch:
    """A checkpoint names index segments that were written and not synced."""

    def make(original: Any) -> Any:
        def take_one(self: Any, draft: Any, number: int) -> None:
            original(self, draft, number)
            for queue in self._flushed:
                queue.files_synced()
            self._flushed, self._to_sync = [], []

        return take_one

    return changed(Checkpointer, "_take_one", make)


@mutant
def index_removed_before_the_ack_is_durable() -> Patch:
    """The files of a stretch go when its last message does, not when a checkpoint has said so."""

    def make(original: Any) -> Any:
        def sweep(self: Any) -> None:
            original(self)
            self.homes.delete_segments(self.homes.doomed())

        return sweep

    return changed(VariableBackingQueue, "sweep", make)


@mutant
def copy_takes_over_before_its_sync() -> Patch:
    """Compaction removes what it has copied before the copy is durable."""

    def make(original: Any) -> Any:
        def end_draft(self: Any, draft: Any) -> None:
            self._folder.persistent, before = False, self._folder.persistent
            try:
                original(self, draft)
            finally:
                self._folder.persistent = before

        return end_draft

    return changed(Compaction, "_end_draft", make)


@mutant
def bodies_removed_before_the_ack_is_durable() -> Patch:
    """A file of the shared store goes with the last reference, although the row that says so is not durable."""

    def make(original: Any) -> Any:
        def remove_dead(self: Any) -> None:
            when_durable, self._when_durable = self._when_durable, lambda done: done(True)
            try:
                original(self)
            finally:
                self._when_durable = when_durable

        return remove_dead

    return changed(Compaction, "_remove_dead", make)


@mutant
def segment_removed_that_is_needed() -> Patch:
    """Retention looks at what is replayed, and not at bodies that are still in an older segment."""

    def make(original: Any) -> Any:
        def remove(self: Any) -> Any:
            for header in self._checkpointer.kept:
                header.needed_segment = NO_SEGMENT
            return original(self)

        return remove

    return changed(Retention, "_remove", make)


# --- rows -------------------------------------------------------------------------------------------


@mutant
def ack_without_a_row() -> Patch:
    """An ack is not written down."""

    def make(original: Any) -> Any:
        def settle(self: Any, kind: int, *rest: int) -> None:
            if kind != ACKED:
                original(self, kind, *rest)

        return settle

    return changed(Journal, "settle", make)


@mutant
def batch_written_in_two() -> Patch:
    """A transaction is not one batch: what was gathered so far is written when the next publish comes."""

    def make(original: Any) -> Any:
        def publish(self: Any, *rest: Any) -> Any:
            self._journal.commit(True)
            return original(self, *rest)

        return publish

    return changed(VariableBackingQueue, "publish", make)


@mutant
def requeue_at_the_tail() -> Patch:
    """What comes back stands behind everything."""
    return patch.object(put_back, "insert_in_order", lambda zone, status: zone.append(status))


# --- recovery ---------------------------------------------------------------------------------------


@mutant
def rows_replayed_twice() -> Patch:
    """Rows that a queue's state contains already are applied again."""

    def make(original: Any) -> Any:
        def begin(self: Any, checkpoint: Any) -> None:
            original(self, checkpoint)
            for state in checkpoint.states:
                state.lsn = 0

        return begin

    return changed(Replaying, "begin", make)


@mutant
def seq_ids_used_again() -> Patch:
    """After a start seq_ids go on behind the last message that is there, not behind the last that was."""

    def make(original: Any) -> Any:
        def recover(queue: Any, state: Any, clean: bool, *rest: Any) -> None:
            state.prune()
            live = state.live.live_runs(0, state.next_seq_id)
            state.next_seq_id = live[-1][0] + live[-1][1] if live else 0
            original(queue, state, clean, *rest)

        return recover

    return changed(variable_queues, "recover", make)


@mutant
def clean_mark_believed() -> Patch:
    """The mark of a clean stop counts although rows follow."""
    return patch.object(
        recovery, "_is_clean", lambda checkpoint, *rest: checkpoint is not None and bool(checkpoint.header.clean)
    )


@mutant
def torn_heap_accepted() -> Patch:
    """The bodies of the last batch are not looked at."""
    return patch.object(BatchView, "heap_is_whole", lambda self: True)


@mutant
def torn_batch_with_large_bodies_accepted() -> Patch:
    """The last batch is taken although large bodies that it refers to are not there."""
    return patch.object(LastBatch, "is_whole", lambda self, batch: True)


@mutant
def recovered_tail_not_synced() -> Patch:
    """After a kill the end of the journal is read from the page cache, believed, and not synced."""

    def make(original: Any) -> Any:
        def cut(files: Any, folder: str, end: Any) -> None:
            end.tail_segment = -1
            original(files, folder, end)

        return cut

    return changed(recovery, "cut_torn_tail", make)


@mutant
def moves_believed_after_a_crash() -> Patch:
    """Slots that say where a body has moved count although no checkpoint knew of the move."""
    return patch.object(QueueIndex, "distrust_moves", lambda self, from_seq_id: None)


@mutant
def definitions_without_their_lsn() -> Patch:
    """The checkpoint says that its definitions are older than they are: changes in between are lost."""

    def make(original: Any) -> Any:
        def take(self: Any) -> tuple[bytes, int]:
            text, lsn = original(self)
            return text, lsn + 20

        return take

    return changed(NodeStore, "_take_definitions", make)


# --- damage -----------------------------------------------------------------------------------------


@of_damage
def rot_taken_for_a_torn_tail() -> Patch:
    """The journal ends with the first damage, wherever that is, as if what follows had never been confirmed."""

    def make(original: Any) -> Any:
        def walk_segment(self: Any, segment_reader: Any, limit: int) -> None:
            if self._end.torn:
                return
            with patch.object(SegmentReader, "find_header", lambda self, after, lsn: None):
                original(self, segment_reader, limit)
            for segment, pos, size in self._damage:
                self._end.torn.append(reader.TornTail(segment, pos, size, self._end.next_lsn))
            self._damage.clear()

        return walk_segment

    return changed(reader._Walk, "walk_segment", make)


@of_damage
def blocks_not_checked() -> Patch:
    """Bodies are read from the journal without a look at their checksums."""

    def read_heap(self: Any) -> tuple[bytes, list[int]]:
        header = self._header
        return self._reader.bytes_at(header.heap_at, header.props_bytes + header.body_bytes), []

    return patch.object(BatchView, "read_heap", read_heap)


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Run with one bug."""
    with MUTANTS[name]():
        yield
