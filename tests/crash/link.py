"""A small, quick AMQP client for the crash tests: one connection, one channel, a blocking socket.

What is sent and read for every message is written by hand here; the rest is left to pamqp. Nothing of penstock is used.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
import zlib
from collections import deque
from struct import unpack_from
from typing import Any, NamedTuple

from pamqp import base, commands, frame

from tests.crash.messages import PROPERTY_FLAGS

# Nothing that a broker in good health is asked for takes so long, on a busy machine or not.
ANSWER_S = 60.0
CAPABILITIES = {"publisher_confirms": True, "basic.nack": True, "connection.blocked": True}


class LinkLost(Exception):
    """The connection has ended; `by_broker` when the broker said why."""

    def __init__(self, reason: str, by_broker: bool = False) -> None:
        super().__init__(reason)
        self.by_broker = by_broker


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
        self._buffer = bytearray()
        self._events: deque[Any] = deque()
        self._lost: LinkLost | None = None
        # The delivery whose content is coming in.
        self._method: tuple[str, int, bool] = ("", 0, False)
        self._header: tuple[int, int, int, str] = (0, 0, 0, "")
        self._body: list[bytes] = []
        self._missing_bytes = 0
        self.is_blocked = False
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        except OSError as error:
            raise LinkLost(f"cannot connect: {error}") from error
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._handshake()
        except BaseException:
            self._socket.close()
            raise

    def _handshake(self) -> None:
        self.send(b"AMQP\x00\x00\x09\x01")
        self._wait_for(commands.Connection.Start)
        properties = {"product": "crash", "capabilities": CAPABILITIES}
        self._send_method(0, commands.Connection.StartOk(properties, "PLAIN", "\0guest\0guest", "en_US"))
        self._wait_for(commands.Connection.Tune)
        self._send_method(0, commands.Connection.TuneOk(2047, 131_072, 0))
        self._send_method(0, commands.Connection.Open("/"))
        self._wait_for(commands.Connection.OpenOk)
        self.open_channel()

    def open_channel(self) -> None:
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    # --- sending --------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise LinkLost(f"the broker took nothing for {ANSWER_S} s") from None
        except OSError as error:
            self._read_to_the_end()
            raise self._lost or LinkLost(str(error)) from error

    def _send_method(self, channel: int, method: base.Frame) -> None:
        self.send(frame.marshal(method, channel))

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
            if not self._poll.poll(timeout_s * 1000):
                return False
            data = self._socket.recv(262_144)
        except OSError as error:
            self._lost = LinkLost(str(error))
            raise self._lost from error
        if not data:
            self._lost = LinkLost("end of the stream")
            raise self._lost
        self._buffer += data
        self._decode()
        return True

    def _decode(self) -> None:
        buffer, pos, end = self._buffer, 0, len(self._buffer)
        while end - pos >= 7:
            kind, channel, size = unpack_from(">BHI", buffer, pos)
            if end - pos < size + 8:
                break
            payload = bytes(buffer[pos + 7 : pos + 7 + size])
            pos += size + 8
            if kind == 1:
                self._take_method(channel, payload)
            elif kind == 2:
                self._take_header(payload)
            elif kind == 3:
                self._body.append(payload)
                self._missing_bytes -= size
                self._take_content()
        del buffer[:pos]

    def _take_method(self, channel: int, payload: bytes) -> None:
        ids = payload[:4]
        if ids == b"\x00\x3c\x00\x3c":
            after = 5 + payload[4]
            tag, redelivered = unpack_from(">QB", payload, after)
            self._method = (payload[5:after].decode(), tag, bool(redelivered))
        elif ids in (b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"):
            tag, multiple = unpack_from(">QB", payload, 4)
            self._events.append(Confirm(ids[3] == 0x50, tag, bool(multiple & 1)))
        else:
            _, _, method = frame.unmarshal(
                b"\x01" + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"
            )
            self._take_other(method)

    def _take_other(self, method: Any) -> None:
        if isinstance(method, commands.Connection.Close):
            # What came before it is still handed out.
            self._lost = LinkLost(f"{method.reply_code} {method.reply_text}", by_broker=True)
            with contextlib.suppress(OSError):
                self._socket.sendall(frame.marshal(commands.Connection.CloseOk(), 0))
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
            self._socket.close()
        return self.leftovers()

    def drop(self) -> None:
        self._socket.close()
