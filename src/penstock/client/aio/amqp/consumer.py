"""Takes messages from a queue of an AMQP broker, on a channel of its own.

`reserve` asks with basic.get, and if nothing is there waits as a consumer until its deadline. With a prefetch of 1 it
is a consumer only while it waits: what it has not asked for stays with the broker, for others. With more it stays one,
and the broker sends so many ahead; they lie here until they are reserved, and go back when this is closed.

What AMQP does not have
  - A lease: a reservation lasts as long as the connection (RabbitMQ ends it, and closes the channel, after 30 minutes).
    So `touch` has nothing to do.
  - A place for the note of a finalized message: it is dropped.
  - Delayed requeues, notes on the way back, burying: a confirmed copy takes the message's place, then the message is
    acknowledged. A crash in between leaves both. A copy stands at the end of its queue.
  - An answer to an acknowledgement: if the connection breaks behind it, the message may come again.

Every channel counts its deliveries anew. So what was reserved before a connection was lost is not known here any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.client.aio.amqp.kick import kick
from penstock.client.aio.amqp.link import NOT_FOUND, AsyncLink
from penstock.client.aio.amqp.wire import AsyncWire
from penstock.client.aio.driver import AsyncConsumerDriver, ConsumerOptions
from penstock.client.aio.waiting import monotonic
from penstock.client.amqp import delays, names
from penstock.client.amqp.answer import Answer
from penstock.client.amqp.channel import Channel
from penstock.client.amqp.delivery import Delivery
from penstock.client.amqp.envelope import (
    Outgoing,
    copy_properties,
    deliveries_of,
    has_expired,
    message_of,
    without_expiry,
)
from penstock.client.amqp.refused import Refused
from penstock.client.errors import ClientError, Closed, ConnectionLost, NotReserved
from penstock.client.message import Message
from penstock.wire import methods

# Calls of basic.get that are sent at once.
GETS_MAX = 256


class AsyncAmqpConsumer(AsyncConsumerDriver):
    def __init__(self, link: AsyncLink, queue: str, name: str, options: ConsumerOptions) -> None:
        """`queue` is its name for the application, `name` the one on the broker."""
        self._queue = queue
        self._name = name
        self._link = link
        self._prefetch = options.prefetch
        self._is_closed = False
        self._wire: AsyncWire | None = None
        self._channel: Channel | None = None
        self._reserved: dict[str, Delivery] = {}
        # What basic.get was asked for, and what it has brought. The caller may have been cancelled meanwhile.
        self._asked: list[Answer] = []
        self._got: deque[Delivery] = deque()
        self._tags = 0
        self._channels = 0

    @property
    def has_something(self) -> bool:
        """Whether `reserve` is worth calling: a message is here, or something has happened to the channel."""
        channel = self._channel
        if channel is None or channel.failure is not None or self._got:
            return True
        return bool(channel.deliveries) or channel.consumer_tag is None

    async def reserve(self, count: int, deadline_s: float) -> list[Message]:
        try:
            return await self._reserve(count, deadline_s)
        except ConnectionLost:
            self._forget()
            raise

    async def _reserve(self, count: int, deadline_s: float) -> list[Message]:
        is_made_anew = False
        while True:
            wire, channel = await self._opened()
            try:
                await self.stop_waiting()
                await self._look(wire, channel, count)
            except Refused as refusal:
                self._expect_deleted(refusal)
                if is_made_anew:
                    raise
                is_made_anew = True
                continue
            is_made_anew = False
            messages = self._take(channel, count)
            if messages or monotonic() >= deadline_s:
                await wire.flush()
                return messages
            await self.start_waiting(count)
            await wire.wait(lambda: self.has_something, deadline_s)
            # Else the next round would connect again, and the caller would not hear that reservations were lost.
            await wire.check()

    async def start_waiting(self, count: int = 1) -> None:
        """Have the broker send what comes, unless something is here."""
        try:
            await self._consume(count)
        except Refused as refusal:
            self._expect_deleted(refusal)
            await self._consume(count)

    async def _consume(self, count: int) -> None:
        wire, channel = await self._opened()
        # A caller that has kept all that a consumer may have gets a new one, which may have as many.
        if channel.consumer_tag is not None and len(self._reserved) >= channel.window:
            await self._cancel(wire, channel)
        if channel.consumer_tag is not None or channel.deliveries or self._got:
            return
        self._tags += 1
        channel.consumer_tag = f"penstock-{self._tags}"
        channel.window = max(count, self._prefetch)
        qos = channel.call(methods.BasicQos(prefetch_count=channel.window))
        await wire.settle([qos, channel.call(methods.BasicConsume(self._name, channel.consumer_tag))])

    async def stop_waiting(self) -> None:
        """With a prefetch of 1: have the broker send no more."""
        if self._prefetch > 1 or self._wire is None or self._channel is None or self._channel.consumer_tag is None:
            return
        await self._cancel(self._wire, self._channel)

    async def finalize(self, ids: Sequence[str], note: str | None) -> list[str]:
        wire, channel = await self._polled()
        done = self._ack(channel, ids)
        await wire.flush()
        return done

    async def finalize_and_reserve(self, ids: Sequence[str], note: str | None, count: int) -> list[Message]:
        _, channel = await self._polled()
        strangers = [message_id for message_id in ids if message_id not in self._reserved]
        if strangers or len(set(ids)) < len(ids):
            names_them = ", ".join(strangers[:10]) or "one that is named twice"
            raise NotReserved(f"not reserved by this consumer of {self._queue!r}: {names_them}")
        self._ack(channel, ids)
        return await self.reserve(count, 0.0)

    async def requeue(self, ids: Sequence[str], delay_s: float | None, note: str | None) -> list[str]:
        """Without delay and note to where it stood; else as a copy, at the end of the queue."""
        wire, channel = await self._polled()
        if delay_s or note is not None:
            return await self._replace(ids, self._name, delays.steps_of(delay_s or 0.0), note, is_buried=False)
        mine = self._release(ids)
        for delivery in mine.values():
            channel.send(methods.BasicNack(delivery.tag, requeue=True))
        await wire.flush()
        return list(mine)

    async def bury(self, ids: Sequence[str], note: str | None) -> list[str]:
        await self._polled()
        return await self._replace(ids, names.buried(self._name), 0, note, is_buried=True)

    async def kick(self, count: int) -> int:
        await self._polled()
        return await kick(self._link, self._name, count)

    async def touch(self, ids: Sequence[str], lease_s: float) -> list[str]:
        """Nothing to do: the reservation lasts as long as the connection."""
        await self._polled()
        return [message_id for message_id in dict.fromkeys(ids) if message_id in self._reserved]

    async def close(self) -> None:
        """The broker returns everything that the channel has."""
        if self._is_closed:
            return
        self._is_closed = True
        wire, channel = self._wire, self._channel
        self._forget()
        if wire is None or channel is None or channel.failure is not None:
            return
        try:
            await wire.settle([channel.close()])
        except ClientError:
            # The connection is gone, and the reservations with it.
            return

    # --- the channel ----------------------------------------------------------------------------------

    async def _opened(self) -> tuple[AsyncWire, Channel]:
        """Return the channel; a new one after a connection was lost."""
        if self._is_closed:
            raise Closed(f"the consumer of {self._queue!r} is closed")
        wire = await self._link.wire()
        channel = self._channel
        if channel is not None and self._wire is wire:
            if channel.failure is None:
                return wire, channel
            self._forget()
            raise ConnectionLost(f"{self._queue!r}: {channel.failure}; what was reserved goes back")
        self._forget()
        await self._link.ensure(self._name)
        wire = await self._link.wire()
        channel = await wire.open_channel()
        self._wire, self._channel = wire, channel
        self._channels += 1
        return wire, channel

    async def _polled(self) -> tuple[AsyncWire, Channel]:
        """Return the channel, after a look whether the broker has said something about it."""
        wire, _ = await self._opened()
        await wire.poll()
        return await self._opened()

    def _expect_deleted(self, refusal: Refused) -> None:
        """Make a deleted queue anew; what was reserved is gone with it. Other refusals stand."""
        self._forget()
        if refusal.reply_code != NOT_FOUND:
            raise refusal
        self._link.forget(self._name)

    def _forget(self) -> None:
        self._wire = self._channel = None
        self._reserved.clear()
        self._asked.clear()
        self._got.clear()

    async def _cancel(self, wire: AsyncWire, channel: Channel) -> None:
        tag, channel.consumer_tag = channel.consumer_tag, None
        assert tag is not None
        await wire.settle([channel.call(methods.BasicCancel(tag))])

    async def _look(self, wire: AsyncWire, channel: Channel, count: int) -> None:
        """Ask for so many if they are not here. What the broker sends ahead is enough where there is any of it."""
        await self._collect(wire)
        missing = count - len(channel.deliveries) - len(self._got)
        if missing <= 0 or (self._prefetch > 1 and channel.deliveries):
            return
        self._asked.append(channel.call(methods.BasicGet(self._name)))
        more = await self._collect(wire)
        missing = min(missing - 1, more)
        while missing > 0:
            for _ in range(min(missing, GETS_MAX)):
                self._asked.append(channel.call(methods.BasicGet(self._name)))
            missing = min(missing - GETS_MAX, await self._collect(wire))

    async def _collect(self, wire: AsyncWire) -> int:
        """Wait for what was asked for; how many the broker says are left."""
        if not self._asked:
            return 0
        await wire.settle(self._asked)
        left = 0
        for answer in self._asked:
            if answer.delivery is not None:
                self._got.append(answer.delivery)
            left = answer.reply.message_count if isinstance(answer.reply, methods.BasicGetOk) else 0
        self._asked.clear()
        return left

    # --- messages -------------------------------------------------------------------------------------

    def _take(self, channel: Channel, count: int) -> list[Message]:
        """Reserve what is here. Expired messages go for good."""
        now = datetime.now(UTC)
        messages: list[Message] = []
        while len(messages) < count and (self._got or channel.deliveries):
            delivery = channel.deliveries.popleft() if channel.deliveries else self._got.popleft()
            if has_expired(delivery, now):
                channel.send(methods.BasicAck(delivery.tag))
                continue
            # Publishers may give no name, or the same to two. Tags tell them apart, within a channel.
            message_id = delivery.properties.message_id or ""
            if not message_id or message_id in self._reserved:
                message_id = f"{message_id}#{self._channels}-{delivery.tag}"
            self._reserved[message_id] = delivery
            messages.append(message_of(delivery, message_id, self._queue, now))
        return messages

    def _release(self, ids: Sequence[str]) -> dict[str, Delivery]:
        """Return those of them that are reserved, which they are no longer."""
        return {message_id: self._reserved.pop(message_id) for message_id in ids if message_id in self._reserved}

    def _ack(self, channel: Channel, ids: Sequence[str]) -> list[str]:
        mine = self._release(ids)
        for delivery in mine.values():
            channel.send(methods.BasicAck(delivery.tag))
        return list(mine)

    async def _replace(
        self, ids: Sequence[str], queue: str, steps: int, note: str | None, is_buried: bool
    ) -> list[str]:
        """Put copies there, then let go of the messages."""
        wire, channel = await self._opened()
        mine = [message_id for message_id in dict.fromkeys(ids) if message_id in self._reserved]
        if not mine:
            return []
        now = datetime.now(UTC)
        copies: list[Outgoing] = []
        for message_id in mine:
            delivery = self._reserved[message_id]
            seen = deliveries_of(delivery)
            room = wire.connection.frame_bytes_max // 4
            properties = copy_properties(delivery, now, seen, note, steps, room)
            copies.append(
                Outgoing(queue, without_expiry(properties) if is_buried else properties, delivery.body, steps)
            )
        await self._link.ensure(queue)
        await self._link.publish(copies)
        done = self._ack(channel, mine)
        await wire.flush()
        return done
