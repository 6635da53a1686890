"""A producer on PostgreSQL. It shares the session's connection: a put is one statement, its COMMIT the confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from penstock.client.aio.driver import AsyncProducerDriver
from penstock.client.aio.postgres.link import AsyncPgLink
from penstock.client.aio.waiting import Lock, to_the_end
from penstock.client.errors import ClientError, Closed
from penstock.client.message import Message
from penstock.client.pg_rows import put_message
from penstock.pg.participant import Participant


class AsyncPgProducer(AsyncProducerDriver):
    def __init__(self, queue: str, link: AsyncPgLink) -> None:
        self._queue = queue
        self._link = link
        self._lock = Lock()
        self._participant = Participant(queue, "producer")
        # The connection that holds the participant's lock.
        self._generation = -1
        self._is_closed = False

    async def attach(self) -> None:
        """Be counted among the queue's producers; again after the connection was lost."""
        if self._is_closed:
            raise Closed(f"the producer for {self._queue!r} is closed")
        if self._link.is_connected and self._link.generation == self._generation:
            return
        async with self._lock:
            await self._link.connect()
            if self._link.generation != self._generation:
                await to_the_end(self._attach(self._link.generation))

    async def put(self, payloads: Sequence[bytes], ready_at: datetime | None, ttl_s: float | None) -> list[str]:
        return await self._put("put", payloads, ready_at, ttl_s)

    async def put_after(self, payloads: Sequence[bytes], delay_s: float, ttl_s: float | None) -> list[str]:
        return await self._put("put_after", payloads, delay_s, ttl_s)

    async def put_one(
        self, queue: str, payload: bytes, ready_at: datetime | None, delay_s: float | None, ttl_s: float | None
    ) -> Message:
        await self.attach()
        how, when = ("put_after", delay_s) if delay_s else ("put", ready_at)
        rows = await self._link.rows(how, (self._queue, payload, when, ttl_s))
        return put_message(queue, payload, rows[0])

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._link.is_connected and self._link.generation == self._generation:
            try:
                await self._link.rows("detach", (self._participant.number,))
            except ClientError:
                # Then the connection is gone, and with it what kept us counted.
                return

    async def _attach(self, generation: int) -> bool:
        self._participant.attached(await self._link.value("attach", self._participant.attach_parameters()))
        self._generation = generation
        return True

    async def _put(self, how: str, payloads: Sequence[bytes], when: Any, ttl_s: float | None) -> list[str]:
        await self.attach()
        if len(payloads) == 1:
            return await self._link.values(how, (self._queue, payloads[0], when, ttl_s))
        return await self._link.values(MANY[how], (self._queue, list(payloads), when, ttl_s))


MANY = {"put": "put_many", "put_after": "put_many_after"}
