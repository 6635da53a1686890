"""Sessions over PostgreSQL: the queues are tables, and every verb is a function of penstock's schema (`penstock.pg`).

Producers share the session's connection. Another one listens to the channels of several consumers while a caller waits
for all of them. Consumers have their own connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from weakref import WeakSet

from penstock.client.aio.driver import AsyncConsumerDriver, AsyncDriver, AsyncProducerDriver, ConsumerOptions
from penstock.client.aio.postgres.consumer import AsyncPgConsumer
from penstock.client.aio.postgres.link import AsyncPgLink
from penstock.client.aio.postgres.listener import AsyncPgListener
from penstock.client.aio.postgres.producer import AsyncPgProducer
from penstock.client.aio.waiting import in_thread, monotonic
from penstock.client.errors import NotSupported, SetupMissing
from penstock.client.message import Message, QueueStats
from penstock.client.pg_errors import missing_text
from penstock.client.pg_rows import finalized
from penstock.client.pg_setup import install_schema, newest_version
from penstock.pg.sessions import url_options
from penstock.pg.statements import Statements


class AsyncPgDriver(AsyncDriver):
    has_history = True
    has_slots = True

    def __init__(self, url: str, schema: str, name: str | None, install: bool) -> None:
        url_options(url)
        self._url = url
        self._schema = schema
        self._install = install
        self._name = "penstock" if name is None else f"penstock {name}"
        self._statements = Statements(schema)
        self._link = AsyncPgLink(url, self._name, self._statements)
        self._listening = AsyncPgLink(url, self._name, self._statements)
        # What it listens to, on the connection of that generation.
        self._heard: set[str] = set()
        self._heard_generation = -1
        self._consumers: WeakSet[AsyncPgConsumer] = WeakSet()

    async def open(self) -> None:
        await self._link.connect()
        try:
            version = await self._link.value("version")
        except SetupMissing:
            version = 0
        if version >= newest_version():
            return
        if not self._install:
            await self._link.close()
            raise SetupMissing(missing_text(self._schema))
        await in_thread(install_schema, self._url, self._schema)

    async def close(self) -> None:
        for consumer in list(self._consumers):
            await consumer.close()
        await self._listening.close()
        await self._link.close()

    async def use_queue(self, queue: str, ordering: str | None) -> None:
        await self._link.connect()
        await self._link.rows("use_queue", (queue, ordering))

    async def drop_queue(self, queue: str) -> bool:
        await self._link.connect()
        return await self._link.value("drop_queue", (queue,)) is not None

    async def queues(self) -> list[str]:
        await self._link.connect()
        return await self._link.values("queues")

    async def stats(self, queue: str) -> QueueStats:
        await self._link.connect()
        rows = await self._link.rows("stats", (queue,))
        return QueueStats(queue, *(rows[0] if rows else (0,) * 7))

    async def history(self, queue: str, limit: int) -> list[Message]:
        await self._link.connect()
        return [finalized(queue, row) for row in await self._link.rows("history", (queue, str(limit)))]

    async def put_at_slot(self, schedule: str, slot: datetime, queue: str, payload: bytes) -> str | None:
        await self._link.connect()
        number = await self._link.value("put_at_slot", (schedule, slot, queue, payload))
        return None if number is None else str(number)

    async def producer(self, queue: str) -> AsyncProducerDriver:
        producer = AsyncPgProducer(queue, self._link)
        await producer.attach()
        return producer

    async def consumer(self, queue: str, options: ConsumerOptions) -> AsyncConsumerDriver:
        link = AsyncPgLink(self._url, self._name, self._statements)
        consumer = AsyncPgConsumer(queue, options, link, self._link)
        try:
            await consumer.attach()
        except BaseException:
            await link.close()
            raise
        self._consumers.add(consumer)
        return consumer

    async def wait_any(self, consumers: Sequence[AsyncConsumerDriver], deadline_s: float) -> None:
        waiting = []
        for consumer in consumers:
            if not isinstance(consumer, AsyncPgConsumer):
                raise NotSupported("wait_any waits for consumers of one kind")
            waiting.append(consumer)
        queues = [consumer.queue for consumer in waiting]
        for consumer in waiting:
            await consumer.begin_to_wait()
        await self._hear([consumer.channel for consumer in waiting])
        listener = AsyncPgListener(self._listening, queues, monotonic())
        while not await self._listening.value("any_ready", (queues,)) and monotonic() < deadline_s:
            for consumer in waiting:
                await consumer.sweep_if_due()
            await listener.wait(deadline_s, [consumer.number for consumer in waiting])

    async def _hear(self, channels: Sequence[str]) -> None:
        await self._listening.connect()
        if self._heard_generation != self._listening.generation:
            self._heard.clear()
            self._heard_generation = self._listening.generation
        for channel in channels:
            if channel not in self._heard:
                await self._listening.listen(channel)
                self._heard.add(channel)
