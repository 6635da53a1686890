"""A blocking AMQP client for tests, frame by frame: it reads only when it is told to, and answers nothing by itself.

pamqp encodes and decodes, so that a mistake in penstock's codec cannot hide itself. Every wait has a deadline.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from pamqp import base, body, commands, frame, header, heartbeat

from tests.frame_socket import DEADLINE_S, PROTOCOL_HEADER, ConnectionEnded, FrameSocket

CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
WITH_CONTENT = (commands.Basic.Deliver, commands.Basic.GetOk, commands.Basic.Return)

M = TypeVar("M", bound=base.Frame)


@dataclass
class Message:
    """A delivery, a get-ok or a return with its content."""

    channel: int
    method: Any
    properties: Any
    body: bytes


Event = tuple[int, Any]


class Client(FrameSocket):
    """One connection. `handshake` makes it usable; until then it is a socket."""

    def __init__(self, host: str, port: int, receive_buffer_bytes: int = 0) -> None:
        super().__init__(host, port, receive_buffer_bytes)
        # Read, but not what was waited for at the time.
        self._events: deque[Event] = deque()
        # Content that is coming in, by channel.
        self._partial: dict[int, list[Any]] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    # --- the handshake --------------------------------------------------------------------------------

    def handshake(
        self,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        heartbeat_s: int = 0,
        frame_bytes_max: int = 131_072,
        channels_max: int = 2_047,
        capabilities: dict[str, bool] | None = None,
        product: str = "test",
    ) -> Client:
        self.socket.sendall(PROTOCOL_HEADER)
        self.expect(commands.Connection.Start)
        properties = {"product": product, "capabilities": CAPABILITIES if capabilities is None else capabilities}
        self.send(0, commands.Connection.StartOk(properties, "PLAIN", f"\0{user}\0{password}", "en_US"))
        self.expect(commands.Connection.Tune)
        self.send(0, commands.Connection.TuneOk(channels_max, frame_bytes_max, heartbeat_s))
        self.call(0, commands.Connection.Open(vhost), commands.Connection.OpenOk)
        return self

    # --- sending --------------------------------------------------------------------------------------

    def send(self, channel: int, *methods: base.Frame) -> None:
        self.socket.sendall(b"".join([frame.marshal(method, channel) for method in methods]))

    def send_heartbeat(self) -> None:
        self.socket.sendall(frame.marshal(heartbeat.Heartbeat(), 0))

    def publish(self, channel: int, key: str, *payloads: bytes, exchange: str = "", **properties: Any) -> None:
        self.socket.sendall(b"".join([publish_frames(channel, key, each, exchange, **properties) for each in payloads]))

    def call(self, channel: int, method: base.Frame, reply: type[M]) -> M:
        self.send(channel, method)
        return self.expect(reply, channel)

    # --- the steps that most tests take -----------------------------------------------------------------

    def open_channel(self, number: int = 1) -> int:
        self.call(number, commands.Channel.Open(), commands.Channel.OpenOk)
        return number

    def declare(self, channel: int, name: str = "", **attributes: Any) -> str:
        reply = self.call(channel, commands.Queue.Declare(0, name, **attributes), commands.Queue.DeclareOk)
        return str(reply.queue)

    def consume(self, channel: int, queue: str, tag: str = "", **attributes: Any) -> str:
        method = commands.Basic.Consume(0, queue, tag, **attributes)
        return str(self.call(channel, method, commands.Basic.ConsumeOk).consumer_tag)

    def qos(self, channel: int, count: int, all_consumers: bool = False) -> None:
        self.call(channel, commands.Basic.Qos(0, count, all_consumers), commands.Basic.QosOk)

    def ack(self, channel: int, tag: int, multiple: bool = False) -> None:
        self.send(channel, commands.Basic.Ack(tag, multiple))

    def barrier(self, channel: int) -> None:
        """Return when the broker has handled everything that was sent on the channel before."""
        method = commands.Exchange.Declare(0, "amq.direct", "direct", passive=True)
        self.call(channel, method, commands.Exchange.DeclareOk)

    def messages(self, count: int) -> list[Message]:
        """The next `count` deliveries."""
        return [self.message() for _ in range(count)]

    def bodies(self, count: int) -> list[bytes]:
        return [message.body for message in self.messages(count)]

    def message(self) -> Message:
        return self._await(lambda event: isinstance(event[1], Message), "a message")[1]

    # --- receiving ------------------------------------------------------------------------------------

    def expect(self, kind: type[M], channel: int | None = None) -> M:
        """The next method of this kind; whatever comes before it is kept for later."""
        found = self._await(
            lambda event: isinstance(event[1], kind) and channel in (None, event[0]), f"{kind.name} on {channel}"
        )
        return found[1]

    def expect_heartbeat(self) -> None:
        self._await(lambda event: isinstance(event[1], heartbeat.Heartbeat), "a heartbeat")

    def seen(self, kind: type[M]) -> list[M]:
        """Methods of this kind that have been read already and were not waited for."""
        return [event for _, event in self._events if isinstance(event, kind)]

    def waiting_messages(self) -> list[Message]:
        """Messages that have been read already and were not waited for."""
        return [event for _, event in self._events if isinstance(event, Message)]

    def expect_end(self) -> None:
        """Read until the broker closes the socket."""
        deadline = time.monotonic() + DEADLINE_S
        with contextlib.suppress(ConnectionEnded):
            while True:
                self._events.append(self._read_event(deadline))

    def receive_bytes(self, count_max: int = 65_536) -> bytes:
        """What the socket has, undecoded; b"" at its end."""
        self.socket.settimeout(DEADLINE_S)
        try:
            return self.socket.recv(count_max)
        except ConnectionResetError:
            return b""

    def _await(self, wanted: Any, what: str) -> Any:
        for index, event in enumerate(self._events):
            if wanted(event):
                del self._events[index]
                return event
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                event = self._read_event(deadline)
            except ConnectionEnded:
                raise ConnectionEnded(f"while waiting for {what}; before it: {self._last_words()}") from None
            if wanted(event):
                return event
            self._events.append(event)
            if isinstance(event[1], commands.Connection.Close):
                # Nothing else will come.
                raise ConnectionEnded(f"{event[1].reply_code} {event[1].reply_text} while waiting for {what}")

    def _last_words(self) -> list[str]:
        return [f"{event}" for _, event in list(self._events)[-3:] if not isinstance(event, Message)]

    def _read_event(self, deadline: float) -> Event:
        while True:
            if self.socket.gettimeout() != DEADLINE_S:
                # A test has given the broker less time to take what it is sent.
                self.socket.settimeout(DEADLINE_S)
            arrived = self.next_frame(deadline)
            channel, received = arrived.channel, arrived.decoded()
            if isinstance(received, (header.ContentHeader, body.ContentBody)):
                self._partial[channel].append(received)
            elif isinstance(received, WITH_CONTENT):
                self._partial[channel] = [received]
            else:
                return channel, received
            message = self._whole(channel)
            if message is not None:
                return channel, message

    def _whole(self, channel: int) -> Message | None:
        method, *rest = self._partial[channel]
        if not rest or sum(len(part.value) for part in rest[1:]) < rest[0].body_size:
            return None
        del self._partial[channel]
        return Message(channel, method, rest[0].properties, b"".join([part.value for part in rest[1:]]))

    # --- the end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Say goodbye, as a good client does."""
        self.call(0, commands.Connection.Close(200, "done", 0, 0), commands.Connection.CloseOk)
        self.drop()


def publish_frames(channel: int, key: str, payload: bytes, exchange: str = "", **properties: Any) -> bytes:
    """A publish with its content, in frames of the largest size that is offered."""
    mandatory = properties.pop("mandatory", False)
    parts = [
        frame.marshal(commands.Basic.Publish(0, exchange, key, mandatory), channel),
        frame.marshal(header.ContentHeader(0, len(payload), commands.Basic.Properties(**properties)), channel),
    ]
    room = 131_072 - 8
    for start in range(0, len(payload), room):
        parts.append(frame.marshal(body.ContentBody(payload[start : start + room]), channel))
    return b"".join(parts)
