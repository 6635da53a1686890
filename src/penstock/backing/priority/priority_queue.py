"""The priority queue: one inner backing queue per level, served from the highest level down.

What it owns. The levels of one queue, 0 to x-max-priority. A message stands in the level of its priority; one above the
maximum stands in the highest level, one without in level 0. A level is opened when its first message comes, so that
a queue with 256 levels of which four are used costs four. The level decides; within a level everything is as the inner
backing has it. A run never mixes levels.

seq_ids are those of the levels with the level in front (`priority_levels`), so that at every moment their order is the
order of fetching. They grow with each publish within a level only: what is published with a higher priority stands
before what is there. A browser goes through the queue once, from the top, and does not see what comes in behind it.

Life of the data: publish -> level -> fetch from the highest level that has something -> ack or requeue, routed by the
seq_id. A level that is open stays open; after a restart the levels that exist are opened again.

Invariants
  1. Every message stands in the level of its priority.
  2. A token that was given for messages of several levels is handed out once, when each of them has made its part safe.
  3. Work that a level hands to its callback is run on that level, under the name of this implementation.
  4. A level that is opened late is told what the others were told: lazy or not, and how much RAM.
  5. An OSError of a publish has published nothing: levels are opened before the first message goes in, and a level that
     is open takes what it is given. A purge, dropwhile or fetchwhile may have done its work in the higher levels. A
     fetch_at gives back what it has taken.

As in RabbitMQ, on purpose: levels starve, since a lower one is served only while all above it are empty. And messages
are dropped or expire from the head only, where the head is what would be fetched next: an expired message stays behind
one of a higher level that has not expired.

Crash: each level leaves what the inner backing leaves. Messages of several levels that were published together may come
back from some levels and not from others, unless the inner backing writes them as one. It keeps no messages, no files
and no rates of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final

from penstock.backing.backing_queue import (
    NOT_DELIVERED,
    TIMEOUT_NONE,
    Answered,
    AsyncCallback,
    BackingQueue,
    BackingQueues,
    BackingWork,
    EntryVisitor,
    FoldVisitor,
    PropsPredicate,
    Recovery,
)
from penstock.backing.outcomes import ACKED, DROPPED, NO_ACTOR, REASON_NONE
from penstock.backing.priority.priority_levels import (
    INNER_MASK,
    LevelFold,
    Levels,
    LevelVisitor,
    SplitConfirm,
    inner_id,
)
from penstock.message import ConfirmToken, Entry, Incoming, MessageProps, Run, unlike

NAME: Final = "priority"
# The highest x-max-priority: the priority of a message is one octet.
PRIORITY_MAX: Final = 255


class PriorityBackingQueue(BackingQueue):
    KIND: ClassVar[str] = NAME

    def __init__(
        self, inner: BackingQueues, queue_id: str, durable: bool, max_priority: int, callback: AsyncCallback
    ) -> None:
        assert 0 <= max_priority <= PRIORITY_MAX
        self._inner = inner
        self._queue_id = queue_id
        self._durable = durable
        self._callback = callback
        self._levels = Levels(max_priority)
        # What a level must be told when it is opened later.
        self._lazy = False
        self._ram_seconds = math.inf
        self._ram_bytes_max = -1

    # --- life -------------------------------------------------------------------------------------

    def open_level(self, level: int, recovery: Recovery | None) -> BackingQueue:
        """Open a level that is not open yet: new (recovery None) or recovered."""
        callback = callback_of_level(level, self._callback)
        opened = self._inner.open(inner_id(self._queue_id, level), self._durable, recovery, callback)
        self._levels.add(level, opened)
        if self._lazy:
            opened.set_queue_mode(True)
        if self._ram_seconds != math.inf:
            opened.set_ram_duration_target(self._ram_seconds)
        if self._ram_bytes_max >= 0:
            self.set_ram_bytes_target(self._ram_bytes_max)
        return opened

    def _opened(self, level: int) -> BackingQueue:
        backing = self._levels.at(level)
        return self.open_level(level, None) if backing is None else backing

    def invoke_on_level(self, level: int, kind: str, work: BackingWork) -> None:
        """Run work that came through the callback of a level."""
        backing = self._levels.at(level)
        assert backing is not None
        backing.invoke(kind, work)

    def terminate(self) -> None:
        for _, backing in self._levels.open:
            backing.terminate()

    def delete_and_terminate(self) -> None:
        for _, backing in self._levels.open:
            backing.delete_and_terminate()

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, incoming: Incoming, props: MessageProps | None, delivered: int = NOT_DELIVERED) -> int:
        entries = incoming.entries
        if entries is None:
            return self._publish_to(self._levels.of_priority(incoming.envelope.priority), incoming, props, delivered)
        by_level: dict[int, list[Entry]] = {}
        for entry in entries:
            by_level.setdefault(self._levels.of_priority(entry[0].priority), []).append(entry)
        if len(by_level) == 1:
            # As they came: an inner backing may know them again in the next queue that gets them.
            return self._publish_to(self._levels.of_priority(entries[0][0].priority), incoming, props, delivered)
        for level in by_level:
            self._opened(level)
        if props is not None and props.confirm is not None:
            props = MessageProps(props.expiry_ms, SplitConfirm(props.confirm, len(by_level)))
        firsts = [
            self._publish_to(level, unlike(part, incoming.is_timed), props, delivered)
            for level, part in by_level.items()
        ]
        return firsts[0]

    def _publish_to(self, level: int, incoming: Incoming, props: MessageProps | None, delivered: int) -> int:
        return self._levels.base(level) | self._opened(level).publish(incoming, props, delivered)

    def discard(self, incoming: Incoming) -> None:
        # A level that is not open has nothing to do with what will not be held.
        backing = self._levels.at(self._levels.of_priority(incoming.envelope.priority))
        if backing is not None:
            backing.discard(incoming)

    def drain_confirmed(self) -> list[ConfirmToken]:
        drained: list[ConfirmToken] = []
        for _, backing in self._levels.open:
            for token in backing.drain_confirmed():
                if not isinstance(token, SplitConfirm):
                    drained.append(token)
                elif token.is_last():
                    drained.append(token.whole)
        return drained

    def take_owed(self) -> list[ConfirmToken]:
        # The whole of a divided token is refused once, however many levels owe a part of it.
        return [token for _, backing in self._levels.open for token in backing.take_owed()]

    # --- fetching ---------------------------------------------------------------------------------

    def fetch(self, count_max: int, bytes_max: int, ack_required: bool, actor: int = NO_ACTOR) -> Run | None:
        assert count_max >= 1
        for base, backing in self._levels.open:
            if not backing.is_empty():
                run = backing.fetch(count_max, bytes_max, ack_required, actor)
                if run is not None:
                    run.first_seq_id |= base
                    return run
        return None

    def fetch_at(self, seq_ids: Sequence[int], actor: int = NO_ACTOR) -> list[tuple[int, Entry]]:
        wanted = list(dict.fromkeys(seq_ids))
        found: dict[int, Entry] = {}
        for base, backing in self._levels.open:
            inner = [seq_id & INNER_MASK for seq_id in wanted if seq_id & ~INNER_MASK == base]
            if inner:
                try:
                    taken = backing.fetch_at(inner, actor)
                except OSError:
                    self.requeue(list(found), failed=False)
                    raise
                for seq_id, entry in taken:
                    found[base | seq_id] = entry
        return [(seq_id, found[seq_id]) for seq_id in wanted if seq_id in found]

    def drop(self, ack_required: bool, outcome: int = DROPPED, reason: int = REASON_NONE) -> int | None:
        for base, backing in self._levels.open:
            dropped = backing.drop(ack_required, outcome, reason)
            if dropped is not None:
                return base | dropped
        return None

    def dropwhile(self, predicate: PropsPredicate) -> int:
        dropped = 0
        for _, backing in self._levels.open:
            dropped += backing.dropwhile(predicate)
            if not backing.is_empty():
                break
        return dropped

    def fetchwhile(self, predicate: PropsPredicate, visit: EntryVisitor) -> int:
        fetched = 0
        for base, backing in self._levels.open:
            fetched += backing.fetchwhile(predicate, LevelVisitor(base, visit).show)
            if not backing.is_empty():
                break
        return fetched

    def head_props(self) -> MessageProps | None:
        for _, backing in self._levels.open:
            if not backing.is_empty():
                return backing.head_props()
        return None

    def browse(self, from_seq_id: int, count_max: int, bytes_max: int) -> Run | None:
        assert count_max >= 1
        for base, backing in self._levels.open:
            if base + INNER_MASK >= from_seq_id and not backing.is_empty():
                run = backing.browse(max(from_seq_id - base, 0), count_max, bytes_max)
                if run is not None:
                    run.first_seq_id |= base
                    return run
        return None

    # --- settling ---------------------------------------------------------------------------------

    def ack(
        self, seq_ids: Sequence[int], outcome: int = ACKED, reason: int = REASON_NONE, actor: int = NO_ACTOR
    ) -> int:
        return sum([backing.ack(ids, outcome, reason, actor) for backing, ids in self._levels.split(seq_ids)])

    def requeue(self, seq_ids: Sequence[int], failed: bool = True) -> int:
        return sum([backing.requeue(ids, failed) for backing, ids in self._levels.split(seq_ids)])

    def delivery_count(self, seq_id: int) -> int:
        backing = self._levels.of_seq_id(seq_id)
        return 0 if backing is None else backing.delivery_count(seq_id & INNER_MASK)

    def set_delivery_count(self, seq_id: int, count: int) -> None:
        backing = self._levels.of_seq_id(seq_id)
        if backing is not None:
            backing.set_delivery_count(seq_id & INNER_MASK, count)

    def returned_over(self, count: int) -> list[int]:
        found: list[int] = []
        for base, backing in self._levels.open:
            found.extend([base | seq_id for seq_id in backing.returned_over(count)])
        return found

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        found: list[int] = []
        for base, backing in self._levels.open:
            inner = [seq_id & INNER_MASK for seq_id in seq_ids if seq_id & ~INNER_MASK == base]
            if inner:
                found.extend([base | seq_id for seq_id in backing.doubtful(inner)])
        return found

    def doubt(self, seq_ids: Sequence[int]) -> None:
        for backing, ids in self._levels.split(seq_ids):
            backing.doubt(ids)

    def pending_ids(self) -> list[int]:
        return [base | seq_id for base, backing in self._levels.open for seq_id in backing.pending_ids()]

    def ackfold(self, visit: EntryVisitor, seq_ids: Sequence[int]) -> None:
        # In stretches of one level: the order given may go back and forth between them.
        ids = list(dict.fromkeys(seq_ids))
        start = 0
        for end in range(1, len(ids) + 1):
            base = ids[start] & ~INNER_MASK
            if end < len(ids) and ids[end] & ~INNER_MASK == base:
                continue
            backing = self._levels.of_seq_id(base)
            if backing is not None:
                inner = [seq_id & INNER_MASK for seq_id in ids[start:end]]
                backing.ackfold(LevelVisitor(base, visit).show, inner)
            start = end

    # --- who has what -----------------------------------------------------------------------------

    def name_actor(self, text: bytes) -> int:
        # One number for all levels, also for those that are opened later.
        return self._inner.name_actor(text) if self._durable else NO_ACTOR

    def forget_actor(self, actor: int) -> None:
        self._inner.forget_actor(actor)

    def note_given(self, seq_ids: Sequence[int], actor: int) -> None:
        for backing, ids in self._levels.split(seq_ids):
            backing.note_given(ids, actor)

    def note_returned(self, seq_ids: Sequence[int]) -> None:
        for backing, ids in self._levels.split(seq_ids):
            backing.note_returned(ids)

    # --- all messages -----------------------------------------------------------------------------

    def purge(self) -> int:
        return sum([backing.purge() for _, backing in self._levels.open])

    def begin_purge(self) -> bool:
        # Each notes what it has, whether the others take long or not.
        return any([backing.begin_purge() for _, backing in self._levels.open])

    def purge_some(self, count_max: int) -> int:
        for _, backing in self._levels.open:
            purged = backing.purge_some(count_max)
            if purged:
                return purged
        return 0

    def fold(self, visit: FoldVisitor) -> None:
        for base, backing in self._levels.open:
            part = LevelFold(base, visit)
            backing.fold(part.show)
            if part.stopped:
                return

    def __len__(self) -> int:
        return sum([len(backing) for _, backing in self._levels.open])

    def is_empty(self) -> bool:
        for _, backing in self._levels.open:
            if not backing.is_empty():
                return False
        return True

    def depth(self) -> int:
        return sum([backing.depth() for _, backing in self._levels.open])

    def ready_bytes(self) -> int:
        return sum([backing.ready_bytes() for _, backing in self._levels.open])

    def pending_bytes(self) -> int:
        return sum([backing.pending_bytes() for _, backing in self._levels.open])

    # --- memory and time ----------------------------------------------------------------------------

    def ram_bytes(self) -> int:
        return sum([backing.ram_bytes() for _, backing in self._levels.open])

    def set_ram_duration_target(self, seconds: float) -> None:
        # The same for each level: a time is turned into a number of messages by the level's own rates.
        self._ram_seconds = seconds
        for _, backing in self._levels.open:
            backing.set_ram_duration_target(seconds)

    def set_ram_bytes_target(self, bytes_max: int) -> None:
        self._ram_bytes_max = bytes_max
        held = [backing.ram_bytes() for _, backing in self._levels.open]
        total = max(sum(held), 1)
        for index, (_, backing) in enumerate(self._levels.open):
            if bytes_max < 0:
                backing.set_ram_bytes_target(-1)
            else:
                # Half in equal parts, so that a level which holds nothing can begin; half by what each holds now.
                half = bytes_max // 2
                backing.set_ram_bytes_target(half // len(held) + half * held[index] // total)

    def ram_duration(self) -> float:
        return min([backing.ram_duration() for _, backing in self._levels.open], default=math.inf)

    def drain_arrived(self) -> int:
        return sum([backing.drain_arrived() for _, backing in self._levels.open])

    def waits_for_disk(self) -> bool:
        head = self._first_ready()
        return head is not None and head.waits_for_disk()

    def waits_to_browse(self, from_seq_id: int) -> bool:
        for base, backing in self._levels.open:
            if base + INNER_MASK >= from_seq_id and backing.may_browse(max(from_seq_id - base, 0)):
                return backing.waits_to_browse(max(from_seq_id - base, 0))
        return False

    def may_browse(self, from_seq_id: int) -> bool:
        for base, backing in self._levels.open:
            if base + INNER_MASK >= from_seq_id and backing.may_browse(max(from_seq_id - base, 0)):
                return True
        return False

    def head_is_large(self) -> bool:
        head = self._first_ready()
        return head is not None and head.head_is_large()

    def await_body(self, seq_ids: Sequence[int], done: Answered) -> int:
        by_base: dict[int, list[int]] = {}
        for seq_id in seq_ids:
            by_base.setdefault(seq_id & ~INNER_MASK, []).append(seq_id & INNER_MASK)
        found: set[int] = set()
        for base, inner in by_base.items():
            backing = self._levels.of_seq_id(base)
            first = -1 if backing is None else backing.await_body(inner, done)
            if first >= 0:
                found.add(base | first)
        for seq_id in seq_ids if found else ():
            if seq_id in found:
                return seq_id
        return -1

    def ask_once(self, done: Answered) -> None:
        head = self._first_ready()
        if head is None:
            done(None)
        else:
            head.ask_once(done)

    def _first_ready(self) -> BackingQueue | None:
        for _, backing in self._levels.open:
            if not backing.is_empty():
                return backing
        return None

    def stalled(self, error: OSError) -> None:
        # Which of them it was is not known, and the others are asked anew as well.
        for _, backing in self._levels.open:
            if not backing.is_empty():
                backing.stalled(error)

    def needs_timeout(self) -> int:
        return max([backing.needs_timeout() for _, backing in self._levels.open], default=TIMEOUT_NONE)

    def timeout(self) -> None:
        for _, backing in self._levels.open:
            backing.timeout()

    def resume(self) -> None:
        for _, backing in self._levels.open:
            backing.resume()

    def set_queue_mode(self, lazy: bool) -> None:
        self._lazy = lazy
        for _, backing in self._levels.open:
            backing.set_queue_mode(lazy)

    # --- looking in -----------------------------------------------------------------------------------

    def status(self) -> dict[str, int | float | str]:
        """Return the numbers of the levels added up, and the length of each level that is open."""
        levels = self._levels
        status: dict[str, int | float | str] = {"len": 0, "pending_acks": 0, "levels_open": len(levels.open)}
        next_seq_id = levels.base(0)
        for base, backing in levels.open:
            inner = backing.status()
            for name, value in inner.items():
                before = status.get(name, 0)
                if not isinstance(value, str) and not isinstance(before, str):
                    status[name] = before + value
            status[f"len_{levels.of_base(base):03d}"] = len(backing)
            next_seq_id = base | int(inner["next_seq_id"])
        status["kind"] = self.KIND
        # Above every seq_id that is in use.
        status["next_seq_id"] = next_seq_id
        return status

    def check_invariants(self) -> None:
        self._levels.check_invariants()
        for base, backing in self._levels.open:
            backing.check_invariants()
            backing.fold(LevelFold(base, self._check_level).show)

    def _check_level(self, seq_id: int, entry: Entry, pending: bool) -> bool:
        level = self._levels.of_priority(entry[0].priority)
        assert self._levels.of_base(seq_id) == level, "1: a message stands in the level of its priority"
        return True


def callback_of_level(level: int, callback: AsyncCallback) -> AsyncCallback:
    """Takes a level's work to the queue's owner, so that it comes back to that level. From any thread."""

    def hand_over(kind: str, work: BackingWork) -> None:
        def on_level(backing: BackingQueue) -> None:
            assert isinstance(backing, PriorityBackingQueue)
            backing.invoke_on_level(level, kind, work)

        callback(NAME, on_level)

    return hand_over
