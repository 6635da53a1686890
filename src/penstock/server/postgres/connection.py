"""A connection to PostgreSQL with one kind of work, which is made again when it is lost.

Each is a task on the broker's loop. It sleeps until it is woken; between two tries to connect it waits a little longer
each time. What it does is in its subclasses.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import select
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from penstock.pg.statements import Statements
from penstock.server.postgres.connect import connect, one_line

log = logging.getLogger("penstock.postgres")

# Between two tries to connect: from the first to the last, each twice the one before, with some chance in it.
BACKOFF_S = (0.02, 2.0)
# Calls are not refused yet meanwhile.
CONNECTING_S = 1.0

Connection = psycopg.AsyncConnection[Any]
Rows = list[tuple[Any, ...]]


def _is_readable(number: int) -> bool:
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


class PgConnection(ABC):
    NAME = ""

    def __init__(self, conninfo: str, statements: Statements) -> None:
        self._conninfo = make_conninfo(conninfo, application_name=f"penstock broker {self.NAME}")
        self._statements = statements
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.connection: Connection | None = None
        # Why the last try to connect failed; "" when it did not. And since when there is no connection.
        self._failure = ""
        self._lost_s = 0.0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"penstock-pg-{self.NAME}")

    def down_why(self, now_s: float) -> str:
        """Why this connection does not work now; "" when it does, or has just begun to connect again."""
        if self.connection is None and now_s - self._lost_s > CONNECTING_S:
            return self._failure or "no answer yet"
        return self._failure

    def wake(self) -> None:
        self._woken.set()

    async def woken(self, connection: Connection) -> None:
        """Wait for work; raise when the connection is lost meanwhile, so that no work is tried on it."""
        loop = asyncio.get_running_loop()
        # Its own number: the connection may be closed meanwhile, and has none then.
        number = connection.fileno()
        loop.add_reader(number, self.wake)
        try:
            await self._woken.wait()
        finally:
            loop.remove_reader(number)
        self._woken.clear()
        if _is_readable(number):
            # The server speaks unasked: goodbye, mostly. Nothing is in flight.
            raise psycopg.OperationalError("the server has ended the session")

    async def rows(self, connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> Rows:
        """Run one of the statements; all its rows."""
        cursor = await connection.execute(self._statements[statement], parameters, binary=True)
        return await cursor.fetchall()

    @abstractmethod
    async def serve(self, connection: Connection) -> None:
        """Work until the connection is lost: then raise the error. Returns never."""

    @abstractmethod
    def lost(self) -> None:
        """The connection is gone, whatever was in flight is not known. Called once for each."""

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = BACKOFF_S[0]
        self._lost_s = loop.time()
        while True:
            try:
                self.connection = await connect(self._conninfo)
            except (psycopg.Error, OSError) as error:
                if not self._failure:
                    log.warning("PostgreSQL cannot be reached (%s): %s", self.NAME, one_line(error))
                self._failure = one_line(error)
            else:
                if self._failure:
                    log.warning("PostgreSQL is reachable again (%s)", self.NAME)
                self._failure = ""
                began_s = loop.time()
                await self._serve_once(self.connection)
                self._lost_s = loop.time()
                if self._lost_s - began_s > BACKOFF_S[1]:
                    pause_s = BACKOFF_S[0]
            await asyncio.sleep(pause_s * (0.5 + random.random()))  # noqa: S311
            pause_s = min(2 * pause_s, BACKOFF_S[1])

    async def _serve_once(self, connection: Connection) -> None:
        try:
            await self.serve(connection)
        except psycopg.Error as error:
            log.warning("the connection to PostgreSQL was lost (%s): %s", self.NAME, one_line(error))
        except Exception:
            # A bug: what is in flight is as unknown as after a loss, and the next connection begins anew.
            log.exception("the connection to PostgreSQL has failed (%s)", self.NAME)
        finally:
            self.connection = None
            self.lost()
            with contextlib.suppress(psycopg.Error, OSError):
                await connection.close()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def abandon(self) -> None:
        """End without a word, as a crash does; for tests."""
        if self._task is not None:
            self._task.cancel()
        if self.connection is not None:
            self.connection.pgconn.finish()
