"""Producers and consumers of a session over file://.

Each is known to the engine by a number. An object that is garbage collected counts as closed: what it had reserved goes
back. When the engine was given up and opened anew, they attach again, and what was reserved is not theirs any more.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TypeVar

from penstock.client.aio.driver import AsyncConsumerDriver, AsyncProducerDriver, ConsumerOptions
from penstock.client.aio.file.folder import AsyncFolder
from penstock.client.aio.file.waiting import Waker, offload
from penstock.client.aio.waiting import monotonic
from penstock.client.engine.engine import Engine
from penstock.client.errors import Closed, ConnectionLost
from penstock.client.message import Message

T = TypeVar("T")


class AsyncFileMember(ABC):
    """What producers and consumers have in common: their number."""

    def __init__(self, queue: str, folder: AsyncFolder) -> None:
        self.queue = queue
        self._folder = folder
        self._engine: Engine | None = None
        self._number = 0
        self._forgets: weakref.finalize[[int], AsyncFileMember] | None = None
        self._is_closed = False

    async def attached(self) -> tuple[Engine, int]:
        """Return the engine, and the number there."""
        if self._is_closed:
            raise Closed(f"what was made for queue {self.queue!r} is closed")
        engine = await self._folder.engine()
        if engine is not self._engine:
            number = await offload(lambda: self._attach(engine), engine.detach)
            self._let_go()
            self._engine, self._number = engine, number
            self._forgets = weakref.finalize(self, engine.forget, number)
            self._forgets.atexit = False
        return engine, self._number

    @abstractmethod
    def _attach(self, engine: Engine) -> int:
        """Have the engine number this member."""

    def _let_go(self) -> None:
        if self._forgets is not None:
            self._forgets.detach()
            self._forgets = None

    async def _call(self, verb: Callable[[Engine, int], T]) -> T:
        engine, number = await self.attached()
        return await offload(partial(verb, engine, number))

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._let_go()
        engine, number = self._engine, self._number
        if engine is not None:
            # With an engine that was given up, everything has gone back already.
            with suppress(ConnectionLost):
                await offload(lambda: engine.detach(number))


class AsyncFileProducer(AsyncFileMember, AsyncProducerDriver):
    def _attach(self, engine: Engine) -> int:
        return engine.attach_producer(self.queue)

    async def put(self, payloads: Sequence[bytes], ready_at: datetime | None, ttl_s: float | None) -> list[str]:
        return await self._call(lambda engine, number: engine.put(self.queue, payloads, ready_at, ttl_s))


class AsyncFileConsumer(AsyncFileMember, AsyncConsumerDriver):
    def __init__(self, queue: str, folder: AsyncFolder, options: ConsumerOptions) -> None:
        super().__init__(queue, folder)
        self._lease_s = options.lease_s

    def _attach(self, engine: Engine) -> int:
        return engine.attach(self.queue, self._lease_s)

    async def reserve(self, count: int, deadline_s: float) -> list[Message]:
        engine, number = await self.attached()
        waker: Waker | None = None
        watch = 0
        try:
            while True:
                messages, look_again_s = await offload(
                    lambda: engine.reserve(number, count),
                    lambda unseen: engine.unreserve(number, [message.id for message in unseen[0]]),
                )
                now_s = monotonic()
                if messages or now_s >= deadline_s:
                    return messages
                if waker is None:
                    # Only who has to wait watches, and then looks once more: something may have come in between.
                    waker = Waker()
                    watch = engine.watch([self.queue], waker.wake)
                else:
                    await waker.wait(min(deadline_s, look_again_s) - now_s)
        finally:
            if waker is not None:
                engine.unwatch(watch)

    async def finalize(self, ids: Sequence[str], note: str | None) -> list[str]:
        return await self._call(lambda engine, number: engine.finalize(number, ids, note))

    async def finalize_and_reserve(self, ids: Sequence[str], note: str | None, count: int) -> list[Message]:
        engine, number = await self.attached()
        return await offload(
            lambda: engine.finalize_and_reserve(number, ids, note, count),
            lambda unseen: engine.unreserve(number, [message.id for message in unseen]),
        )

    async def requeue(self, ids: Sequence[str], delay_s: float | None, note: str | None) -> list[str]:
        return await self._call(lambda engine, number: engine.requeue(number, ids, delay_s, note))

    async def bury(self, ids: Sequence[str], note: str | None) -> list[str]:
        return await self._call(lambda engine, number: engine.bury(number, ids, note))

    async def kick(self, count: int) -> int:
        return await self._call(lambda engine, number: engine.kick(self.queue, count))

    async def touch(self, ids: Sequence[str], lease_s: float) -> list[str]:
        return await self._call(lambda engine, number: engine.touch(number, ids, lease_s))
