"""Puts messages onto a queue of an AMQP broker: persistent, mandatory, confirmed, through the default exchange."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

from penstock.client.aio.amqp.link import AsyncLink
from penstock.client.aio.driver import AsyncProducerDriver
from penstock.client.amqp import delays
from penstock.client.amqp.envelope import Outgoing, put_properties
from penstock.client.errors import Closed


class AsyncAmqpProducer(AsyncProducerDriver):
    def __init__(self, link: AsyncLink, queue: str) -> None:
        self._link = link
        self._queue = queue
        self._is_closed = False

    async def put(self, payloads: Sequence[bytes], ready_at: datetime | None, ttl_s: float | None) -> list[str]:
        """Returns when all are confirmed. If one is refused the others may be there all the same."""
        delay_s = 0.0 if ready_at is None else (ready_at - datetime.now(UTC)).total_seconds()
        return await self.put_after(payloads, delay_s, ttl_s)

    async def put_after(self, payloads: Sequence[bytes], delay_s: float, ttl_s: float | None) -> list[str]:
        """The broker's clock measures the delay."""
        if self._is_closed:
            raise Closed(f"the producer for {self._queue!r} is closed")
        now = datetime.now(UTC)
        steps = delays.steps_of(delay_s)
        ids = [str(uuid4()) for _ in payloads]
        messages = [
            Outgoing(self._queue, put_properties(message_id, now, delay_s, ttl_s), payload, steps)
            for message_id, payload in zip(ids, payloads, strict=True)
        ]
        await self._link.ensure(self._queue)
        if messages:
            await self._link.publish(messages)
        return ids

    async def close(self) -> None:
        self._is_closed = True
