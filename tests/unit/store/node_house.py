"""A node with tiny numbers on a disk in memory, and a queue that is simple enough to be believed."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random

from tests.disk.sim_files import FaultPlan, SimFiles, Survival

from penstock.clock import Clock, ManualClock
from penstock.disk.files import File
from penstock.journal.format import rows
from penstock.journal.options import JournalOptions
from penstock.journal.place import BatchPlace
from penstock.journal.syncer import InlineSyncer, SyncDone, Syncer
from penstock.message import Envelope, Incoming
from penstock.store.node.node_store import NO_SEGMENT, NodeStore, Recovered, StoredQueue
from penstock.store.node.options import StoreOptions
from penstock.store.node.queue_names import queue_folder
from penstock.store.queue import places
from penstock.store.queue.queue_index import QueueIndex
from penstock.store.queue.queue_state import QueueState, RunPlace
from penstock.store.queue.queue_store import QueueStore
from penstock.store.queue.stored_queue import Counters
from penstock.store.shared.message_store import MessageStoreOptions

VHOST = "aa"
ENVELOPE = Envelope("", "key", b"\x10\x00\x02", persistent=True)
SLOTS = 4


def tiny_options(
    segment_bytes: int = 16 * 1024,
    checkpoint_bytes: int = 1 << 30,
    checkpoint_s: float = 60.0,
    retention_bytes: int = 1 << 30,
    retention_s: float = 1e9,
    readers_bytes_max: int = 1 << 30,
    reserve_bytes: int = 0,
) -> StoreOptions:
    return StoreOptions(
        JournalOptions(segment_bytes=segment_bytes, batch_bytes_max=1024),
        MessageStoreOptions(file_bytes=4096, own_file_bytes=1 << 20, buffer_bytes=1 << 20),
        index_slots=SLOTS,
        checkpoint_bytes=checkpoint_bytes,
        checkpoint_s=checkpoint_s,
        retention_bytes=retention_bytes,
        retention_s=retention_s,
        readers_bytes_max=readers_bytes_max,
        reserve_bytes=reserve_bytes,
    )


class LateSyncer(Syncer):
    """Syncs when it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[list[File], SyncDone]] = []

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        assert not self.requests, "one request at a time"
        self.requests.append((list(files), done))

    def answer(self) -> None:
        files, done = self.requests.pop()
        InlineSyncer().submit(files, done)

    def close(self) -> None:
        while self.requests:
            self.answer()


