"""A producer: puts messages onto one queue."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import Any

from penstock.client import checks
from penstock.client.aio.driver import AsyncProducerDriver
from penstock.client.errors import Closed
from penstock.client.message import Message


class AsyncProducer:
    """Puts messages onto one queue."""

    def __init__(self, queue: str, driver: AsyncProducerDriver, members: list[Any]) -> None:
        self.queue = queue
        self._driver = driver
        # The session's list of what it has to close.
        self._members = members
        self._is_closed = False

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def put(
        self,
        payload: checks.Payload,
        *,
        delay: float | None = None,
        ready_at: datetime | None = None,
        ttl: float | None = None,
    ) -> Message:
        """Put a message; what it is now, with its id. Text becomes UTF-8.

        With `delay` (seconds) or `ready_at` no consumer gets it before then. With `ttl` it is gone when no consumer has
        reserved it within so many seconds.
        """
        return await self._put_one(checks.payload_bytes(payload), delay, ready_at, ttl)

    async def put_many(
        self,
        payloads: Iterable[checks.Payload],
        *,
        delay: float | None = None,
        ready_at: datetime | None = None,
        ttl: float | None = None,
    ) -> list[str]:
        """Put messages, all or none; their ids, in order."""
        return await self._put(checks.payloads_bytes(payloads), delay, ready_at, ttl)

    async def put_json(
        self,
        value: Any,
        *,
        delay: float | None = None,
        ready_at: datetime | None = None,
        ttl: float | None = None,
    ) -> Message:
        """Put a value as JSON; the message."""
        return await self._put_one(checks.json_bytes(value), delay, ready_at, ttl)

    async def close(self) -> None:
        """Leave the queue."""
        if self._is_closed:
            return
        self._is_closed = True
        if self in self._members:
            self._members.remove(self)
        await self._driver.close()

    async def _put_one(
        self, payload: bytes, delay: float | None, ready_at: datetime | None, ttl: float | None
    ) -> Message:
        moment = checks.ready_time(ready_at, delay)
        delay_s = checks.seconds(delay, "delay")
        ttl_s = checks.positive_seconds(ttl, "ttl")
        if self._is_closed:
            raise Closed(f"the producer for {self.queue!r} is closed")
        return await self._driver.put_one(self.queue, payload, moment, delay_s, ttl_s)

    async def _put(
        self, payloads: list[bytes], delay: float | None, ready_at: datetime | None, ttl: float | None
    ) -> list[str]:
        moment = checks.ready_time(ready_at, delay)
        delay_s = checks.seconds(delay, "delay")
        ttl_s = checks.positive_seconds(ttl, "ttl")
        if self._is_closed:
            raise Closed(f"the producer for {self.queue!r} is closed")
        if not payloads:
            return []
        if delay_s:
            return await self._driver.put_after(payloads, delay_s, ttl_s)
        return await self._driver.put(payloads, moment, ttl_s)
