"""A quick AMQP client for the crash tests: one connection with one channel, and what comes on it as plain events.

What is sent and read for every message is written by hand here; the rest is left to `Client` and pamqp.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections import deque
from struct import unpack_from
from typing import Any, NamedTuple

from pamqp import base, commands
from pamqp.frame import marshal

from tests.crash.messages import PROPERTY_FLAGS
from tests.frame_socket import BODY, HEADER, METHOD, ConnectionEnded, Frame
from tests.frame_socket import DEADLINE_S as ANSWER_S
from tests.server.amqp_client import Client

CAPABILITIES = {"publisher_confirms": True, "basic.nack": True, "connection.blocked": True}


class LinkLost(Exception):
    """The connection has ended."""


class ChannelGone(Exception):
    """The broker closed the channel."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Confirm(NamedTuple):
    is_ack: bool
    tag: int
    multiple: bool


class Delivery(NamedTuple):
    consumer_tag: str
    tag: int
    redelivered: bool
    message_id: str
    seal: int
    priority: int
    mode: int


class Link:
    """Connected, logged in, channel 1 open."""

    def __init__(self, port: int) -> None:
        self._events: deque[Any] = deque()
        self._lost: LinkLost | None = None
        # The delivery whose content is coming in.
        self._method: tuple[str, int, bool] = ("", 0, False)
        self._header: tuple[int, int, int, str] = (0, 0, 0, "")
        self._body: list[bytes] = []
        self._missing_bytes = 0
        self.is_blocked = False
        # Whether the broker has said that it closes the connection: then all that it sent before was read.
        self.was_told = False
        try:
            self._client = Client("127.0.0.1", port)
        except OSError as error:
            raise LinkLost(f"cannot connect: {error}") from error
        try:
            self._client.handshake(product="crash", capabilities=CAPABILITIES)
            self.open_channel()
        except (ConnectionEnded, OSError) as error:
            self.drop()
            raise LinkLost(str(error)) from error
        except BaseException:
            self.drop()
            raise

    def open_channel(self) -> None:
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    # --- sending --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        try:
            self._client.socket.sendall(data)
        except TimeoutError:
            raise LinkLost(f"the broker took nothing for {ANSWER_S} s") from None
        except OSError as error:
            self._read_to_the_end()
            raise self._lost or LinkLost(str(error)) from error

    def _send_method(self, channel: int, method: base.Frame) -> None:
        self.send(marshal(method, channel))

    def call(self, method: base.Frame, reply: type[base.Frame]) -> Any:
        """The answer; deliveries and confirms that come before it are kept."""
        self._send_method(1, method)
        return self._wait_for(reply)

    def _wait_for(self, reply: type[base.Frame]) -> Any:
        deadline = time.monotonic() + ANSWER_S
        searched = 0
        while True:
            for event in list(self._events)[searched:]:
                searched += 1
                if isinstance(event, (reply, ChannelGone)):
                    self._events.remove(event)
                    if isinstance(event, ChannelGone):
                        raise event
                    return event
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise LinkLost(f"no {reply.name} within {ANSWER_S} s")
            self._read(left_s)

    # --- receiving ------------------------------------------------------------------------------------

    def take(self, timeout_s: float) -> list[Any]:
        """Deliveries and confirms that have come; waits for some, but not longer than the timeout."""
        if not self._events:
            self._read(timeout_s)
        events = list(self._events)
        self._events.clear()
        return events

    @property
    def has_events(self) -> bool:
        """Whether `take` would not have to wait."""
        return bool(self._events)

    def _read(self, timeout_s: float) -> bool:
        """Read once, and decode all that is whole. False when nothing came. Raises what was found at the end."""
        if self._lost is not None:
            raise self._lost
        try:
            if not self._client.receive(timeout_s):
                return False
        except ConnectionEnded as error:
            self._lost = LinkLost(str(error))
            raise self._lost from error
        while (frame := self._client.take_frame()) is not None:
            self._take_frame(frame)
        return True

    def _take_frame(self, frame: Frame) -> None:
        if frame.kind == METHOD:
            self._take_method(frame)
        elif frame.kind == HEADER:
            self._take_header(frame.payload)
        elif frame.kind == BODY:
            self._body.append(frame.payload)
            self._missing_bytes -= len(frame.payload)
            self._take_content()

    def _take_method(self, frame: Frame) -> None:
        payload = frame.payload
        ids = payload[:4]
        if ids == b"\x00\x3c\x00\x3c":
            after = 5 + payload[4]
            tag, redelivered = unpack_from(">QB", payload, after)
            self._method = (payload[5:after].decode(), tag, bool(redelivered))
        elif ids in (b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"):
            tag, multiple = unpack_from(">QB", payload, 4)
            self._events.append(Confirm(ids[3] == 0x50, tag, bool(multiple & 1)))
        else:
            self._take_other(frame.decoded())

    def _take_other(self, method: Any) -> None:
        if isinstance(method, commands.Connection.Close):
            # What came before it is still handed out.
            self._lost = LinkLost(f"{method.reply_code} {method.reply_text}")
            self.was_told = True
            with contextlib.suppress(OSError):
                self._client.send(0, commands.Connection.CloseOk())
        elif isinstance(method, commands.Channel.Close):
            self._send_method(1, commands.Channel.CloseOk())
            self._events.append(ChannelGone(method.reply_code, method.reply_text))
        elif isinstance(method, commands.Connection.Blocked):
            self.is_blocked = True
        elif isinstance(method, commands.Connection.Unblocked):
            self.is_blocked = False
        else:
            self._events.append(method)

    def _take_header(self, payload: bytes) -> None:
        _, _, size, flags = unpack_from(">HHQH", payload)
        mode = priority = 0
        message_id = "?"
        if flags == PROPERTY_FLAGS:
            mode, priority = payload[14], payload[15]
            message_id = payload[17 : 17 + payload[16]].decode(errors="replace")
        self._header = (size, priority, mode, message_id)
        self._body = []
        self._missing_bytes = size
        self._take_content()

    def _take_content(self) -> None:
        if self._missing_bytes > 0:
            return
        _, priority, mode, message_id = self._header
        body = b"".join(self._body)
        seal = zlib.crc32(body, zlib.crc32(f"{message_id} {priority} {mode}".encode()))
        if not body.startswith(message_id.encode() + b"|"):
            message_id = f"{message_id} with the body of {body[:40]!r}"
        self._events.append(Delivery(*self._method, message_id, seal, priority, mode))

    # --- the end --------------------------------------------------------------------------------------

    def _read_to_the_end(self) -> None:
        """What the broker has said before it went may say why, and a client must know what it was handed."""
        with contextlib.suppress(LinkLost):
            while self._read(0.0):
                pass

    def leftovers(self) -> list[Any]:
        """What had come when the connection was lost and was not taken yet."""
        self._read_to_the_end()
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> list[Any]:
        """Say goodbye; what came before the answer is returned."""
        try:
            self._send_method(0, commands.Connection.Close(200, "done", 0, 0))
            self._wait_for(commands.Connection.CloseOk)
        finally:
            self._client.drop()
        return self.leftovers()

    def drop(self) -> None:
        self._client.drop()
