"""Questions to PostgreSQL that are rare: each is asked on a connection of its own, and answered later.

Nothing waits on the loop. Connections are kept for the next question; there are few, and a question that finds all of
them in use waits for one. Every question may be asked twice without harm: one whose connection had gone is asked again
over a new one, and one that meets a lock is asked again, a little later, until its time is over, so that others get at
the lock in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from penstock import limits
from penstock.backing.postgres.link import unavailable
from penstock.errors import ChannelException, resource_locked
from penstock.pg.sessions import is_session_lost
from penstock.pg.statements import Statements
from penstock.server.postgres.connect import connect, one_line
from penstock.server.postgres.connection import Connection, Rows

# What was found, or why nothing could be.
Told = Callable[[Rows | ChannelException], None]

# SQLSTATE: another session has the lock.
IS_LOCKED = "55P03"
# Between two tries for a lock.
PAUSE_S = 0.05


class Questions:
    def __init__(
        self,
        conninfo: str,
        statements: Statements,
        kind: str,
        at_once: int,
        statement_s: float,
        down_why: Callable[[], str],
    ) -> None:
        self._conninfo = make_conninfo(conninfo, application_name=f"penstock broker {kind}")
        self._statements = statements
        self._statement_s = statement_s
        self._down_why = down_why
        self._turns = asyncio.Semaphore(at_once)
        self._idle: list[Connection] = []
        self._in_use: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, queue: str, statement: str, parameters: Sequence[Any], told: Told) -> None:
        """Have `told` called when it was answered; at once when the database is known to be down."""
        why = self._down_why()
        if why:
            told(unavailable(queue, why))
            return
        task = asyncio.get_running_loop().create_task(
            self._ask(queue, statement, parameters, told), name="penstock-pg-question"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, queue: str, statement: str, parameters: Sequence[Any], told: Told) -> None:
        answer: Rows | ChannelException
        try:
            async with asyncio.timeout(limits.PG_QUESTION_S):
                await self._turns.acquire()
        except TimeoutError:
            told(unavailable(queue, "others wait for answers too"))
            return
        try:
            answer = await self._answer(queue, statement, parameters)
        finally:
            self._turns.release()
        told(answer)

    async def _answer(self, queue: str, statement: str, parameters: Sequence[Any]) -> Rows | ChannelException:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + limits.PG_QUESTION_S
        may_ask_anew = True
        while True:
            was_idle = bool(self._idle)
            connection: Connection | None = None
            try:
                connection = self._idle.pop() if was_idle else await self._connect()
                self._in_use.add(connection)
                cursor = await connection.execute(self._statements[statement], parameters, binary=True)
                return await cursor.fetchall()
            except (psycopg.Error, OSError) as error:
                is_gone = (
                    connection is None or not isinstance(error, psycopg.Error) or is_session_lost(connection, error)
                )
                if is_gone and connection is not None:
                    self._in_use.discard(connection)
                    await _close(connection)
                    connection = None
                if is_gone and was_idle and may_ask_anew:
                    may_ask_anew = False
                    self._idle_gone()
                elif isinstance(error, psycopg.Error) and error.sqlstate == IS_LOCKED:
                    if loop.time() > end_s:
                        return locked(queue)
                    await asyncio.sleep(PAUSE_S)
                else:
                    return unavailable(queue, one_line(error))
            finally:
                if connection is not None and connection in self._in_use:
                    self._in_use.discard(connection)
                    self._idle.append(connection)

    async def _connect(self) -> Connection:
        connection = await connect(self._conninfo)
        await connection.execute(
            "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false)",
            (str(round(self._statement_s * 1000)), str(limits.PG_LOCK_MS)),
        )
        return connection

    def _idle_gone(self) -> None:
        """One was gone: the others are of the same age, and most likely gone with it."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.pgconn.finish()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        idle, self._idle = self._idle, []
        for connection in idle:
            await _close(connection)

    def abandon(self) -> None:
        """End without a word, as a crash does; for tests."""
        for task in list(self._tasks):
            task.cancel()
        for connection in [*self._idle, *self._in_use]:
            connection.pgconn.finish()
        self._idle.clear()


async def _close(connection: Connection) -> None:
    with contextlib.suppress(psycopg.Error, OSError):
        await connection.close()


def locked(queue: str) -> ChannelException:
    return resource_locked(
        f"cannot obtain access to locked queue '{queue}' in PostgreSQL: a transaction there has used it and is still"
        " open; try again when it has ended"
    )
