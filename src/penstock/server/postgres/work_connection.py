"""Reserving and settling: one connection, which also holds this node's numbers (`attach`).

Queues with work take turns. For each: what was settled since the last time goes first, in one statement for each kind;
then, if a consumer wants messages, some are reserved. What the connection's loss interrupts is done again after the
next one; settling twice is harmless. Rows that were reserved and whose answer was lost are found then, and given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from penstock import limits
from penstock.call_all import call_all
from penstock.pg.sessions import is_session_lost
from penstock.pg.statements import Statements
from penstock.server.postgres.connect import one_line
from penstock.server.postgres.connection import Connection, PgConnection
from penstock.server.postgres.put_connection import QUEUE_IS_GONE
from penstock.server.postgres.rows import taken_rows

if TYPE_CHECKING:
    from penstock.server.postgres.queue_link import ServerQueueLink

log = logging.getLogger("penstock.postgres")

# After a statement that failed, without the connection having been lost.
PAUSE_S = 1.0


class PgWorkConnection(PgConnection):
    NAME = "work"

    def __init__(self, conninfo: str, statements: Statements) -> None:
        super().__init__(conninfo, statements)
        # Queues with work, in the order of their turn.
        self._busy: dict[ServerQueueLink, None] = {}
        self._at_work: ServerQueueLink | None = None
        # What is to be done when this connection has left a queue.
        self._when_left: dict[ServerQueueLink, Callable[[], None]] = {}
        # All that have a number, for the loss of the session.
        self._attached: dict[ServerQueueLink, None] = {}
        # Numbers whose locks this session does not need any more.
        self._leaving: list[int] = []

    def add(self, queue_link: ServerQueueLink) -> None:
        if not queue_link.is_closed:
            self._busy[queue_link] = None
            self.wake()

    def when_left(self, queue_link: ServerQueueLink, function: Callable[[], None]) -> None:
        """Call it when nothing is under way here for the queue, which is at once most of the time."""
        if self._at_work is queue_link:
            self._when_left[queue_link] = function
        else:
            function()

    def _leave(self) -> None:
        queue_link, self._at_work = self._at_work, None
        function = None if queue_link is None else self._when_left.pop(queue_link, None)
        if function is not None:
            function()

    def forget(self, queue_link: ServerQueueLink) -> None:
        self._busy.pop(queue_link, None)
        if self._attached.pop(queue_link, queue_link) is None and queue_link.participant.is_attached:
            self._leaving.append(queue_link.participant.number)
            self.wake()
        queue_link.release_waiting("the queue was deleted")

    def is_quiet(self) -> bool:
        return not self._busy and self._at_work is None

    def lost(self) -> None:
        self._leave()
        # The locks went with the session.
        self._leaving.clear()
        for queue_link in list(self._attached):
            queue_link.session_lost()
            if queue_link.has_work():
                self._busy[queue_link] = None

    def numbers(self) -> dict[int, ServerQueueLink]:
        """Of this node, also those whose session is just being made again: they are alive."""
        return {
            queue_link.participant.number: queue_link
            for queue_link in self._attached
            if queue_link.participant.number and not queue_link.is_closed
        }

    def number_lost(self, queue_link: ServerQueueLink) -> None:
        """The database took this node for gone."""
        log.warning("what this node had reserved of queue %s went to others; it begins anew", ascii(queue_link.name))
        queue_link.session_lost()
        self.add(queue_link)

    # --- the turn -------------------------------------------------------------------------------------

    async def serve(self, connection: Connection) -> None:
        self.wake()
        # A queue whose consumers have messages takes up its number before the grace is over.
        for queue_link in list(self._attached):
            self._busy[queue_link] = None
        while True:
            await self.woken(connection)
            while self._leaving:
                await self.rows(connection, "detach", (self._leaving.pop(),))
            while self._busy:
                queue_link = next(iter(self._busy))
                del self._busy[queue_link]
                if queue_link.is_closed:
                    self._attached.pop(queue_link, None)
                    continue
                if queue_link.is_dropping:
                    continue
                self._at_work = queue_link
                await self._serve(connection, queue_link)
                self._leave()

    async def _serve(self, connection: Connection, queue_link: ServerQueueLink) -> None:
        try:
            if not queue_link.participant.is_attached and queue_link.needs_number():
                await self._attach(connection, queue_link)
            if not queue_link.is_closed:
                await self._settle(connection, queue_link)
            if queue_link.is_closed:
                # Deleted meanwhile. Reserving would make it again.
                self.forget(queue_link)
                return
            if queue_link.is_closing:
                await self._detach(connection, queue_link)
                return
            await self._reserve(connection, queue_link)
            quiet, queue_link.quiet = queue_link.quiet, []
            call_all(quiet)
        except psycopg.Error as error:
            if is_session_lost(connection, error):
                raise
            if error.sqlstate == QUEUE_IS_GONE:
                # Dropped by another client: it is made again when this node attaches to it.
                queue_link.participant.is_attached = False
                self.add(queue_link)
                return
            log.error("PostgreSQL has refused work for queue %s: %s", ascii(queue_link.name), one_line(error))
            queue_link.release_waiting(one_line(error))
            asyncio.get_running_loop().call_later(PAUSE_S, self.add, queue_link)
        else:
            if queue_link.has_work() and not queue_link.is_purging:
                self.add(queue_link)

    async def _attach(self, connection: Connection, queue_link: ServerQueueLink) -> None:
        again = queue_link.participant.number
        number = await self._value(connection, "attach", queue_link.participant.attach_parameters())
        if again and number == again:
            await self._give_back_others(connection, queue_link)
        elif again:
            log.warning(
                "queue %s: this node was away for too long, its messages went to others", ascii(queue_link.name)
            )
            queue_link.seen.clear()
            queue_link.unseen.clear()
            # The old number's lock, if this is the session that had it.
            await self.rows(connection, "detach", (again,))
        queue_link.participant.attached(number)
        self._attached[queue_link] = None

    async def _give_back_others(self, connection: Connection, queue_link: ServerQueueLink) -> None:
        """Give back rows that are reserved for this node and that it does not know of: their answer was lost."""
        known = [*queue_link.receiver.reserved_ids(), *queue_link.seen, *queue_link.unseen]
        for ids in queue_link.finalized.values():
            known.extend(ids)
        queue_link.ready += len(
            await self.rows(connection, "give_back_others", (queue_link.name, known, queue_link.participant.number))
        )

    async def _settle(self, connection: Connection, queue_link: ServerQueueLink) -> None:
        while queue_link.finalized:
            note, ids = next(iter(queue_link.finalized.items()))
            some = ids[: limits.PG_SETTLE_IDS_MAX]
            await self.rows(connection, "finalize_count", (queue_link.name, some, note, queue_link.participant.number))
            del ids[: len(some)]
            if not ids:
                del queue_link.finalized[note]
        for ids, seen in ((queue_link.seen, True), (queue_link.unseen, False)):
            while ids:
                some = ids[: limits.PG_SETTLE_IDS_MAX]
                given = await self._value(
                    connection, "requeue_count", (queue_link.name, some, queue_link.participant.number, seen)
                )
                del ids[: len(some)]
                queue_link.ready += given

    async def _reserve(self, connection: Connection, queue_link: ServerQueueLink) -> None:
        expired, queue_link.expired = queue_link.expired, []
        if expired:
            found = await self.rows(
                connection, "reserve_ids", (queue_link.name, expired, queue_link.participant.number)
            )
            queue_link.rows_came(taken_rows(found), len(expired))
        await self._reserve_numbers(connection, queue_link)
        if queue_link.is_purging:
            return
        receiver = queue_link.receiver
        getters, queue_link.getters = queue_link.getters, []
        count = len(getters)
        if queue_link.is_asked and receiver.is_wanted():
            count = max(count, receiver.refill_count())
        elif not getters:
            queue_link.is_asked = False
            return
        queue_link.is_asked = False
        try:
            parameters = (queue_link.name, count, queue_link.participant.number, receiver.refill_floor())
            rows = taken_rows(await self.rows(connection, "reserve_rows", parameters))
        except psycopg.Error:
            queue_link.getters.extend(getters)
            raise
        queue_link.rows_came(rows, count)
        call_all([partial(answered, None) for answered in getters])
        if rows:
            is_told = queue_link.participant.found(asyncio.get_running_loop().time())
        else:
            is_told = receiver.is_wanted() and queue_link.looked_in_vain()
        if is_told:
            await self.rows(connection, "set_waiting", (queue_link.participant.number, not rows))
            queue_link.participant.told_waiting(not rows)

    async def _reserve_numbers(self, connection: Connection, queue_link: ServerQueueLink) -> None:
        numbers, queue_link.numbers = queue_link.numbers, []
        if numbers and not queue_link.is_purging:
            queue_link.numbers_came(
                taken_rows(
                    await self.rows(
                        connection, "reserve_ids", (queue_link.name, numbers, queue_link.participant.number)
                    )
                )
            )

    async def _detach(self, connection: Connection, queue_link: ServerQueueLink) -> None:
        if queue_link.participant.number:
            await self.rows(connection, "detach", (queue_link.participant.number,))
        queue_link.is_closed = True
        self._attached.pop(queue_link, None)
        queue_link.release_waiting("the queue was closed")

    async def _value(self, connection: Connection, statement: str, parameters: tuple[Any, ...]) -> int:
        return int((await self.rows(connection, statement, parameters))[0][0])
