"""Listening and upkeep: one connection that hears of puts elsewhere, and does what somebody has to do now and then.

Notifications are hints. Once a second the counts of all open queues are read, so that one that was lost costs a second;
and the heads of queues that nobody consumes here are looked at, so that what has expired leaves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from penstock.pg.participant import SWEEP_S, Chore, moment_s
from penstock.pg.sessions import is_session_lost
from penstock.pg.statements import Statements
from penstock.server.postgres.connect import one_line
from penstock.server.postgres.connection import Connection, PgConnection
from penstock.server.postgres.work_connection import PgWorkConnection

if TYPE_CHECKING:
    from penstock.server.postgres.door import ServerDoor

log = logging.getLogger("penstock.postgres")

# How long it listens before it looks whether there is something else to do.
LISTEN_S = 0.25
COUNT_S = (1.0, 1.0)
SEEN_S = (2.0, 2.0)
# After a restart of the database nobody is seen at first: others are given the time to take up their numbers.
FIRST_SWEEP_S = 4.0


class PgListenConnection(PgConnection):
    """Hears of puts, counts, and sweeps."""

    NAME = "listen"

    def __init__(
        self,
        conninfo: str,
        statements: Statements,
        work: PgWorkConnection,
        doors: Callable[[], Iterable[ServerDoor]],
        now_s: Callable[[], float],
    ) -> None:
        super().__init__(conninfo, statements)
        self._work = work
        self._doors = doors
        self._now_s = now_s
        self._by_channel: dict[str, ServerDoor] = {}

    def lost(self) -> None:
        self._by_channel = {}

    async def serve(self, connection: Connection) -> None:
        count, seen = Chore(COUNT_S), Chore(SEEN_S)
        sweep = Chore(SWEEP_S, self._now_s() + FIRST_SWEEP_S)
        while True:
            await self._listen(connection)
            async for notify in connection.notifies(timeout=LISTEN_S):
                self._heard(notify.channel, notify.payload)
            now_s = self._now_s()
            duties: list[Callable[[Connection], Awaitable[None]]] = []
            if count.is_due(now_s):
                duties += [self._count, self._look_at_heads]
            if seen.is_due(now_s):
                duties.append(self._say_seen)
            if sweep.is_due(now_s):
                duties.append(self._sweep)
            for duty in duties:
                try:
                    await duty(connection)
                except psycopg.Error as error:
                    if is_session_lost(connection, error):
                        raise
                    log.warning("upkeep of PostgreSQL's queues: %s", one_line(error))

    async def _sweep(self, connection: Connection) -> None:
        await self.rows(connection, "sweep")

    async def _listen(self, connection: Connection) -> None:
        doors = {door.name: door for door in self._doors()}
        known = {door.name for door in self._by_channel.values()}
        for channel, door in list(self._by_channel.items()):
            if doors.get(door.name) is not door:
                await connection.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(channel)))
                del self._by_channel[channel]
                known.discard(door.name)
        for name, door in doors.items():
            if name not in known:
                if not door.channel:
                    door.channel = (await self.rows(connection, "channel_of", (name,)))[0][0]
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(door.channel)))
                self._by_channel[door.channel] = door
                # What came before is not notified.
                door.look_now()

    def _heard(self, channel: str, number: str) -> None:
        """A message for the one whose number it is, or for all. If he is not here, he is given a moment."""
        door = self._by_channel.get(channel)
        if door is None or door.is_closed:
            return
        pause_s = moment_s(number, (str(door.participant.number),))
        if not pause_s:
            door.look_now()
        elif not door.is_look_planned:
            door.is_look_planned = True
            asyncio.get_running_loop().call_later(pause_s, self._look_later, door)

    def _look_later(self, door: ServerDoor) -> None:
        door.is_look_planned = False
        if not door.is_closed:
            door.look_now()

    async def _count(self, connection: Connection) -> None:
        doors = {door.name: door for door in self._doors()}
        if not doors:
            return
        for name, ready in await self.rows(connection, "ready_counts", (list(doors),)):
            door = doors[name]
            door.ready = max(0, ready)
            if ready > 0 and not door.is_closed:
                door.look_now()

    async def _look_at_heads(self, connection: Connection) -> None:
        """Where consumers wait here, expired messages come into the window by themselves."""
        idle = {door.name: door for door in self._doors() if door.ready and not door.receiver.is_wanted()}
        if not idle:
            return
        names = [row[0] for row in await self.rows(connection, "heads_expired", (list(idle),))]
        if not names:
            return
        for name, ids in await self.rows(connection, "expired_heads", (names,)):
            if not idle[name].is_closed:
                idle[name].expired = ids
                self._work.add(idle[name])

    async def _say_seen(self, connection: Connection) -> None:
        numbers = self._work.numbers()
        if numbers:
            for number, is_known in await self.rows(connection, "seen", (list(numbers),)):
                door = numbers[number]
                if not is_known and door.participant.number == number and door.participant.is_attached:
                    self._work.number_lost(door)
