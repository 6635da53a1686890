"""Makes a checkpoint while the node works: a little in each turn.

Life of a checkpoint
  begin      the place where replay would begin is noted
  defining   the definitions are written into the draft, piece by piece
  taking     queue after queue: its state is written into the draft, each at its own LSN; its files are synced, some
             at a time, by the syncer, before more queues are taken
  durable    wait until the journal is durable up to the last snapshot
  draft      the draft is completed and synced, gets its name, and the folder is synced, by the syncer too
  announce   each queue is told; older checkpoints are removed

Invariants
  1. A state is taken only while no row waits to be written. So it has all rows below its LSN, and every place in the
     journal that it names is known.
  2. When the draft gets its name, everything that it names is synced: the files of the queues and the journal.
  3. A row that a state does not contain stands behind the replay start, since states are taken after it was noted. That
     goes for new queues too, and for the row that says that a queue was deleted.
  4. At most one checkpoint is under way, and each has a number that no other one had.
  5. A checkpoint has every queue, or it is not published. Whatever goes wrong on the way, also a bug and a lack of
     memory, ends this checkpoint.
  6. At most `_SYNC_FILES` files are open for a sync, however many a queue has written.

A crash leaves the older checkpoints as they were. A disk that is full, or cannot write the draft, costs this checkpoint
only: it is given up, `failure` says why, and the node tries again later. A queue's file that cannot be synced is
another matter: its bytes may be lost although they can still be read, so nothing that follows could be trusted. Then
`fatal` is set, and the node must stop as it does when the journal fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, final

from penstock.clock import Clock
from penstock.disk.files import File, Files
from penstock.journal.journal import Journal
from penstock.journal.syncer import Syncer
from penstock.store.node import checkpoint
from penstock.store.node.checkpoint import CheckpointDraft, CheckpointHeader
from penstock.store.node.queue_registry import QueueRegistry
from penstock.store.node.removal_hold import nothing_is_held
from penstock.store.queue.places import JOURNAL
from penstock.store.queue.queue_state import QueueState
from penstock.store.queue.stored_queue import NO_SEGMENT, StoredQueue

log: Final = logging.getLogger("penstock.store")

IDLE: Final = 0
BEGIN: Final = 1
TAKING: Final = 2
WAITING: Final = 3
DRAFT: Final = 4
ANNOUNCE: Final = 5

# So many files are synced with one request: a publisher's commit may have to wait for them.
_SYNC_FILES: Final = 16

# (definitions in pieces, LSN below which every change is contained in them)
DefinitionsSource = Callable[[], tuple[Iterator[bytes], int]]


@final
class Checkpointer:
    def __init__(
        self,
        files: Files,
        journal: Journal,
        syncer: Syncer,
        clock: Clock,
        registry: QueueRegistry,
        random_int: Callable[[int], int],
        definitions: DefinitionsSource,
        is_held: Callable[[], bool] = nothing_is_held,
    ) -> None:
        """While `is_held` says so, older checkpoints stay."""
        # Good ones, oldest first; at most two.
        self.kept: list[CheckpointHeader] = []
        self.next_number = 1
        self.phase = IDLE
        # Why the last one was given up; empty after one that was published.
        self.failure = ""
        self.fatal: OSError | None = None
        # Payload bytes of live messages at the last checkpoint, and how many of them each journal segment holds.
        self.live_bytes = 0
        self.live_in_segments: dict[int, int] = {}
        self._files = files
        self._journal = journal
        self._syncer = syncer
        self._clock = clock
        self._registry = registry
        self._random_int = random_int
        self._definitions = definitions
        self._is_held = is_held
        self._clean = False
        self._draft: CheckpointDraft | None = None
        # What is still to be written of the definitions; None when all is.
        self._pieces: Iterator[bytes] | None = None
        # Numbers that are still to be taken, in reverse; queues that were; and those that have handed out files which
        # are not synced yet.
        self._to_take: list[int] = []
        self._taken: list[StoredQueue] = []
        self._flushed: list[StoredQueue] = []
        self._to_sync: list[File] = []
        # The queue that was taken last, while it has more files to be synced.
        self._has_more: StoredQueue | None = None
        # `_to_sync` is with the syncer.
        self._is_syncing = False
        self._gathering = LiveBytes()

    @property
    def is_running(self) -> bool:
        return self.phase != IDLE

    @property
    def wants_commit(self) -> bool:
        """Return whether the checkpoint waits for rows to be written."""
        return self.phase == BEGIN or self.phase == TAKING

    def begin(self, clean: bool = False) -> None:
        """Start one, with the mark of a clean stop or without."""
        assert self.phase == IDLE
        self._clean = clean
        self.phase = BEGIN

    def step(self, deadline_s: float) -> bool:
        """Go on until the deadline; at least one piece of work. False when it has to wait, or is done."""
        try:
            if self.phase == BEGIN:
                self._begin()
            elif self.phase == TAKING:
                self._take(deadline_s)
            elif self.phase == DRAFT:
                self._finish_draft()
            elif self.phase == ANNOUNCE:
                self._announce(deadline_s)
            else:
                return False
        except Exception as error:
            self._fail(error)
            return False
        return self.phase != WAITING and self.phase != IDLE and not self._waits_for_rows()

    def give_up(self, why: str) -> None:
        """Leave everything as it was before."""
        self.failure = why
        self._end()

    def _fail(self, error: Exception, what: str = "") -> None:
        """Give the checkpoint up: after an error it may lack anything."""
        if not isinstance(error, OSError):
            log.error("a checkpoint is given up, and tried again later", exc_info=error)
        self.give_up(f"{what}{error}" if str(error) else f"{what}{error!r}")

    def _end(self) -> None:
        self.phase = IDLE
        draft, self._draft = self._draft, None
        flushed, self._flushed = self._flushed, []
        self._pieces = None
        self._to_take = []
        self._taken = []
        self._to_sync = []
        self._has_more = None
        if draft is not None:
            draft.give_up()
        if not self._is_syncing:
            _release(flushed)

    def _waits_for_rows(self) -> bool:
        return self.wants_commit and not self._journal.is_empty

    # --- phases ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._waits_for_rows():
            return
        journal = self._journal
        header = CheckpointHeader(self.next_number, self._random_int(64), self._clock.wall_ms(), self._clean)
        self.next_number += 1
        self._pieces, header.definitions_lsn = self._definitions()
        header.replay_segment, header.replay_pos = journal.segments.position()
        header.replay_lsn = journal.next_lsn
        header.needed_segment = NO_SEGMENT
        self._draft = CheckpointDraft(self._files, header)
        self._to_take = [number for number, _ in self._registry.names.items()]
        self._to_take.reverse()
        self._gathering = LiveBytes()
        self.phase = TAKING

    def _take(self, deadline_s: float) -> None:
        if self._waits_for_rows():
            return
        draft = self._draft
        assert draft is not None
        if not self._take_definitions(draft, deadline_s):
            return
        while len(self._to_sync) < _SYNC_FILES:
            if self._has_more is not None:
                self._take_files(self._has_more)
            elif self._to_take:
                self._take_one(draft, self._to_take.pop())
            else:
                break
            if self._clock.monotonic_s() >= deadline_s:
                break
        is_last = not self._to_take and self._has_more is None
        if len(self._to_sync) >= _SYNC_FILES or (is_last and self._to_sync):
            self.phase = WAITING
            self._is_syncing = True
            self._syncer.submit(self._to_sync, partial(self._files_synced, self._flushed))
        elif is_last:
            self.phase = WAITING
            self._journal.when_durable(partial(self._journal_durable, draft))

    def _take_definitions(self, draft: CheckpointDraft, deadline_s: float) -> bool:
        """Write some of the definitions; True when all are written."""
        while self._pieces is not None:
            piece = next(self._pieces, None)
            if piece is None:
                self._pieces = None
            else:
                draft.add(checkpoint.DEFINITIONS, piece)
            if self._clock.monotonic_s() >= deadline_s:
                return False
        return True

    def _take_one(self, draft: CheckpointDraft, number: int) -> None:
        name = self._registry.names.name(number)
        if name is None:
            # Deleted since the checkpoint began; the row that says so stands behind the replay start.
            return
        draft.add_name(number, name)
        queue = self._registry.open_queues.get(number)
        if queue is None:
            state = self._registry.recovered.get(number)
            if state is None:
                return
        else:
            state = queue.snapshot()
            state.lsn = self._journal.next_lsn
            queue.flush()
            self._has_more = queue
            self._taken.append(queue)
        needed = self._registry.needed_segment(number)
        draft.header.needed_segment = min(draft.header.needed_segment, needed)
        draft.add(checkpoint.STATE, state.encode())
        self._gathering.add(state, needed, draft.header.replay_segment)

    def _take_files(self, queue: StoredQueue) -> None:
        """Have some files of the queue synced that was taken last."""
        room = _SYNC_FILES - len(self._to_sync)
        self._flushed.append(queue)
        files = queue.files_to_sync(room)
        self._to_sync += files
        if len(files) < room:
            self._has_more = None

    def _files_synced(self, flushed: list[StoredQueue], error: OSError | None) -> None:
        self._is_syncing = False
        if flushed is not self._flushed:
            # The checkpoint was given up meanwhile.
            _release(flushed)
            return
        if error is not None:
            self.fatal = error
            self.give_up(f"a file of a queue could not be synced: {error}")
            return
        try:
            while flushed:
                flushed.pop().files_synced()
        except Exception as failed:
            self._fail(failed)
            return
        self._to_sync = []
        self.phase = TAKING

    def _journal_durable(self, draft: CheckpointDraft, is_durable: bool) -> None:
        if self._draft is not draft:
            return
        if is_durable:
            self.phase = DRAFT
        else:
            self.give_up("the journal could not be written")

    def _finish_draft(self) -> None:
        draft = self._draft
        assert draft is not None
        draft.header.next_queue_no = self._registry.names.next_number
        draft.header.next_segment = self._journal.segments.numbers()[-1] + 1
        file = draft.finish()
        self.phase = WAITING
        self._syncer.submit([file], partial(self._draft_synced, draft))

    def _draft_synced(self, draft: CheckpointDraft, error: OSError | None) -> None:
        if self._draft is not draft:
            return
        try:
            if error is not None:
                raise error
            folder = draft.publish()
        except Exception as failed:
            self._fail(failed, "the checkpoint could not be written: ")
            return
        self._syncer.submit([folder], partial(self._named, draft, folder))

    def _named(self, draft: CheckpointDraft, folder: File, error: OSError | None) -> None:
        folder.close()
        if self._draft is not draft:
            return
        if error is not None:
            self._fail(error, "the checkpoint could not be written: ")
            return
        self._draft = None
        self.kept = [*self.kept, draft.header][-checkpoint.KEPT :]
        self.live_bytes = self._gathering.total
        self.live_in_segments = self._gathering.in_segments
        self.failure = ""
        self._taken.reverse()
        self.phase = ANNOUNCE

    def _announce(self, deadline_s: float) -> None:
        while self._taken:
            queue = self._taken.pop()
            if self._registry.open_queues.get(queue.queue_no) is queue:
                queue.synced()
            if self._clock.monotonic_s() >= deadline_s:
                return
        self._end()
        if not self._is_held():
            remove_others(self._files, [header.number for header in self.kept])


def _release(queues: list[StoredQueue]) -> None:
    """Tell queues that the files that they have handed out are not synced."""
    for queue in queues:
        try:
            queue.sync_given_up()
        except Exception:
            # The files stay open, and are handed out again.
            log.exception("files that were to be synced for a checkpoint cannot be closed")


def remove_others(files: Files, kept: list[int]) -> None:
    """Remove checkpoints that are not kept, and drafts. What cannot be removed now is removed after the next one."""
    wanted = [checkpoint.checkpoint_path(number) for number in kept]
    for name in files.list_dir(checkpoint.FOLDER):
        path = f"{checkpoint.FOLDER}/{name}"
        if path not in wanted:
            files.unlink(path)


@final
class LiveBytes:
    """How much of the journal is still wanted, gathered from the states of a checkpoint."""

    def __init__(self) -> None:
        self.total = 0
        self.in_segments: dict[int, int] = {}

    def add(self, state: QueueState, needed_segment: int, last_segment: int) -> None:
        """One queue. Where the messages are that only its index knows is estimated: evenly, from the first it needs."""
        self.total += state.size_bytes
        known = 0
        in_segments = self.in_segments
        for run in state.runs:
            size = run.size_bytes()
            known += size
            if run.kind == JOURNAL:
                in_segments[run.segment] = in_segments.get(run.segment, 0) + size
        rest = state.size_bytes - known
        count = last_segment - needed_segment + 1
        if rest <= 0 or count <= 0:
            return
        for segment in range(needed_segment, last_segment + 1):
            in_segments[segment] = in_segments.get(segment, 0) + rest // count
