"""The rows that a node has reserved of a queue in PostgreSQL: the window, and the messages that its consumers have.

What is left of a window from which no consumer has taken anything for a second, or that lasts for longer than two, goes
back to the database, so that other nodes can serve it. It also goes back when the connection was lost, since the last
reservation may not have been committed.

How much is reserved at once: twice as many as last time when those went within a quarter of a second; as many as were
taken when some had to be given back; never more than the limits, by the mean size of what came. The next ones are asked
for when a quarter is left.

Rows that were asked for by number stand beside the window, since they need not be the front of the queue; they go back
like a window from which no consumer takes.

Invariants
  1. A message is in the window, or beside it, or pending, or not reserved.
  2. Nothing that is ready in the database has an id up to `reach`, as far as this node can know: the window is the
     front of the queue. What comes back from a consumer and stands behind it goes to the database.
  3. `pending_bytes` is the sum of the pending payloads.
  4. With too much pending, nothing is handed out and nothing is reserved.

A crash leaves the rows reserved, until the database finds that the node is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from penstock import limits
from penstock.backing.postgres.envelopes import PgEnvelopes
from penstock.backing.postgres.link import PgQueueLink, TakenRow
from penstock.backing.postgres.looks import PgLooks
from penstock.backing.postgres.past import PgPast
from penstock.backing.postgres.window import PgWindow
from penstock.clock import Clock
from penstock.message import Entry, Run
from penstock.pg.floor import AgedReach, Floor

# A window that is gone in this time was too small.
FAST_S: Final = 0.25
# How long a window waits for a consumer to take from it, and how long it may last.
IDLE_S: Final = 1.0
LAST_S: Final = 2.0


@final
class PgReserved:
    def __init__(self, envelopes: PgEnvelopes, clock: Clock) -> None:
        # Set by who makes it, before anything else happens.
        self.queue_link: PgQueueLink
        self._envelopes = envelopes
        self._clock = clock
        # None: always wanted.
        self.takers: Callable[[], bool] | None = None
        self.window = PgWindow()
        # Of messages in the window and of pending ones: how often they were delivered before.
        self.past = PgPast()
        self.pending: dict[int, Entry] = {}
        self.pending_bytes = 0
        # What came by number, and when the last of it came.
        self._numbered: dict[int, Entry] = {}
        self._numbered_s = 0.0
        # What browsers are shown; and whether one has come to the end.
        self.looks = PgLooks(envelopes, clock, self._page_came)
        self.is_browser_waiting = False
        # Messages that came by themselves and were not reported yet.
        self.arrived_count = 0
        # The highest id that was ever seen here.
        self.highest = 0
        self._reach = 0
        self._floor = Floor(AgedReach(clock.monotonic_s()))
        self._refill_count = limits.PG_REFILL_FIRST
        # 0: nothing has come yet.
        self._bytes_mean = 0
        self._came_s = self._taken_s = clock.monotonic_s()
        # Of the last refill: how many came, and how many messages were taken since.
        self._came_count = 0
        self._taken_count = 0

    # --- the link -----------------------------------------------------------------------------------

    def has_room(self) -> bool:
        return len(self.pending) < limits.PG_PENDING_MESSAGES_MAX and self.pending_bytes < limits.PG_PENDING_BYTES_MAX

    def is_wanted(self) -> bool:
        """Return whether a consumer would take a message now, and there is room for it."""
        return self._is_low() and self.has_room() and (self.takers is None or self.takers())

    def _is_low(self) -> bool:
        return len(self.window) <= self._came_count // 4

    def refill_count(self) -> int:
        """Return how many messages to reserve at once, by their size and by how fast they were taken so far."""
        if not self._bytes_mean:
            return min(self._refill_count, limits.PG_REFILL_UNKNOWN)
        return max(1, min(self._refill_count, limits.PG_REFILL_BYTES_MAX // self._bytes_mean))

    def refill_floor(self) -> int:
        """Nothing that is ready has a lower id, as far as is known; 0 = look at everything."""
        now_s = self._clock.monotonic_s()
        floor = self._floor.value(now_s)
        if not floor:
            self._floor.walked(now_s, now_s)
        return floor

    def rows_came(self, rows: Sequence[TakenRow], asked: int) -> None:
        """Rows were reserved for this node, in the order of their ids; `asked`: how many it would have taken."""
        if len(rows) < asked:
            self._floor.look_at_all()
        if not rows:
            return
        now_s = self._clock.monotonic_s()
        if self._came_count and 4 * self._taken_count >= 3 * self._came_count and now_s - self._came_s < FAST_S:
            self._refill_count = min(2 * self._refill_count, limits.PG_REFILL_MESSAGES_MAX)
        size = 0
        for row in rows:
            seq_id = row[0]
            if seq_id in self.window or seq_id in self.pending or seq_id in self._numbered:
                # It was reserved here before, and a restart of the database has forgotten that.
                continue
            self.window.add(seq_id, self._envelopes.entry(row), row[1] > 1, False)
            self.past.reserved(seq_id, row[1])
            size += len(row[6])
        last = rows[-1][0]
        self._reach = max(self._reach, last)
        self._floor.taken(rows[0][0], last)
        self.highest = max(self.highest, last)
        mean = size // len(rows) + limits.MESSAGE_OVERHEAD_BYTES
        self._bytes_mean = (self._bytes_mean + mean) // 2 if self._bytes_mean else mean
        self._came_s = self._taken_s = now_s
        self._came_count = len(rows)
        self._taken_count = 0
        self.arrived_count += len(rows)

    def numbers_came(self, rows: Sequence[TakenRow]) -> None:
        """Rows that were asked for by number were reserved for this node."""
        self._numbered_s = self._clock.monotonic_s()
        for row in rows:
            if row[0] not in self.window and row[0] not in self.pending:
                self._numbered[row[0]] = self._envelopes.entry(row)
                self.past.reserved(row[0], row[1])

    def is_looked_for(self) -> bool:
        """Return whether a browser has come to the end, and is to be told when something may be ready."""
        return self.is_browser_waiting

    def may_be_ready(self) -> None:
        """Something was put, or counted."""
        if self.is_browser_waiting:
            self.looks.forget()
            self._tell_browsers()

    def _page_came(self, has_messages: bool) -> None:
        if has_messages or len(self.window):
            self._tell_browsers()
        else:
            self.is_browser_waiting = True

    def _tell_browsers(self) -> None:
        """Have browsers look again."""
        self.is_browser_waiting = False
        self.arrived_count += 1

    def reserved_ids(self) -> list[int]:
        """Return ids of all rows that the queue believes to be reserved for it."""
        return [*self.pending, *self._numbered, *[seq_id for seq_id, _, _ in self.window.items()]]

    def link_lost(self) -> None:
        """The connection that reserves was lost: what was not handed out yet may be another node's soon."""
        self.give_window_back()

    def tick(self) -> None:
        """Called about twice a second."""
        now_s = self._clock.monotonic_s()
        if len(self.window) and (now_s - self._taken_s > IDLE_S or now_s - self._came_s > LAST_S):
            self._refill_count = max(1, min(self._taken_count, limits.PG_REFILL_MESSAGES_MAX))
            self.give_window_back()
        if self._numbered and now_s - self._numbered_s > IDLE_S:
            self._give_numbered_back()

    def give_window_back(self) -> None:
        """The front of the queue is in the database again."""
        unseen, seen = self.window.take_all()
        self._reach = 0
        self._floor.forget()
        self._came_count = self._taken_count = 0
        self.past.forget(unseen)
        self.past.forget(seen)
        self.queue_link.give_back(unseen, False)
        self.queue_link.give_back(seen, True)
        self._give_numbered_back()

    def _give_numbered_back(self) -> None:
        self.past.forget(list(self._numbered))
        self.queue_link.give_back(list(self._numbered), False)
        self._numbered.clear()

    def forget_all(self) -> None:
        self.window.take_all()
        self._numbered.clear()
        self.past.clear()
        self.looks.forget()
        self.release(list(self.pending))

    # --- handing out --------------------------------------------------------------------------------

    def fill(self) -> bool:
        """Have something in the window if that is possible now; else it is asked for. False: there is nothing."""
        if not self.has_room():
            return False
        if self._is_low():
            self.queue_link.ask()
        return len(self.window) > 0

    def fetch(self, count_max: int, bytes_max: int, ack_required: bool, note: str | None = None) -> Run | None:
        if not self.fill():
            return None
        if ack_required:
            count_max = min(count_max, limits.PG_PENDING_MESSAGES_MAX - len(self.pending))
        run = self.window.take(count_max, bytes_max)
        assert run is not None
        self._took(len(run.entries))
        taken = [(run.first_seq_id + index, entry) for index, entry in enumerate(run.entries)]
        if ack_required:
            self._keep(taken)
        else:
            self.past.forget(range(run.first_seq_id, run.first_seq_id + len(taken)))
            self.queue_link.finalize([seq_id for seq_id, _ in taken], note)
        return run

    def _took(self, count: int) -> None:
        self._taken_count += count
        self._taken_s = self._clock.monotonic_s()

    def fetch_at(self, seq_ids: Sequence[int]) -> list[tuple[int, Entry]]:
        found: dict[int, Entry] = {}
        elsewhere: list[int] = []
        for seq_id in dict.fromkeys(seq_ids):
            entry = self.window.take_at(seq_id)
            if entry is not None:
                found[seq_id] = entry
            elif seq_id > 0 and seq_id not in self.pending:
                elsewhere.append(seq_id)
        missing = [seq_id for seq_id in elsewhere if seq_id not in self._numbered]
        if missing and self.has_room():
            self.queue_link.take(missing)
        for seq_id in elsewhere:
            entry = self._numbered.pop(seq_id, None)
            if entry is not None:
                found[seq_id] = entry
        taken = [(seq_id, found[seq_id]) for seq_id in dict.fromkeys(seq_ids) if seq_id in found]
        self._keep(taken)
        return taken

    def _keep(self, taken: Sequence[tuple[int, Entry]]) -> None:
        self.pending.update(taken)
        self.pending_bytes += sum([len(entry[1]) - 1 for _, entry in taken])

    # --- settling -----------------------------------------------------------------------------------

    def release(self, seq_ids: Sequence[int]) -> list[tuple[int, Entry]]:
        """Take messages from the pending ones; unknown and repeated ids are skipped."""
        had_room = self.has_room()
        released: list[tuple[int, Entry]] = []
        size = 0
        for seq_id in seq_ids:
            entry = self.pending.pop(seq_id, None)
            if entry is not None:
                released.append((seq_id, entry))
                size += len(entry[1]) - 1
        self.pending_bytes -= size
        if not had_room and self.has_room():
            self.queue_link.ask()
            # What stands in the window can be handed out again.
            self.arrived_count += len(self.window)
        return released

    def requeue(self, seq_ids: Sequence[int], failed: bool = True) -> int:
        released = self.release(seq_ids)
        if failed:
            self.past.returned([seq_id for seq_id, _ in released])
        behind = [seq_id for seq_id, _ in released if seq_id > self._reach]
        self.past.forget(behind)
        self.queue_link.give_back(behind, True)
        for seq_id, entry in released:
            if seq_id <= self._reach:
                self.window.add(seq_id, entry, True, True)
        self._taken_s = self._clock.monotonic_s()
        return len(released)

    def check_invariants(self) -> None:
        self.window.check_invariants()
        both = [seq_id for seq_id in self.pending if seq_id in self.window]
        assert not both, "1: a message is in the window and pending"
        beside = [seq_id for seq_id in self._numbered if seq_id in self.window or seq_id in self.pending]
        assert not beside, "1: a message is beside the window, and in it or pending"
        assert self.pending_bytes == sum([len(entry[1]) - 1 for entry in self.pending.values()]), "3: pending bytes"
