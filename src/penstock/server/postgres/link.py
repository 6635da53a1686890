"""The broker's link to the PostgreSQL that holds queues: three connections with a purpose, and a few for questions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import psycopg

from penstock import limits
from penstock.backing.postgres.link import PgLink, PgQueueLink, unavailable
from penstock.backing.postgres.reserved import PgReserved
from penstock.errors import ChannelException, StartupError
from penstock.pg import install as schemas
from penstock.pg.statements import Statements
from penstock.server.postgres.connect import full_conninfo, one_line
from penstock.server.postgres.connection import PgConnection
from penstock.server.postgres.listen_connection import PgListenConnection
from penstock.server.postgres.put_connection import PgPutConnection
from penstock.server.postgres.questions import Questions
from penstock.server.postgres.queue_link import Run, ServerQueueLink
from penstock.server.postgres.work_connection import PgWorkConnection

log = logging.getLogger("penstock.postgres")

TICK_S = 0.25
# What a clean stop gives the connections to finish.
STOP_S = 5.0
LOOKS_PER_S = 100


class ServerPgLink(PgLink):
    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, schema: str, after_work: Callable[[], None]) -> None:
        self.loop = loop
        # Called when a queue was told something: it may have something to say to clients.
        self.after_work = after_work
        statements = Statements(schema)
        self._schema = schema
        self._conninfo = full_conninfo(url)
        self.queue_links: dict[str, ServerQueueLink] = {}
        self.puts = PgPutConnection(self._conninfo, statements)
        self.work = PgWorkConnection(self._conninfo, statements)
        self._listening = PgListenConnection(
            self._conninfo, statements, self.work, lambda: list(self.queue_links.values()), self.now_s
        )
        self.questions = Questions(
            self._conninfo, statements, "question", limits.PG_QUESTIONS_MAX, limits.PG_QUESTION_S, self.down_why
        )
        self.removals = Questions(
            self._conninfo, statements, "removal", limits.PG_REMOVALS_MAX, limits.PG_REMOVAL_S, self.down_why
        )
        self._timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> list[PgConnection]:
        return [self.puts, self.work, self._listening]

    def now_s(self) -> float:
        return self.loop.time()

    def down_why(self) -> str:
        return self.puts.down_why(self.now_s()) or self.work.down_why(self.now_s())

    def is_up(self) -> bool:
        return not self.down_why()

    def _require_up(self, queue: str) -> None:
        why = self.down_why()
        if why:
            raise unavailable(queue, why)

    def start(self) -> None:
        """Check the database, make the schema if need be, and begin. Raises StartupError with what to do."""
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                self._check_schema(connection)
        except psycopg.Error as error:
            raise StartupError(
                f"cannot use PostgreSQL: {one_line(error)}. Is it running, and may this user connect and make a schema"
                " there? Check --postgres, or the variable PENSTOCK_POSTGRES_URL; `penstock pg status` says more."
            ) from error
        for each in self.connections:
            each.start()
        self._tick()

    def _check_schema(self, connection: psycopg.Connection[Any]) -> None:
        if not schemas.is_installed(connection, self._schema):
            log.info("schema %s is made in PostgreSQL", ascii(self._schema))
            schemas.install(connection, self._schema)
            return
        there, wanted = schemas.version(connection, self._schema), schemas.migrations()[-1][0]
        if there < wanted:
            # Not by ourselves: other nodes are at work there.
            raise StartupError(
                f"schema '{self._schema}' in PostgreSQL has version {there}, this broker needs {wanted}:"
                " run `penstock pg upgrade`"
            )

    async def stop(self) -> None:
        """After the queues were terminated: let the connections finish, and close everything."""
        for _ in range(round(STOP_S * LOOKS_PER_S)):
            if (self.puts.is_quiet() and self.work.is_quiet()) or not self.is_up():
                break
            await asyncio.sleep(1 / LOOKS_PER_S)
        await self._end()

    async def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.questions.stop()
        await self.removals.stop()
        for each in self.connections:
            await each.stop()

    def abandon(self) -> None:
        """Let go of everything as a crash would; for tests."""
        if self._timer is not None:
            self._timer.cancel()
        for each in self.connections:
            each.abandon()
        self.questions.abandon()
        self.removals.abandon()
        self.queue_links.clear()

    def _tick(self) -> None:
        self._timer = self.loop.call_later(TICK_S, self._tick)
        self.puts.refuse_old(self.now_s())
        for queue_link in list(self.queue_links.values()):
            queue_link.tick()

    def open(self, name: str, is_new: bool, receiver: PgReserved, run: Run) -> PgQueueLink:
        assert name not in self.queue_links, "a queue is opened once"
        if is_new:
            self._require_up(name)
        queue_link = ServerQueueLink(self, name, 0, receiver, run)
        self.queue_links[name] = queue_link
        return queue_link

    def forget(self, queue_link: ServerQueueLink) -> None:
        """Nothing more is to be done for this queue."""
        if self.queue_links.get(queue_link.name) is queue_link:
            del self.queue_links[queue_link.name]
        queue_link.is_closed = True
        self.puts.forget(queue_link)
        self.work.forget(queue_link)

    def drop(self, name: str) -> None:
        queue_link = self.queue_links.get(name)
        if queue_link is not None:
            queue_link.drop(_dropped)


def _dropped(error: ChannelException | None) -> None:
    if error is not None:
        log.error("a deleted queue stays in PostgreSQL: %s", ascii(error.reply_text))
