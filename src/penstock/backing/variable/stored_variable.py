"""The variable queue as the node's store sees it: its state for checkpoints, and moving out of old journal segments.

Retention asks how old a segment the queue needs, and for `move_home`, from the oldest message on.

Invariants
  1. A snapshot is true for every row that is in the journal, and for no other.
  2. Below `_home_below` no live message has its body in the journal.
  3. A snapshot holds no transient message: what its live map shows is what comes back.

Bodies that were copied when a crash came, and that no checkpoint names yet, are copied again.
"""

from __future__ import annotations

from typing import final

from penstock.backing.variable.pending_acks import PendingAcks
from penstock.backing.variable.variable import VariableBackingQueue
from penstock.backing.zones import zone_views
from penstock.backing.zones.msg_status import MsgStatus, readable_parts
from penstock.disk.files import File
from penstock.store.queue import places
from penstock.store.queue.queue_state import QueueState
from penstock.store.queue.stored_queue import NO_SEGMENT, Counters, StoredQueue


@final
class StoredVariable(StoredQueue):
    def __init__(self, queue: VariableBackingQueue, vhost_id: str, queue_id: str, home_below: int = 0) -> None:
        self.queue_no = queue.queue_no
        self._queue = queue
        self._vhost_id = vhost_id
        self._queue_id = queue_id
        # Below it nothing that is live lies in the journal any more.
        self._home_below = home_below
        # Files that no snapshot names any more, from the last one on.
        self._doomed: list[int] = []
        # While messages move: the first that was met in a later segment, and which one that is.
        self._first_later = (0, 0)
        self._first_unread = 0

    def snapshot(self) -> QueueState:
        queue = self._queue
        queue.recount()
        state = QueueState(self._vhost_id, self._queue_id, self.queue_no, queue.live.slots)
        state.lsn = queue.homes.journal.next_lsn
        state.next_seq_id = queue.tail.next_seq_id
        state.next_deliver_seq_id = queue.zones.next_deliver_seq_id
        state.live = queue.live.copy()
        state.count = queue.tail.persistent_count
        state.size_bytes = queue.tail.persistent_bytes
        state.delivery_counts = dict(queue.tail.delivery_counts)
        state.doubtful = set(queue.tail.doubtful)
        state.doubtful_below = queue.tail.doubtful_below
        state.index_segments = dict(queue.homes.index_segments)
        state.home_below = self._home_below
        strays = queue.zones.strays
        runs = [*queue.pending.persistent_runs(), *strays.persistent_runs()]
        for status in zone_views.runs_in_ram(queue.zones):
            if status.is_persistent:
                runs.append(status)
            else:
                state.live.remove(status.seq_id, status.count)
        for status in [*queue.pending.transient_runs(), *strays.transient_runs()]:
            state.live.remove(status.seq_id, status.count)
        transients = queue.homes.transients
        transients.remove(transients.low, queue.live.low - transients.low)
        state.live.remove_all(transients)
        runs.sort(key=_seq_id_of)
        state.runs = [status.run_place() for status in runs]
        self._doomed.extend(queue.homes.doomed())
        return state

    def flush(self) -> None:
        self._queue.homes.flush()

    def files_to_sync(self, count_max: int) -> list[File]:
        return self._queue.homes.files_to_sync(count_max)

    def files_synced(self) -> None:
        self._queue.homes.synced()

    def sync_given_up(self) -> None:
        self._queue.homes.sync_given_up()

    def synced(self) -> None:
        if self._queue.homes.node.removals.is_active():
            # They go after a later checkpoint.
            return
        doomed, self._doomed = self._doomed, []
        self._queue.homes.delete_segments(doomed)

    def counters(self) -> Counters:
        queue = self._queue
        return len(queue), queue.depth(), queue.tail.persistent_count, queue.tail.persistent_bytes

    def journal_segment_needed(self) -> int:
        queue = self._queue
        low = max(queue.live.low, self._home_below)
        if low >= queue.tail.next_seq_id:
            return NO_SEGMENT
        oldest = queue.tail.spans.oldest_from(low)
        return NO_SEGMENT if oldest < 0 else oldest

    def move_home(self, segment: int, count_max: int) -> bool:
        queue = self._queue
        start = max(queue.live.low, self._home_below)
        end = queue.tail.spans.end_of(segment, queue.tail.next_seq_id)
        if start >= end:
            return False
        stop = min(end, start + count_max)
        self._first_later = (stop, segment)
        self._first_unread = stop
        self._move_ready(segment, start, stop)
        self._move_held(queue.pending, segment, start, stop)
        self._move_held(queue.zones.strays, segment, start, stop)
        self._move_delta(segment, start, stop)
        seq_id, later = self._first_later
        if self._first_unread < seq_id:
            # Perhaps it can be read another time. Until it is settled the segment stays.
            self._home_below = max(start, self._first_unread)
            return False
        if later > segment:
            # After a start it is not known how far a segment reaches; now it is.
            queue.tail.spans.narrow(seq_id, later)
            self._home_below = max(start, seq_id)
            return False
        self._home_below = stop
        return stop < end

    def _lies_in(self, status: MsgStatus, segment: int) -> bool:
        """Return whether a run has to move; remembers the first one that lies in a later segment."""
        if status.msg_in_store != places.JOURNAL or status.place.segment < 0:
            return False
        if status.place.segment > segment:
            if status.seq_id < self._first_later[0]:
                self._first_later = (status.seq_id, status.place.segment)
            return False
        return True

    def _move_ready(self, segment: int, start: int, stop: int) -> None:
        """Runs of q1 … q4 that begin or end in the stretch move as a whole."""
        zones = self._queue.zones
        for zone in (zones.q4, zones.q3, zones.q2, zones.q1):
            if not zone or zone[0].seq_id >= stop or zone[-1].last_seq_id() < start:
                continue
            moved: list[MsgStatus] = []
            for status in zone:
                if status.seq_id < stop and status.last_seq_id() >= start and self._lies_in(status, segment):
                    moved.extend(self._moved(status))
                else:
                    moved.append(status)
            zone.clear()
            zone.extend(moved)

    def _moved(self, status: MsgStatus) -> list[MsgStatus]:
        """Return the run in its new place. What cannot be read now stays where it is."""
        if status.msg is not None:
            return self._copied(status, False)
        found = self._queue.homes.look(status)
        moved: list[MsgStatus] = []
        for part, entries in readable_parts(status, found):
            if entries is None:
                self._first_unread = min(self._first_unread, part.seq_id)
                moved.append(part)
            else:
                # Not the run itself: it stays a beta when the disk is full.
                loaded = part.part_for(part.seq_id, part.count)
                loaded.load(entries)
                moved.extend(self._copied(loaded, True))
        return moved

    def _copied(self, status: MsgStatus, was_beta: bool) -> list[MsgStatus]:
        had_slots = status.index_on_disk
        parts = self._queue.homes.move_home(status)
        for part in parts:
            if had_slots:
                self._queue.homes.index.move(part.seq_id, part.slots())
            if was_beta:
                part.forget_bodies()
        return parts

    def _move_held(self, held: PendingAcks, segment: int, start: int, stop: int) -> None:
        """What is pending, or a stray."""
        for status in held.runs_between(start, stop):
            if self._lies_in(status, segment):
                for part in self._moved(status):
                    held.replace(part)

    def _move_delta(self, segment: int, start: int, stop: int) -> None:
        zones = self._queue.zones
        for status in zone_views.delta_between(zones, start, stop):
            if self._lies_in(status, segment):
                self._moved(status)


def _seq_id_of(status: MsgStatus) -> int:
    return status.seq_id