class TickingClock(Clock):
    """A millisecond passes each time somebody looks."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_s(self) -> float:
        self._now_s += 0.001
        return self._now_s


def new_node(
    files: SimFiles, options: StoreOptions | None = None, clock: Clock | None = None, syncer: Syncer | None = None
) -> NodeStore:
    """Not open yet. The same numbers are drawn each time."""
    return NodeStore(
        files, syncer or InlineSyncer(), clock or ManualClock(), options or tiny_options(), Random(1).getrandbits
    )


def open_node(
    files: SimFiles, options: StoreOptions | None = None, clock: Clock | None = None, syncer: Syncer | None = None
) -> NodeStore:
    node = new_node(files, options, clock, syncer)
    recovered = node.open()
    node.remove_unknown_queues(VHOST, [name.queue_id for _, name in recovered.names.items()])
    return node


def reopen(files: SimFiles) -> tuple[NodeStore, Recovered]:
    node = new_node(files)
    recovered = node.open()
    node.remove_unknown_queues(VHOST, [name.queue_id for _, name in recovered.names.items()])
    return node, recovered


def new_disk(survival: Survival = Survival.NOTHING) -> SimFiles:
    return SimFiles(FaultPlan(survival))


def power_cut(files: SimFiles) -> SimFiles:
    """Only what was synced is left."""
    return files.crash(lambda count: 0)


class PlainQueue(StoredQueue):
    """Remembers where each of its messages is, one by one."""

    def __init__(self, node: NodeStore, queue_id: str = "q1", vhost_id: str = VHOST) -> None:
        state = node.queue_state(queue_id)
        self.node = node
        self.queue_no = node.queue_number(vhost_id, queue_id, b"orders " + queue_id.encode())
        folder = queue_folder(vhost_id, queue_id)
        self.index = QueueIndex(node.files, f"{folder}/idx", node.handles, SLOTS)
        self.store = QueueStore(node.files, f"{folder}/qs", node.handles, SLOTS)
        self.state = QueueState(vhost_id, queue_id, self.queue_no, SLOTS) if state is None else state
        # seq_id → size, kind, place, entry, address
        self.messages: dict[int, tuple[int, int, BatchPlace, int, int]] = {}
        # Those of them that only the index knows.
        self.paged: set[int] = set()
        self.synced_count = 0
        self._restore()
        node.register(self)

    def _restore(self) -> None:
        for run in self.state.runs:
            for position in range(run.count):
                size = run.size_each if run.sizes is None else run.sizes[position]
                address = -1 if run.addresses is None else run.addresses[position]
                place = BatchPlace(run.segment, run.pos)
                self.messages[run.seq_id + position] = (size, run.kind, place, run.entry + position, address)
        for segment in self.state.index_segments:
            start = segment * SLOTS
            for first, count in self.state.live.live_runs(start, min(start + SLOTS, self.state.next_seq_id)):
                for seq_id in range(first, first + count):
                    slot = self.index.read(seq_id, seq_id + 1)[0]
                    if slot is not None and seq_id not in self.messages:
                        kind, _, size, _, at_segment, pos, entry = slot
                        address = places.address_of(slot) if kind == places.MSG_STORE else pos
                        self.messages[seq_id] = (size, kind, BatchPlace(at_segment, pos), entry, address)
                        self.paged.add(seq_id)

    # --- what a queue does ------------------------------------------------------------------------------

    def publish(self, *bodies: bytes) -> int:
        seq_id = self.state.next_seq_id
        entry = self.node.journal.publish(
            self.queue_no, seq_id, Incoming(ENVELOPE, [body + b"\xce" for body in bodies]), -1
        )
        for position, body in enumerate(bodies):
            place = self.node.journal.place
            self.messages[seq_id + position] = (len(body), places.JOURNAL, place, entry + position, -1)
        self._published(seq_id, len(bodies))
        return seq_id

    def publish_large(self, *bodies: bytes) -> int:
        store = self.node.message_store(self.state.vhost_id, True)
        seq_id = self.state.next_seq_id
        addresses = [store.put(ENVELOPE, body + b"\xce") for body in bodies]
        sizes = [len(body) for body in bodies]
        self.node.journal.publish_references(self.queue_no, seq_id, ENVELOPE, addresses, sizes, -1)
        for position, address in enumerate(addresses):
            self.messages[seq_id + position] = (sizes[position], places.MSG_STORE, BatchPlace(), 0, address)
        self._published(seq_id, len(bodies))
        return seq_id

    def _published(self, seq_id: int, count: int) -> None:
        self.state.next_seq_id = seq_id + count

    def ack(self, *seq_ids: int) -> None:
        for seq_id in seq_ids:
            size = self.messages.pop(seq_id)[0]
            self.paged.discard(seq_id)
            self.node.journal.settle(rows.ACKED, self.queue_no, seq_id, 1, size)
            self.state.live.remove(seq_id, 1)

    def page_out(self, *seq_ids: int) -> None:
        for seq_id in seq_ids:
            size, kind, place, entry, address = self.messages[seq_id]
            if kind == places.MSG_STORE:
                slot = places.shared_slot(places.PERSISTENT, size, -1, address)
            else:
                assert kind == places.JOURNAL
                slot = (kind, places.PERSISTENT, size, -1, place.segment, place.pos, entry)
            self.index.write(seq_id, [slot])
            self.paged.add(seq_id)
        self._name_index()

    def _name_index(self) -> None:
        self.state.index_segments = {}
        for seq_id in self.paged:
            is_shared = self.messages[seq_id][1] == places.MSG_STORE
            segment = seq_id // SLOTS
            self.state.index_segments[segment] = self.state.index_segments.get(segment, 0) + is_shared

    def delete(self) -> None:
        self.node.journal.forget_queue(self.queue_no)
        self.node.registry.forget(self.queue_no)

    def body(self, seq_id: int) -> bytes:
        size, kind, place, entry, address = self.messages[seq_id]
        if kind == places.JOURNAL:
            decoded = self.node.journal.batches.read(place.segment, place.pos)[entry]
            assert decoded is not None
            body = decoded[1]
        elif kind == places.MSG_STORE:
            body = self.node.message_store(self.state.vhost_id, True).read(address)[1]
        else:
            body = self.store.read(seq_id // SLOTS, address, 1)[0].body
        assert len(body) == size + 1
        assert body[-1:] == b"\xce"
        return body[:-1]

    def contents(self) -> dict[int, bytes]:
        return {seq_id: self.body(seq_id) for seq_id in sorted(self.messages)}

    # --- what the node asks -----------------------------------------------------------------------------

    def snapshot(self) -> QueueState:
        self._name_index()
        state = QueueState(self.state.vhost_id, self.state.queue_id, self.queue_no, SLOTS)
        state.next_seq_id = self.state.next_seq_id
        state.next_deliver_seq_id = self.state.next_deliver_seq_id
        state.live = self.state.live.copy()
        state.index_segments = dict(self.state.index_segments)
        for seq_id in sorted(self.messages.keys() - self.paged):
            size, kind, place, entry, address = self.messages[seq_id]
            assert kind == places.MSG_STORE or place.segment >= 0, "taken while a row was waiting"
            addresses = array("q", [address]) if kind == places.MSG_STORE else None
            state.runs.append(RunPlace(seq_id, 1, kind, place.segment, place.pos, entry, -1, size, None, addresses))
        state.count = len(self.messages)
        state.size_bytes = sum(message[0] for message in self.messages.values())
        return state

    def flush(self) -> None:
        self.index.flush()
        self.store.flush()
        self.index.segments.begin_sync()
        self.store.segments.begin_sync()

    def files_to_sync(self, count_max: int) -> list[File]:
        files = self.index.segments.files_to_sync(count_max)
        return [*files, *self.store.segments.files_to_sync(count_max - len(files))]

    def files_synced(self) -> None:
        self.index.segments.synced()
        self.store.segments.synced()

    def sync_given_up(self) -> None:
        self.index.segments.sync_given_up()
        self.store.segments.sync_given_up()

    def synced(self) -> None:
        self.synced_count += 1

    def counters(self) -> Counters:
        return len(self.messages), len(self.messages), self.state.count, self.state.size_bytes

    def journal_segment_needed(self) -> int:
        needed = [message[2].segment for message in self.messages.values() if message[1] == places.JOURNAL]
        return min(needed, default=NO_SEGMENT)

    def move_home(self, segment: int, count_max: int) -> bool:
        wanted = [
            seq_id
            for seq_id, message in sorted(self.messages.items())
            if message[1] == places.JOURNAL and message[2].segment <= segment
        ]
        for seq_id in wanted[:count_max]:
            body = self.body(seq_id)
            offset, size = self.store.append(seq_id, ENVELOPE, body + b"\xce", -1)
            number = seq_id // SLOTS
            slot = (places.QUEUE_STORE, places.PERSISTENT, len(body), -1, number, offset, size)
            if seq_id in self.paged:
                self.index.move(seq_id, [slot])
            else:
                self.index.write(seq_id, [slot])
                self.paged.add(seq_id)
            self.messages[seq_id] = (len(body), places.QUEUE_STORE, BatchPlace(number, offset), size, offset)
        return len(wanted) > count_max
