"""Putting: what all queues have published in a turn is one transaction; the next one gathers meanwhile.

A publish is *waiting*, then *in flight*, then answered once: with its ids after COMMIT, or with None. None means that
it is not there, or that this is unknown: the connection was lost before the answer came. What was waiting then waits
on, but not for ever and not without bounds.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import psycopg

from penstock import limits
from penstock.backing.postgres.link import PutDone, PutRow
from penstock.call_all import call_all
from penstock.pg.sessions import is_session_lost
from penstock.pg.statements import Statements
from penstock.server.postgres.connect import one_line
from penstock.server.postgres.connection import Connection, PgConnection
from penstock.server.postgres.rows import put_parameters

if TYPE_CHECKING:
    from penstock.server.postgres.queue_link import ServerQueueLink

log = logging.getLogger("penstock.postgres")

# What the function says of a queue number that is not there any more.
QUEUE_IS_GONE = "42704"


class PutItem:
    """One publish; without rows it only wants to know when its turn has come."""

    __slots__ = ("answered", "bytes", "done", "queue_link", "rows", "since_s")

    def __init__(self, queue_link: ServerQueueLink, rows: Sequence[PutRow], done: PutDone, since_s: float) -> None:
        self.queue_link = queue_link
        self.rows = rows
        self.done = done
        self.since_s = since_s
        self.answered = False
        self.bytes = sum([len(row[0]) + len(row[3]) + 100 for row in rows])


class PgPutConnection(PgConnection):
    NAME = "put"

    def __init__(self, conninfo: str, statements: Statements) -> None:
        super().__init__(conninfo, statements)
        self._waiting: deque[PutItem] = deque()
        self._in_flight: list[PutItem] = []
        self.waiting_bytes = 0
        # Refused since the log last said so.
        self._refused_count = 0

    def put(self, item: PutItem) -> None:
        self.waiting_bytes += item.bytes
        item.queue_link.unsent += item.bytes
        if item.rows and self.waiting_bytes > limits.PG_OUTBOX_BYTES_MAX:
            self._answer([item], None)
            return
        self._waiting.append(item)
        self.wake()

    def is_quiet(self) -> bool:
        return not self._waiting and not self._in_flight

    def forget(self, queue_link: ServerQueueLink) -> None:
        """The queue is deleted: what waits for it is not put any more. Its publishers were told."""
        gone = [item for item in self._waiting if item.queue_link is queue_link]
        self._waiting = deque([item for item in self._waiting if item.queue_link is not queue_link])
        for item in gone:
            self._left(item)
        call_all([partial(item.done, []) for item in gone if not item.rows])

    def refuse_old(self, now_s: float) -> None:
        """What has waited too long for a connection is given up."""
        old: list[PutItem] = []
        while self._waiting and now_s - self._waiting[0].since_s > limits.PG_OUTBOX_WAIT_S and self.connection is None:
            old.append(self._waiting.popleft())
        self._answer(old, None)

    def lost(self) -> None:
        in_flight, self._in_flight = self._in_flight, []
        self._answer(in_flight, None)

    async def serve(self, connection: Connection) -> None:
        self.wake()
        while True:
            await self.woken(connection)
            self._in_flight = self._batch()
            while self._in_flight:
                await self._put(connection, self._in_flight)
                self._in_flight = self._batch()

    def _batch(self) -> list[PutItem]:
        """What is put next. For a queue that is being dropped nothing is: it would be made again."""
        batch: list[PutItem] = []
        postponed: list[PutItem] = []
        rows = size = 0
        while self._waiting:
            item = self._waiting[0]
            if item.queue_link.is_dropping:
                postponed.append(self._waiting.popleft())
                continue
            if batch and (
                rows + len(item.rows) > limits.PG_BATCH_ROWS_MAX or size + item.bytes > limits.PG_BATCH_BYTES_MAX
            ):
                break
            rows += len(item.rows)
            size += item.bytes
            batch.append(self._waiting.popleft())
        self._waiting.extendleft(reversed(postponed))
        return batch

    def _postpone(self, batch: list[PutItem]) -> list[PutItem]:
        """Have what is for queues that are being dropped wait on; the rest."""
        self._waiting.extendleft(reversed([item for item in batch if item.queue_link.is_dropping]))
        return [item for item in batch if not item.queue_link.is_dropping]

    async def _put(self, connection: Connection, batch: list[PutItem]) -> None:
        ids: list[int] | None
        try:
            ids = await self._send(connection, batch)
        except psycopg.Error as error:
            if is_session_lost(connection, error):
                raise
            # It was rolled back for certain.
            if error.sqlstate == QUEUE_IS_GONE:
                for item in batch:
                    item.queue_link.queue_id = 0
                self._in_flight = [item for item in self._in_flight if not item.queue_link.is_dropping]
                batch = self._postpone(batch)
                if not batch:
                    return
            queue_links = list(dict.fromkeys([item.queue_link for item in batch]))
            if len(queue_links) > 1:
                for queue_link in queue_links:
                    await self._put(connection, [item for item in batch if item.queue_link is queue_link])
                return
            try:
                ids = await self._send(connection, batch) if error.sqlstate == QUEUE_IS_GONE else None
            except psycopg.Error as again:
                if is_session_lost(connection, again):
                    raise
                error, ids = again, None
            if ids is None:
                log.error(
                    "PostgreSQL has refused messages of queue %s: %s", ascii(queue_links[0].name), one_line(error)
                )
        self._answer(batch, ids)

    async def _send(self, connection: Connection, batch: list[PutItem]) -> list[int]:
        queue_ids: list[int] = []
        rows: list[PutRow] = []
        for item in batch:
            if item.rows and not item.queue_link.queue_id:
                # Dropped by another client, or not looked up since the start: it is made again.
                item.queue_link.queue_id = (await self.rows(connection, "use_queue", (item.queue_link.name, None)))[0][
                    0
                ]
            queue_ids.extend([item.queue_link.queue_id] * len(item.rows))
            rows.extend(item.rows)
        if not rows:
            return []
        return [row[0] for row in await self.rows(connection, "put_rows", put_parameters(queue_ids, rows))]

    def _answer(self, items: Sequence[PutItem], ids: list[int] | None) -> None:
        pos = 0
        calls: list[Callable[[], None]] = []
        for item in items:
            count = len(item.rows)
            if not item.answered:
                item.answered = True
                self._left(item)
                if not count:
                    calls.append(partial(item.done, []))
                else:
                    own = None if ids is None else ids[pos : pos + count]
                    calls.append(partial(item.queue_link.put_done, item.done, own, count))
                    if ids is None:
                        self._refused_count += count
            pos += count
        call_all(calls)
        if ids is not None and self._refused_count:
            log.warning(
                "%d messages could not be put into PostgreSQL: publishers that use confirms got a nack, and messages"
                " on their way from other queues stay there and are tried again",
                self._refused_count,
            )
            self._refused_count = 0

    def _left(self, item: PutItem) -> None:
        self.waiting_bytes -= item.bytes
        item.queue_link.unsent -= item.bytes
