"""The shared stores of all vhosts: two each, made when they are first asked for.

Bodies are written and synced before the batch of the journal that refers to them, and compacted in the background. At
its start the references to a store are counted, in the recovered states of its vhost's queues and in their indexes, and
messages whose bodies cannot be read are taken out of these states.

Invariants
  1. A persistent store is started before any queue of its vhost is open: opening a queue asks for its state, and that
     starts the store.
  2. Bodies are synced before the batch that refers to them is durable.
  3. A message whose body is missing is reported as lost, unless its batch was never reported durable: then no publisher
     was told that it is safe, and it is dropped in silence.

A crash leaves bodies to which nothing refers; the next start finds them without a reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from penstock.clock import Clock
from penstock.disk.files import File, Files
from penstock.journal.format.rows import LOST
from penstock.journal.journal import Journal, do_nothing
from penstock.journal.syncer import SyncDone, Syncer
from penstock.store.node.queue_registry import QueueRegistry
from penstock.store.node.removal_hold import nothing_is_held
from penstock.store.queue.indexed import count_references, drop_unreadable
from penstock.store.recovery.replaying import Reference
from penstock.store.shared.body_reader import BodyReader
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.message_store import MessageStore, MessageStoreOptions

# How much compaction copies in a slice, and how often it is asked when it had nothing to do.
_COMPACT_BYTES: Final = 256 * 1024
_COMPACT_EVERY_S: Final = 1.0


# References that a deleted or purged queue gives back before the time is looked at.
_RELEASE_COUNT: Final = 256

# Gives back so many references, or as much memory; returns how many, 0 when there are none left.
ReleaseSome = Callable[[int], int]


def shared_folder(vhost_id: str, persistent: bool) -> str:
    return f"vhosts/{vhost_id}/shared/{'persistent' if persistent else 'transient'}"


@final
class SharedStores:
    def __init__(
        self,
        files: Files,
        handles: HandleCache,
        journal: Journal,
        syncer: Syncer,
        registry: QueueRegistry,
        options: MessageStoreOptions,
        reader: BodyReader | None = None,
        is_held: Callable[[], bool] = nothing_is_held,
    ) -> None:
        """While `is_held` says so, nothing is compacted or removed."""
        # References that are not proven to be durable, and where lost messages are reported; set by recovery.
        self.unproven: set[Reference] = set()
        self.report: list[str] = []
        self._files = files
        self._handles = handles
        self._journal = journal
        self._syncer = syncer
        self._registry = registry
        self._options = options
        self._reader = reader
        self._is_held = is_held
        self._stores: dict[tuple[str, bool], MessageStore] = {}
        self._compact_next_s = 0.0
        self._compacting = 0
        # How many in a row had nothing to do.
        self._idle_stores = 0
        # What queues that are gone have left, with the vhost of each.
        self._leftovers: deque[tuple[str, ReleaseSome]] = deque()
        # Called when there is something to do at the end of the turn.
        self.woken: Callable[[], None] = do_nothing

    def store(self, vhost_id: str, persistent: bool) -> MessageStore:
        """Return the store, started when it is first asked for."""
        store = self._stores.get((vhost_id, persistent))
        if store is None:
            store = MessageStore(
                self._files,
                shared_folder(vhost_id, persistent),
                self._handles,
                self._options,
                persistent,
                self._sync,
                self._journal.when_durable,
                self._wake,
                self._reader,
                self._is_held,
            )
            if persistent:
                self._start(vhost_id, store)
            else:
                store.start({})
            self._stores[vhost_id, persistent] = store
        return store

    def wipe_transient(self) -> None:
        """At the start of a node: give back the room of large transient bodies of the last life."""
        for vhost_id in self._files.list_dir("vhosts"):
            try:
                self._files.remove_dir(shared_folder(vhost_id, False))
            except OSError:
                # They are tried again when the store is used, and at the next start.
                continue

    def _start(self, vhost_id: str, store: MessageStore) -> None:
        states = [state for state in self._registry.recovered.values() if state.vhost_id == vhost_id]
        unreadable = set(store.start(count_references(self._files, self._handles, states)))
        if not unreadable:
            return
        for state in states:
            for seq_id, address, size in drop_unreadable(self._files, self._handles, state, unreadable):
                # Without this row the next start would find the message again, in a batch that is proven by then.
                self._journal.settle(LOST, state.queue_no, seq_id, 1, size)
                if (vhost_id, address) not in self.unproven:
                    self.report.append(
                        f"message {seq_id} of queue {self._registry.names.shown(state.queue_no)} is lost: its body in"
                        f" the shared store (address {address:#x}) cannot be read"
                    )

    def _wake(self) -> None:
        self.woken()

    def _sync(self, files: list[File], done: SyncDone) -> None:
        self._syncer.submit(files, done)

    def before_write(self) -> None:
        """The journal is about to write a batch: write what it refers to, and have it synced first."""
        for (_, persistent), store in self._stores.items():
            if persistent:
                store.flush()
                for file in store.current_file_to_sync():
                    self._journal.sync_first(file)

    def is_behind(self) -> bool:
        """Return whether a body that the gathering batch refers to is still to be written, slice by slice."""
        for (_, persistent), store in self._stores.items():
            if persistent and store.is_behind():
                return True
        return False

    def write_some(self, deadline_s: float, clock: Clock) -> None:
        """Write slices of large bodies; at least one, if there are any."""
        for store in self._stores.values():
            while store.is_behind():
                store.write_slice()
                if clock.monotonic_s() >= deadline_s:
                    return

    def gathered_bytes(self) -> int:
        """Bodies that the gathering batch refers to, written or not."""
        total = 0
        for store in self._stores.values():
            total += store.gathered_bytes
        return total

    def end_turn(self) -> None:
        for store in self._stores.values():
            store.end_fanout()

    def compact(self, now: float) -> None:
        """One slice for one store; all are asked in turn."""
        if now < self._compact_next_s or not self._stores or self._is_held():
            return
        stores = list(self._stores.values())
        self._compacting = (self._compacting + 1) % len(stores)
        if stores[self._compacting].compact_some(_COMPACT_BYTES):
            self._idle_stores = 0
            return
        self._idle_stores += 1
        if self._idle_stores >= len(stores):
            self._idle_stores = 0
            self._compact_next_s = now + _COMPACT_EVERY_S

    def release_later(self, vhost_id: str, release_some: ReleaseSome) -> None:
        """A queue of the vhost has so many references to give back that one turn has no time for all of them."""
        self._leftovers.append((vhost_id, release_some))
        self.woken()

    def has_leftovers(self) -> bool:
        return len(self._leftovers) > 0

    def release_some(self, deadline_s: float, clock: Clock) -> None:
        """Give back what queues have left, for a while."""
        while self._leftovers:
            if not self._leftovers[0][1](_RELEASE_COUNT):
                self._leftovers.popleft()
            if clock.monotonic_s() >= deadline_s:
                return

    def forget_vhost(self, vhost_id: str) -> None:
        """Its folder is about to be removed."""
        self._leftovers = deque([left for left in self._leftovers if left[0] != vhost_id])
        for persistent in (True, False):
            store = self._stores.pop((vhost_id, persistent), None)
            if store is not None:
                store.close()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        for store in self._stores.values():
            store.close()
