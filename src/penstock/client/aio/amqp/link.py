"""The session's way to its broker: one connection at a time, with a channel for declarations and one for publishing.

A lost connection takes with it what is known to be declared; the next call makes a new one. Consumers have channels of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.aio.amqp.wire import AsyncWire
from penstock.client.aio.waiting import Lock
from penstock.client.amqp import delays
from penstock.client.amqp.address import Address
from penstock.client.amqp.channel import Channel
from penstock.client.amqp.envelope import Outgoing
from penstock.client.amqp.refused import Refused
from penstock.client.amqp.sockets import SEND_BYTES
from penstock.client.errors import Closed
from penstock.wire import methods
from penstock.wire.properties import encode_properties

NO_ROUTE = 312
NOT_FOUND = 404
# What a declaration is refused with where the queue is there already, or may be.
NOT_MADE = (403, 405, 406)
NO_LEVEL = -1


class AsyncLink:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._wire: AsyncWire | None = None
        self._is_closed = False
        self._connecting = Lock()
        # Taken for a whole exchange on the control channel: a refusal closes the channel for all callers.
        self._controlling = Lock()
        self._control: Channel | None = None
        self._publishing: Channel | None = None
        self._known: set[str] = set()
        self._levels = NO_LEVEL

    async def wire(self) -> AsyncWire:
        """Return the connection, made anew if the last one is lost."""
        async with self._connecting:
            if self._is_closed:
                raise Closed("the session is closed")
            wire = self._wire
            if wire is not None and wire.connection.failure is None:
                return wire
            if wire is not None:
                await wire.drop()
            self._control = self._publishing = None
            self._known.clear()
            self._levels = NO_LEVEL
            self._wire = None
            self._wire = await AsyncWire.connect(self._address)
            return self._wire

    async def close(self) -> None:
        """Hang up. The broker returns what was reserved."""
        self._is_closed = True
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def ensure(self, queue: str) -> None:
        """Make the queue, durable, unless it is there. One that is there is taken as it is, whatever its arguments."""
        await self.wire()
        if queue in self._known:
            return
        try:
            await self._call(methods.QueueDeclare(queue, durable=True))
        except Refused as refusal:
            # It is there with other arguments, or is not ours to make. Not asked first: brokers log such a question.
            if refusal.reply_code not in NOT_MADE or await self.count(queue) is None:
                raise
        self._known.add(queue)

    def forget(self, queue: str) -> None:
        """It may be gone."""
        self._known.discard(queue)

    async def count(self, queue: str) -> int | None:
        """Return how many messages are ready; None when there is no such queue."""
        try:
            reply = await self._call(methods.QueueDeclare(queue, passive=True))
        except Refused as refusal:
            if refusal.reply_code != NOT_FOUND:
                raise
            return None
        assert isinstance(reply, methods.QueueDeclareOk)
        return reply.message_count

    async def delete(self, queue: str) -> bool:
        """Delete the queue; False when there was none, which brokers do not all tell."""
        self.forget(queue)
        if await self.count(queue) is None:
            return False
        await self._call(methods.QueueDelete(queue))
        return True

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish them, all for one queue, and return when all are confirmed.

        Raises when one is not; the others may be there then.
        """
        queue = messages[0].queue
        try:
            await self._declare_levels(queue, max(delays.top_level(message.steps) for message in messages))
            await self._publish(messages)
        except Refused as refusal:
            if refusal.reply_code in (NO_ROUTE, NOT_FOUND):
                # It was deleted. The next call makes it again.
                self.forget(queue)
            raise

    async def _publish(self, messages: Sequence[Outgoing]) -> None:
        wire, channel = await self._publishing_channel()
        answers = []
        unsent_bytes = 0
        for message in messages:
            exchange = delays.level_name(delays.top_level(message.steps)) if message.steps else ""
            properties = encode_properties(message.properties)
            message_id = message.properties.message_id or ""
            answers.append(channel.publish(exchange, message.queue, properties, message.body, message_id))
            unsent_bytes += len(message.body)
            if unsent_bytes > SEND_BYTES:
                unsent_bytes = 0
                await wire.flush()
                # Confirms are taken in meanwhile: a broker that cannot send them may stop reading.
                await wire.poll()
        await wire.settle(answers)

    async def _call(self, method: methods.Method) -> methods.Method:
        """A call on the control channel."""
        async with self._controlling:
            wire = await self.wire()
            answer = (await self._control_channel(wire)).call(method)
            await wire.settle([answer])
        assert answer.reply is not None
        return answer.reply

    async def _control_channel(self, wire: AsyncWire) -> Channel:
        if self._control is None or self._control.failure is not None:
            self._control = await wire.open_channel()
        return self._control

    async def _publishing_channel(self) -> tuple[AsyncWire, Channel]:
        async with self._controlling:
            wire = await self.wire()
            if self._publishing is None or self._publishing.failure is not None:
                self._publishing = await wire.open_channel(confirms=True)
            return wire, self._publishing

    async def _declare_levels(self, queue: str, top: int) -> None:
        """Make the levels up to this one, once for a connection; and each time the way from them to the queue."""
        if top < 0:
            return
        async with self._controlling:
            wire = await self.wire()
            channel = await self._control_channel(wire)
            if top > self._levels:
                for method in delays.declarations(top, self._levels):
                    channel.send(method)
                await wire.settle([channel.call(methods.QueueDeclare(delays.level_name(top), passive=True))])
                self._levels = top
            await wire.settle([channel.call(delays.way_to(queue))])
