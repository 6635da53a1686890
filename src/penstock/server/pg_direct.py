"""Direct calls: rare verbs that block the broker for a moment, over a connection of their own.

They are bounded by a statement timeout and by libpq's own timeouts, and refused at once while PostgreSQL is known to be
down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from penstock import limits
from penstock.backing.postgres_link import PgUnavailable, TakenRow
from penstock.pg.sessions import SESSION_SETTINGS
from penstock.server.pg_calls import taken_rows
from penstock.server.pg_connect import is_lost, one_line


class DirectCalls:
    """One plain connection, made when it is first needed."""

    def __init__(self, conninfo: str, down_why: Callable[[], str]) -> None:
        bound_ms = str(round(limits.PG_DIRECT_S * 1000))
        self._conninfo = make_conninfo(
            conninfo,
            connect_timeout=max(2, round(limits.PG_DIRECT_S)),
            tcp_user_timeout=bound_ms,
            application_name="penstock broker direct",
        )
        self._bound_ms = bound_ms
        self._down_why = down_why
        self._connection: psycopg.Connection[Any] | None = None

    def taken(self, queue: str, call: Any, parameters: Sequence[Any]) -> list[TakenRow]:
        return taken_rows(self.rows(queue, call, parameters))

    def rows(self, queue: str, call: Any, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Ask, and wait for the answer. A connection that has gone meanwhile is made again, once."""
        why = self._down_why()
        if why:
            raise unavailable(queue, why)
        had_connection = self._connection is not None
        try:
            return self._rows(call, parameters)
        except psycopg.OperationalError as error:
            if not had_connection or self._connection is not None:
                raise unavailable(queue, one_line(error)) from error
        except psycopg.Error as error:
            raise unavailable(queue, one_line(error)) from error
        try:
            return self._rows(call, parameters)
        except psycopg.Error as error:
            raise unavailable(queue, one_line(error)) from error

    def _rows(self, call: Any, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        if self._connection is None:
            connection = psycopg.connect(self._conninfo, autocommit=True)
            connection.execute(SESSION_SETTINGS)
            connection.execute("SELECT set_config('statement_timeout', %s, false)", (self._bound_ms,))
            self._connection = connection
        try:
            return self._connection.execute(call, parameters, binary=True).fetchall()
        except psycopg.Error as error:
            if is_lost(self._connection, error):
                self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def unavailable(queue: str, why: str) -> PgUnavailable:
    """Short: a reply text has 255 octets."""
    return PgUnavailable(f"queue '{queue}' is in PostgreSQL, which cannot be asked now; try again later ({why})")
