"""Brings the states of a checkpoint up to date with the journal behind it.

It has the states of all queues, the table of names, and the changes of the definitions, in order. `visit` is shown
every batch from the replay start on; `finish` ends it.

Invariants
  1. A row is applied to a queue only if its LSN is not below that of the queue's state: what is below is in it.
  2. A row of a queue that is not named yet is kept under its number. What has no name at the end is reported.
  3. After a hole in the LSNs, which is a rotten batch, nothing is guessed: seq_ids that are missing behind it are
     named, and all queues are counted again.
  4. Who had a message, and why it went, means nothing here: rows that are for history alone, and names of consumers,
     are passed over.
  5. `unproven` has the references of batches that no later batch reports as durable.
"""

from __future__ import annotations

from array import array
from struct import error as struct_error
from typing import final

from penstock.journal.format import rows
from penstock.journal.format.layout import REFERENCE_BODY
from penstock.journal.reading.replay import BatchView, RottenBatch
from penstock.store.node.checkpoint import Checkpoint
from penstock.store.node.queue_names import QueueNames, parse_label
from penstock.store.queue.places import JOURNAL, MSG_STORE
from penstock.store.queue.queue_state import QueueState

# (vhost_id, address in its shared store)
Reference = tuple[str, int]


@final
class Replaying:
    """The node, as far as the journal was read."""

    def __init__(self, slots: int) -> None:
        self.names = QueueNames()
        # By number.
        self.states: dict[int, QueueState] = {}
        self.definitions = b""
        self.changes: list[bytes] = []
        self.report: list[str] = []
        self.rows_seen = 0
        # The highest LSN that a checkpoint has vouched for.
        self.known_lsn = 0
        self.has_holes = False
        # Queues whose counters cannot be known from rows alone.
        self.miscounted: set[int] = set()
        self._slots = slots
        self._definitions_lsn = 0
        self._next_lsn = -1
        # Queue number → next_seq_id before the last hole, until a publish of the queue closed it.
        self._before_hole: dict[int, int] = {}
        # (first LSN, queue number, addresses) of reference rows that are not proven durable.
        self._unproven: list[tuple[int, int, array[int]]] = []
        self._durable_lsn = 0

    def begin(self, checkpoint: Checkpoint) -> None:
        header = checkpoint.header
        self.definitions = checkpoint.definitions
        self._definitions_lsn = header.definitions_lsn
        self._next_lsn = header.replay_lsn
        self.known_lsn = max([header.replay_lsn, *[state.lsn for state in checkpoint.states]])
        for number, name in checkpoint.names:
            self.names.put(number, name)
        self.names.next_number = max(self.names.next_number, header.next_queue_no)
        for state in checkpoint.states:
            self.states[state.queue_no] = state

    # --- batches ----------------------------------------------------------------------------------------

    def visit(self, batch: BatchView) -> None:
        lsn = batch.first_lsn
        if self._next_lsn >= 0 and lsn > self._next_lsn:
            self._hole()
        self._durable_lsn = max(self._durable_lsn, batch.durable_lsn)
        if self._unproven:
            self._unproven = [entry for entry in self._unproven if entry[0] >= self._durable_lsn]
        states = self.states
        has_holes = self.has_holes
        # Most rows are of two kinds, and there may be millions: these are handled here, the others by methods.
        for row in batch.rows:
            seq_id, queue_no, _, count, _, entry, kind, flags, _, number = row
            state = states.get(queue_no)
            if state is None or has_holes:
                self._seldom(batch, row, lsn)
            elif kind == rows.PUBLISHED and not flags & rows.REFERENCE:
                if lsn >= state.lsn:
                    sizes = _sizes(batch.body_len, entry, count)
                    state.apply_published(seq_id, JOURNAL, batch.segment, batch.pos, entry, number, sizes)
            elif kind in rows.GONE_KINDS and kind != rows.PURGED and seq_id + count <= state.next_seq_id:
                if lsn >= state.lsn:
                    state.apply_gone(seq_id, count, number)
            else:
                self._seldom(batch, row, lsn)
            lsn += count
        self.rows_seen += len(batch.rows)
        self._next_lsn = lsn

    def _seldom(self, batch: BatchView, row: tuple[int, ...], lsn: int) -> None:
        kind = row[rows.ROW_KIND]
        if kind == rows.PUBLISHED:
            self._published(batch, row, lsn)
        elif kind in rows.GONE_KINDS:
            self._gone(row, lsn)
        elif kind == rows.REQUEUED or kind == rows.RETURNED:
            self._requeued(row, lsn)
        elif kind == rows.NAME:
            self._named(batch, row)
        elif kind == rows.DEFINE:
            if lsn >= self._definitions_lsn:
                self._defined(batch, row, lsn)
        elif kind == rows.FORGET:
            self.states.pop(row[rows.ROW_QUEUE], None)
            self.names.forget(row[rows.ROW_QUEUE])
            self._before_hole.pop(row[rows.ROW_QUEUE], None)

    def _hole(self) -> None:
        self.has_holes = True
        for number, state in self.states.items():
            self._before_hole.setdefault(number, state.next_seq_id)

    def _state(self, number: int, lsn: int) -> QueueState | None:
        """Return the state that a row is for; None when it has the row already."""
        state = self.states.get(number)
        if state is None:
            name = self.names.name(number)
            vhost_id, queue_id = ("", "") if name is None else (name.vhost_id, name.queue_id)
            state = self.states[number] = QueueState(vhost_id, queue_id, number, self._slots)
            if self.has_holes:
                # It may have begun in the hole.
                self._before_hole[number] = 0
        return state if lsn >= state.lsn else None

    def _published(self, batch: BatchView, row: tuple[int, ...], lsn: int) -> None:
        number = row[rows.ROW_QUEUE]
        state = self._state(number, lsn)
        if state is None:
            return
        seq_id, count, entry = row[rows.ROW_SEQ], row[rows.ROW_COUNT], row[rows.ROW_ENTRY]
        before = self._before_hole.pop(number, seq_id)
        if before < seq_id:
            self.report.append(
                f"messages {before} to {seq_id - 1} of queue {self.names.shown(number)} are lost, as far as they were"
                " persistent and not settled: the batches that had them are damaged"
            )
        if row[rows.ROW_FLAGS] & rows.REFERENCE:
            self._published_references(batch, row, lsn, state)
        else:
            sizes = _sizes(batch.body_len, entry, count)
            state.apply_published(seq_id, JOURNAL, batch.segment, batch.pos, entry, row[rows.ROW_NUMBER], sizes)

    def _published_references(self, batch: BatchView, row: tuple[int, ...], lsn: int, state: QueueState) -> None:
        seq_id, count, entry = row[rows.ROW_SEQ], row[rows.ROW_COUNT], row[rows.ROW_ENTRY]
        addresses = array("q")
        sizes = array("i")
        lost: list[int] = []
        for position in range(count):
            try:
                address, size = REFERENCE_BODY.unpack(batch.body(entry + position))
            except (RottenBatch, struct_error) as error:
                address, size = 0, 0
                lost.append(seq_id + position)
                self.report.append(
                    f"message {seq_id + position} of queue {self.names.shown(state.queue_no)} is lost: {error}"
                )
            addresses.append(address)
            sizes.append(size)
        state.apply_published(
            seq_id, MSG_STORE, batch.segment, batch.pos, entry, row[rows.ROW_NUMBER], sizes, addresses
        )
        for lost_seq_id in lost:
            state.apply_gone(lost_seq_id, 1, 0)
        self._unproven.append((lsn, state.queue_no, addresses))

    def _gone(self, row: tuple[int, ...], lsn: int) -> None:
        state = self._state(row[rows.ROW_QUEUE], lsn)
        if state is not None:
            self._raise_next_seq_id(state, row)
            state.apply_gone(row[rows.ROW_SEQ], row[rows.ROW_COUNT], row[rows.ROW_NUMBER])
            if row[rows.ROW_KIND] == rows.PURGED and state.live.low < state.next_seq_id:
                # One row may stand for all that was there, transient messages included; those of an earlier life, which
                # only the index still has, are before it.
                self.miscounted.add(row[rows.ROW_QUEUE])

    def _requeued(self, row: tuple[int, ...], lsn: int) -> None:
        state = self._state(row[rows.ROW_QUEUE], lsn)
        if state is not None:
            self._raise_next_seq_id(state, row)
            # Below 0: the queue itself has put it back, and no consumer had it.
            if row[rows.ROW_ACTOR] >= 0:
                state.apply_requeued(range(row[rows.ROW_SEQ], row[rows.ROW_SEQ] + row[rows.ROW_COUNT]))

    def _raise_next_seq_id(self, state: QueueState, row: tuple[int, ...]) -> None:
        """A row about messages whose publish was lost says at least that their seq_ids were used."""
        end = row[rows.ROW_SEQ] + row[rows.ROW_COUNT]
        if end > state.next_seq_id:
            state.live.remove(state.next_seq_id, end - state.next_seq_id)
            state.next_seq_id = end

    def _named(self, batch: BatchView, row: tuple[int, ...]) -> None:
        if row[rows.ROW_ARG] != rows.NAME_QUEUE:
            return
        number = row[rows.ROW_SEQ]
        try:
            name = parse_label(batch.body(row[rows.ROW_ENTRY]))
        except RottenBatch:
            # Known already, or named again in the next segment; `finish` reports those that stay without a name.
            return
        if name is None:
            self.report.append(f"the name of queue number {number} in the journal is malformed")
            return
        self.names.put(number, name)
        state = self.states.get(number)
        if state is not None:
            state.vhost_id, state.queue_id = name.vhost_id, name.queue_id

    def _defined(self, batch: BatchView, row: tuple[int, ...], lsn: int) -> None:
        try:
            self.changes.append(batch.body(row[rows.ROW_ENTRY]))
        except RottenBatch as error:
            self.report.append(f"a change of the definitions (LSN {lsn}) is lost: {error}")

    # --- the end ------------------------------------------------------------------------------------------

    def finish(self, next_lsn: int, clean: bool) -> set[Reference]:
        """Close the books; return the references that no later batch proves to be durable.

        Unless the node was stopped cleanly, everything that is left may have been delivered.
        """
        for number in [number for number in self.states if self.names.name(number) is None]:
            state = self.states.pop(number)
            self.report.append(
                f"{state.live.count(state.next_seq_id)} messages of queue number {number} are lost: its name stood in a"
                " batch that is damaged"
            )
        for number, before in self._before_hole.items():
            if number in self.states and before < self.states[number].next_seq_id:
                self.report.append(
                    f"messages {before} to {self.states[number].next_seq_id - 1} of queue {self.names.shown(number)}"
                    " are lost, as far as they were not settled: the batches that had them are damaged"
                )
        for state in self.states.values():
            state.prune()
            state.lsn = next_lsn
            if not clean:
                state.next_deliver_seq_id = state.next_seq_id
        unproven: set[Reference] = set()
        for lsn, number, addresses in self._unproven:
            unproven_state = self.states.get(number)
            if lsn >= self._durable_lsn and unproven_state is not None:
                unproven.update([(unproven_state.vhost_id, address) for address in addresses])
        return unproven


def _sizes(body_len: array[int], entry: int, count: int) -> array[int]:
    """Return payload bytes of the bodies, each of which is stored with its FRAME-END octet."""
    if count == 1:
        return array("i", (body_len[entry] - 1,))
    return array("i", [length - 1 for length in body_len[entry : entry + count]])
