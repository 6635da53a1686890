"""Moves everything that a queue holds into a new backing, in slices, while the queue stays in use.

A queue with priorities has a backing of another kind than one without, so the messages are published again, in order,
into a new one under a new id. Nothing is handed out meanwhile. What is published goes to the old backing and is moved
in its turn; what consumers have stays with them. Methods that ask about the queue wait for the end.

How a message gets over: a ready one is fetched from the old backing, where it is pending from then on, and published
to the new one. One that is pending already (with a consumer, on a shelf, on its way as a dead letter) is read and
published at its position, and its new number is noted. At the end each noted message becomes in the new backing what it
is in the old one by then: pending, ready again, or gone.

Invariants
  1. Until `flip` the old backing has every message, ready or pending: it can be gone back to.
  2. The new backing has the messages in the order of the old one; priorities sort them anew.
  3. The old backing is removed when the new definition is on disk: until then it gives the confirms that it owes.

A crash before the new definition is on disk leaves the old queue, and the new id is known to nobody and removed. After
it, the old id is. The definition is one record, and stands in the journal behind everything that was moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock import limits
from penstock.backing.backing_queue import DOUBTFUL, NOT_DELIVERED, WAS_DELIVERED, BackingQueue
from penstock.backing.outcomes import ACKED, NO_ACTOR, THE_QUEUE
from penstock.backing.renumbered import GENERATIONS_MAX, RenumberedBackingQueue
from penstock.message import Entry, Incoming, MessageProps, unlike
from penstock.queues.queue import Queue
from penstock.queues.settling import Settling

# Messages that are moved in one turn: about five milliseconds.
AT_ONCE: Final = 500
# A count above this is not carried over exactly: it takes a row of the journal for each return.
COUNT_MAX: Final = 1000


class QueueMove(Settling):
    def __init__(self, queue: Queue, target: BackingQueue, flip: Callable[[BackingQueue], None]) -> None:
        """`flip` is called once, behind the last message, with the backing that the queue is to have."""
        self._queue = queue
        self._source = queue.backing
        self._target = target
        self._flip = flip
        self._when_over: list[Callable[[], None]] = []
        self.is_over = False
        self.moved_count = 0
        # Pending messages that were not moved yet, the highest first; and the new numbers of those that were.
        self._held = sorted(self._source.pending_ids(), reverse=True)
        self._new_ids: dict[int, int] = {}
        # Of those, what came back to the old backing meanwhile, and was fetched from there.
        self._came_back: set[int] = set()
        # What was fetched, in case that it must be given back.
        self._fetched: list[range] = []
        queue.settling_begun(self, True)

    # --- slices ---------------------------------------------------------------------------------------

    def move_some(self, count_max: int = AT_ONCE) -> None:
        """Move the next messages; behind the last one the queue has its new backing."""
        left = count_max
        if self._queue.crashed:
            self.give_up()
        try:
            while left > 0 and not self.is_over:
                moved = self._move_run(min(left, limits.PULL_MESSAGES_MAX))
                if moved == 0:
                    self._end()
                left -= moved
        except BaseException:
            if not self.is_over:
                self.give_up()
            raise

    def finish(self) -> None:
        while not self.is_over:
            self.move_some(1 << 30)

    def leave(self) -> None:
        """The queue is about to be deleted: nothing has to be moved for that."""
        self.give_up()

    def when_over(self, call: Callable[[], None]) -> None:
        self._when_over.append(call)

    def remaining(self) -> int:
        """Return how many messages are still to be moved."""
        return len(self._source) + len(self._held)

    # --- messages ---------------------------------------------------------------------------------------

    def _move_run(self, count_max: int) -> int:
        """Move the next ready messages and the pending ones in front of them; how many these were."""
        run = self._source.fetch(count_max, limits.PULL_BYTES_MAX, True, THE_QUEUE)
        if run is None:
            return self._move_held(-1, count_max)
        first, count = run.first_seq_id, len(run.entries)
        seq_ids = range(first, first + count)
        self._fetched.append(seq_ids)
        moved = self._move_held(first, 1 << 30)
        if self._new_ids or self._held:
            self._forget_held(seq_ids)
        delivered = WAS_DELIVERED if run.redelivered else NOT_DELIVERED
        new = [
            (seq_id, entry)
            for seq_id, entry in enumerate(run.entries, first)
            if not self._new_ids or seq_id not in self._new_ids
        ]
        self._publish_all(new, delivered)
        return moved + count

    def _forget_held(self, seq_ids: range) -> None:
        """These were ready: what was pending before has come back."""
        for seq_id in seq_ids:
            if seq_id in self._new_ids:
                self._came_back.add(seq_id)
        while self._held and self._held[-1] < seq_ids.stop:
            self._held.pop()

    def _move_held(self, below: int, count_max: int) -> int:
        """Move pending messages with lower numbers than this one (-1: all), so many at most; how many."""
        moved = 0
        found: list[tuple[int, Entry]] = []
        while self._held and moved < count_max and (below < 0 or self._held[-1] < below):
            seq_id = self._held.pop()
            moved += 1
            self._source.ackfold(lambda each, entry: found.append((each, entry)), [seq_id])
            for each, entry in found:
                # On a shelf it keeps its flag; a consumer's is redelivered in any case.
                self._new_ids[each] = self._publish_one(each, entry, self._flag(each))
            found.clear()
        return moved

    def _flag(self, seq_id: int) -> int:
        selection = self._queue.selection
        return WAS_DELIVERED if selection is not None and selection.is_redelivered(seq_id) else NOT_DELIVERED

    def _publish_all(self, messages: Sequence[tuple[int, Entry]], delivered: int) -> None:
        """Publish what was ready, in stretches of messages that are alike for the backing."""
        if not messages:
            return
        doubtful = set(self._source.doubtful([seq_id for seq_id, _ in messages]))
        stretch: list[Entry] = []
        kind: tuple[int, bool] | None = None
        for seq_id, entry in messages:
            count = self._source.delivery_count(seq_id) if delivered else 0
            flag = DOUBTFUL if seq_id in doubtful else delivered
            is_timed = entry[2] is not None and entry[2].expiry_ms >= 0
            # What was delivered, and expires, goes one by one: the backing takes only new ones with times of their own.
            is_alone = count > 0 or (is_timed and flag != NOT_DELIVERED)
            if stretch and (is_alone or kind != (flag, is_timed)):
                self._publish_stretch(stretch, kind)
                stretch = []
            if is_alone:
                new_id = self._publish_one(seq_id, entry, flag)
                if count:
                    self._count(new_id, count)
                    self._target.requeue([new_id], failed=False)
                continue
            kind = (flag, is_timed)
            stretch.append(_without_confirm(entry))
        if stretch:
            self._publish_stretch(stretch, kind)

    def _publish_stretch(self, stretch: list[Entry], kind: tuple[int, bool] | None) -> None:
        assert kind is not None
        flag, is_timed = kind
        self._target.publish(unlike(stretch, is_timed), None, flag)
        self.moved_count += len(stretch)

    def _publish_one(self, seq_id: int, entry: Entry, delivered: int) -> int:
        envelope, body, props = entry
        if self._source.doubtful([seq_id]):
            delivered = DOUBTFUL
        times = None if props is None or props.expiry_ms < 0 else MessageProps(props.expiry_ms)
        self.moved_count += 1
        return self._target.publish(Incoming(envelope, [body]), times, delivered)

    def _count(self, new_id: int, count: int) -> None:
        """Have a message of the new backing pending, with its count of returns, which a crash does not take away."""
        self._target.fetch_at([new_id], THE_QUEUE)
        for _ in range(min(count, COUNT_MAX)):
            self._target.note_returned([new_id])

    # --- the end ------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._move_late()
        former = self._settle_held()
        source = self._source
        generation = 0
        if isinstance(source, RenumberedBackingQueue):
            generation = source.generation
            for oldest, seq_id in source.former_ids().items():
                if seq_id in former:
                    former[oldest] = former[seq_id]
        assert generation < GENERATIONS_MAX
        self.is_over = True
        # First, so that waiting consumers can be served when limits count again.
        self._queue.settling_over(self, True)
        self._flip(RenumberedBackingQueue(self._target, generation + 1, former))
        self._tell()

    def _move_late(self) -> None:
        """Move what has become pending meanwhile by other ways than ours: dead letters that wait for a database."""
        ours = sum([len(seq_ids) for seq_ids in self._fetched])
        held = 0

        def count_held(seq_id: int, entry: Entry) -> None:
            nonlocal held
            held += seq_id not in self._came_back

        self._source.ackfold(count_held, list(self._new_ids))
        if self._source.depth() > ours + held:
            known = set(self._new_ids)
            for seq_ids in self._fetched:
                known.update(seq_ids)
            self._held = sorted([each for each in self._source.pending_ids() if each not in known], reverse=True)
            self._move_held(-1, 1 << 30)

    def _settle_held(self) -> dict[int, int]:
        """Make what was pending what it is now; return the new numbers of what still is."""
        pending: set[int] = set()
        ids = sorted(self._new_ids)
        self._source.ackfold(lambda seq_id, entry: pending.add(seq_id), ids)
        former: dict[int, int] = {}
        selection = self._queue.selection
        for seq_id in ids:
            new_id = self._new_ids[seq_id]
            count = self._source.delivery_count(seq_id)
            if seq_id not in pending:
                self._target.fetch_at([new_id], THE_QUEUE)
                self._target.ack([new_id], ACKED)
            elif seq_id in self._came_back or (selection is not None and selection.has(seq_id)):
                # What is shelved is pending in the backing, and ready as far as clients can see.
                if count or seq_id in self._came_back:
                    self._count(new_id, count)
                    self._target.requeue([new_id], failed=False)
            else:
                self._target.fetch_at([new_id], NO_ACTOR)
                for _ in range(min(count, COUNT_MAX)):
                    self._target.note_returned([new_id])
                former[seq_id] = new_id
        return former

    def give_up(self) -> None:
        """Leave the queue as it was: what was fetched is ready again, and the new backing is removed."""
        if self.is_over:
            return
        self.is_over = True
        if not self._queue.crashed:
            for seq_ids in self._fetched:
                self._source.requeue(seq_ids, failed=False)
        self._target.delete_and_terminate()
        self._queue.settling_over(self, True)
        self._tell()

    def _tell(self) -> None:
        calls, self._when_over = self._when_over, []
        for call in calls:
            call()


def _without_confirm(entry: Entry) -> Entry:
    envelope, body, props = entry
    return envelope, body, None if props is None or props.expiry_ms < 0 else MessageProps(props.expiry_ms)
