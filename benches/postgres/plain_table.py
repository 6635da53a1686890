"""The table that a developer writes who knows SKIP LOCKED, without a library: an insert, an update, a delete.

The same table with a history, for who wants to know afterwards what was done: there the delete moves the rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import psycopg

from benches.postgres.systems import PLAIN, PLAIN_HISTORY, Client, System, Taken

SCHEMA: Final = """
CREATE TABLE jobs (id bigserial PRIMARY KEY, payload bytea NOT NULL, taken_at timestamptz);
CREATE INDEX jobs_ready ON jobs (id) WHERE taken_at IS NULL;
"""
PUT: Final = """
WITH put AS (INSERT INTO jobs (payload) VALUES (%b) RETURNING id) SELECT id, pg_notify('jobs', '') FROM put
"""
PUT_MANY: Final = """
WITH put AS (INSERT INTO jobs (payload) SELECT unnest(%b::bytea[]) RETURNING id)
SELECT count(*), pg_notify('jobs', '') FROM put
"""
RESERVE: Final = """
UPDATE jobs SET taken_at = now()
WHERE id IN (SELECT id FROM jobs WHERE taken_at IS NULL ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING id, payload
"""
FINALIZE: Final = "DELETE FROM jobs WHERE id = %s"
FINALIZE_MANY: Final = "DELETE FROM jobs WHERE id = ANY(%s::bigint[])"
HISTORY: Final = """
CREATE TABLE jobs_history (id bigint NOT NULL, payload bytea NOT NULL, taken_at timestamptz, finished_at timestamptz);
"""
MOVE: Final = """
WITH done AS (DELETE FROM jobs WHERE id = %s RETURNING id, payload, taken_at)
INSERT INTO jobs_history SELECT id, payload, taken_at, now() FROM done
"""
MOVE_MANY: Final = """
WITH done AS (DELETE FROM jobs WHERE id = ANY(%s::bigint[]) RETURNING id, payload, taken_at)
INSERT INTO jobs_history SELECT id, payload, taken_at, now() FROM done
"""


class PlainClient(Client):
    finalize_one: str = FINALIZE
    finalize_many: str = FINALIZE_MANY

    def __init__(self, url: str, listens: bool) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._cursor = self._connection.cursor(binary=True)
        if listens:
            self._connection.execute("LISTEN jobs")

    def put(self, payloads: Sequence[bytes]) -> None:
        if len(payloads) == 1:
            self._cursor.execute(PUT, (payloads[0],), prepare=True)
        else:
            self._cursor.execute(PUT_MANY, (list(payloads),), prepare=True)

    def reserve(self, count: int, wait_s: float = 0.0) -> list[Taken]:
        end = time.monotonic() + wait_s
        while True:
            rows = self._cursor.execute(RESERVE, (count,), prepare=True).fetchall()
            left = end - time.monotonic()
            if rows or left <= 0:
                return [Taken(key, payload) for key, payload in rows]
            for _ in self._connection.notifies(timeout=left, stop_after=1):
                pass

    def finalize(self, taken: Sequence[Taken]) -> None:
        if len(taken) == 1:
            self._cursor.execute(self.finalize_one, (taken[0].key,), prepare=True)
        else:
            self._cursor.execute(self.finalize_many, ([one.key for one in taken],), prepare=True)

    def close(self) -> None:
        self._connection.close()


class PlainTable(System):
    name = PLAIN

    def version(self) -> str:
        return f"psycopg {psycopg.__version__}"

    def install(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(SCHEMA)

    def producer(self, url: str) -> Client:
        return PlainClient(url, listens=False)

    def consumer(self, url: str) -> Client:
        return PlainClient(url, listens=True)


class PlainHistoryClient(PlainClient):
    finalize_one = MOVE
    finalize_many = MOVE_MANY


class PlainTableWithHistory(PlainTable):
    name = PLAIN_HISTORY

    def install(self, url: str) -> None:
        super().install(url)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(HISTORY)

    def consumer(self, url: str) -> Client:
        return PlainHistoryClient(url, listens=True)
