"""Reserving and settling: one connection, which also holds this node's numbers (`attach`).

Queues with work take turns. For each: what was settled since the last time goes first, in one statement for each kind;
then, if somebody wants messages, some are reserved. What the connection's loss interrupts is done again after the next
one; settling twice is harmless. Rows that were reserved and whose answer was lost are found then, and given back.
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
    from penstock.server.postgres.door import ServerDoor

log = logging.getLogger("penstock.postgres")

# After a statement that failed, without the connection having been lost.
PAUSE_S = 1.0


class PgWorkConnection(PgConnection):
    """Reserves and settles for all queues of the node."""

    NAME = "work"

    def __init__(self, conninfo: str, statements: Statements) -> None:
        super().__init__(conninfo, statements)
        # Queues with work, in the order of their turn.
        self._busy: dict[ServerDoor, None] = {}
        self._at_work: ServerDoor | None = None
        # What is to be done when this connection has left a queue.
        self._when_left: dict[ServerDoor, Callable[[], None]] = {}
        # All that have a number, for the loss of the session.
        self._attached: dict[ServerDoor, None] = {}
        # Numbers whose locks this session does not need any more.
        self._leaving: list[int] = []

    def add(self, door: ServerDoor) -> None:
        if not door.is_closed:
            self._busy[door] = None
            self.wake()

    def when_left(self, door: ServerDoor, function: Callable[[], None]) -> None:
        """Call it when nothing is under way here for the queue, which is at once most of the time."""
        if self._at_work is door:
            self._when_left[door] = function
        else:
            function()

    def _leave(self) -> None:
        door, self._at_work = self._at_work, None
        function = None if door is None else self._when_left.pop(door, None)
        if function is not None:
            function()

    def forget(self, door: ServerDoor) -> None:
        """The queue is gone."""
        self._busy.pop(door, None)
        if self._attached.pop(door, door) is None and door.participant.is_attached:
            self._leaving.append(door.participant.number)
            self.wake()
        door.release_waiting("the queue was deleted")

    def is_quiet(self) -> bool:
        return not self._busy and self._at_work is None

    def lost(self) -> None:
        self._leave()
        # The locks went with the session.
        self._leaving.clear()
        for door in list(self._attached):
            door.session_lost()
            if door.has_work():
                self._busy[door] = None

    def numbers(self) -> dict[int, ServerDoor]:
        """Of this node, also those whose session is just being made again: they are alive."""
        return {
            door.participant.number: door for door in self._attached if door.participant.number and not door.is_closed
        }

    def number_lost(self, door: ServerDoor) -> None:
        """The database took this node for gone."""
        log.warning("what this node had reserved of queue %s went to others; it begins anew", ascii(door.name))
        door.session_lost()
        self.add(door)

    # --- the turn -------------------------------------------------------------------------------------

    async def serve(self, connection: Connection) -> None:
        self.wake()
        # Whoever has messages with consumers takes up its number before the grace is over.
        for door in list(self._attached):
            self._busy[door] = None
        while True:
            await self.woken(connection)
            while self._leaving:
                await self.rows(connection, "detach", (self._leaving.pop(),))
            while self._busy:
                door = next(iter(self._busy))
                del self._busy[door]
                if door.is_closed:
                    self._attached.pop(door, None)
                    continue
                if door.is_dropping:
                    # It is added again if it stays.
                    continue
                self._at_work = door
                await self._serve_door(connection, door)
                self._leave()

    async def _serve_door(self, connection: Connection, door: ServerDoor) -> None:
        try:
            if not door.participant.is_attached and door.needs_number():
                await self._attach(connection, door)
            if not door.is_closed:
                await self._settle(connection, door)
            if door.is_closed:
                # Deleted meanwhile. Reserving would make it again.
                self.forget(door)
                return
            if door.is_closing:
                await self._detach(connection, door)
                return
            await self._reserve(connection, door)
            quiet, door.quiet = door.quiet, []
            call_all(quiet)
        except psycopg.Error as error:
            if is_session_lost(connection, error):
                raise
            if error.sqlstate == QUEUE_IS_GONE:
                # Dropped by somebody else: it is made again when this node attaches to it.
                door.participant.is_attached = False
                self.add(door)
                return
            log.error("PostgreSQL has refused work for queue %s: %s", ascii(door.name), one_line(error))
            door.release_waiting(one_line(error))
            asyncio.get_running_loop().call_later(PAUSE_S, self.add, door)
        else:
            if door.has_work() and not door.is_purging:
                self.add(door)

    async def _attach(self, connection: Connection, door: ServerDoor) -> None:
        again = door.participant.number
        number = await self._value(connection, "attach", door.participant.attach_parameters())
        if again and number == again:
            await self._give_back_others(connection, door)
        elif again:
            log.warning("queue %s: this node was away for too long, its messages went to others", ascii(door.name))
            door.seen.clear()
            door.unseen.clear()
            # The old number's lock, if this is the session that had it.
            await self.rows(connection, "detach", (again,))
        door.participant.attached(number)
        self._attached[door] = None

    async def _give_back_others(self, connection: Connection, door: ServerDoor) -> None:
        """Give back rows that are reserved for this node and that it does not know of: their answer was lost."""
        known = [*door.receiver.held_ids(), *door.seen, *door.unseen]
        for ids in door.finalized.values():
            known.extend(ids)
        door.ready += len(await self.rows(connection, "give_back_others", (door.name, known, door.participant.number)))

    async def _settle(self, connection: Connection, door: ServerDoor) -> None:
        while door.finalized:
            note, ids = next(iter(door.finalized.items()))
            some = ids[: limits.PG_SETTLE_IDS_MAX]
            await self.rows(connection, "finalize_count", (door.name, some, note, door.participant.number))
            del ids[: len(some)]
            if not ids:
                del door.finalized[note]
        for ids, seen in ((door.seen, True), (door.unseen, False)):
            while ids:
                some = ids[: limits.PG_SETTLE_IDS_MAX]
                given = await self._value(connection, "requeue_count", (door.name, some, door.participant.number, seen))
                del ids[: len(some)]
                door.ready += given

    async def _reserve(self, connection: Connection, door: ServerDoor) -> None:
        expired, door.expired = door.expired, []
        if expired:
            found = await self.rows(connection, "reserve_ids", (door.name, expired, door.participant.number))
            door.rows_came(taken_rows(found), len(expired))
        await self._reserve_numbers(connection, door)
        if door.is_purging:
            # It is added again when that is over.
            return
        receiver = door.receiver
        getters, door.getters = door.getters, []
        count = len(getters)
        if door.is_asked and receiver.is_wanted():
            count = max(count, receiver.refill_count())
        elif not getters:
            door.is_asked = False
            return
        door.is_asked = False
        try:
            parameters = (door.name, count, door.participant.number, receiver.refill_floor())
            rows = taken_rows(await self.rows(connection, "reserve_rows", parameters))
        except psycopg.Error:
            door.getters.extend(getters)
            raise
        door.rows_came(rows, count)
        call_all([partial(answered, None) for answered in getters])
        if rows:
            is_told = door.participant.found(asyncio.get_running_loop().time())
        else:
            is_told = receiver.is_wanted() and door.looked_in_vain()
        if is_told:
            await self.rows(connection, "set_waiting", (door.participant.number, not rows))
            door.participant.told_waiting(not rows)

    async def _reserve_numbers(self, connection: Connection, door: ServerDoor) -> None:
        numbers, door.numbers = door.numbers, []
        if numbers and not door.is_purging:
            door.numbers_came(
                taken_rows(await self.rows(connection, "reserve_ids", (door.name, numbers, door.participant.number)))
            )

    async def _detach(self, connection: Connection, door: ServerDoor) -> None:
        if door.participant.number:
            await self.rows(connection, "detach", (door.participant.number,))
        door.is_closed = True
        self._attached.pop(door, None)
        door.release_waiting("the queue was closed")

    async def _value(self, connection: Connection, statement: str, parameters: tuple[Any, ...]) -> int:
        return int((await self.rows(connection, statement, parameters))[0][0])
