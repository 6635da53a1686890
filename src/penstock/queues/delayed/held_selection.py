"""The order of a companion queue: its messages wait until they are due, and are then moved to where they belong.

The due time of a message stands where others have their expiry (`props.expiry_ms`); a message without one is due at
once. Messages stay ready in the backing, most of them on disk. `published` notes when they are due; `expire` takes due
ones out of the backing, by their numbers, and dead-letters them: they are published to where they were held back from.
One that could not be moved comes back through `returned`.

Filling: after a start, or behind a very long run, there is more in the backing than one turn may read. Then slices are
read, one by each call of `expire`. Nothing is released before all is read, since a message that is due earlier may lie
behind.

Invariants
  1. What is on the timetable is ready in the backing, under the due time that its props say, or was damaged there. What
     is ready and not on the timetable is at `_fill_from` or behind it.
  2. A message that was taken or handed over is not on the timetable: it is moved on once.
  3. Messages are handed over in the order of (due time, seq_id), at most HELD_RELEASES_PER_TURN by one call of
     `expire`.
  4. One call reads at most HELD_FILL_PER_TURN messages, and not much more than HELD_FILL_BYTES_PER_TURN.
  5. `next_expiry_ms` never asks for the millisecond in which `expire` was called last, and after a release for none of
     the next milliseconds, the more the more it moved, unless more was due than one turn may move: a schedule that runs
     whatever is due up to now comes to an end, and the broker reads sockets between two slices.
  6. An OSError of the backing leaves all of this true, and what could not be taken is due again.

A crash leaves held messages ready in the backing with their due times; they are noted anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from penstock import limits
from penstock.backing.backing_queue import BackingQueue
from penstock.backing.outcomes import THE_QUEUE
from penstock.message import Entry, MessageProps, Run
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.delayed.timetable import Timetable
from penstock.queues.leaving.dead_letters import EXPIRED
from penstock.queues.selection.selection import Selection, SelectionHost

# Due before all others: filling, and messages without a due time.
AT_ONCE_MS: Final = 0
# A number that no message reaches.
NO_END: Final = 1 << 62


@final
class HeldSelection(Selection):
    def __init__(
        self,
        host: SelectionHost,
        backing: BackingQueue,
        releases_per_turn: int = limits.HELD_RELEASES_PER_TURN,
        fill_per_turn: int = limits.HELD_FILL_PER_TURN,
        fill_bytes_per_turn: int = limits.HELD_FILL_BYTES_PER_TURN,
        listed_max: int = limits.HELD_LISTED_MAX,
    ) -> None:
        self._host = host
        self._backing = backing
        self._releases_per_turn = releases_per_turn
        self._fill_per_turn = fill_per_turn
        self._fill_bytes_per_turn = fill_bytes_per_turn
        self._listed_max = listed_max
        self._timetable = Timetable()
        # What is ready from here on, and before the end, is not noted yet; -1 when all is.
        self._fill_from = -1 if backing.is_empty() else 0
        self._fill_end = NO_END
        # The time that the last call of `expire` was given.
        self._turn_ms = -1
        # How long to wait after that turn, at least.
        self._pause_ms = 1

    # --- noting ---------------------------------------------------------------------------------------

    @property
    def is_filling(self) -> bool:
        """Whether there are messages in the backing whose due times are not known yet."""
        return self._fill_from >= 0 and not self._backing.is_empty()

    def published(self, first_seq_id: int, count: int) -> None:
        """Note what was appended. While older messages wait to be read, the new ones wait behind them."""
        self._fill_end = NO_END if first_seq_id < 0 else first_seq_id + count
        if self._fill_from < 0:
            self._fill_from = max(0, first_seq_id)
        elif first_seq_id > self._fill_from and len(self._backing) > count:
            return
        self._fill()

    def _fill(self) -> None:
        """Read one slice."""
        count_left = self._fill_per_turn
        bytes_left = self._fill_bytes_per_turn
        while count_left > 0 and bytes_left > 0:
            run = self._backing.browse(self._fill_from, count_left, limits.PULL_BYTES_MAX)
            if run is None:
                self._fill_from = -1
                return
            count_left -= len(run.entries)
            bytes_left -= sum([len(entry[1]) for entry in run.entries])
            self._note(run)
            self._fill_from = run.first_seq_id + len(run.entries)
            if self._fill_from >= self._fill_end:
                self._fill_from = -1
                return
        if self._backing.browse(self._fill_from, 1, 0) is None:
            self._fill_from = -1

    def _note(self, run: Run) -> None:
        """Messages that follow each other and are due together become one entry."""
        entries = run.entries
        start = 0
        props = entries[0][2]
        due_ms = due_of(props)
        for index in range(1, len(entries)):
            # Messages that were published together share their props.
            if entries[index][2] is props:
                continue
            props = entries[index][2]
            other_ms = due_of(props)
            if other_ms != due_ms:
                self._timetable.add(due_ms, run.first_seq_id + start, index - start)
                start = index
                due_ms = other_ms
        self._timetable.add(due_ms, run.first_seq_id + start, len(entries) - start)

    def returned(self, seq_ids: Sequence[int]) -> list[int]:
        """They wait again, under their own due time: those that were due are due at once."""
        timetable = self._timetable
        back: list[tuple[int, int]] = []
        self._backing.ackfold(lambda seq_id, entry: back.append((due_of(entry[2]), seq_id)), seq_ids)
        self._backing.requeue([seq_id for _, seq_id in back], failed=False)
        for due_ms, seq_id in back:
            # What has not been filled yet will be.
            if not 0 <= self._fill_from <= seq_id and not timetable.has(due_ms, seq_id):
                timetable.add(due_ms, seq_id, 1)
        return []

    # --- releasing ------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Go on filling, if that is not done; then move on what is due."""
        self._turn_ms = now_ms
        self._pause_ms = 1
        if self.is_filling:
            self._fill()
            if self.is_filling:
                return
        due = self._timetable.due(now_ms, self._releases_per_turn)
        if due:
            if len(due) < self._releases_per_turn:
                wait_ms = 1 + len(due) // limits.HELD_RELEASES_PER_PAUSE_MS
                self._pause_ms = min(wait_ms, limits.HELD_PAUSE_MS_MAX)
            taken = self._backing.fetch_at(due, THE_QUEUE)
            # Not before they are taken: an error of the disk leaves them on it.
            self._timetable.pop_due(now_ms, len(due))
            if taken:
                self._host.dead_letter_read(taken, EXPIRED)

    def next_expiry_ms(self) -> int:
        due_ms = AT_ONCE_MS if self.is_filling else self._timetable.next_due_ms()
        next_turn_ms = self._turn_ms + self._pause_ms
        # A turn that lies in the future: the clock was set back, and says nothing about turns any more.
        if 0 <= due_ms < next_turn_ms and 0 <= self._turn_ms <= self._host.wall_ms():
            return next_turn_ms
        return due_ms

    def take(self, seq_ids: Sequence[int]) -> list[int]:
        """Take messages off by number; they are pending, and the caller's."""
        taken = self._backing.fetch_at(seq_ids, THE_QUEUE)
        for seq_id, entry in taken:
            self._timetable.remove(due_of(entry[2]), seq_id)
        return [seq_id for seq_id, _ in taken]

    def purge(self) -> int:
        """The queue purges the backing. Should that fail, what is left is noted anew."""
        self._timetable.clear()
        self._fill_from = 0
        self._fill_end = NO_END
        return 0

    # --- consumers, of which there are none ---------------------------------------------------------------

    def fetch(self, consumer: Consumer | None, count_max: int, bytes_max: int, ack_required: bool) -> Run | None:
        """Return None: no consumer gets a held message."""
        return None

    def has_for(self, consumer: Consumer) -> bool:
        return False

    def settled(self, seq_ids: Sequence[int]) -> None:
        """What was taken or handed over is gone for good; it is not on the timetable any more."""

    def consumer_gone(self, consumer: Consumer) -> None:
        """There is none."""

    # --- looking in -------------------------------------------------------------------------------------

    def leaves_ready(self) -> bool:
        return True

    def ram_bytes(self) -> int:
        return self.ready_count() * limits.NUMBER_OVERHEAD_BYTES

    def ready_count(self) -> int:
        return 0

    def ready_bytes(self) -> int:
        return 0

    def shelved_ids(self) -> list[int]:
        """Return the first page, in the order of due times: at most HELD_LISTED_MAX. `upcoming` has the others."""
        return [seq_id for _, seq_id in self._timetable.upcoming(self._listed_max)]

    def shelved_from(self, seq_id: int, count: int) -> list[int]:
        """Nothing is shelved: all is ready in the backing, where browsers find it."""
        return []

    def upcoming(self, count_max: int, from_due_ms: int, from_seq_id: int) -> list[tuple[int, int]]:
        """One page of (due, seq_id), from a position on; see `Timetable.upcoming`."""
        return self._timetable.upcoming(count_max, from_due_ms, from_seq_id)

    def check_invariants(self) -> None:
        timetable = self._timetable
        timetable.check_invariants()
        ready: dict[int, int] = {}

        def look(seq_id: int, entry: Entry, is_pending: bool) -> bool:
            if not is_pending:
                ready[seq_id] = due_of(entry[2])
            return True

        self._backing.fold(look)
        held = timetable.upcoming(len(timetable))
        assert [(ready.get(seq_id), seq_id) for _, seq_id in held] == held, "1: not ready, or with another due time"
        unnoted = ready.keys() - {seq_id for _, seq_id in held}
        assert all([0 <= self._fill_from <= seq_id for seq_id in unnoted]), "1: a message that is not noted"


def due_of(props: MessageProps | None) -> int:
    """When a message is due. Without a due time: at once."""
    return AT_ONCE_MS if props is None or props.expiry_ms < 0 else props.expiry_ms
