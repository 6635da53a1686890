"""The disk of a node: the journal, the checkpoints, and what the queues of all vhosts share.

It has the lock on the data folder, the journal, the open files, the shared stores, the numbers of durable queues, and
the work in the background. A queue is given a number and its recovered state, registers, and is asked from then on as
`StoredQueue` says.

A node is opened (lock, format, recovery, a new journal segment), works in turns, and stops with a last checkpoint that
has the mark of a clean stop. `end_turn` commits the journal and does one slice of a checkpoint, of moving bodies home,
or of compaction.

Invariants
  1. Nothing is written to the folder before it is locked, and nothing by queues before `open` has returned.
  2. The definitions in a checkpoint contain every change below the LSN that is noted with them, and maybe later ones.
  3. A queue sees its recovered state only after the shared store of its vhost has been started.
  4. After a failure that makes the disk untrustworthy (`failed`) nothing is reported durable any more.

After a crash at any time the next start reads the newest checkpoint and the journal behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from errno import EACCES, EDQUOT, ENOSPC, EPERM
from functools import partial
from typing import Final

from penstock.call_all import call_all
from penstock.clock import Clock
from penstock.disk.files import Files, FolderLock, FolderLocked
from penstock.errors import StartupError
from penstock.journal.journal import Journal
from penstock.journal.syncer import Syncer
from penstock.native import mypyc_attr
from penstock.store.node.checkpointer import Checkpointer
from penstock.store.node.options import StoreOptions
from penstock.store.node.queue_names import QueueName, queue_folder, queues_folder
from penstock.store.node.queue_registry import QueueRegistry
from penstock.store.node.removal_hold import RemovalHold
from penstock.store.node.reserve import Reserve
from penstock.store.node.shared_syncer import SharedSyncer
from penstock.store.queue.places import QUEUE_STORE, StoreError
from penstock.store.queue.queue_state import QueueState
from penstock.store.queue.stored_queue import NO_SEGMENT, StoredQueue
from penstock.store.recovery import recovery
from penstock.store.recovery.recovery import Recovered
from penstock.store.retention.reader_cursors import log_id, make_log_id
from penstock.store.retention.retention import NOTHING, Retention
from penstock.store.retention.unread_history import UnreadHistory
from penstock.store.shared.body_reader import BodyReader
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.message_store import MessageStore
from penstock.store.shared.shared_stores import SharedStores

__all__ = ["NO_SEGMENT", "NodeStore", "Recovered", "StoredQueue"]

LOCK_PATH: Final = "lock"
# With little room on the disk: how often checkpoints come, and how large a segment is worth leaving for one.
_LOW_DISK_CHECKPOINT_S: Final = 1.0
_LOW_DISK_SEGMENT_BYTES: Final = 1 << 20
# While checkpoints are all that keeps old segments from being removed.
_EXCESS_CHECKPOINT_S: Final = 5.0
# After a checkpoint that was given up.
_RETRY_S: Final = 5.0
_FOREVER_S: Final = float("inf")

# Called with why a checkpoint failed; empty when it did not.
CheckpointDone = Callable[[str], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class NodeStore:
    def __init__(
        self,
        files: Files,
        syncer: Syncer,
        clock: Clock,
        options: StoreOptions,
        random_int: Callable[[int], int],
        reader: BodyReader | None = None,
    ) -> None:
        """`random_int` takes a number of bits; without a reader large bodies are read on the spot."""
        self.files = files
        self.options = options
        self.syncer = SharedSyncer(syncer)
        self.handles = HandleCache(files, options.handles_max)
        self.registry = QueueRegistry()
        # While a backup copies files, they stay.
        self.removals = RemovalHold(clock, random_int)
        held = self.removals.is_active
        self.journal = Journal(
            files, recovery.JOURNAL_FOLDER, self.syncer, clock, options.journal, partial(random_int, 64)
        )
        self.shared_stores = SharedStores(
            files, self.handles, self.journal, self.syncer, self.registry, options.message_store, reader, held
        )
        self.reserve = Reserve(files, clock, options.reserve_bytes)
        self.checkpointer = Checkpointer(
            files, self.journal, self.syncer, clock, self.registry, random_int, self._take_definitions, held
        )
        self.unread = UnreadHistory(files, options.readers_bytes_max)
        self.retention = Retention(self.journal, clock, self.registry, self.checkpointer, self.unread, options, held)
        # The whole definitions, in pieces; asked at each checkpoint. Without one those that were recovered are kept.
        self.definitions_source: Callable[[], Iterable[bytes]] | None = None
        self._clock = clock
        self._random_int = random_int
        self._lock: FolderLock | None = None
        self._recovered: Recovered | None = None
        # How many files of durable queues were begun, or are needed no more. A checkpoint syncs the former and lets the
        # latter be removed, also when all the messages in them are transient and the journal has no row about them.
        self.queue_files_changed = 0
        # Where the last checkpoint began, and when.
        self._checkpoint_files = 0
        self._checkpoint_lsn = 0
        self._checkpoint_bytes = 0
        self._checkpoint_s = 0.0
        self._retry_s = 0.0
        # Who waits for a checkpoint that begins from now on, and for the one that is under way.
        self._asked: list[CheckpointDone] = []
        self._awaited: list[CheckpointDone] = []
        self.journal.before_write.append(self.shared_stores.before_write)
        self.journal.is_behind = self.shared_stores.is_behind
        self.journal.disk_full = self.reserve.release

    # --- life -------------------------------------------------------------------------------------------

    def open(self) -> Recovered:
        """Take the folder and find out what is in it. Raises StartupError, which says what to do."""
        assert self._lock is None
        try:
            self._lock = self.files.lock(LOCK_PATH)
        except FolderLocked as error:
            raise StartupError(
                f"the data folder is in use by another process: {error}. Stop that one, or use another folder"
            ) from error
        except OSError as error:
            raise StartupError(f"the data folder cannot be used: {error}") from error
        try:
            return self._open()
        except (OSError, StoreError) as error:
            self._unlock()
            raise StartupError(f"the data folder cannot be read: {error}. 'penstock fsck' shows more") from error
        except StartupError:
            self._unlock()
            raise

    def _open(self) -> Recovered:
        version = recovery.check_format(self.files)
        recovery.make_folder(self.files)
        self.shared_stores.wipe_transient()
        recovered = recovery.recover(self.files, self.handles, self.options.index_slots)
        recovery.upgrade_format(self.files, version, recovered.report)
        recovery.settle(self.files, recovered)
        self._recovered = recovered
        self.shared_stores.unproven = recovered.unproven
        self.shared_stores.report = recovered.report
        self.registry.names = recovered.names
        self.registry.recovered = recovered.states
        for number, name in recovered.names.items():
            self.journal.names.name_queue(number, name.label())
        self.checkpointer.kept = recovered.kept
        self.checkpointer.next_number = recovered.next_checkpoint
        if recovered.kept:
            self.registry.recovered_needed_segment = recovered.kept[-1].needed_segment
        self.journal.start(recovered.end.next_segment, recovered.end.next_lsn)
        self._checkpoint_s = self._clock.monotonic_s()
        # What was replayed is replayed again at the next start, unless a checkpoint comes.
        self._checkpoint_lsn = recovered.known_lsn if recovered.kept else -1
        self.reserve.restore()
        self._name_log()
        return recovered

    def _name_log(self) -> None:
        """Return the id by which readers of history tell data folders apart."""
        try:
            if not log_id(self.files):
                make_log_id(self.files, self._random_int)
        except OSError as error:
            # A full disk must not keep the node from starting: the next start gives the log an id. Nor must readers
            # that somebody else has made: nothing is removed meanwhile, and retention says why.
            if error.errno not in (ENOSPC, EDQUOT, EACCES, EPERM):
                raise

    def stop(self) -> None:
        """The queues were terminated: make the last checkpoint, with the mark, and give everything back."""
        self.syncer.finish_inline()
        if self.failed is None and self._lock is not None:
            # One that is under way does not have the mark: let it end, and make another.
            if self.checkpointer.is_running:
                self._run_checkpoint()
            if self.checkpointer.is_running:
                # It waits for rows that found no room. The other one tries once more.
                self.checkpointer.give_up("the disk is full")
            # Their files go with the last of what they have left.
            self.shared_stores.release_some(_FOREVER_S, self._clock)
            self.checkpoint_now(clean=True)
        self.shared_stores.close()
        self.journal.close()
        self._unlock()

    def abandon(self) -> None:
        """Give everything back without a checkpoint: the next start is a dirty one."""
        self.syncer.close()
        self.shared_stores.close()
        self.journal.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def started_clean(self) -> bool:
        """Whether the folder was left by a clean stop, or is new: then what it says about deliveries is all true."""
        return self._recovered is not None and self._recovered.clean

    @property
    def failed(self) -> OSError | None:
        """Why the disk is not to be trusted any more; the node must stop. A restart reads what is really there."""
        return self.journal.failed if self.journal.failed is not None else self.checkpointer.fatal

    @property
    def alarm(self) -> str:
        """Why work in the background does not get on, for people; empty when it does. It is tried again."""
        return self.checkpointer.failure or self.retention.failure

    @property
    def gathered_bytes(self) -> int:
        """What was taken and is not handed to the disk yet: the journal's open batch, and the bodies it refers to."""
        return self.journal.gathered_bytes + self.shared_stores.gathered_bytes()

    def is_behind(self) -> bool:
        """Return whether the next turn should come soon: a large body is being written, slice by slice."""
        return self.failed is None and self.shared_stores.is_behind()

    def has_leftovers(self) -> bool:
        """Whether a queue that is gone still has references to give back: the next turn should come soon, too."""
        return self.failed is None and self.shared_stores.has_leftovers()

    # --- queues -----------------------------------------------------------------------------------------

    def queue_number(self, vhost_id: str, queue_id: str, text: bytes) -> int:
        """Return the number of a durable queue, known or new; the text is for people."""
        number = self.registry.names.number(queue_id)
        if number is None:
            name = QueueName(vhost_id, queue_id, text)
            number = self.registry.names.new_number(name)
            self.journal.names.name_queue(number, name.label())
        return number

    def queue_state(self, queue_id: str) -> QueueState | None:
        """What a queue is opened from; None when it is new."""
        state = self.registry.state(queue_id)
        if state is not None and state.queue_no in self.registry.recovered:
            self.message_store(state.vhost_id, True)
        return state

    def message_store(self, vhost_id: str, persistent: bool) -> MessageStore:
        return self.shared_stores.store(vhost_id, persistent)

    def register(self, queue: StoredQueue) -> None:
        """The queue is open, and is asked from now on. The simulation puts faults in between here."""
        self.registry.register(queue)

    def remove_unknown_queues(self, vhost_id: str, known_ids: Sequence[str]) -> None:
        """Remove what queues left that are not known any more, and files that known ones do not refer to.

        Called before the queues of the vhost are opened.
        """
        known = set(known_ids)
        for number, name in self.registry.names.items():
            if name.vhost_id == vhost_id and name.queue_id not in known:
                self._report_unknown(number)
                self.registry.forget(number)
        for queue_id in self.files.list_dir(queues_folder(vhost_id)):
            if queue_id not in known:
                self.files.remove_dir(queue_folder(vhost_id, queue_id))
            else:
                self._remove_orphans(vhost_id, queue_id)

    def _report_unknown(self, number: int) -> None:
        """A queue that was deleted has no state any more; one with messages must have lost its definition."""
        state = self.registry.recovered.get(number)
        if state is not None and state.count and self._recovered is not None:
            self._recovered.report.append(
                f"{state.count} messages of queue {self.registry.names.shown(number)} are lost: the definitions do not"
                " know the queue"
            )

    def _remove_orphans(self, vhost_id: str, queue_id: str) -> None:
        """Index and store files that a crash left, and that the recovered state does not name."""
        number = self.registry.names.number(queue_id)
        if number in self.registry.open_queues:
            return
        state = None if number is None else self.registry.recovered.get(number)
        named: set[int] = set()
        if state is not None:
            named.update(state.index_segments)
            named.update([run.segment for run in state.runs if run.kind == QUEUE_STORE])
        for kind in ("idx", "qs"):
            folder = f"{queue_folder(vhost_id, queue_id)}/{kind}"
            for file_name in self.files.list_dir(folder):
                digits = file_name.partition(".")[0]
                if not digits.isdecimal() or int(digits) not in named:
                    self.files.unlink(f"{folder}/{file_name}")

    def remove_unknown_vhosts(self, known_ids: Sequence[str]) -> None:
        """Remove the folders of vhosts that are not known any more, with everything in them."""
        for vhost_id in self.files.list_dir("vhosts"):
            if vhost_id not in known_ids:
                self.remove_vhost(vhost_id)

    def remove_vhost(self, vhost_id: str) -> None:
        """The vhost is deleted; its queues were, before."""
        for number, name in self.registry.names.items():
            if name.vhost_id == vhost_id:
                self._report_unknown(number)
                self.registry.forget(number)
        self.shared_stores.forget_vhost(vhost_id)
        self.remove_folder(f"vhosts/{vhost_id}")

    def remove_folder(self, path: str) -> None:
        """Remove a folder that no later state needs; now, or when no backup copies it any more."""
        if self.removals.is_active():
            self.removals.remove_later(partial(self.files.remove_dir, path))
        else:
            self.files.remove_dir(path)

    # --- turns --------------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Commit what has gathered, and do a slice of what goes on in the background."""
        deadline_s = self._clock.monotonic_s() + self.options.slice_s
        self.shared_stores.write_some(deadline_s, self._clock)
        self.shared_stores.end_turn()
        if self.is_behind():
            # The batch waits for its large bodies, and everything else for the batch.
            return
        self.journal.commit(self.checkpointer.wants_commit)
        now = self._clock.monotonic_s()
        if self.failed is not None:
            return
        deadline_s = now + self.options.slice_s
        self.shared_stores.release_some(deadline_s, self._clock)
        if self.checkpointer.is_running:
            while self.checkpointer.step(deadline_s) and self._clock.monotonic_s() < deadline_s:
                pass
            self._look_at_checkpoint()
        elif self._checkpoint_is_due(now):
            self._begin_checkpoint(False)
        elif self.retention.moving != NOTHING:
            self.retention.step(deadline_s)
        elif now - self._checkpoint_s >= self.options.checkpoint_s and (
            self.retention.unread_bytes or self.unread.warnings
        ):
            # Nothing has changed here, but readers may have got on.
            self._checkpoint_s = now
            self.retention.checkpoint_published()
        else:
            self.shared_stores.compact(now)
            self.removals.run_later()
            self.reserve.restore()

    # --- checkpoints --------------------------------------------------------------------------------------

    def checkpoint_now(self, clean: bool = False) -> bool:
        """Make a checkpoint without cutting it into slices; False when it did not get to its end.

        With a syncer that answers later it goes on in the turns to come.
        """
        if not self.checkpointer.is_running:
            self._begin_checkpoint(clean)
        return self._run_checkpoint()

    def ask_checkpoint(self, done: CheckpointDone) -> None:
        """Have a checkpoint made in the turns to come that has everything up to now."""
        self._asked.append(done)
        self.shared_stores.woken()

    def _run_checkpoint(self) -> bool:
        while self.checkpointer.is_running:
            self.journal.commit(True)
            if self.journal.failed is not None:
                # Places of messages that were not written are not known, and never will be.
                self.checkpointer.give_up("the journal could not be written")
            elif not self.checkpointer.step(_FOREVER_S):
                break
        self._look_at_checkpoint()
        return not self.checkpointer.is_running and not self.checkpointer.failure

    def _checkpoint_is_due(self, now: float) -> bool:
        journal = self.journal
        if self._asked:
            return True
        if now < self._retry_s:
            return False
        if journal.bytes_written - self._checkpoint_bytes >= self.options.checkpoint_bytes:
            return True
        files_changed = self.queue_files_changed - self._checkpoint_files
        if files_changed >= self.options.checkpoint_files:
            return True
        every_s = self.options.checkpoint_s
        if self.retention.disk_is_low:
            every_s = _LOW_DISK_CHECKPOINT_S
        elif self.retention.wants_checkpoint and self.retention.excess_bytes > self.options.journal.segment_bytes:
            every_s = min(every_s, _EXCESS_CHECKPOINT_S)
        if now - self._checkpoint_s < every_s:
            return False
        return journal.next_lsn != self._checkpoint_lsn or files_changed > 0 or self.retention.wants_checkpoint

    def set_disk_is_low(self, is_low: bool) -> None:
        """While it is, checkpoints come often, and history is not kept: what is settled makes room soon."""
        if is_low and not self.retention.disk_is_low:
            # What was kept as history until now goes with the next one.
            self.retention.wants_checkpoint = True
        if is_low:
            self.removals.break_all()
        self.retention.disk_is_low = is_low

    def _begin_checkpoint(self, clean: bool) -> None:
        if self.retention.disk_is_low and self.journal.segments.position()[1] > _LOW_DISK_SEGMENT_BYTES:
            # Only a segment that was left can go.
            self.journal.roll()
        self._awaited, self._asked = self._asked, []
        self._checkpoint_lsn = self.journal.next_lsn
        self._checkpoint_bytes = self.journal.bytes_written
        self._checkpoint_files = self.queue_files_changed
        self._checkpoint_s = self._clock.monotonic_s()
        self.checkpointer.begin(clean)

    def _look_at_checkpoint(self) -> None:
        """Whether it has come to an end, and which."""
        if self.checkpointer.is_running:
            return
        if self.checkpointer.fatal is not None:
            # Nothing is durable any more: waiters are told so.
            self.journal.fail(self.checkpointer.fatal)
        elif self.checkpointer.failure:
            self._checkpoint_lsn = -1
            self._retry_s = self._clock.monotonic_s() + _RETRY_S
        else:
            self.retention.checkpoint_published()
        awaited, self._awaited = self._awaited, []
        call_all([partial(done, self.checkpointer.failure) for done in awaited])

    def _take_definitions(self) -> tuple[Iterator[bytes], int]:
        if self.definitions_source is not None:
            return iter(self.definitions_source()), self.journal.next_lsn
        recovered = self._recovered
        assert recovered is not None and not recovered.changes, "changes were recovered: set definitions_source"
        return iter([recovered.definitions]), self.journal.next_lsn
