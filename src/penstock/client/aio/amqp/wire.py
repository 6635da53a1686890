"""One connection to a broker: the socket, and the protocol that is spoken through it.

A lost connection stays lost; `amqp.link` makes the next.

The caller that waits does the reading. So heartbeats (`?heartbeat=…`, off unless asked for) are sent and expected while
a caller waits for something, and not while it is busy elsewhere: a caller that works longer than the broker's patience
without calling anything is cut off, and gets `ConnectionLost` at the next call. Without heartbeats the system's TCP
keepalive notices a broker that is gone without a word, and a busy caller is left alone.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

from penstock.client.aio.amqp.socket import AsyncSocket
from penstock.client.aio.waiting import Lock, monotonic
from penstock.client.amqp.address import Address
from penstock.client.amqp.answer import Answer
from penstock.client.amqp.channel import Channel
from penstock.client.amqp.connection import Connection
from penstock.client.errors import ClientError, ConnectionLost
from penstock.limits import CLOSE_OK_S
from penstock.wire.methods import ConfirmSelect

# Reads of one poll: behind some last words there may be the end of the connection. A broker can send for ever.
POLL_READS = 8


class AsyncWire:
    def __init__(self, address: Address, socket: AsyncSocket) -> None:
        self.address = address
        self.connection = Connection(address)
        self._socket = socket
        self._is_closed = False
        # What is taken from the connection is sent before more is taken.
        self._sending = Lock()
        self._sent_at_s = monotonic()
        self._heard_at_s = monotonic()

    @classmethod
    async def connect(cls, address: Address) -> AsyncWire:
        """Connect, log in, enter the vhost."""
        try:
            socket = await AsyncSocket.connect(address)
        except TimeoutError:
            raise ConnectionLost(f"{address}: nobody answers there") from None
        except ssl.SSLError as error:
            raise ConnectionLost(f"{address}: no TLS with the broker: {error}") from None
        except (OSError, UnicodeError) as error:
            # A name that is no host's is the latter.
            raise ConnectionLost(f"{address}: cannot connect: {error}") from None
        wire = cls(address, socket)
        connection = wire.connection
        try:
            await wire.flush()
            if not await wire.wait(lambda: connection.is_open, monotonic() + address.timeout_s):
                connection.lose(f"no connection within {address.timeout_s:g} s")
                raise ConnectionLost(str(connection.failure))
        except BaseException:
            await wire.drop()
            raise
        return wire

    async def open_channel(self, confirms: bool = False) -> Channel:
        """Return a channel that is ready for use."""
        channel, opened = self.connection.open_channel()
        await self.settle([opened])
        if confirms:
            await self.settle([channel.call(ConfirmSelect())])
        return channel

    async def settle(self, answers: Sequence[Answer]) -> None:
        """Wait until all are answered; raise the first error among them."""
        await self.flush()
        deadline_s = monotonic() + self.address.timeout_s
        if not await self.wait(lambda: all(answer.is_done for answer in answers), deadline_s):
            why = self.connection.blocked
            blocked = "" if why is None else f"; it takes no messages at present: {why}"
            self.connection.lose(f"no answer within {self.address.timeout_s:g} s{blocked}")
        if self.connection.failure is not None:
            await self.drop()
        for answer in answers:
            if answer.error is not None:
                raise answer.error

    async def wait(self, done: Callable[[], bool], deadline_s: float) -> bool:
        """Read until `done`; False when the deadline has come first. Raises when the connection is lost."""
        connection = self.connection
        # No caller has listened before: that was not the broker's silence.
        self._heard_at_s = max(self._heard_at_s, monotonic())
        while not done():
            await self.check()
            now_s = monotonic()
            if now_s >= deadline_s:
                return False
            until_s = deadline_s
            if connection.heartbeat_s:
                until_s = min(until_s, await self._keep_alive(now_s))
            if connection.failure is None:
                await self._read(until_s, done)
        return True

    async def poll(self) -> None:
        """Read what is there already; raises when the connection is lost."""
        for _ in range(POLL_READS):
            if self.connection.failure is not None or not await self._read(0.0, lambda: False):
                break
        await self.check()

    async def check(self) -> None:
        """Raises when the connection is lost."""
        if self.connection.failure is not None:
            await self.drop()
            raise self.connection.failure

    async def flush(self) -> None:
        """Send what is to be sent. A connection that breaks meanwhile is found broken by the next wait."""
        async with self._sending:
            data = self.connection.take_outgoing()
            if not data or self._is_closed:
                return
            self._sent_at_s = monotonic()
            try:
                await self._socket.send(data, self.address.timeout_s)
            except TimeoutError:
                why = self.connection.blocked or "it does not say why"
                self.connection.lose(f"the broker takes nothing any more: {why}")
            except OSError as error:
                self.connection.lose(f"the connection is lost: {error}")

    async def close(self) -> None:
        """Say goodbye, and hang up whatever the answer is."""
        if self.connection.failure is None:
            answer = self.connection.close()
            try:
                await self.flush()
                await self.wait(lambda: answer.is_done, monotonic() + CLOSE_OK_S)
            except ClientError:
                self.connection.lose("closed")
        await self.drop()

    async def drop(self) -> None:
        """Hang up."""
        self.connection.lose("closed")
        if not self._is_closed:
            self._is_closed = True
            await self._socket.close()

    async def _read(self, until_s: float, done: Callable[[], bool]) -> bool:
        """Take in what arrives until then; whether something did."""
        connection = self.connection
        try:
            has_come = await self._socket.receive(until_s, self._take_in, done)
        except OSError as error:
            doing = "the connection is lost" if connection.is_open else "no connection"
            connection.lose(f"{doing}: {error}")
            return False
        # A sender may wait for the broker to be read, which is our work.
        if has_come and not self._sending.locked():
            await self.flush()
        return has_come

    def _take_in(self, data: bytes) -> None:
        self._heard_at_s = monotonic()
        self.connection.feed(data)

    async def _keep_alive(self, now_s: float) -> float:
        """Send a heartbeat if one is due; when to look again."""
        interval_s = self.connection.heartbeat_s
        if now_s - self._heard_at_s > 2 * interval_s:
            self.connection.lose(f"the broker has been silent for two heartbeats of {interval_s} s")
        if now_s - self._sent_at_s >= interval_s / 2:
            self.connection.send_heartbeat()
            await self.flush()
        return min(self._sent_at_s + interval_s / 2, self._heard_at_s + 2 * interval_s + 0.001)
