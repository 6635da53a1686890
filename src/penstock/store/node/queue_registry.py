"""The durable queues of a node, as its store knows them: their numbers, and who speaks for each.

Recovery puts in the state of each queue. A queue takes its own when it is opened, and registers; until then the
recovered state speaks for it. A checkpoint walks over all numbers.

Invariants
  1. A number has an open queue, or a recovered state, or neither (it is new and has never held anything); never both.
  2. A recovered state is not changed any more: its queue is not open, so no row is written for it.
"""

from __future__ import annotations

from typing import final

from penstock.store.node.queue_names import QueueNames
from penstock.store.queue.places import JOURNAL
from penstock.store.queue.queue_state import QueueState
from penstock.store.queue.stored_queue import NO_SEGMENT, StoredQueue


@final
class QueueRegistry:
    def __init__(self) -> None:
        self.names = QueueNames()
        # By number.
        self.open_queues: dict[int, StoredQueue] = {}
        self.recovered: dict[int, QueueState] = {}
        # The oldest journal segment that an index of a recovered queue can lead to; see `needed_segment`.
        self.recovered_needed_segment = 0

    def register(self, queue: StoredQueue) -> None:
        """The queue is open, and speaks for itself from now on."""
        assert self.names.name(queue.queue_no) is not None, "the number was not given by queue_number"
        self.recovered.pop(queue.queue_no, None)
        self.open_queues[queue.queue_no] = queue

    def forget(self, number: int) -> None:
        self.open_queues.pop(number, None)
        self.recovered.pop(number, None)
        self.names.forget(number)

    def state(self, queue_id: str) -> QueueState | None:
        """What is known of a queue that is about to be opened; None when it is new."""
        number = self.names.number(queue_id)
        if number is None:
            return None
        queue = self.open_queues.get(number)
        # Open: it was terminated, and is opened again in the same life of the node.
        return self.recovered.get(number) if queue is None else queue.snapshot()

    def needed_segment(self, number: int) -> int:
        """Return the oldest journal segment that holds a body of the queue; NO_SEGMENT when there is none."""
        queue = self.open_queues.get(number)
        if queue is not None:
            return queue.journal_segment_needed()
        state = self.recovered.get(number)
        if state is None:
            return NO_SEGMENT
        segments = [run.segment for run in state.runs if run.kind == JOURNAL]
        if state.index_segments:
            # Its slots are in the index, which was not read yet.
            segments.append(self.recovered_needed_segment)
        return min(segments, default=NO_SEGMENT)
