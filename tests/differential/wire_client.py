"""A raw AMQP 0-9-1 client: it sends any bytes on any channel and keeps everything the server says.

It never hides an error and never waits for time to pass: reads end with an expected frame, with a barrier (the
reply to a harmless synchronous method) or with the end of the connection, and every wait has a deadline.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.frame_socket import (
    BODY,
    DEADLINE_S,
    FRAME_END,
    HEAD,
    HEADER,
    HEARTBEAT,
    METHOD,
    OTHER_PROTOCOL,
    PROTOCOL_HEADER,
    ConnectionEnded,
    FrameSocket,
)

from . import wire_values
from .wire_values import Raw

WITH_CONTENT = ("basic.deliver", "basic.get-ok", "basic.return")
# Bodies above this are written down as their length and hash.
BODY_SHOWN_BYTES = 200
CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


@dataclass
class Event:
    """One thing the server said: a method with its content, or the end of the connection."""

    channel: int
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    properties: str = ""
    body: bytes = b""
    body_size: int = 0
    frame_sizes: list[int] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self.body_size == len(self.body)

    def __str__(self) -> str:
        text = " ".join([self.name, *(f"{key}={value!r}" for key, value in self.arguments.items())])
        if self.name not in WITH_CONTENT:
            return text
        if len(self.body) > BODY_SHOWN_BYTES:
            digest = hashlib.sha256(self.body).hexdigest()[:16]
            frames = " ".join(f"{len(list(run))}x{size}" for size, run in itertools.groupby(self.frame_sizes))
            body = f"{len(self.body)} bytes, sha256 {digest}, frames {frames}"
        else:
            body = repr(self.body)[1:]
        return f"{text} | {self.properties} | {body}"


class Wire(FrameSocket):
    """One TCP connection to a broker.

    `record` gets every event in the order of arrival, `sent` the name and arguments of every method sent.
    """

    def __init__(
        self,
        host: str,
        port: int,
        record: Callable[[Event], None],
        sent: Callable[[str, dict[str, Any]], None],
    ) -> None:
        super().__init__(host, port)
        self.record = record
        self.sent = sent
        self.frame_max = 131_072
        self.open = False
        self.ended = False
        # Answer channel.close and connection.close with close-ok, as every client does.
        self.answers_close = True
        self.channels: dict[int, Channel] = {}
        self._content: dict[int, Event] = {}
        # What is sent at once when the block of `at_once` ends; None outside of one.
        self._held: bytearray | None = None

    # --- sending ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Send everything of the block in one write, so that the server reads it in one go."""
        self._held = bytearray()
        try:
            yield
        finally:
            data, self._held = bytes(self._held), None
        self.send_bytes(data)

    def send_bytes(self, data: bytes) -> None:
        if self._held is not None:
            self._held += data
            return
        # The server may close first: what it said before that is what matters.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def send_frame(self, kind: int, channel: int, payload: bytes, end: bytes = FRAME_END) -> None:
        self.send_bytes(HEAD.pack(kind, channel, len(payload)) + payload + end)

    def send(self, channel: int, name: str, **arguments: Any) -> None:
        self.sent(name, arguments)
        self.send_frame(METHOD, channel, wire_values.method(name, **arguments))

    def send_content(self, channel: int, body: bytes, properties: dict[str, Any] | Raw | None = None) -> None:
        self.send_frame(HEADER, channel, wire_values.content_header(len(body), properties or {}))
        room = self.frame_max - 8
        for at in range(0, len(body), room):
            self.send_frame(BODY, channel, body[at : at + room])

    # --- receiving ----------------------------------------------------------------------------------------

    def next_event(self, deadline: float | None = None) -> Event:
        """The next complete thing the server says; it is recorded and, where due, answered."""
        deadline = deadline or time.monotonic() + DEADLINE_S
        while True:
            if self.ended:
                return Event(0, "EOF")
            try:
                kind, channel, payload = self.next_frame(deadline)
            except ConnectionEnded:
                return self._end()
            if kind == OTHER_PROTOCOL:
                self.record(Event(0, f"protocol header AMQP {tuple(payload[4:])}"))
                continue
            if kind == HEARTBEAT:
                assert (channel, payload) == (0, b""), f"heartbeat on channel {channel}: {payload!r}"
                # When heartbeats come is timing, so they are not recorded; a script may wait for one.
                return Event(0, "heartbeat")
            event = self._assemble(kind, channel, payload)
            if event is not None:
                self._react(event)
                return event

    def _end(self) -> Event:
        for event in self._content.values():
            event.name += " (cut off)"
            self.record(event)
        self.ended, self.open = True, False
        self.record(Event(0, "EOF"))
        return Event(0, "EOF")

    def _assemble(self, kind: int, channel: int, payload: bytes) -> Event | None:
        if kind == METHOD:
            event = Event(channel, *wire_values.read_method(payload))
            if event.name in WITH_CONTENT:
                event.body_size = -1
                self._content[channel] = event
                return None
            return event
        event = self._content[channel]
        if kind == HEADER:
            event.body_size, event.properties = wire_values.read_content_header(payload)
        else:
            event.body += payload
            event.frame_sizes.append(len(payload))
        if not event.complete:
            return None
        return self._content.pop(channel)

    def _react(self, event: Event) -> None:
        channel = self.channels.get(event.channel)
        if event.name == "exchange.declare-ok" and channel is not None and channel.declares.popleft():
            event.name = "barrier"
            return
        self.record(event)
        if event.name in ("basic.ack", "basic.nack") and channel is not None:
            tag = event.arguments["delivery_tag"]
            channel.confirms.update(range(1 if event.arguments["multiple"] else tag, tag + 1))
        if event.name == "channel.close":
            if channel is not None:
                channel.open = False
            if self.answers_close:
                self.send(event.channel, "channel.close-ok")
        elif event.name == "channel.close-ok" and channel is not None:
            channel.open = False
        elif event.name == "connection.close":
            self.open = False
            if self.answers_close:
                self.send(0, "connection.close-ok")
        elif event.name == "connection.close-ok":
            self.open = False

    def expect(self, channel: int, *names: str) -> Event | None:
        """Read until one of `names` comes on `channel`; None when the channel or the connection ends first."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            event = self.next_event(deadline)
            if event.channel == channel and event.name in names:
                return event
            if event.name == "EOF" or (event.name == "connection.close" and not self.answers_close):
                return None
            if event.name == "channel.close" and event.channel == channel:
                return None

    def expect_end(self) -> None:
        """Read until the server ends the connection, answering its connection.close."""
        deadline = time.monotonic() + DEADLINE_S
        while self.next_event(deadline).name != "EOF":
            pass

    def hang_up(self) -> None:
        """Drop the TCP connection without a word."""
        self.open, self.ended = False, True
        self.drop()

    # --- the ordinary handshake ---------------------------------------------------------------------------

    def handshake(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        channel_max: int = 2047,
        frame_max: int = 131_072,
        heartbeat: int = 0,
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        self.send_bytes(PROTOCOL_HEADER)
        self.expect(0, "connection.start")
        self.start_ok(f"\0{user}\0{password}".encode(), capabilities=capabilities)
        if self.expect(0, "connection.tune") is None:
            return
        self.send(0, "connection.tune-ok", channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
        self.frame_max = frame_max or 131_072
        self.send(0, "connection.open", virtual_host=vhost)
        self.open = self.expect(0, "connection.open-ok") is not None

    def start_ok(
        self,
        response: bytes | Raw,
        mechanism: str = "PLAIN",
        locale: str = "en_US",
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        self.send(
            0,
            "connection.start-ok",
            client_properties={"capabilities": CAPABILITIES if capabilities is None else capabilities},
            mechanism=mechanism,
            response=response,
            locale=locale,
        )

    def channel(self, number: int = 1) -> Channel:
        """Open a channel."""
        channel = Channel(self, number)
        self.channels[number] = channel
        self.send(number, "channel.open")
        channel.open = self.expect(number, "channel.open-ok") is not None
        return channel


class Channel:
    """One channel of a `Wire`, with the steps that most scripts take."""

    def __init__(self, wire: Wire, number: int) -> None:
        self.wire = wire
        self.number = number
        self.open = False
        # Numbers of the published messages that the server has confirmed or refused.
        self.confirms: set[int] = set()
        # For each exchange.declare on its way: is its reply a barrier's?
        self.declares: deque[bool] = deque()

    def send(self, name: str, **arguments: Any) -> None:
        if name == "exchange.declare" and not arguments.get("nowait"):
            self.declares.append(False)
        self.wire.send(self.number, name, **arguments)

    def call(self, name: str, **arguments: Any) -> Event | None:
        """Send and read until the reply; None when the server closes instead."""
        self.send(name, **arguments)
        return self.wire.expect(self.number, *wire_values.replies_of(name))

    def refused(self, name: str, **arguments: Any) -> None:
        """Send what the server should answer by closing the channel or the connection."""
        self.send(name, **arguments)
        self.expect("channel.close", *wire_values.replies_of(name))

    def expect(self, *names: str) -> Event | None:
        return self.wire.expect(self.number, *names)

    def expect_close(self) -> None:
        self.expect("channel.close")

    def publish(
        self,
        body: bytes | str = b"",
        key: str = "",
        exchange: str = "",
        properties: dict[str, Any] | Raw | None = None,
        **arguments: Any,
    ) -> None:
        self.send("basic.publish", exchange=exchange, routing_key=key, **arguments)
        self.wire.send_content(self.number, body.encode() if isinstance(body, str) else body, properties)

    def confirmed(self, tag: int) -> None:
        """Read until all messages up to this number are confirmed one way or the other."""
        while not all(each in self.confirms for each in range(1, tag + 1)):
            event = self.expect("basic.ack", "basic.nack")
            if event is None:
                return

    def close(self) -> None:
        self.call("channel.close", reply_code=200, reply_text="done", class_id=0, method_id=0)

    def barrier(self) -> None:
        """Everything the channel had to say about earlier steps has arrived after this."""
        if not self.open or not self.wire.open:
            return
        self.declares.append(True)
        self.wire.send(self.number, "exchange.declare", exchange="amq.direct", exchange_type="direct", passive=True)
        self.wire.expect(self.number, "barrier")
