"""penstock by its SQL functions, called through psycopg as penstock's own client calls them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import uniform
from typing import Final

import psycopg

import penstock
from benches.postgres.systems import PENSTOCK, QUEUE, Client, System, Taken
from penstock.pg.floor import Floor, RecentLooks
from penstock.pg.install import install
from penstock.pg.participant import MOMENT_S

PUT: Final = "SELECT penstock.put(%s::text, %b::bytea)"
PUT_MANY: Final = "SELECT count(*) FROM penstock.put_many(%s::text, %b::bytea[])"
RESERVE: Final = """
SELECT id, payload FROM penstock.reserve(%s::text, %s::int, %s::bigint, floor => %s::bigint, quick => true)
"""
FINALIZE: Final = "SELECT penstock.finalize_many(%s::text, %s::bigint[], NULL, %s::bigint)"
TURN: Final = """
SELECT id, payload FROM penstock.finalize_and_reserve(
    %s::text, %s::bigint[], NULL, %s::int, %s::bigint, '15 minutes'::interval, NULL, %s::bigint)
"""
# As penstock's client: who was busy since is still said to wait, and one sweeps now and then.
SECONDS_STILL_WAITING: Final = 1.0
SECONDS_BETWEEN_SWEEPS: Final = 2.0


class FunctionsClient(Client):
    def __init__(self, url: str, consumes: bool) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("SET penstock.autocommit = on")
        self._cursor = self._connection.cursor(binary=True)
        self._number: int | None = None
        self._floor = Floor(RecentLooks())
        self._is_waiting = False
        self._waited_at_s = 0.0
        self._swept_at_s = time.monotonic()
        if consumes:
            self._attach()

    def _attach(self) -> None:
        row = self._connection.execute("SELECT penstock.attach(%s, 'consumer', '0 s')", (QUEUE,)).fetchone()
        channel = self._connection.execute("SELECT penstock.channel_of(%s)", (QUEUE,)).fetchone()
        assert row is not None
        assert channel is not None
        self._number = row[0]
        self._connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel[0])))

    def put(self, payloads: Sequence[bytes]) -> None:
        if len(payloads) == 1:
            self._cursor.execute(PUT, (QUEUE, payloads[0]), prepare=True)
        else:
            self._cursor.execute(PUT_MANY, (QUEUE, list(payloads)), prepare=True)

    def reserve(self, count: int, wait_s: float = 0.0) -> list[Taken]:
        end = time.monotonic() + wait_s
        taken = self._look(count)
        if taken and self._is_waiting and time.monotonic() - self._waited_at_s > SECONDS_STILL_WAITING:
            self._set_waiting(False)
        if taken or wait_s <= 0:
            return taken
        if not self._is_waiting:
            # Then once more: what was put before anybody could see that we wait has woken nobody.
            self._set_waiting(True)
            taken = self._look(count)
        while not taken and (left := end - time.monotonic()) > 0:
            left = max(0.0, min(left, self._floor.walk_at_s - time.monotonic()))
            self._pause(left)
            taken = self._look(count, is_waiting=True)
        self._waited_at_s = time.monotonic()
        return taken

    def _pause(self, seconds: float) -> None:
        """As penstock's client: who is not named by a notification gives the one who is a moment."""
        end = time.monotonic() + seconds
        is_meant = False
        while not is_meant and (left := end - time.monotonic()) > 0:
            for heard in self._connection.notifies(timeout=left, stop_after=1):
                is_meant = heard.payload in ("", str(self._number))
                end = min(end, time.monotonic() + uniform(*MOMENT_S))

    def _look(self, count: int, is_waiting: bool = False) -> list[Taken]:
        now = time.monotonic()
        if now - self._swept_at_s > SECONDS_BETWEEN_SWEEPS:
            # Somebody has to: it belongs to the price of the messages.
            self._swept_at_s = now
            self._connection.execute("SELECT * FROM penstock.sweep()")
        floor = self._floor.value(now)
        taken = self._reserve(count, floor)
        if not taken and floor and self._floor.may_walk(now, is_waiting):
            taken = self._reserve(count, 0)
        return taken

    def _reserve(self, count: int, floor: int) -> list[Taken]:
        started = time.monotonic()
        rows = self._cursor.execute(RESERVE, (QUEUE, count, self._number, floor), prepare=True).fetchall()
        if floor == 0:
            self._floor.walked(started, time.monotonic())
        return self._taken(rows)

    def _taken(self, rows: Sequence[tuple[int, bytes]]) -> list[Taken]:
        if rows:
            self._floor.taken(min(rows)[0], max(rows)[0])
        return [Taken(key, payload) for key, payload in rows]

    def _set_waiting(self, waiting: bool) -> None:
        self._is_waiting = waiting
        self._cursor.execute("SELECT penstock.set_waiting(%s::bigint, %s)", (self._number, waiting), prepare=True)

    def finalize(self, taken: Sequence[Taken]) -> None:
        # Also for one: it answers which of them were ours, where penstock.finalize raises.
        self._cursor.execute(FINALIZE, (QUEUE, [one.key for one in taken], self._number), prepare=True)

    def turn(self, taken: Sequence[Taken], count: int) -> list[Taken]:
        keys = [one.key for one in taken]
        floor = self._floor.value(time.monotonic())
        rows = self._cursor.execute(TURN, (QUEUE, keys, count, self._number, floor), prepare=True).fetchall()
        return self._taken(rows)

    def close(self) -> None:
        self._connection.close()


class PenstockFunctions(System):
    name = PENSTOCK

    def version(self) -> str:
        return str(penstock.__version__)

    def install(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            install(connection)

    def producer(self, url: str) -> Client:
        return FunctionsClient(url, consumes=False)

    def consumer(self, url: str) -> Client:
        return FunctionsClient(url, consumes=True)
