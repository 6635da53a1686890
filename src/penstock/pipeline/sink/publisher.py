"""Publishes many messages with confirms, and returns when the broker has them all.

Owns one connection, a channel in confirm mode, and the window: messages that were sent and are not confirmed yet, in
the order in which they were given. Used by one thread; each task of Spark has its own.

A lost connection is made again, and what is in the window is sent again: the broker may have had it, so a message can
come twice. That is why each carries a key for deduplication (`rows`). A message that the broker refuses for now
(basic.nack) is sent again a few times, behind those that came after it. A message that no queue takes is an error:
all are published as mandatory.

When it fails, it does not say which of the messages were published.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from penstock.client.amqp.address import Address
from penstock.client.amqp.answer import Answer
from penstock.client.amqp.channel import Channel
from penstock.client.amqp.refused import Refused
from penstock.client.amqp.sockets import SEND_BYTES
from penstock.client.errors import ClientError, Closed, ConnectionLost
from penstock.client.sync.amqp.wire import Wire
from penstock.fields import Table
from penstock.pipeline.sink.options import RECONNECT_S, SinkError
from penstock.wire.methods import QueueDeclare

WINDOW_MESSAGES: Final = 1000
WINDOW_BYTES: Final = 4 * 1024 * 1024
# Tries of a message that the broker refuses, and the pause before the second, which doubles.
NACKED_TRIES_MAX: Final = 6
NACKED_PAUSE_S: Final = 0.1
RECONNECT_PAUSE_S: Final = 0.2
NO_ROUTE: Final = 312


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """What is published, ready for the wire."""

    exchange: str
    routing_key: str
    # Flags and list, as in a content header.
    properties: bytes
    # The same as in the properties: the broker returns by it what it cannot route.
    message_id: str
    body: bytes


class _Unconfirmed:
    __slots__ = ("answer", "message", "tries")

    def __init__(self, message: OutgoingMessage) -> None:
        self.message = message
        self.answer = Answer()
        self.tries = 0


class Publisher:
    """A connection and its window. `flush` before the end, or what was given last may not be there."""

    def __init__(
        self,
        address: Address,
        window_messages: int = WINDOW_MESSAGES,
        window_bytes: int = WINDOW_BYTES,
        reconnect_s: float = RECONNECT_S,
    ) -> None:
        self._address = address
        self._window_messages = window_messages
        self._window_bytes = window_bytes
        # From the loss of a connection to the next confirm.
        self._reconnect_s = reconnect_s
        self._wire: Wire | None = None
        self._channel: Channel | None = None
        # Oldest first.
        self._window: deque[_Unconfirmed] = deque()
        self._bytes = 0
        self._unsent_bytes = 0
        # When the connection was lost; None once something was confirmed since.
        self._lost_at_s: float | None = None
        self.confirmed = 0
        self.refused = 0
        self.reconnects = 0

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, message: OutgoingMessage) -> None:
        """Send it as soon as the window has room. Raises what an earlier message has met, too."""
        size = len(message.body) + len(message.properties)
        while self._window and (len(self._window) >= self._window_messages or self._bytes + size > self._window_bytes):
            self._settle(len(self._window) // 2)
        item = _Unconfirmed(message)
        self._window.append(item)
        self._bytes += size
        self._send(item)

    def push(self) -> None:
        """Send what is gathered, and take in what has come: for a caller who pauses."""
        if self._wire is not None:
            self._unsent_bytes = 0
            # A lost connection is noticed when the publishes are settled.
            with suppress(ConnectionLost):
                self._wire.flush()
                self._wire.poll()

    def flush(self) -> None:
        """Return when everything is confirmed."""
        while self._window:
            self._settle(len(self._window) - 1)

    def declare(self, queue: str, arguments: Table) -> None:
        """Make a durable queue, or find it there as it should be."""
        try:
            self._connect()
            assert self._wire is not None
            # On a channel of its own: a refusal closes it.
            channel = self._wire.open_channel()
            self._wire.settle([channel.call(QueueDeclare(queue, durable=True, arguments=arguments))])
        except ClientError as error:
            raise SinkError(f"queue {queue!r} cannot be declared: {error}") from None

    def close(self) -> None:
        """Hang up. What is not confirmed may be there or not."""
        wire, self._wire, self._channel = self._wire, None, None
        if wire is not None:
            wire.close()

    # --- the window -----------------------------------------------------------------------------------

    def _send(self, item: _Unconfirmed) -> None:
        """Hand it to the connection. A lost connection is noticed when the publishes are settled."""
        message = item.message
        try:
            if self._channel is None:
                self._connect()
            assert self._channel is not None and self._wire is not None
            item.tries += 1
            item.answer = self._channel.publish(
                message.exchange, message.routing_key, message.properties, message.body, message.message_id
            )
            self._unsent_bytes += len(message.body) + len(message.properties)
            if self._unsent_bytes > SEND_BYTES:
                # Confirms are taken in meanwhile: a broker that cannot send them may stop reading.
                self.push()
        except ConnectionLost:
            item.answer.fail(ConnectionLost("not sent"))
        except ClientError as error:
            raise self._failure(item, error) from None

    def _settle(self, index: int) -> None:
        """Wait for the message at this place of the window, and let those go that are confirmed."""
        goal = self._window[index].answer
        wire = self._wire
        self._unsent_bytes = 0
        try:
            if wire is not None and not goal.is_done:
                wire.flush()
                if not wire.wait(lambda: goal.is_done, time.monotonic() + self._address.timeout_s):
                    words = "" if wire.connection.blocked is None else f": it is blocked, {wire.connection.blocked}"
                    wire.connection.lose(f"no confirm within {self._address.timeout_s:g} s{words}")
        except ConnectionLost:
            # Each answer has it as its error, and is looked at now.
            pass
        self._let_go()

    def _let_go(self) -> None:
        refused: list[_Unconfirmed] = []
        lost: ClientError | None = None
        kept: deque[_Unconfirmed] = deque()
        for item in self._window:
            error = item.answer.error
            if not item.answer.is_done:
                kept.append(item)
            elif error is None:
                self._bytes -= len(item.message.body) + len(item.message.properties)
                self.confirmed += 1
                self._lost_at_s = None
            elif isinstance(error, ConnectionLost | Closed):
                lost = error
                kept.append(item)
            elif isinstance(error, Refused) and error.reply_code == 0 and item.tries < NACKED_TRIES_MAX:
                refused.append(item)
                self.refused += 1
            else:
                raise self._failure(item, error)
        self._window = kept
        if refused:
            time.sleep(NACKED_PAUSE_S * 2 ** (refused[0].tries - 1))
            self._window.extend(refused)
        if lost is not None:
            self._reconnect(lost)
            return
        for item in refused:
            self._send(item)

    def _failure(self, item: _Unconfirmed, error: ClientError) -> SinkError:
        message = item.message
        where = f"exchange {message.exchange!r}, routing key {message.routing_key!r}"
        if isinstance(error, Refused) and error.reply_code == NO_ROUTE:
            return SinkError(f"no queue takes a message for {where}: declare the queue or its binding first")
        if isinstance(error, Refused) and error.reply_code == 0:
            return SinkError(f"the broker has refused a message {item.tries} times ({where}): is the queue full?")
        return SinkError(f"a message cannot be published ({where}, message-id {message.message_id!r}): {error}")

    # --- the connection -------------------------------------------------------------------------------

    def _connect(self) -> None:
        """A connection and its channel, when there is none."""
        if self._wire is not None:
            return
        wire = Wire.connect(self._address)
        try:
            self._channel = wire.open_channel(confirms=True)
        except BaseException:
            wire.drop()
            raise
        self._wire = wire

    def _reconnect(self, lost: ClientError) -> None:
        """A new connection, and everything in the window again on it, in its order."""
        if self._lost_at_s is None:
            self._lost_at_s = time.monotonic()
        self._drop()
        while self._wire is None:
            if time.monotonic() - self._lost_at_s > self._reconnect_s:
                raise SinkError(f"{len(self._window)} messages are not confirmed, and the broker is gone: {lost}")
            try:
                self._connect()
            except ConnectionLost:
                time.sleep(RECONNECT_PAUSE_S)
            except ClientError as error:
                raise SinkError(str(error)) from None
        self.reconnects += 1
        for item in list(self._window):
            self._send(item)

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.drop()
        self._wire = self._channel = None
