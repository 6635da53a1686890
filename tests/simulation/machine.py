"""One life of a node on a simulated machine: its store, its queues, and the little that a server does around them.

A life begins with `Node.open` on whatever disk the last one left, and ends with a clean stop, or is just dropped. The
syncer answers when the driver says so; work that backings post to their queues is run at once or when the driver says
so, and is dropped with its queue.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Sequence

from penstock.backing.backing_queue import BackingQueue, BackingWork, Recovery
from penstock.backing.priority.priority import PriorityBackingQueues, combined_recovery, inner_ids
from penstock.backing.variable.variable_queues import VariableBackingQueues
from penstock.clock import ManualClock
from penstock.disk.files import File
from penstock.journal.syncer import SyncDone, Syncer
from penstock.message import Entry
from penstock.server.sync.quick_syncer import QuickSyncer
from penstock.store.node.node_store import NodeStore
from penstock.store.queue.queue_state import QueueState
from penstock.store.queue.stored_queue import Counters, StoredQueue
from tests.disk.sim_files import SimFiles
from tests.simulation.profile import Profile
from tests.simulation.publishing import Token

VHOSTS = ("5e", "6f")


class StepSyncer(Syncer):
    """Syncs when it is told to, or at once as often as the profile says."""

    def __init__(self, rng: random.Random, at_once: float) -> None:
        self._rng = rng
        self._at_once = at_once
        self.under_way: tuple[list[File], SyncDone] | None = None

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        assert self.under_way is None, "a second request while one is under way"
        self.under_way = (list(files), done)
        if self._at_once and self._rng.random() < self._at_once:
            self.answer()

    def answer(self) -> None:
        if self.under_way is None:
            return
        files, done = self.under_way
        error: OSError | None = None
        try:
            for file in files:
                file.fdatasync()
        except OSError as failed:
            error = failed
        self.under_way = None
        done(error)

    def close(self) -> None:
        self.answer()


class CheckpointFaults:
    """What is to go wrong when a checkpoint asks a queue for something, and when."""

    def __init__(self) -> None:
        # (queue, point) of everything that was asked so far.
        self.seen: list[tuple[int, str]] = []
        # The exception that comes out of the nth point from now on; 0 = none.
        self.nth = 0
        self.exception: Exception = MemoryError()

    def plan(self, nth: int, exception: Exception) -> None:
        self.nth = nth
        self.exception = exception

    def strikes(self, queue_no: int, point: str) -> bool:
        self.seen.append((queue_no, point))
        if self.nth == 0:
            return False
        self.nth -= 1
        return self.nth == 0

    def pass_point(self, queue_no: int, point: str) -> None:
        if self.strikes(queue_no, point):
            raise self.exception


class FaultyQueue(StoredQueue):
    """A durable queue that fails where it is told to while a checkpoint asks it."""

    def __init__(self, inner: StoredQueue, faults: CheckpointFaults) -> None:
        self.queue_no = inner.queue_no
        self._inner = inner
        self._faults = faults

    def snapshot(self) -> QueueState:
        self._faults.pass_point(self.queue_no, "snapshot")
        state = self._inner.snapshot()
        if self._faults.strikes(self.queue_no, "encode"):
            # No number for a queue: it does not fit.
            state.queue_no = 1 << 40
        return state

    def flush(self) -> None:
        self._faults.pass_point(self.queue_no, "flush")
        self._inner.flush()
        self._faults.pass_point(self.queue_no, "flushed")

    def files_to_sync(self, count_max: int) -> list[File]:
        self._faults.pass_point(self.queue_no, "files_to_sync")
        files = self._inner.files_to_sync(count_max)
        self._faults.pass_point(self.queue_no, "handed_out")
        return files

    def files_synced(self) -> None:
        self._faults.pass_point(self.queue_no, "files_synced")
        self._inner.files_synced()

    def sync_given_up(self) -> None:
        self._inner.sync_given_up()

    def counters(self) -> Counters:
        return self._inner.counters()

    def synced(self) -> None:
        self._faults.pass_point(self.queue_no, "synced")
        self._inner.synced()

    def journal_segment_needed(self) -> int:
        self._faults.pass_point(self.queue_no, "needed")
        return self._inner.journal_segment_needed()

    def move_home(self, segment: int, count_max: int) -> bool:
        self._faults.pass_point(self.queue_no, "move_home")
        return self._inner.move_home(segment, count_max)


class SimNodeStore(NodeStore):
    """A store whose queues fail where they are told to."""

    def __init__(
        self, files: SimFiles, syncer: Syncer, clock: ManualClock, profile: Profile, rng: random.Random
    ) -> None:
        super().__init__(files, syncer, clock, profile.store, rng.getrandbits)
        self.faults = CheckpointFaults()

    def register(self, queue: StoredQueue) -> None:
        super().register(FaultyQueue(queue, self.faults))


class OpenQueue:
    """A queue of one life, as its server keeps it."""

    def __init__(self, node: Node, name: str, queue_id: str, vhost_id: str, durable: bool, max_priority: int) -> None:
        self.node = node
        self.name = name
        self.queue_id = queue_id
        self.vhost_id = vhost_id
        self.durable = durable
        self.max_priority = max_priority
        # None until it is open.
        self.backing: BackingQueue | None = None
        self.is_gone = False
        # What it has confirmed and nobody has looked at yet, and how the disk was then.
        self.told: list[tuple[Token, OSError | None]] = []

    @property
    def messages(self) -> BackingQueue:
        assert self.backing is not None
        return self.backing

    def post(self, kind: str, work: BackingWork) -> None:
        """The async callback."""
        if self.node.callbacks_at_once:
            self.run(kind, work)
        else:
            self.node.callbacks.append((self, kind, work))

    def run(self, kind: str, work: BackingWork) -> None:
        if self.is_gone or self.backing is None:
            return
        self.backing.invoke(kind, work)

    def contents(self) -> list[tuple[int, Entry, bool]]:
        """(seq_id, entry, is pending) of all messages, in order."""
        seen: list[tuple[int, Entry, bool]] = []

        def visit(seq_id: int, entry: Entry, pending: bool) -> bool:
            seen.append((seq_id, entry, pending))
            return True

        self.messages.fold(visit)
        return seen


class Node:
    """A node's store with its queues."""

    def __init__(self, files: SimFiles, clock: ManualClock, profile: Profile, rng: random.Random) -> None:
        self.files = files
        self.clock = clock
        self.callbacks_at_once = profile.callbacks_at_once
        self.callbacks: deque[tuple[OpenQueue, str, BackingWork]] = deque()
        self.syncer = StepSyncer(rng, profile.sync_at_once)
        syncer = QuickSyncer(self.syncer, clock) if profile.quick_syncs else self.syncer
        self.store = SimNodeStore(files, syncer, clock, profile, rng)
        self.journal = self.store.journal
        self.queues: dict[str, OpenQueue] = {}
        # Every change of the definitions so far.
        self.definitions: list[str] = []
        self.report: list[str] = []
        self.is_clean = False
        self._paging = profile.paging
        self._vhosts = {
            vhost_id: VariableBackingQueues(self.store, vhost_id, clock, self._paging) for vhost_id in VHOSTS
        }

    # --- life -------------------------------------------------------------------------------------

    def open(self) -> None:
        """As a server starts: the store, the definitions, then the queues that they name."""
        recovered = self.store.open()
        self.is_clean = recovered.clean
        self.report = recovered.report
        before = json.loads(recovered.definitions) if recovered.definitions else []
        self.definitions = [*before, *[change.decode() for change in recovered.changes]]
        self.store.remove_unknown_vhosts(VHOSTS)
        wanted: dict[str, dict[str, object]] = {}
        for text in self.definitions:
            change = json.loads(text)
            if change["do"] == "declare":
                wanted[str(change["name"])] = change
            elif change["do"] == "delete":
                del wanted[str(change["name"])]
        for vhost_id in VHOSTS:
            self._open_vhost(vhost_id, [change for change in wanted.values() if change["vhost"] == vhost_id])
        self.store.definitions_source = self._all_definitions

    def _open_vhost(self, vhost_id: str, wanted: Sequence[dict[str, object]]) -> None:
        queues = [self._queue_of(change) for change in wanted]
        ids = [inner_ids(one.queue_id, one.max_priority) if one.max_priority else [one.queue_id] for one in queues]
        found = deque(self._vhosts[vhost_id].start([one for each in ids for one in each]))
        for queue, each in zip(queues, ids, strict=True):
            levels = [found.popleft() for _ in each]
            recovery = combined_recovery(levels) if queue.max_priority else levels[0]
            self._open_queue(queue, recovery)

    def _queue_of(self, change: dict[str, object]) -> OpenQueue:
        max_priority = change["max_priority"]
        assert isinstance(max_priority, int)
        return OpenQueue(self, str(change["name"]), str(change["id"]), str(change["vhost"]), True, max_priority)

    def _open_queue(self, queue: OpenQueue, recovery: Recovery | None) -> None:
        plain = self._vhosts[queue.vhost_id]
        if queue.max_priority:
            levels = PriorityBackingQueues(plain, queue.max_priority, self._level_exists)
            queue.backing = levels.open(queue.queue_id, queue.durable, recovery, queue.post)
        else:
            queue.backing = plain.open(queue.queue_id, queue.durable, recovery, queue.post)
        self.queues[queue.name] = queue

    def _level_exists(self, queue_id: str) -> bool:
        return self.store.queue_state(queue_id) is not None

    def _all_definitions(self) -> list[bytes]:
        whole = json.dumps(self.definitions).encode()
        return [whole[: len(whole) // 2], whole[len(whole) // 2 :]]

    def stop(self) -> bool:
        """Stop cleanly; False when the disk did not let us."""
        for queue in self.queues.values():
            queue.messages.terminate()
        self.store.stop()
        checkpointer = self.store.checkpointer
        return self.store.failed is None and not checkpointer.failure and not checkpointer.is_running

    # --- changes of the definitions -----------------------------------------------------------------

    def define(self, change: dict[str, object]) -> str:
        text = json.dumps(change)
        self.definitions.append(text)
        self.journal.define(text.encode())
        return text

    def declare(self, name: str, queue_id: str, vhost_id: str, durable: bool, max_priority: int) -> str:
        """Make a queue; the text of its definition, which only a durable one has."""
        queue = OpenQueue(self, name, queue_id, vhost_id, durable, max_priority)
        self._open_queue(queue, None)
        if not durable:
            return ""
        return self.define(
            {"do": "declare", "name": name, "id": queue_id, "vhost": vhost_id, "max_priority": max_priority}
        )

    def delete(self, queue: OpenQueue) -> str:
        del self.queues[queue.name]
        text = self.define({"do": "delete", "name": queue.name}) if queue.durable else ""
        queue.is_gone = True
        queue.messages.delete_and_terminate()
        return text

    def run_callbacks(self, count: int) -> None:
        while self.callbacks and count > 0:
            queue, kind, work = self.callbacks.popleft()
            queue.run(kind, work)
            count -= 1
