"""A walk over the messages of a queue in the order of their numbers, nothing disturbed.

Messages are ready in the backing, on the shelf of a selection, or with consumers. The walk merges them. It is bounded
in messages and in bytes, and says where to go on. The queue must not change during a walk: it is over within a turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from penstock import limits
from penstock.backing.backing_queue import BackingQueue
from penstock.message import Entry, Run
from penstock.queues.delayed.held_selection import HeldSelection
from penstock.queues.queue import Queue

READY: Final = "ready"
UNACKED: Final = "unacked"
HELD: Final = "held"

# What one call may look at.
LOOKS_MAX: Final = 10_000
LOOK_BYTES_MAX: Final = 16 * 1024 * 1024
# A message that stands aside is read by itself, perhaps from disk: that is worth so many looks.
ASIDE_LOOKS: Final = 5
# Messages that are read at once.
READ_AT_ONCE: Final = 64


@dataclass(slots=True)
class Seen:
    """One message on the way."""

    seq_id: int
    entry: Entry
    state: str
    # None: not known.
    redelivered: bool | None


class Walk:
    """One call's walk."""

    def __init__(
        self,
        queue: Queue,
        from_seq_id: int,
        looks_max: int = LOOKS_MAX,
        with_unacked: bool = False,
        bytes_max: int = LOOK_BYTES_MAX,
    ) -> None:
        self._queue = queue
        self._backing = queue.backing
        self._looks_left = max(1, looks_max)
        self._bytes_left = bytes_max
        self._cost_left = LOOKS_MAX
        self.looked_at = 0
        # Where the next walk begins; None at the end of the queue.
        self.next_seq_id: int | None = max(0, from_seq_id)
        self._is_held = isinstance(queue.selection, HeldSelection)
        shelved = shelved_ids(queue)
        self._shelved = set(shelved)
        aside = shelved
        if with_unacked and not self._is_held and queue.backing.depth() > queue.ready_count():
            aside = self._backing.pending_ids()
        # A walk does not get further than as many of them as it may look at.
        ahead = [seq_id for seq_id in aside if seq_id >= self.next_seq_id]
        self._aside = nsmallest(self._looks_left, ahead)

    def messages(self) -> Iterator[Seen]:
        """The messages, until the budget is used up or the queue ends; the caller may stop before."""
        position = self.next_seq_id
        assert position is not None
        index = 0
        run = self._browse(position)
        while True:
            if run is not None and run.first_seq_id + len(run.entries) <= position:
                run = self._browse(position)
            aside = self._aside[index] if index < len(self._aside) else None
            if run is None and aside is None:
                # Messages that are elsewhere come later: the next walk from here finds them.
                self.next_seq_id = position if self._backing.is_looking() else None
                return
            if aside is not None and (run is None or aside < max(position, run.first_seq_id)):
                wanted = self._aside_before(index, None if run is None else max(position, run.first_seq_id))
                index += len(wanted)
                found = self._read_aside(wanted)
                cost = ASIDE_LOOKS
            else:
                assert run is not None
                found = self._ready_part(run, position, aside)
                cost = 1
            for seen in found:
                self.next_seq_id = position = seen.seq_id + 1
                self.looked_at += 1
                self._looks_left -= 1
                self._cost_left -= cost
                self._bytes_left -= len(seen.entry[1])
                yield seen
                if min(self._looks_left, self._bytes_left, self._cost_left) <= 0:
                    return

    def _browse(self, position: int) -> Run | None:
        return self._backing.browse(position, min(READ_AT_ONCE, self._looks_left), limits.PULL_BYTES_MAX)

    def _ready_part(self, run: Run, position: int, aside: int | None) -> list[Seen]:
        """What of the run comes at `position` and before the next message that stands aside."""
        state = HELD if self._is_held else READY
        return [
            Seen(seq_id, entry, state, run.redelivered)
            for seq_id, entry in enumerate(run.entries, run.first_seq_id)
            if seq_id >= position and (aside is None or seq_id < aside)
        ]

    def _aside_before(self, index: int, stop: int | None) -> list[int]:
        """Return the next numbers of messages that stand aside, before `stop`."""
        page = self._aside[index : index + READ_AT_ONCE]
        return page if stop is None else [seq_id for seq_id in page if seq_id < stop]

    def _read_aside(self, wanted: list[int]) -> list[Seen]:
        # One that cannot be read is damaged, and is passed over, as it is by consumers.
        return [Seen(seq_id, entry, self._state(seq_id), None) for seq_id, entry in read_pending(self._backing, wanted)]

    def _state(self, seq_id: int) -> str:
        if self._is_held:
            return HELD
        return READY if seq_id in self._shelved else UNACKED


def read_pending(backing: BackingQueue, seq_ids: Sequence[int]) -> list[tuple[int, Entry]]:
    """Return those of the messages that are pending, in the order given."""
    found: list[tuple[int, Entry]] = []
    backing.ackfold(lambda seq_id, entry: found.append((seq_id, entry)), seq_ids)
    return found


def shelved_ids(queue: Queue) -> list[int]:
    """Return numbers of what is ready and stands outside the ready messages of the backing."""
    selection = queue.selection
    if selection is None or selection.leaves_ready():
        return []
    return selection.shelved_ids()
