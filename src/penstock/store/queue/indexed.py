"""What a queue's state means together with its index: which messages the index alone knows, and what they refer to.

A state names its runs and the segments of its index. The slots in those are read here, for callers that must know all
messages of a queue without opening it: recovery, which counts references to the shared store, and fsck.

Invariants
  1. A message that is in a run is taken from the run, whatever the index says: the run is as new as the journal.
  2. Slots of transient messages do not count, and neither does what is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from penstock.disk.files import Files
from penstock.store.node.queue_names import queue_folder
from penstock.store.queue.places import MSG_STORE, PERSISTENT, Slot, StoreError, address_of
from penstock.store.queue.queue_index import QueueIndex
from penstock.store.queue.queue_state import QueueState, RunPlace
from penstock.store.shared.handles import HandleCache

IndexedMessage = tuple[int, Slot]


@final
class IndexedMessages:
    """The messages of one queue that only its index knows."""

    __slots__ = ("_in_runs", "bad_files", "index", "missing", "state")

    def __init__(self, files: Files, handles: HandleCache, state: QueueState) -> None:
        self.state = state
        folder = f"{queue_folder(state.vhost_id, state.queue_id)}/idx"
        self.index = QueueIndex(files, folder, handles, state.live.slots)
        self.index.distrust_moves(state.home_below)
        # What is wrong with files that cannot be read at all.
        self.bad_files: list[str] = []
        # Live seq_ids without a whole slot. Those of transient messages that were never paged out are among them.
        self.missing: list[int] = []
        slots = state.live.slots
        self._in_runs: dict[int, set[int]] = {}
        for run in state.runs:
            end = run.seq_id + run.count
            for segment in range(run.seq_id // slots, (end - 1) // slots + 1):
                if segment in state.index_segments:
                    part = range(max(run.seq_id, segment * slots), min(end, (segment + 1) * slots))
                    self._in_runs.setdefault(segment, set()).update(part)

    def of_segment(self, segment: int) -> list[IndexedMessage]:
        """(seq_id, slot) of the live persistent messages of one segment that are in no run."""
        state = self.state
        start = segment * state.live.slots
        end = min(start + state.live.slots, state.next_seq_id)
        try:
            slots = self.index.read(start, end)
        except StoreError as error:
            self.bad_files.append(str(error))
            return []
        in_runs = self._in_runs.get(segment, set())
        found: list[IndexedMessage] = []
        for first, count in state.live.live_runs(start, end):
            for seq_id in range(first, first + count):
                slot = slots[seq_id - start]
                if seq_id in in_runs:
                    continue
                if slot is None:
                    self.missing.append(seq_id)
                elif slot[1] & PERSISTENT:
                    found.append((seq_id, slot))
        return found

    def close(self) -> None:
        self.index.close()


def shared_addresses(run: RunPlace) -> Sequence[int]:
    """Return addresses in the shared store of a run's messages; none when they are elsewhere."""
    if run.kind != MSG_STORE:
        return ()
    assert run.addresses is not None
    return run.addresses


def count_references(files: Files, handles: HandleCache, states: list[QueueState]) -> dict[int, int]:
    """Return how many messages of these queues lead to each address of their vhost's shared store."""
    references: dict[int, int] = {}
    for state in states:
        for run in state.runs:
            for address in shared_addresses(run):
                references[address] = references.get(address, 0) + 1
        if not any(state.index_segments.values()):
            continue
        indexed = IndexedMessages(files, handles, state)
        for segment, shared in state.index_segments.items():
            if shared:
                for _, slot in indexed.of_segment(segment):
                    if slot[0] == MSG_STORE:
                        references[address_of(slot)] = references.get(address_of(slot), 0) + 1
        indexed.close()
    return references


def drop_unreadable(
    files: Files, handles: HandleCache, state: QueueState, unreadable: set[int]
) -> list[tuple[int, int, int]]:
    """Take messages out of a state whose bodies the shared store does not have; (seq_id, address, bytes) of each."""
    dropped: list[tuple[int, int, int]] = []
    for run in state.runs:
        for position, address in enumerate(shared_addresses(run)):
            if address in unreadable:
                size = run.size_each if run.sizes is None else run.sizes[position]
                state.apply_gone(run.seq_id + position, 1, size)
                dropped.append((run.seq_id + position, address, size))
    if any(state.index_segments.values()):
        indexed = IndexedMessages(files, handles, state)
        for segment in [segment for segment, shared in state.index_segments.items() if shared]:
            for seq_id, slot in indexed.of_segment(segment):
                if slot[0] == MSG_STORE and address_of(slot) in unreadable:
                    state.apply_gone(seq_id, 1, slot[2])
                    dropped.append((seq_id, address_of(slot), slot[2]))
        indexed.close()
    if dropped:
        state.prune()
    return dropped


def recount(files: Files, handles: HandleCache, state: QueueState) -> None:
    """Count messages and bytes again: after damage the rows of the journal no longer add up. The state is pruned."""
    state.count = sum([run.count for run in state.runs])
    state.size_bytes = sum([run.size_bytes() for run in state.runs])
    indexed = IndexedMessages(files, handles, state)
    for segment in state.index_segments:
        messages = indexed.of_segment(segment)
        state.count += len(messages)
        state.size_bytes += sum([slot[2] for _, slot in messages])
    indexed.close()
