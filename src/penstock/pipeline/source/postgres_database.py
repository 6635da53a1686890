"""Questions to a database with penstock's schema, over ADBC: how far it can be read, and the rows, as Arrow batches.

A position is a transaction id. Every transaction below `pg_snapshot_xmin(pg_current_snapshot())` has ended, so what it
has written is there, and nothing can be added below it: rows with from <= xid < to are the same each time. Ids and
times of messages have no such order.

There is no index on `messages_history.xid`: a question costs a look at all the history that is kept
(`settings.history_days`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from penstock.errors import StartupError
from penstock.pipeline.source.options import OptionError, SourceOptions

NO_QUEUE: Final = -1
NAME_BYTES_MAX: Final = 63
# Names of queues that no longer exist are their numbers.
QUEUE_NO_MAX: Final = 2**31 - 1


class Database:
    """The schema of one database. Questions go over one connection, rows over one for each task."""

    def __init__(self, options: SourceOptions) -> None:
        self._url = options.source
        self._schema = quoted(options.schema)
        self._connection: Any = None

    def close(self) -> None:
        """Give the connection back; the next question opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def readable_xid(self) -> int:
        """Transactions below this one have ended."""
        return self._number("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")

    def limited_xid(self, from_xid: int, to_xid: int, queue_id: int, records_max: int | None) -> int:
        """The end of a batch that begins at `from_xid`, at most `to_xid`; `from_xid` itself when there is nothing.

        A transaction is read whole: one with more rows than `records_max` makes a batch that is larger.
        """
        count = 1 if records_max is None else records_max + 1
        xids = self._numbers(
            f"SELECT xid::text::bigint FROM {self._schema}.messages_history"  # noqa: S608 - numbers, and a quoted name
            f" WHERE xid >= '{from_xid:d}'::xid8 AND xid < '{to_xid:d}'::xid8"
            f" AND ({queue_id:d} < 0 OR queue_id = {queue_id:d}) ORDER BY messages_history.xid LIMIT {count:d}"
        )
        if not xids:
            return from_xid
        if records_max is None or len(xids) <= records_max:
            return to_xid
        return xids[-1] if xids[-1] > xids[0] else xids[-1] + 1

    def queue_id(self, name: str | None) -> int | None:
        """Return the number of a queue, NO_QUEUE for all of them; None when there is none of that name."""
        if name is None:
            return NO_QUEUE
        found = self._numbers(f"SELECT id FROM {self._schema}.queues WHERE name = $1", (name,))  # noqa: S608 - quoted
        if found:
            return found[0]
        return int(name) if name.isascii() and name.isdecimal() and int(name) <= QUEUE_NO_MAX else None

    def rows(
        self, bounds: tuple[int, int], part: tuple[int, int], queue_id: int, columns: tuple[str, ...]
    ) -> Iterator[Any]:
        """Batches of one part of the rows between two positions."""
        query = history_sql().format(
            schema=self._schema,
            columns=", ".join(columns),
            from_xid=int(bounds[0]),
            to_xid=int(bounds[1]),
            part=int(part[0]),
            parts=int(part[1]),
            queue_id=int(queue_id),
        )
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            with closing(cursor.fetch_record_batch()) as batches:
                yield from batches

    def _number(self, query: str) -> int:
        return self._numbers(query)[0]

    def _numbers(self, query: str, parameters: tuple[str, ...] = ()) -> list[int]:
        is_new = self._connection is None
        if is_new:
            self._connection = self._connect()
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query, parameters or None)
                table: pa.Table = cursor.fetch_arrow_table()
                return [int(value) for value in table.column(0).to_pylist()]
        except Exception:
            self.close()
            # The server may have closed a connection that was idle: once more, with a new one.
            if is_new:
                raise
        return self._numbers(query, parameters)

    def _connect(self) -> Any:
        try:
            from adbc_driver_postgresql import dbapi
        except ImportError:
            raise StartupError("reading PostgreSQL needs ADBC: pip install 'penstock[pipeline]'") from None
        # In autocommit: a transaction that stays open would keep vacuum from working, on our own tables, too.
        return dbapi.connect(self._url, autocommit=True)


def quoted(schema: str) -> str:
    """Return the name for SQL. OptionError when no schema of penstock can have it."""
    # As `pg.install` has it; that module needs a client that workers do not have.
    if not re.fullmatch(r"[\w. -]+", schema) or len(schema.encode()) > NAME_BYTES_MAX:
        raise OptionError(
            f"schema is {schema!r}; letters, digits, '_', '-', '.' and spaces can be in its name, 63 bytes"
        )
    return f'"{schema}"'


def history_sql() -> str:
    """From beside this module; also where the package was sent to a worker as an archive."""
    path = Path(__file__).with_name("postgres_history.sql")
    loader = __spec__.loader
    if path.is_file() or loader is None:
        return path.read_text()
    data: bytes = loader.get_data(str(path))  # type: ignore[attr-defined]
    return data.decode()
