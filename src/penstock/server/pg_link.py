"""The broker's link to the PostgreSQL that holds queues: three lanes on the loop, and a connection for direct calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from penstock.backing.postgres_link import PgDoor, PgLink, PgReceiver, PgUnavailable
from penstock.errors import StartupError
from penstock.pg import install as schemas
from penstock.server.pg_calls import PgCalls
from penstock.server.pg_connect import connect, full_conninfo, one_line
from penstock.server.pg_direct import DirectCalls, unavailable
from penstock.server.pg_door import Run, ServerDoor
from penstock.server.pg_lane import Lane
from penstock.server.pg_listen_lane import ListenLane
from penstock.server.pg_put_lane import PutLane
from penstock.server.pg_work_lane import WorkLane

log = logging.getLogger("penstock.postgres")

TICK_S = 0.25
# What a clean stop gives the lanes to finish.
STOP_S = 5.0
LOOKS_PER_S = 100


class ServerPgLink(PgLink):
    """One database, for all queues of a broker that are in it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, schema: str, after_work: Callable[[], None]) -> None:
        self.loop = loop
        # Called when a queue was told something: it may have something to say to clients.
        self.after_work = after_work
        self.calls = PgCalls(schema)
        self._schema = schema
        self._conninfo = full_conninfo(url)
        self.doors: dict[str, ServerDoor] = {}
        self.puts = PutLane(self._conninfo, self.calls)
        self.work = WorkLane(self._conninfo, self.calls)
        self._ears = ListenLane(self._conninfo, self.calls, self.work, lambda: list(self.doors.values()), self.now_s)
        self.direct = DirectCalls(self._conninfo, self.down_why)
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def lanes(self) -> list[Lane]:
        return [self.puts, self.work, self._ears]

    def now_s(self) -> float:
        return self.loop.time()

    def down_why(self) -> str:
        return self.puts.down_why(self.now_s()) or self.work.down_why(self.now_s())

    def is_up(self) -> bool:
        return not self.down_why()

    def require_up(self, queue: str) -> None:
        why = self.down_why()
        if why:
            raise unavailable(queue, why)

    # --- life -----------------------------------------------------------------------------------------

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
        for lane in self.lanes:
            lane.start()
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
        """After the queues were terminated: let the lanes finish, and close everything."""
        for _ in range(round(STOP_S * LOOKS_PER_S)):
            if (self.puts.is_quiet() and self.work.is_quiet()) or not self.is_up():
                break
            await asyncio.sleep(1 / LOOKS_PER_S)
        await self._end()

    async def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for lane in self.lanes:
            await lane.stop()
        self.direct.close()

    def abandon(self) -> None:
        """Let go of everything as a crash would; for tests."""
        if self._timer is not None:
            self._timer.cancel()
        for lane in self.lanes:
            lane.abandon()
        self.direct.close()
        self.doors.clear()

    def _tick(self) -> None:
        self._timer = self.loop.call_later(TICK_S, self._tick)
        self.puts.refuse_old(self.now_s())
        for door in list(self.doors.values()):
            door.tick()

    def purge_later(self, door: ServerDoor, done: Callable[[], None]) -> None:
        """Remove what is ready, on a connection of its own: a long queue takes its time, and nobody waits for it."""
        task = self.loop.create_task(self._purge(door, done), name="penstock-pg-purge")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _purge(self, door: ServerDoor, done: Callable[[], None]) -> None:
        try:
            conninfo = make_conninfo(self._conninfo, application_name="penstock broker purge")
            async with await connect(conninfo) as connection:
                await connection.execute("SET statement_timeout = 0")
                found = await (await connection.execute(self.calls.purge, (door.name,))).fetchone()
                door.purged_count += 0 if found is None else found[0]
        except psycopg.Error as error:
            log.error("queue %s cannot be purged: %s", ascii(door.name), one_line(error))
        done()

    # --- queues ---------------------------------------------------------------------------------------

    def open(self, name: str, is_new: bool, receiver: PgReceiver, run: Run) -> PgDoor:
        assert name not in self.doors, "a queue is opened once"
        queue_id = int(self.direct.rows(name, self.calls.use_queue, (name,))[0][0]) if is_new else 0
        door = ServerDoor(self, name, queue_id, receiver, run)
        self.doors[name] = door
        return door

    def drop(self, name: str) -> None:
        door = self.doors.pop(name, None)
        if door is not None:
            door.is_closed = True
            self.puts.forget(door)
            self.work.forget(door)
        try:
            self.direct.rows(name, self.calls.drop_queue, (name,))
        except PgUnavailable as error:
            log.error("a deleted queue stays in PostgreSQL: %s", ascii(error.reply_text))
