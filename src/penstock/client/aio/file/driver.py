"""The driver for file://: sessions on a folder of this machine, without a server."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from datetime import datetime

from penstock.client.aio.driver import AsyncConsumerDriver, AsyncDriver, AsyncProducerDriver, ConsumerOptions
from penstock.client.aio.file.folder import AsyncFolder
from penstock.client.aio.file.members import AsyncFileConsumer, AsyncFileProducer
from penstock.client.aio.file.waiting import Waker, offload
from penstock.client.aio.waiting import monotonic
from penstock.client.errors import ClientError
from penstock.client.message import Message, QueueStats


class AsyncFileDriver(AsyncDriver):
    has_history = True
    has_slots = True

    def __init__(self, url: str) -> None:
        self._folder = AsyncFolder(url)
        self._members: weakref.WeakSet[AsyncFileProducer | AsyncFileConsumer] = weakref.WeakSet()

    async def open(self) -> None:
        await self._folder.engine()

    async def close(self) -> None:
        for member in list(self._members):
            await member.close()
        await self._folder.close()

    async def use_queue(self, queue: str, ordering: str | None) -> None:
        # Whatever is asked for: the engine hands out the head, and nothing else.
        await self._folder.call(lambda engine: engine.use_queue(queue))

    async def drop_queue(self, queue: str) -> bool:
        return await self._folder.call(lambda engine: engine.drop_queue(queue))

    async def queues(self) -> list[str]:
        return await self._folder.call(lambda engine: engine.queues())

    async def stats(self, queue: str) -> QueueStats:
        return await self._folder.call(lambda engine: engine.stats(queue))

    async def history(self, queue: str, limit: int) -> list[Message]:
        return await self._folder.call(lambda engine: engine.history(queue, limit))

    async def put_at_slot(self, schedule: str, slot: datetime, queue: str, payload: bytes) -> str | None:
        return await self._folder.call(lambda engine: engine.put_at_slot(schedule, slot, queue, payload))

    async def producer(self, queue: str) -> AsyncProducerDriver:
        producer = AsyncFileProducer(queue, self._folder)
        await producer.attached()
        self._members.add(producer)
        return producer

    async def consumer(self, queue: str, options: ConsumerOptions) -> AsyncConsumerDriver:
        consumer = AsyncFileConsumer(queue, self._folder, options)
        await consumer.attached()
        self._members.add(consumer)
        return consumer

    async def wait_any(self, consumers: Sequence[AsyncConsumerDriver], deadline_s: float) -> None:
        numbers: list[int] = []
        queues: list[str] = []
        for consumer in consumers:
            if not isinstance(consumer, AsyncFileConsumer):
                raise ClientError("a session waits for its own consumers only")
            numbers.append((await consumer.attached())[1])
            queues.append(consumer.queue)
        engine = await self._folder.engine()
        waker = Waker()
        watch = engine.watch(queues, waker.wake)
        try:
            while True:
                is_ready, look_again_s = await offload(lambda: engine.look(numbers))
                now_s = monotonic()
                if is_ready or now_s >= deadline_s:
                    return
                await waker.wait(min(deadline_s, look_again_s) - now_s)
        finally:
            engine.unwatch(watch)
