"""Plain SQL in tests: what an application would write, with as little around it as possible."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import psycopg


class PlainSql:
    """A connection, each statement a transaction of its own unless `connection.transaction()` is used."""

    def __init__(self, url: str) -> None:
        # Prepared at the first use: only then a statement and its transaction begin at the same moment.
        self.connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True, prepare_threshold=0)

    def rows(self, query: str, *values: Any) -> list[Any]:
        return self.connection.execute(query.encode(), values or None).fetchall()

    def column(self, query: str, *values: Any) -> list[Any]:
        return [row[0] for row in self.rows(query, *values)]

    def one(self, query: str, *values: Any) -> Any:
        return self.column(query, *values)[0]

    def put(self, queue: str, *payloads: str) -> list[int]:
        return [self.one("SELECT id FROM penstock.put(%s, %s)", queue, each) for each in payloads]

    def reserve(self, queue: str, count: int = 1, consumer: int | None = None) -> list[int]:
        return self.column("SELECT id FROM penstock.reserve(%s, %s, %s)", queue, count, consumer)

    def attach(self, queue: str, role: str = "consumer", grace: str = "0", lease: str | None = None) -> int:
        return int(self.one("SELECT penstock.attach(%s, %s, %s, %s)", queue, role, grace, lease))

    def stats(self, queue: str) -> dict[str, int]:
        """Those that are not zero."""
        found = self.rows(
            "SELECT s.name, value FROM penstock.stats s JOIN penstock.queues q ON q.id = s.queue_id"
            " WHERE q.name = %s AND value <> 0",
            queue,
        )
        return dict(found)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> PlainSql:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
