"""One queue's door to PostgreSQL, on the broker's loop: what is to be done for it, and what is known of it.

The door gathers; the lanes do. Posted settling stays here until the database has answered, so that a lost connection
loses none of it. Everything that a receiver is told goes through `run`, into the queue's own context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock import limits
from penstock.backing.postgres_link import PgDoor, PgReceiver, PgUnavailable, PutDone, PutRow, TakenRow
from penstock.server.pg_put_lane import PutItem

if TYPE_CHECKING:
    from penstock.server.pg_link import ServerPgLink

Run = Callable[[Callable[[], None]], None]
# While nothing is found, the next looks come after these times; later ones when a count says that there is something.
LADDER_S = (0.005, 0.025, 0.1, 0.5)
# From this step on a put anywhere is to notify.
WAITING_FROM_STEP = 2


class ServerDoor(PgDoor):
    """One queue in the database, seen from this node."""

    def __init__(self, link: ServerPgLink, name: str, queue_id: int, receiver: PgReceiver, run: Run) -> None:
        self._link = link
        self.name = name
        # 0: not known.
        self.queue_id = queue_id
        self.receiver = receiver
        self._run = run
        # The participant of this node; 0 = none yet. Its session may be gone.
        self.number = 0
        self.is_attached = False
        # What puts notify on; "" = not known yet.
        self.channel = ""
        # The database is to notify, as far as it was told.
        self.is_waiting = False
        # Somebody else was named by a notification, and we look a moment later.
        self.is_look_planned = False
        self.is_closing = False
        self.is_closed = False
        # Put here and not committed.
        self.unsent = 0
        # Ready in the database, as it last said.
        self.ready = 0
        # Work for the lane that reserves and settles: ids by what becomes of them.
        self.finalized: dict[str | None, list[int]] = {}
        self.unseen: list[int] = []
        self.seen: list[int] = []
        # Messages at the head that have expired, to be reserved by number.
        self.expired: list[int] = []
        self.is_asked = False
        # Somebody may want messages by number.
        self.is_looked_at = False
        # Removed already by a purge that is not answered yet.
        self.purged_count = 0
        self._step = 0
        self._look_due = False
        # Who gets by hand, and who waits for quiet.
        self.getters: list[Callable[[], None]] = []
        self.quiet: list[Callable[[], None]] = []

    # --- posted -------------------------------------------------------------------------------------

    def put(self, rows: Sequence[PutRow], done: PutDone) -> None:
        self._link.puts.put(PutItem(self, rows, done, self._link.now_s()))

    def put_done(self, done: PutDone, ids: list[int] | None, count: int) -> None:
        if self.is_closed:
            return
        if ids is not None:
            self.ready += count
        self.tell(lambda: done(ids))
        if ids is not None:
            self.look_now()

    def ask(self) -> None:
        if not self.is_asked and not self._look_due:
            self.is_asked = True
            self._link.work.add(self)

    def ask_once(self, done: Callable[[], None]) -> None:
        self._link.require_up(self.name)
        self.getters.append(done)
        self._link.work.add(self)

    def when_quiet(self, done: Callable[[], None]) -> None:
        def puts_are_done(ids: list[int] | None) -> None:
            if self.is_closed or not self._link.is_up():
                done()
            else:
                self.quiet.append(done)
                self._link.work.add(self)

        if not self._link.is_up():
            done()
        else:
            self._link.puts.put(PutItem(self, [], puts_are_done, self._link.now_s()))

    def purge_first(self, done: Callable[[], None]) -> None:
        self.purged_count = 0
        if self._link.is_up():
            self._link.purge_later(self, done)
        else:
            done()

    def finalize(self, seq_ids: Sequence[int], note: str | None) -> None:
        if seq_ids:
            self.finalized.setdefault(note, []).extend(seq_ids)
            self._link.work.add(self)

    def give_back(self, seq_ids: Sequence[int], seen: bool) -> None:
        if seq_ids:
            (self.seen if seen else self.unseen).extend(seq_ids)
            self._link.work.add(self)

    # --- what the lanes say ---------------------------------------------------------------------------

    def tell(self, function: Callable[[], None]) -> None:
        """In the queue's context; then what it has to say to clients is written soon."""
        if not self.is_closed:
            self._run(function)
            self._link.after_work()

    def tick(self) -> None:
        if not self.is_closing and not self.is_closed:
            self._run(self.receiver.tick)

    def needs_number(self) -> bool:
        """Whether what is to be done is done in the name of this node's participant."""
        if self.number:
            return True
        return bool(self.getters or self.expired or self.is_looked_at or (self.is_asked and self.receiver.is_wanted()))

    def has_work(self) -> bool:
        return bool(
            self.is_asked
            or self.is_closing
            or self.finalized
            or self.unseen
            or self.seen
            or self.expired
            or self.getters
            or self.quiet
        )

    def rows_came(self, rows: list[TakenRow], asked: int) -> None:
        self.ready = max(0, self.ready - len(rows))
        if rows:
            self._step = 0
        self.tell(lambda: self.receiver.rows_came(rows, asked))

    def looked_in_vain(self) -> bool:
        """Nothing was there: look again later. True when the database is to notify from now on."""
        if self._step < len(LADDER_S):
            self._look_due = True
            self._link.loop.call_later(LADDER_S[self._step], self._look_again)
            self._step += 1
        return self._step > WAITING_FROM_STEP and not self.is_waiting

    def _look_again(self) -> None:
        if self._look_due:
            self._look_due = False
            if not self.is_closed and self.receiver.is_wanted():
                self.ask()

    def look_now(self) -> None:
        """There may be something: do not wait for the next step."""
        self._step = 0
        self._look_due = False
        if self.receiver.is_wanted():
            self.ask()

    def release_waiting(self) -> None:
        """Whoever waits for an answer goes on without one."""
        getters, self.getters = self.getters, []
        quiet, self.quiet = self.quiet, []
        for function in [*getters, *quiet]:
            function()

    def session_lost(self) -> None:
        """The session that held this node's number is gone."""
        self.is_attached = self.is_waiting = False
        self.release_waiting()
        if not self.is_closing:
            self.tell(self.receiver.link_lost)

    # --- what is known --------------------------------------------------------------------------------

    def ready_count(self) -> int:
        return self.ready

    def ready_bytes(self) -> int:
        return 0

    def unsent_bytes(self) -> int:
        return self.unsent

    def is_congested(self) -> bool:
        return self._link.puts.waiting_bytes > limits.PG_OUTBOX_BYTES_HIGH

    # --- direct ---------------------------------------------------------------------------------------

    def refresh(self) -> None:
        found = self._link.direct.rows(self.name, self._link.calls.ready_counts, ([self.name],))
        self.ready = self.purged_count + (found[0][1] if found else 0)

    def take(self, seq_ids: Sequence[int]) -> list[TakenRow]:
        if not self.number:
            return []
        try:
            return self._link.direct.taken(
                self.name, self._link.calls.reserve_ids, (self.name, list(seq_ids), self.number)
            )
        except PgUnavailable:
            return []

    def browse(self, from_seq_id: int, count_max: int, bytes_max: int) -> list[TakenRow]:
        if not self.is_looked_at:
            # Who takes by number what it sees needs this node to be attached.
            self.is_looked_at = True
            self._link.work.add(self)
        return self._link.direct.taken(
            self.name, self._link.calls.browse, (self.name, from_seq_id, min(count_max, 10_000), bytes_max)
        )

    def purge(self, held: Sequence[int]) -> int:
        self._link.require_up(self.name)
        if held:
            self._link.direct.rows(self.name, self._link.calls.requeue, (self.name, list(held), self.number, True))
        purged = int(self._link.direct.rows(self.name, self._link.calls.purge, (self.name,))[0][0])
        self.ready = 0
        purged += self.purged_count
        self.purged_count = 0
        return purged

    def drop(self) -> None:
        self._link.drop(self.name)

    def close(self) -> None:
        self.is_closing = True
        self._link.work.add(self)
