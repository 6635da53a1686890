"""Opens the variable queues of one vhost, new or from what the node's store has recovered.

A recovered `QueueState` becomes a queue: its runs become betas, and what only the index knows becomes the delta between
them. `start` is given the ids that the definitions know, and removes the files of all others.

Invariants
  1. A durable queue is registered with the node's store from `open` to its deletion.
  2. After a dirty start every message is marked as delivered, and the next seq_id is the first of a segment that was
     never used: transient messages may have had seq_ids that no row tells of.
  3. Opening reads no body, and no slot but those of the first messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from penstock.backing.backing_queue import AsyncCallback, BackingQueue, BackingQueues, Recovery
from penstock.backing.variable.homes import Homes
from penstock.backing.variable.paging import PagingOptions
from penstock.backing.variable.stored_variable import StoredVariable
from penstock.backing.variable.variable import VariableBackingQueue
from penstock.backing.zones.msg_status import MsgStatus, status_at
from penstock.clock import Clock
from penstock.store.node.node_store import NodeStore
from penstock.store.node.queue_names import queue_folder
from penstock.store.queue import places
from penstock.store.queue.queue_state import QueueState
from penstock.store.queue.stored_queue import NO_SEGMENT


@final
class VariableBackingQueues(BackingQueues):
    def __init__(self, node: NodeStore, vhost_id: str, clock: Clock, options: PagingOptions | None = None) -> None:
        self._node = node
        self._vhost_id = vhost_id
        self._clock = clock
        self._options = options or PagingOptions(node.options.ram_cap, node.options.ram_slack)

    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        self._node.remove_unknown_queues(self._vhost_id, queue_ids)
        return [Recovery(self._node.started_clean) for _ in queue_ids]

    def stop(self) -> None:
        return None

    def prepare(self) -> None:
        if self._node.registry.names.are_scarce():
            raise OverflowError("the numbers of durable queues are used up: go on with a new data folder")
        if self._node.options.embed_below > 0:
            self._node.message_store(self._vhost_id, True)

    def open(self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback) -> BackingQueue:
        node = self._node
        queue_no = node.queue_number(self._vhost_id, queue_id, b"") if durable else -1
        state = node.queue_state(queue_id) if durable and recovery is not None else None
        slots = node.options.index_slots if state is None else state.live.slots

        def in_context(work: Callable[[], None]) -> None:
            callback(VariableBackingQueue.KIND, lambda backing: work())

        homes = Homes(node, self._vhost_id, queue_id, slots, in_context)
        queue = VariableBackingQueue(homes, queue_no, self._clock, self._options, callback)
        if state is not None:
            recover(queue, state, recovery is not None and recovery.clean, node.registry.recovered_needed_segment)
        if durable:
            home_below = 0 if state is None else state.home_below
            node.register(StoredVariable(queue, self._vhost_id, queue_id, home_below))
        return queue

    def name_actor(self, text: bytes) -> int:
        return self._node.journal.names.name_actor(text)

    def forget_actor(self, actor: int) -> None:
        self._node.journal.names.forget_actor(actor)

    def delete_crashed(self, queue_id: str) -> None:
        number = self._node.registry.names.number(queue_id)
        if number is not None:
            self._node.journal.forget_queue(number)
            self._node.registry.forget(number)
        self._node.remove_folder(queue_folder(self._vhost_id, queue_id))


def recover(queue: VariableBackingQueue, state: QueueState, clean: bool, needed_segment: int) -> None:
    """Fill a new queue with what is known of an old one."""
    state.prune()
    tail = queue.tail
    zones = queue.zones
    tail.next_seq_id = state.next_seq_id
    if not clean:
        slots = state.live.slots
        tail.next_seq_id = (state.next_seq_id + slots - 1) // slots * slots
        state.live.remove(state.next_seq_id, tail.next_seq_id - state.next_seq_id)
    queue.homes.index.distrust_moves(state.home_below)
    queue.live.take_over(state.live)
    zones.next_deliver_seq_id = state.next_deliver_seq_id if clean else tail.next_seq_id
    zones.transient_threshold = tail.next_seq_id
    tail.persistent_count = state.count
    tail.persistent_bytes = state.size_bytes
    tail.delivery_counts.update(state.delivery_counts)
    tail.doubtful.update(dict.fromkeys(state.doubtful))
    tail.doubtful_below = state.doubtful_below if clean else tail.next_seq_id
    queue.homes.index_segments = dict(state.index_segments)
    queue.homes.store_segments = set(queue.homes.store.segments.numbers())
    if state.index_segments and needed_segment < NO_SEGMENT:
        tail.spans.note(0, needed_segment)
    for run in state.runs:
        if run.kind == places.JOURNAL:
            tail.spans.note(run.seq_id, run.segment)
    zones.refill(_betas(queue, state), state.count, state.size_bytes)
    queue.paging.settle_positions()
    # Files in which only transient messages were.
    queue.homes.sweep(queue.live)


def _betas(queue: VariableBackingQueue, state: QueueState) -> list[MsgStatus]:
    """Return the runs, cut where some messages were delivered before and others were not."""
    betas: list[MsgStatus] = []
    marked = state.delivery_counts
    border = queue.zones.next_deliver_seq_id
    for run in state.runs:
        start = run.seq_id
        end = run.seq_id + run.count
        while start < end:
            delivered = start < border or start in marked
            stop = start + 1
            if start < border:
                stop = min(end, border)
            else:
                while stop < end and (stop in marked) == delivered:
                    stop += 1
            part = run if stop - start == run.count else run.part(start - run.seq_id, stop - start)
            betas.append(status_at(part, True, delivered))
            start = stop
    return betas
