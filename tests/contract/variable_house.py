"""One variable queue on a simulated disk, with everything inside in reach, and numbers that a test chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from penstock.backing.backing_queue import BackingWork
from penstock.backing.variable.paging import PagingOptions
from penstock.backing.variable.stored_variable import StoredVariable
from penstock.backing.variable.variable import VariableBackingQueue
from penstock.backing.variable.variable_queues import VariableBackingQueues
from penstock.backing.zones import zone_views
from penstock.backing.zones.msg_status import MsgStatus
from penstock.clock import ManualClock
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import InlineSyncer, Syncer
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, MessageProps, body_bytes
from penstock.store.node.node_store import NodeStore
from penstock.store.node.options import StoreOptions
from penstock.store.shared.message_store import MessageStoreOptions
from tests.contract.noted_token import NotedToken, confirmed
from tests.disk.sim_files import FaultPlan, SimFiles, Survival

VHOST = "5e"
QUEUE = "0f3a"
MANY = 1_000_000_000


def plain_options(
    segment_bytes: int = 1 << 20,
    slots: int = 5,
    embed_below: int = 200,
    retention_bytes: int = 1 << 30,
    handles_max: int = 64,
    checkpoint_bytes: int = 1 << 40,
) -> StoreOptions:
    """Nothing happens by itself."""
    return StoreOptions(
        JournalOptions(segment_bytes=segment_bytes, batch_bytes_max=1 << 20),
        MessageStoreOptions(file_bytes=4096),
        index_slots=slots,
        embed_below=embed_below,
        checkpoint_bytes=checkpoint_bytes,
        checkpoint_s=1e9,
        retention_bytes=retention_bytes,
        retention_s=1e9,
        reserve_bytes=0,
        handles_max=handles_max,
    )


def no_paging() -> PagingOptions:
    """Nothing leaves RAM unless a test pushes it."""
    return PagingOptions(cap=MANY, slack=MANY, bytes_max=MANY, io_batch=1, slice_count=MANY)


def eager_paging(cap: int = 1, slice_count: int = MANY, io_batch: int = 1) -> PagingOptions:
    """What is above the cap leaves RAM as soon as it can."""
    return PagingOptions(
        cap=cap, slack=0, bytes_max=MANY, io_batch=io_batch, slice_count=slice_count, read_ahead_count=4
    )


class VariableHouse:
    """A node, and one of its queues."""

    def __init__(
        self,
        options: StoreOptions | None = None,
        paging: PagingOptions | None = None,
        durable: bool = True,
        survival: Survival = Survival.NOTHING,
        syncer: Callable[[], Syncer] = InlineSyncer,
    ) -> None:
        NotedToken.told.clear()
        self.options = options or plain_options()
        self.paging = paging or no_paging()
        self.durable = durable
        self.disk = SimFiles(FaultPlan(survival=survival))
        self.clock = ManualClock()
        self.persistent = True
        self._syncer = syncer
        self.callbacks: list[tuple[str, BackingWork]] = []
        self._open(known=False)

    def _open(self, known: bool) -> None:
        self.callbacks = []
        self.node = NodeStore(self.disk, self._syncer(), self.clock, self.options, random.Random(1).getrandbits)
        self.recovered = self.node.open()
        self.queues = VariableBackingQueues(self.node, VHOST, self.clock, self.paging)
        recoveries = self.queues.start([QUEUE] if known else [])
        self.queue = self.open_queue(QUEUE, recoveries[0] if known and self.durable else None)

    def open_queue(self, queue_id: str, recovery: object = None) -> VariableBackingQueue:
        queue = self.queues.open(queue_id, self.durable, recovery, self._call_later)  # type: ignore[arg-type]
        assert isinstance(queue, VariableBackingQueue)
        return queue

    def _call_later(self, kind: str, work: BackingWork) -> None:
        self.callbacks.append((kind, work))

    # --- lives ------------------------------------------------------------------------------------

    def restart(self) -> None:
        """A clean stop, and a start."""
        self.queue.terminate()
        self.node.stop()
        self.disk = self.disk.copy()
        self._open(known=True)

    def crash(self, seed: int = 0) -> None:
        """The power fails."""
        self.disk = self.disk.crash(random.Random(seed).randrange)
        self._open(known=True)

    def kill(self) -> None:
        """The process ends: what it has written is there."""
        self.disk = self.disk.kill()
        self._open(known=True)

    # --- work -------------------------------------------------------------------------------------

    def commit(self) -> list[ConfirmToken]:
        """Write and sync what the journal has gathered; the tokens that come of it."""
        self.node.journal.commit(urgent=True)
        self.run_callbacks()
        return confirmed(self.queue)

    def run_callbacks(self) -> None:
        while self.callbacks:
            kind, work = self.callbacks.pop(0)
            self.queue.invoke(kind, work)

    def envelope(self, persistent: bool | None = None) -> Envelope:
        return Envelope("", "key", b"\x00\x00", self.persistent if persistent is None else persistent)

    def publish(
        self,
        *payloads: bytes,
        expiry_ms: int = -1,
        confirm: ConfirmToken | None = None,
        delivered: bool = False,
        persistent: bool | None = None,
    ) -> int:
        """One run."""
        props = None if expiry_ms < 0 and confirm is None else MessageProps(expiry_ms, confirm)
        bodies = [payload + b"\xce" for payload in payloads]
        return self.queue.publish(Incoming(self.envelope(persistent), bodies), props, delivered)

    def publish_each(self, *payloads: bytes, persistent: bool | None = None) -> None:
        """Each a run of its own: the journal writes one before the next comes."""
        for payload in payloads:
            self.publish(payload, persistent=persistent)
            self.commit()

    def numbered(self, first: int, last: int, persistent: bool | None = None) -> None:
        """Messages `first` to `last`, the number as payload, each a run of its own."""
        self.publish_each(*[b"%d" % number for number in range(first, last + 1)], persistent=persistent)

    def fetch(self, count: int, ack_required: bool = True) -> list[int]:
        """Exactly so many; their seq_ids."""
        return [seq_id for seq_id, _, _ in self.fetched(count, ack_required)]

    def fetched(self, count: int, ack_required: bool = True) -> list[tuple[int, bytes, bool]]:
        taken: list[tuple[int, bytes, bool]] = []
        while len(taken) < count:
            run = self.queue.fetch(count - len(taken), MANY, ack_required)
            assert run is not None, f"only {len(taken)} of {count}"
            taken.extend(
                [(run.first_seq_id + at, body_bytes(entry[1]), run.redelivered) for at, entry in enumerate(run.entries)]
            )
        self.check()
        return taken

    def drain(self) -> list[bytes]:
        """All payloads, in order, and nothing is left."""
        payloads: list[bytes] = []
        while not self.queue.is_empty():
            run = self.queue.fetch(1000, MANY, False)
            if run is not None:
                payloads.extend([body_bytes(entry[1]) for entry in run.entries])
        assert self.queue.fetch(1, 1, False) is None
        return payloads

    def numbers(self) -> list[int]:
        return [int(payload) for payload in self.drain()]

    def folded(self) -> list[tuple[int, bytes, bool]]:
        seen: list[tuple[int, bytes, bool]] = []

        def visit(seq_id: int, entry: Entry, pending: bool) -> bool:
            seen.append((seq_id, body_bytes(entry[1]), pending))
            return True

        self.queue.fold(visit)
        return seen

    # --- pushing and looking ------------------------------------------------------------------------

    def push_alphas(self, count: int) -> None:
        self.queue.paging.push_alphas(count)
        self.check()

    def push_betas(self, quota: int) -> None:
        self.queue.zones.push_betas_to_deltas(quota, MANY)
        self.check()

    def zones(self) -> dict[str, list[int]]:
        """The seq_ids in each zone; those of the delta are read from the index."""
        zones = self.queue.zones
        return {
            "q4": seq_ids(zones.q4),
            "q3": seq_ids(zones.q3),
            "delta": seq_ids(zone_views.delta_runs(zones)),
            "q2": seq_ids(zones.q2),
            "q1": seq_ids(zones.q1),
        }

    def check(self) -> None:
        """Every invariant, and depth == len + pending."""
        queue = self.queue
        queue.check_invariants()
        assert queue.depth() == len(queue) + queue.pending.count

    def status(self, name: str) -> int:
        value = self.queue.status()[name]
        assert isinstance(value, int)
        return value

    def stored(self) -> StoredVariable:
        stored = self.node.registry.open_queues[self.queue.queue_no]
        assert isinstance(stored, StoredVariable)
        return stored

    def checkpoint(self) -> None:
        assert self.node.checkpoint_now()

    def paths(self, kind: str) -> list[str]:
        """Files of the queue: "idx" or "qs"."""
        folder = f"{self.queue.homes.folder}/{kind}"
        return [path for path in self.disk.contents() if path.startswith(folder)]


def seq_ids(runs: Sequence[MsgStatus]) -> list[int]:
    return [seq_id for run in runs for seq_id in range(run.seq_id, run.seq_id + run.count)]


def fill_all_zones(house: VariableHouse) -> None:
    """Messages 0 to 20, some in each zone; for houses with five slots that do not page by themselves."""
    house.numbered(0, 9)
    house.push_alphas(4)
    house.numbered(10, 19)
    house.push_alphas(8)
    house.push_betas(100)
    house.push_alphas(1)
    house.numbered(20, 20)
    assert house.zones() == {
        "q4": [0, 1, 2, 3, 4, 5],
        "q3": [6, 7, 8, 9],
        "delta": [10, 11, 12, 13, 14, 15, 16, 17],
        "q2": [18],
        "q1": [19, 20],
    }
