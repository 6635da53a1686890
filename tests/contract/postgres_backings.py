"""Queues in PostgreSQL for the contract suite: a link that does posted work at once, over one connection.

One real server for the whole test process, one queue name per folder. What is asynchronous about the real link is
tested in tests/server; here is what the queue promises when the database answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from penstock.backing.backing_queue import Answered, Purged
from penstock.backing.postgres.link import Looked, PgLink, PgQueueLink, PutDone, PutRow
from penstock.backing.postgres.queues import PgBackingQueues
from penstock.backing.postgres.reserved import PgReserved
from penstock.broker.features.postgres_facts import WirePropertyFacts
from penstock.clock import SystemClock
from penstock.pg.install import DEFAULT_SCHEMA
from penstock.pg.statements import Statements
from penstock.server.postgres.rows import put_parameters, taken_rows
from tests.postgres_server import install_schema, new_server

STATEMENTS = Statements(DEFAULT_SCHEMA)
# Messages that are ready, and their bytes.
MEASURE = sql.SQL(
    "SELECT count(*), coalesce(sum(octet_length(m.payload)), 0)::bigint FROM penstock.messages m"
    " JOIN penstock.queues q ON q.id = m.queue_id WHERE q.name = %s AND m.state = 0"
)
# Connections of the links over a folder, for the loss of power; and those that were left cleanly. A new session has to
# compile and plan every function first.
OPEN: dict[Path, list[psycopg.Connection[Any]]] = {}
IDLE: list[psycopg.Connection[Any]] = []


@cache
def server_url() -> str:
    """Of a server that this process has started; it ends with the process."""
    server = new_server()
    atexit.register(server.remove)
    install_schema(server.url)
    return server.url


class InlineLink(PgLink):
    """Answers at once."""

    def __init__(self, connection: psycopg.Connection[Any], prefix: str, refill_max: int) -> None:
        self.connection = connection
        self._prefix = prefix
        self._refill_max = refill_max

    def is_up(self) -> bool:
        return True

    def open(
        self, name: str, is_new: bool, receiver: PgReserved, run: Callable[[Callable[[], None]], None]
    ) -> PgQueueLink:
        return InlineQueueLink(self.connection, f"{self._prefix} {name}", receiver, self._refill_max)

    def drop(self, name: str) -> None:
        self.connection.execute(STATEMENTS["drop_queue"], (f"{self._prefix} {name}",))


class InlineQueueLink(PgQueueLink):
    def __init__(self, connection: psycopg.Connection[Any], name: str, receiver: PgReserved, refill_max: int) -> None:
        self._connection = connection
        self._name = name
        self._receiver = receiver
        self._refill_max = refill_max
        self._queue_id = self._value(STATEMENTS["use_queue"], name, None)
        self._number = self._value(STATEMENTS["attach"], name, "consumer", 0, None)

    def _rows(self, call: Any, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(call, parameters, binary=True).fetchall()

    def _value(self, call: Any, *parameters: object) -> Any:
        return self._rows(call, *parameters)[0][0]

    def put(self, rows: Sequence[PutRow], done: PutDone) -> None:
        done(
            [row[0] for row in self._rows(STATEMENTS["put_rows"], *put_parameters([self._queue_id] * len(rows), rows))]
        )

    def ask(self) -> None:
        if self._receiver.is_wanted():
            self._reserve(min(self._refill_max, self._receiver.refill_count()))

    def ask_once(self, done: Answered) -> None:
        self._reserve(1)
        done(None)

    def make(self, done: Answered) -> None:
        done(None)

    def count(self, done: Answered) -> None:
        done(None)

    def _reserve(self, count: int) -> None:
        floor = self._receiver.refill_floor()
        self._receiver.rows_came(
            taken_rows(self._rows(STATEMENTS["reserve_rows"], self._name, count, self._number, floor)), count
        )

    def finalize(self, seq_ids: Sequence[int], note: str | None) -> None:
        if seq_ids:
            assert self._value(STATEMENTS["finalize_count"], self._name, list(seq_ids), note, self._number) == len(
                seq_ids
            )

    def give_back(self, seq_ids: Sequence[int], seen: bool) -> None:
        if seq_ids:
            assert self._value(STATEMENTS["requeue_count"], self._name, list(seq_ids), self._number, seen) == len(
                seq_ids
            )

    def ready_count(self) -> int:
        return int(self._value(MEASURE, self._name))

    def ready_bytes(self) -> int:
        return int(self._rows(MEASURE, self._name)[0][1])

    def unsent_bytes(self) -> int:
        return 0

    def is_congested(self) -> bool:
        return False

    def take(self, seq_ids: Sequence[int]) -> None:
        rows = taken_rows(self._rows(STATEMENTS["reserve_ids"], self._name, list(seq_ids), self._number))
        self._receiver.numbers_came(rows)

    def look(self, from_seq_id: int, count_max: int, bytes_max: int, done: Looked) -> None:
        done(taken_rows(self._rows(STATEMENTS["browse"], self._name, from_seq_id, count_max, bytes_max)))

    def purge(self, done: Purged) -> None:
        done(int(self._value(STATEMENTS["purge"], self._name)), None)

    def drop(self, done: Answered) -> None:
        self._value(STATEMENTS["drop_queue"], self._name)
        done(None)

    def close(self) -> None:
        self._value(STATEMENTS["detach"], self._number)

    def leave(self) -> None:
        self.close()


class InlineQueues(PgBackingQueues):
    """Returns at the start what a crash has left reserved."""

    def __init__(self, folder: Path, refill_max: int) -> None:
        self._folder = folder
        self._connection = IDLE.pop() if IDLE else psycopg.connect(server_url(), autocommit=True)
        OPEN.setdefault(folder, []).append(self._connection)
        super().__init__(InlineLink(self._connection, str(folder), refill_max), WirePropertyFacts(), SystemClock())

    def start(self, queue_ids: Sequence[str]) -> list[Any]:
        self._connection.execute("SELECT penstock.return_orphans()")
        return super().start(queue_ids)

    def stop(self) -> None:
        if not self._connection.closed and self._connection in OPEN.get(self._folder, []):
            OPEN[self._folder].remove(self._connection)
            IDLE.append(self._connection)


def postgres(folder: Path) -> PgBackingQueues:
    return InlineQueues(folder, 10_000)


def tiny_postgres(folder: Path) -> PgBackingQueues:
    """A window of three messages."""
    return InlineQueues(folder, 3)


def lose_power(folder: Path) -> None:
    """The node is gone: its sessions end, without a word."""
    for connection in OPEN.pop(folder, []):
        if not connection.closed:
            with contextlib.suppress(psycopg.OperationalError):
                connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            connection.close()
