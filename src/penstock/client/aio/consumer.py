"""A consumer: reserves messages of one queue, and says what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from penstock.client import checks
from penstock.client.aio.driver import AsyncConsumerDriver, ConsumerOptions
from penstock.client.aio.waiting import Handler, monotonic
from penstock.client.errors import Closed, NotReserved
from penstock.client.message import Message


class AsyncConsumer:
    """Takes messages from one queue, and says what becomes of them."""

    def __init__(self, queue: str, driver: AsyncConsumerDriver, options: ConsumerOptions, members: list[Any]) -> None:
        self.queue = queue
        self._driver = driver
        self._options = options
        # The session's list of what it has to close.
        self._members = members
        self._is_closed = False

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def driver(self) -> AsyncConsumerDriver:
        """What does the work, while the consumer is open."""
        if self._is_closed:
            raise Closed(f"the consumer of {self.queue!r} is closed")
        return self._driver

    async def reserve(self, wait: float | None = 0.0) -> Message | None:
        """Return the next message, or None when there is none within `wait` seconds; None = wait for ever."""
        deadline_s = monotonic() + checks.wait_seconds(wait)
        messages = await self.driver.reserve(1, deadline_s)
        return messages[0] if messages else None

    async def reserve_many(self, count: int, wait: float | None = 0.0) -> list[Message]:
        """Return up to `count` messages: what is there, else what comes first within `wait` seconds."""
        deadline_s = monotonic() + checks.wait_seconds(wait)
        return await self.driver.reserve(checks.batch_count(count), deadline_s)

    async def finalize(self, message: Message, note: str | None = None) -> Message:
        """The message is done with: it goes into the history with the note, where there is one. What it is there."""
        self._id(message)
        done = await self.driver.finalize_one(message, checks.note_text(note))
        self._expect(message, [] if done is None else [done.id])
        assert done is not None
        return done

    async def finalize_many(self, messages: Sequence[Message], note: str | None = None) -> list[Message]:
        """Finalize messages; those of them that were this consumer's."""
        ids = self._ids(messages)
        driver = self.driver
        if not ids:
            return []
        done = set(await driver.finalize(ids, checks.note_text(note)))
        return [message for message in messages if message.id in done]

    async def finalize_and_reserve(self, message: Message, note: str | None = None) -> Message | None:
        """Finalize a message and reserve the next, which is faster than one after the other. Does not wait."""
        messages = await self.driver.finalize_and_reserve([self._id(message)], checks.note_text(note), 1)
        return messages[0] if messages else None

    async def finalize_many_and_reserve(
        self, messages: Sequence[Message], count: int, note: str | None = None
    ) -> list[Message]:
        """Finalize messages and reserve up to `count` more, which is faster than one after the other. Does not wait.

        Raises NotReserved, and reserves nothing, when one of them is not this consumer's any more.
        """
        ids = self._ids(messages)
        count = checks.batch_count(count)
        if not ids:
            return await self.reserve_many(count)
        return await self.driver.finalize_and_reserve(ids, checks.note_text(note), count)

    async def requeue(self, message: Message, delay: float | None = None, note: str | None = None) -> None:
        """Give a message back, so that any consumer can reserve it, at once or after `delay` seconds."""
        delay_s = checks.seconds(delay, "delay")
        self._expect(message, await self.driver.requeue([self._id(message)], delay_s or None, checks.note_text(note)))

    async def bury(self, message: Message, note: str | None = None) -> None:
        """Put a message aside until it is kicked."""
        self._expect(message, await self.driver.bury([self._id(message)], checks.note_text(note)))

    async def kick(self, count: int = 1) -> int:
        """Make up to `count` buried messages ready again, oldest first; how many there were."""
        return await self.driver.kick(checks.batch_count(count))

    async def touch(self, message: Message, lease: float | None = None) -> None:
        """Have the reservation last `lease` seconds from now on; None = what the consumer was made with."""
        lease_s = checks.positive_seconds(lease, "lease") or self._options.lease_s
        if lease_s is None:
            raise ValueError("this consumer's reservations have no lease; say how long they shall last from now on")
        self._expect(message, await self.driver.touch([self._id(message)], lease_s))

    async def each_message(self, handle: Handler, *, wait: float | None = 0.0, limit: int | None = None) -> int:
        """Reserve messages, call `handle` with each, and finalize it with the note that `handle` returns.

        Ends when there is no message within `wait` seconds, or after `limit` messages; how many it were. An exception
        of `handle` comes out, and leaves the message reserved.
        """
        count = 0
        message: Message | None = None
        while limit is None or count < limit:
            if message is None:
                message = await self.reserve(wait)
                if message is None:
                    break
            note = await handle(message)
            count += 1
            if count == limit:
                await self.finalize(message, note)
            else:
                message = await self.finalize_and_reserve(message, note)
        return count

    async def close(self) -> None:
        """Leave the queue; what is reserved goes back."""
        if self._is_closed:
            return
        self._is_closed = True
        if self in self._members:
            self._members.remove(self)
        await self._driver.close()

    def _ids(self, messages: Sequence[Message]) -> list[str]:
        ids = [self._id(message) for message in messages]
        if len(ids) > checks.BATCH_MAX:
            raise ValueError(f"a batch has at most {checks.BATCH_MAX} messages, this one has {len(ids)}")
        return ids

    def _id(self, message: Message) -> str:
        if not isinstance(message, Message):
            raise TypeError(f"expected a Message that was reserved, not {type(message).__name__}")
        if message.queue != self.queue:
            raise NotReserved(f"message {message.id} is of queue {message.queue!r}, not of {self.queue!r}")
        return message.id

    def _expect(self, message: Message, done: Sequence[str]) -> None:
        if message.id not in done:
            raise NotReserved(
                f"message {message.id} of {self.queue!r} is not reserved by this consumer:"
                " it was settled before, its lease ran out, or the connection was lost meanwhile"
            )
