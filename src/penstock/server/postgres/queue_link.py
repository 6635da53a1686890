"""One queue's link to PostgreSQL, on the broker's loop: what is to be done for the queue, and what is known of it.

The link gathers work, and the connections do it. Posted settling stays here until the database has answered, so that a
lost connection loses none of it. Everything that a receiver is told goes through `run`, into the queue's own context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from penstock import limits
from penstock.backing.backing_queue import Answered, Purged
from penstock.backing.postgres.link import Looked, PgQueueLink, PutDone, PutRow, TakenRow, unavailable
from penstock.backing.postgres.reserved import PgReserved
from penstock.call_all import call_all
from penstock.errors import ChannelException
from penstock.pg.participant import Participant
from penstock.server.postgres.connection import Rows
from penstock.server.postgres.put_connection import PutItem
from penstock.server.postgres.rows import taken_rows

if TYPE_CHECKING:
    from penstock.server.postgres.link import ServerPgLink

Run = Callable[[Callable[[], None]], None]
# So long this node may be without a connection before its reservations go back to all.
GRACE_S = 5.0
# The database is to notify after the second look in vain.
SAYS_AFTER_S = 0.02


class ServerQueueLink(PgQueueLink):
    """One queue in the database, seen from this node."""

    def __init__(self, link: ServerPgLink, name: str, queue_id: int, receiver: PgReserved, run: Run) -> None:
        self._link = link
        self.name = name
        # 0: not known.
        self.queue_id = queue_id
        self.receiver = receiver
        self._run = run
        # This node, among the users of the queue.
        self.participant = Participant(name, "consumer", GRACE_S, SAYS_AFTER_S)
        # What puts notify on; "" = not known yet.
        self.channel = ""
        # Another participant was named by a notification, and we look a moment later.
        self.is_look_planned = False
        self.is_closing = False
        self.is_closed = False
        # The connections do nothing for a queue that is being dropped, and reserve nothing of one that is being purged.
        self.is_dropping = False
        self.is_purging = False
        # Put here and not committed.
        self.unsent = 0
        # Ready in the database, as it last said.
        self.ready = 0
        # Work for the connection that reserves and settles: ids by what becomes of them.
        self.finalized: dict[str | None, list[int]] = {}
        self.unseen: list[int] = []
        self.seen: list[int] = []
        # Messages at the head that have expired, to be reserved by number.
        self.expired: list[int] = []
        # Messages that are wanted by number.
        self.numbers: list[int] = []
        self.is_asked = False
        self._look_due = False
        # Calls that wait for a basic.get, and for quiet.
        self.getters: list[Answered] = []
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

    def ask_once(self, done: Answered) -> None:
        why = self._link.down_why()
        if why:
            done(unavailable(self.name, why))
            return
        self.getters.append(done)
        self._link.work.add(self)

    def _when_quiet(self, done: Callable[[], None]) -> None:
        """Call `done` when everything that was posted so far has been answered; soon, also when the link is down."""

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

    def make(self, done: Answered) -> None:
        def made(answer: Rows | ChannelException) -> None:
            if isinstance(answer, ChannelException):
                done(answer)
                return
            self.queue_id = answer[0][0]
            done(None)

        self._link.questions.ask(self.name, "use_queue", (self.name, None), made)

    def count(self, done: Answered) -> None:
        def counted(answer: Rows | ChannelException) -> None:
            if isinstance(answer, ChannelException):
                done(answer)
                return
            self.ready = answer[0][1] if answer else 0
            done(None)

        self._when_quiet(lambda: self._link.questions.ask(self.name, "ready_counts", ([self.name],), counted))

    def purge(self, done: Purged) -> None:
        def purged(answer: Rows | ChannelException) -> None:
            self.is_purging = False
            self._link.work.add(self)
            if isinstance(answer, ChannelException):
                done(0, answer)
                return
            self.ready = 0
            done(answer[0][0], None)

        self.is_purging = True
        self._when_quiet(lambda: self._link.removals.ask(self.name, "purge", (self.name,), purged))

    def drop(self, done: Answered) -> None:
        def dropped(answer: Rows | ChannelException) -> None:
            self.is_dropping = False
            if isinstance(answer, ChannelException):
                self._link.puts.wake()
                self._link.work.add(self)
                done(answer)
                return
            self._link.forget(self)
            done(None)

        self.is_dropping = True
        self._link.work.when_left(self, lambda: self._link.removals.ask(self.name, "drop_queue", (self.name,), dropped))

    def look(self, from_seq_id: int, count_max: int, bytes_max: int, done: Looked) -> None:
        def looked(answer: Rows | ChannelException) -> None:
            rows = [] if isinstance(answer, ChannelException) else taken_rows(answer)
            self.tell(lambda: done(rows))

        parameters = (self.name, from_seq_id, count_max, bytes_max)
        self._link.questions.ask(self.name, "browse", parameters, looked)

    def take(self, seq_ids: Sequence[int]) -> None:
        self.numbers.extend(seq_ids)
        self._link.work.add(self)

    def finalize(self, seq_ids: Sequence[int], note: str | None) -> None:
        if seq_ids:
            self.finalized.setdefault(note, []).extend(seq_ids)
            self._link.work.add(self)

    def give_back(self, seq_ids: Sequence[int], seen: bool) -> None:
        if seq_ids:
            (self.seen if seen else self.unseen).extend(seq_ids)
            self._link.work.add(self)

    # --- what the connections say ---------------------------------------------------------------------

    def tell(self, function: Callable[[], None]) -> None:
        """In the queue's context; then what it has to say to clients is written soon."""
        if not self.is_closed:
            self._run(function)
            self._link.after_work()

    def tick(self) -> None:
        if not self.is_closing and not self.is_closed:
            self._run(self.receiver.tick)

    def needs_number(self) -> bool:
        """Return whether what is to be done is done in the name of this node's participant."""
        if self.participant.number:
            return True
        return bool(self.getters or self.expired or self.numbers or (self.is_asked and self.receiver.is_wanted()))

    def has_work(self) -> bool:
        return bool(
            self.is_asked
            or self.is_closing
            or self.finalized
            or self.unseen
            or self.seen
            or self.expired
            or self.numbers
            or self.getters
            or self.quiet
        )

    def rows_came(self, rows: list[TakenRow], asked: int) -> None:
        self.ready = max(0, self.ready - len(rows))
        self.tell(lambda: self.receiver.rows_came(rows, asked))

    def numbers_came(self, rows: list[TakenRow]) -> None:
        self.ready = max(0, self.ready - len(rows))
        self.tell(lambda: self.receiver.numbers_came(rows))

    def looked_in_vain(self) -> bool:
        """Nothing was there: look again later. True when the database is to notify from now on."""
        now_s = self._link.now_s()
        is_to_notify = self.participant.found_nothing(now_s)
        pause_s = self.participant.next_look_s(now_s)
        if pause_s < inf:
            self._look_due = True
            self._link.loop.call_later(pause_s, self._look_again)
        return is_to_notify

    def _look_again(self) -> None:
        if self._look_due:
            self._look_due = False
            if not self.is_closed and self.receiver.is_wanted():
                self.ask()

    def look_now(self) -> None:
        """There may be something: do not wait for the next look."""
        self.participant.hinted()
        self._look_due = False
        if self.receiver.is_wanted():
            self.ask()
        if self.receiver.is_looked_for():
            self.tell(self.receiver.may_be_ready)

    def release_waiting(self, why: str) -> None:
        """End all waits for an answer without one."""
        getters, self.getters = self.getters, []
        quiet, self.quiet = self.quiet, []
        answers = [partial(answered, unavailable(self.name, why)) for answered in getters]
        call_all([*answers, *quiet])

    def session_lost(self) -> None:
        """The session that held this node's number is gone."""
        self.participant.lost()
        self.numbers.clear()
        self.release_waiting("the connection was lost")
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

    # --- the end --------------------------------------------------------------------------------------

    def close(self) -> None:
        self.is_closing = True
        self._link.work.add(self)

    def leave(self) -> None:
        self._link.forget(self)
