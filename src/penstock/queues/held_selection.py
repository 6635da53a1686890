"""The order of a companion queue: its messages wait until they are due, and are then moved to where they belong.

What it owns: the timetable of the messages that are held. The due time of a message stands where others have their
expiry (`props.expiry_ms`); a message without one is due at once.

Life of the data: `published` fetches what was appended, so that it is pending in the backing, and notes when it is due;
the body is not kept here, and the backing pages it out. `expire` takes due messages off the timetable and buries them:
for a companion queue that means that they are published to where they were held back from. One that could not be
moved comes back through `returned`.

Filling: after a start, or behind a very long run, there is more in the backing than one turn may read. Then slices are
read, one by each call of `expire`. Nothing is released before all is read, since a message that is due earlier may lie
behind.

Invariants
  1. What is on the timetable is pending in the backing, under the due time that its props say.
  2. A message that was taken or buried is not on the timetable: it is moved on once.
  3. Messages are buried in the order of (due time, seq_id), at most HELD_RELEASES_PER_TURN by one call of `expire`.
  4. One call reads at most HELD_FILL_PER_TURN messages, and not much more than HELD_FILL_BYTES_PER_TURN.
  5. `next_expiry_ms` never asks for the millisecond in which `expire` was called last: a schedule that runs whatever is
     due up to now comes to an end, and the broker reads sockets between two slices.

A crash leaves held messages ready in the backing with their due times; they are noted anew. It hands nothing to
consumers, and does not know where messages go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from penstock import limits
from penstock.backing.backing_queue import BackingQueue
from penstock.message import Entry, MessageProps, Run
from penstock.queues.consumer import Consumer
from penstock.queues.dead_letters import EXPIRED
from penstock.queues.selection import Selection, SelectionHost
from penstock.queues.timetable import DUE_MS_MAX, Timetable

# Due before all others: filling, and messages without a due time.
AT_ONCE_MS: Final = 0


@final
class HeldSelection(Selection):
    """What waits, and until when."""

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
        # The time that the last call of `expire` was given.
        self._turn_ms = -1

    # --- noting ---------------------------------------------------------------------------------------

    @property
    def is_filling(self) -> bool:
        """Whether there are messages in the backing whose due times are not known yet."""
        return not self._backing.is_empty()

    def published(self, first_seq_id: int, count: int) -> None:
        """Note what was appended. While older messages wait to be read, the new ones wait behind them."""
        if len(self._backing) <= count:
            self._fill()

    def _fill(self) -> None:
        """Read one slice."""
        count_left = self._fill_per_turn
        bytes_left = self._fill_bytes_per_turn
        while count_left > 0 and bytes_left > 0 and self.is_filling:
            before = self._backing.pending_bytes()
            run = self._backing.fetch(count_left, limits.PULL_BYTES_MAX, True)
            if run is None:
                # What was left is damaged.
                return
            count_left -= len(run.entries)
            bytes_left -= self._backing.pending_bytes() - before
            self._note(run)

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

        def note(seq_id: int, entry: Entry) -> None:
            due_ms = due_of(entry[2])
            if not timetable.has(due_ms, seq_id):
                timetable.add(due_ms, seq_id, 1)

        self._backing.ackfold(note, seq_ids)
        return []

    # --- releasing ------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Go on filling, if that is not done; then move on what is due."""
        self._turn_ms = now_ms
        if self.is_filling:
            self._fill()
            if self.is_filling:
                return
        due = self._timetable.pop_due(now_ms, self._releases_per_turn)
        if due:
            self._host.bury(due, EXPIRED)

    def next_expiry_ms(self) -> int:
        due_ms = AT_ONCE_MS if self.is_filling else self._timetable.next_due_ms()
        # A turn that lies in the future: the clock was set back, and says nothing about turns any more.
        if 0 <= due_ms <= self._turn_ms <= self._host.wall_ms():
            return self._turn_ms + 1
        return due_ms

    def take(self, seq_ids: Sequence[int]) -> list[int]:
        """Take messages off by number; they are pending, and the caller's.

        While it is filling, a message that was not found may still be in the backing.
        """
        timetable = self._timetable
        taken: list[int] = []

        def take_off(seq_id: int, entry: Entry) -> None:
            if timetable.remove(due_of(entry[2]), seq_id):
                taken.append(seq_id)

        self._backing.ackfold(take_off, seq_ids)
        return taken

    def purge(self) -> int:
        # In the order of numbers: neighbours are settled together.
        held = sorted(self._timetable.pop_due(DUE_MS_MAX, len(self._timetable)))
        return self._backing.ack(held)

    # --- consumers, of which there are none ---------------------------------------------------------------

    def fetch(self, consumer: Consumer | None, count_max: int, bytes_max: int, ack_required: bool) -> Run | None:
        """Nobody is given a held message."""
        return None

    def has_for(self, consumer: Consumer) -> bool:
        return False

    def settled(self, seq_ids: Sequence[int]) -> None:
        """What was taken or buried is gone for good; it is not on the timetable any more."""

    def consumer_gone(self, consumer: Consumer) -> None:
        """There is none."""

    # --- looking in -------------------------------------------------------------------------------------

    def ready_count(self) -> int:
        return len(self._timetable)

    def ready_bytes(self) -> int:
        """Payload bytes of what is held; what is being moved on in this turn counts until it is gone."""
        return self._backing.pending_bytes()

    def shelved_ids(self) -> list[int]:
        """The first page, in the order of due times: at most HELD_LISTED_MAX. `upcoming` has the others."""
        return [seq_id for _, seq_id in self._timetable.upcoming(self._listed_max)]

    def upcoming(self, count_max: int, from_due_ms: int, from_seq_id: int) -> list[tuple[int, int]]:
        """One page of (due, seq_id), from a position on; see `Timetable.upcoming`."""
        return self._timetable.upcoming(count_max, from_due_ms, from_seq_id)

    def check_invariants(self) -> None:
        timetable = self._timetable
        timetable.check_invariants()
        held = timetable.upcoming(len(timetable))
        pending: dict[int, int] = {}

        def look(seq_id: int, entry: Entry) -> None:
            pending[seq_id] = due_of(entry[2])

        self._backing.ackfold(look, [seq_id for _, seq_id in held])
        assert len(pending) == len(held), "1: a held message that is not pending, or is held twice"
        assert [(pending[seq_id], seq_id) for _, seq_id in held] == held, "1: a held message with another due time"


def due_of(props: MessageProps | None) -> int:
    """When a message is due. Without a due time: at once."""
    return AT_ONCE_MS if props is None or props.expiry_ms < 0 else props.expiry_ms
