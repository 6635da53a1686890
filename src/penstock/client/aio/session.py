"""A session: one URL, its queues, and the producers and consumers made from it.

The connection is made at the first use. Closing a session closes its producers and consumers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType

from penstock.client import checks
from penstock.client.aio.consumer import AsyncConsumer
from penstock.client.aio.driver import AsyncDriver, ConsumerOptions
from penstock.client.aio.drivers import driver_for
from penstock.client.aio.producer import AsyncProducer
from penstock.client.aio.waiting import Lock, monotonic
from penstock.client.errors import Closed
from penstock.client.message import Message, QueueStats


class AsyncSession:
    """Queues behind a URL: `postgresql://…`, `amqp://…` or `file://…`.

    `schema` is where penstock lives in a PostgreSQL database, `install` makes it there if it is missing, and `name` is
    what others see of this session where there is something to see it. See docs/sessions.md.
    """

    def __init__(self, url: str, *, schema: str = "penstock", name: str | None = None, install: bool = False) -> None:
        self._driver: AsyncDriver = driver_for(url, schema=schema, name=name, install=install)
        self._lock = Lock()
        self._is_open = False
        self._is_closed = False
        self._members: list[AsyncProducer | AsyncConsumer] = []

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def has_history(self) -> bool:
        """Whether finalized messages can be read again."""
        return self._driver.has_history

    @property
    def has_slots(self) -> bool:
        """Whether `put_at_slot` puts once, however many sessions ask."""
        return self._driver.has_slots

    async def use_queue(self, name: str, ordering: str | None = None) -> None:
        """Make the queue if it is not there. `ordering` is "fuzzy" or "strict"; None leaves it as it is."""
        driver = await self._opened()
        await driver.use_queue(checks.queue_name(name), checks.ordering(ordering))

    async def drop_queue(self, name: str) -> bool:
        """Remove the queue with its messages; False when there was none."""
        driver = await self._opened()
        return await driver.drop_queue(checks.queue_name(name))

    async def queues(self) -> list[str]:
        """Return the names of the queues, sorted."""
        driver = await self._opened()
        return sorted(await driver.queues())

    async def stats(self, name: str) -> QueueStats:
        """The counts of a queue."""
        driver = await self._opened()
        return await driver.stats(checks.queue_name(name))

    async def history(self, name: str, limit: int = 100) -> list[Message]:
        """Return the last finalized messages, newest first; empty where there is no history."""
        driver = await self._opened()
        return await driver.history(checks.queue_name(name), checks.batch_count(limit))

    async def put_at_slot(self, schedule: str, slot: datetime, name: str, payload: checks.Payload) -> str | None:
        """Put a message for this slot of a schedule unless that was done; return its id or None."""
        octets = checks.payload_bytes(payload)
        moment = checks.aware(slot, "slot")
        driver = await self._opened()
        return await driver.put_at_slot(checks.queue_name(schedule), moment, checks.queue_name(name), octets)

    async def producer_for(self, name: str) -> AsyncProducer:
        """Return a producer for the queue, which is made if need be."""
        queue = checks.queue_name(name)
        driver = await self._opened()
        producer = AsyncProducer(queue, await driver.producer(queue), self._members)
        self._members.append(producer)
        return producer

    async def consumer_for(self, name: str, *, lease: float | None = 900.0, prefetch: int = 1) -> AsyncConsumer:
        """Return a consumer of the queue, which is made if need be.

        After `lease` seconds a reservation ends by itself; with None it ends when the consumer is gone. `prefetch` is
        how many messages an AMQP broker may send ahead.
        """
        queue = checks.queue_name(name)
        options = ConsumerOptions(checks.positive_seconds(lease, "lease"), checks.batch_count(prefetch))
        driver = await self._opened()
        consumer = AsyncConsumer(queue, await driver.consumer(queue, options), options, self._members)
        self._members.append(consumer)
        return consumer

    async def wait_any(self, consumers: Sequence[AsyncConsumer], wait: float | None = None) -> None:
        """Wait until one of the consumers may have something to reserve, at most `wait` seconds; None = for ever."""
        if not consumers:
            raise ValueError("wait_any needs a consumer to wait for")
        deadline_s = monotonic() + checks.wait_seconds(wait)
        driver = await self._opened()
        await driver.wait_any([consumer.driver for consumer in consumers], deadline_s)

    async def close(self) -> None:
        """Close the session with its producers and consumers; what they have reserved goes back."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for member in list(self._members):
                await member.close()
        finally:
            await self._driver.close()

    async def _opened(self) -> AsyncDriver:
        if self._is_closed:
            raise Closed("the session is closed")
        if not self._is_open:
            async with self._lock:
                if not self._is_open:
                    await self._driver.open()
                    self._is_open = True
        return self._driver
