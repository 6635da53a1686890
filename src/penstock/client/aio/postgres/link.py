"""One connection to PostgreSQL: made when its owner asks, given up when it is broken.

It never connects by itself: its owner has to attach anew on a new connection, and tells connections apart by
`generation`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, sql

from penstock.client.aio.waiting import Lock, monotonic
from penstock.client.errors import Closed, ConnectionLost
from penstock.client.pg_errors import TAKEN_BACK, translated
from penstock.pg.participant import moment_s
from penstock.pg.sessions import SESSION_SETTINGS, is_session_lost, url_options
from penstock.pg.statements import Statements

# What the URL does not say itself. A peer that is gone without a word is noticed within a minute, by either side.
DEFAULTS: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# How often a statement is tried that others got into the way of.
TRIES_MAX: Final = 5


class AsyncPgLink:
    def __init__(self, url: str, name: str, statements: Statements) -> None:
        self._url = url
        self._name = name
        self._statements = statements
        self._connection: AsyncConnection | None = None
        self._lock = Lock()
        self._is_closed = False
        # Grows with each connection.
        self.generation = 0
        # How many wait for notifications here. Meanwhile nothing else can be done on this connection.
        self.listeners = 0

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    async def connect(self) -> None:
        """Connect unless there is a connection."""
        async with self._lock:
            if self.is_connected:
                return
            options = {
                "fallback_application_name": self._name,
                **DEFAULTS,
                **url_options(self._url),
                "client_encoding": "utf8",
            }
            try:
                connection = await AsyncConnection.connect(autocommit=True, **options)
            except psycopg.Error as error:
                raise ConnectionLost(f"cannot connect to PostgreSQL: {str(error).strip()}") from error
            try:
                await connection.execute(SESSION_SETTINGS, prepare=False)
            except psycopg.Error as error:
                await connection.close()
                raise ConnectionLost(f"cannot connect to PostgreSQL: {str(error).strip()}") from error
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
            self._is_closed = False
            self.generation += 1

    async def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one of the statements; all its rows."""
        connection = self._here()
        text = self._statements[statement]
        tries = 0
        while True:
            tries += 1
            try:
                cursor = await connection.execute(text, parameters, prepare=True, binary=True)
                return await cursor.fetchall()
            except TAKEN_BACK as error:
                if tries == TRIES_MAX:
                    raise await self._given_up(connection, error) from error
            except psycopg.Error as error:
                raise await self._given_up(connection, error) from error

    async def value(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        """Run one of the statements; its only value."""
        rows = await self.rows(statement, parameters)
        return rows[0][0]

    async def values(self, statement: str, parameters: Sequence[Any] = ()) -> list[str]:
        """Run one of the statements; the ids that are its only column."""
        rows = await self.rows(statement, parameters)
        return [str(row[0]) for row in rows]

    async def listen(self, channel: str) -> None:
        """Be told about a channel."""
        connection = self._here()
        try:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)), prepare=False)
        except psycopg.Error as error:
            raise await self._given_up(connection, error) from error

    async def pause(self, seconds: float, names: Collection[str]) -> bool:
        """Wait for a notification, at most so long; whether there was one. Those that came before count too.

        `names` are ours. One that names another consumer is for that one first: if it was the only one, we give it a
        moment.
        """
        connection = self._here()
        self.listeners += 1
        is_told = False
        end_s = monotonic() + seconds
        try:
            while True:
                heard = connection.notifies(timeout=max(0.0, end_s - monotonic()), stop_after=1)
                moments_s = [moment_s(notify.payload, names) async for notify in heard]
                if not moments_s:
                    return is_told
                if 0.0 in moments_s:
                    return True
                is_told = True
                end_s = min(end_s, monotonic() + min(moments_s))
        except psycopg.Error as error:
            raise await self._given_up(connection, error) from error
        finally:
            self.listeners -= 1

    async def close(self) -> None:
        """Close the connection, if there is one."""
        self._is_closed = True
        connection = self._connection
        self._connection = None
        if connection is not None:
            # Not while a caller is waiting there: its socket would be gone, or be another's.
            async with connection.lock:
                await connection.close()

    def _here(self) -> AsyncConnection:
        if self._connection is None:
            raise Closed("the session is closed") if self._is_closed else ConnectionLost("the connection was lost")
        return self._connection

    async def _given_up(self, connection: AsyncConnection, error: psycopg.Error) -> Exception:
        """Return the error to raise. A connection that is of no use any more is closed."""
        if self._is_closed:
            return Closed("the session is closed")
        better = translated(error, is_session_lost(connection, error), self._statements.schema)
        if isinstance(better, ConnectionLost) and self._connection is connection:
            self._connection = None
            await connection.close()
        return better
