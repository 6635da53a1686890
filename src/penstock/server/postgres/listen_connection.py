"""Listening and upkeep: one connection that hears of puts elsewhere, and does the regular chores.

Notifications are hints. Once a second the counts of all open queues are read, so that a lost notification costs a
second, and the heads of queues without consumers here are looked at, so that expired messages leave.
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
    from penstock.server.postgres.queue_link import ServerQueueLink

log = logging.getLogger("penstock.postgres")

# How long it listens before it looks whether there is something else to do.
LISTEN_S = 0.25
COUNT_S = (1.0, 1.0)
SEEN_S = (2.0, 2.0)
# After a restart of the database no node is seen at first: others are given the time to take up their numbers.
FIRST_SWEEP_S = 4.0


class PgListenConnection(PgConnection):
    NAME = "listen"

    def __init__(
        self,
        conninfo: str,
        statements: Statements,
        work: PgWorkConnection,
        queue_links: Callable[[], Iterable[ServerQueueLink]],
        now_s: Callable[[], float],
    ) -> None:
        super().__init__(conninfo, statements)
        self._work = work
        self._queue_links = queue_links
        self._now_s = now_s
        self._by_channel: dict[str, ServerQueueLink] = {}

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
        queue_links = {queue_link.name: queue_link for queue_link in self._queue_links()}
        known = {queue_link.name for queue_link in self._by_channel.values()}
        for channel, queue_link in list(self._by_channel.items()):
            if queue_links.get(queue_link.name) is not queue_link:
                await connection.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(channel)))
                del self._by_channel[channel]
                known.discard(queue_link.name)
        for name, queue_link in queue_links.items():
            if name not in known:
                if not queue_link.channel:
                    queue_link.channel = (await self.rows(connection, "channel_of", (name,)))[0][0]
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(queue_link.channel)))
                self._by_channel[queue_link.channel] = queue_link
                # What came before is not notified.
                queue_link.look_now()

    def _heard(self, channel: str, number: str) -> None:
        """Handle a notification, which names one participant or all. If it names another one, that one is given a
        moment."""
        queue_link = self._by_channel.get(channel)
        if queue_link is None or queue_link.is_closed:
            return
        pause_s = moment_s(number, (str(queue_link.participant.number),))
        if not pause_s:
            queue_link.look_now()
        elif not queue_link.is_look_planned:
            queue_link.is_look_planned = True
            asyncio.get_running_loop().call_later(pause_s, self._look_later, queue_link)

    def _look_later(self, queue_link: ServerQueueLink) -> None:
        queue_link.is_look_planned = False
        if not queue_link.is_closed:
            queue_link.look_now()

    async def _count(self, connection: Connection) -> None:
        queue_links = {queue_link.name: queue_link for queue_link in self._queue_links()}
        if not queue_links:
            return
        for name, ready in await self.rows(connection, "ready_counts", (list(queue_links),)):
            queue_link = queue_links[name]
            queue_link.ready = max(0, ready)
            if ready > 0 and not queue_link.is_closed:
                queue_link.look_now()

    async def _look_at_heads(self, connection: Connection) -> None:
        """Where consumers wait here, expired messages come into the window by themselves."""
        idle = {
            queue_link.name: queue_link
            for queue_link in self._queue_links()
            if queue_link.ready and not queue_link.receiver.is_wanted()
        }
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
                queue_link = numbers[number]
                if not is_known and queue_link.participant.number == number and queue_link.participant.is_attached:
                    self._work.number_lost(queue_link)
