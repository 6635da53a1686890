"""Sessions over any broker that speaks AMQP 0-9-1 as RabbitMQ does.

A queue is a durable queue of the broker's, `put` is a persistent message through the default exchange, `reserve` is an
unacknowledged delivery. All of a session goes over one connection. docs/sessions.md compares this with PostgreSQL; what
AMQP does not have is said in `amqp.consumer`.

`ordering` changes nothing: a broker hands messages out in their order, to any consumer. There is no history, and cron
slots are not told apart: of several schedulers each puts its own message, so run one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from penstock.client.aio.amqp.consumer import AsyncAmqpConsumer
from penstock.client.aio.amqp.link import AsyncLink
from penstock.client.aio.amqp.producer import AsyncAmqpProducer
from penstock.client.aio.driver import AsyncConsumerDriver, AsyncDriver, AsyncProducerDriver, ConsumerOptions
from penstock.client.amqp import names
from penstock.client.amqp.address import parse_address
from penstock.client.message import Message, QueueStats


class AsyncAmqpDriver(AsyncDriver):
    """amqp://user:password@host:port/vhost, or amqps:// with TLS."""

    has_history = False
    has_slots = False

    def __init__(self, url: str) -> None:
        self._link = AsyncLink(parse_address(url))
        # A broker does not say which queues it has; these are the ones that were used here.
        self._queues: set[str] = set()

    async def open(self) -> None:
        await self._link.wire()

    async def close(self) -> None:
        await self._link.close()

    async def use_queue(self, queue: str, ordering: str | None) -> None:
        await self._used(queue)

    async def drop_queue(self, queue: str) -> bool:
        """What waits to become ready is lost when its time comes."""
        self._queues.discard(queue)
        name = names.on_broker(queue)
        await self._link.delete(names.buried(name))
        return await self._link.delete(name)

    async def queues(self) -> list[str]:
        return sorted(self._queues)

    async def stats(self, queue: str) -> QueueStats:
        """A broker tells what is ready, and no more: its consumers are those of ours that wait at the moment."""
        name = names.on_broker(queue)
        ready = await self._link.count(name)
        buried = await self._link.count(names.buried(name))
        return QueueStats(queue, ready_count=ready or 0, buried_count=buried or 0)

    async def history(self, queue: str, limit: int) -> list[Message]:
        return []

    async def put_at_slot(self, schedule: str, slot: datetime, queue: str, payload: bytes) -> str | None:
        """Puts always: see above."""
        producer = await self.producer(queue)
        return (await producer.put([payload], None, None))[0]

    async def producer(self, queue: str) -> AsyncProducerDriver:
        return AsyncAmqpProducer(self._link, await self._used(queue))

    async def consumer(self, queue: str, options: ConsumerOptions) -> AsyncConsumerDriver:
        return AsyncAmqpConsumer(self._link, queue, await self._used(queue), options)

    async def wait_any(self, consumers: Sequence[AsyncConsumerDriver], deadline_s: float) -> None:
        """What comes for more than one of them stays with each until it is reserved there."""
        ours = [cast(AsyncAmqpConsumer, consumer) for consumer in consumers]
        for consumer in ours:
            await consumer.start_waiting()
        wire = await self._link.wire()
        await wire.wait(lambda: any(consumer.has_something for consumer in ours), deadline_s)
        await wire.check()
        for consumer in ours:
            await consumer.stop_waiting()

    async def _used(self, queue: str) -> str:
        """Make the queue if it is not there; what the broker calls it."""
        name = names.on_broker(queue)
        self._link.forget(name)
        await self._link.ensure(name)
        self._queues.add(queue)
        return name
