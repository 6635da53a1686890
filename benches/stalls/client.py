"""A blocking AMQP client for the acts: it sends ready bytes and waits for the methods that it expects."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Final

FRAME_BYTES_MAX: Final = 131_072
DEADLINE_S: Final = 300.0
PERSISTENT: Final = struct.pack(">HB", 0x1000, 2)
# basic.deliver to the consumer "t": what every delivery has in front of its tag.
DELIVERY_START: Final = b"\x00\x3c\x00\x3c\x01t"


class Refused(Exception):
    """The broker closed the channel or the connection."""


def short(text: str) -> bytes:
    octets = text.encode()
    return bytes([len(octets)]) + octets


def table(fields: dict[str, str | list[bytes]]) -> bytes:
    """Field values: long strings, and lists of them."""
    out = b""
    for name, value in fields.items():
        out += short(name)
        if isinstance(value, str):
            out += b"S" + long(value.encode())
        else:
            out += b"A" + long(b"".join([b"S" + long(item) for item in value]))
    return long(out)


def long(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(number: tuple[int, int], arguments: bytes = b"", channel: int = 1) -> bytes:
    return frame(1, channel, struct.pack(">HH", *number) + arguments)


def publish(exchange: str, key: str, body: bytes, properties: bytes = PERSISTENT) -> bytes:
    out = [method((60, 40), b"\0\0" + short(exchange) + short(key) + b"\0")]
    out.append(frame(2, 1, struct.pack(">HHQ", 60, 0, len(body)) + properties))
    step = FRAME_BYTES_MAX - 8
    out += [frame(3, 1, body[at : at + step]) for at in range(0, len(body), step)]
    return b"".join(out)


def declare(queue: str, durable: bool, arguments: dict[str, str | list[bytes]] | None = None) -> bytes:
    """A declaration that is not answered."""
    return method((50, 10), b"\0\0" + short(queue) + bytes([durable << 1 | 16]) + table(arguments or {}))


def bind(queue: str, exchange: str, key: str) -> bytes:
    """A binding that is not answered."""
    return method((50, 20), b"\0\0" + short(queue) + short(exchange) + short(key) + b"\x01" + table({}))


class Client:
    """One connection with channel 1."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        self.send(b"AMQP\0\0\x09\x01")
        self.expect((10, 10))
        self.send(method((10, 11), table({}) + short("PLAIN") + long(b"\0guest\0guest") + short("en_US"), 0))
        self.expect((10, 30))
        self.send(method((10, 31), struct.pack(">HIH", 2047, FRAME_BYTES_MAX, 0), 0))
        self.send(method((10, 40), short("/") + short("") + b"\0", 0))
        self.expect((10, 41))
        self.call((20, 10), short(""))

    def send(self, octets: bytes) -> None:
        self.sock.sendall(octets)

    def call(self, number: tuple[int, int], arguments: bytes = b"") -> bytes:
        """Sends a method whose answer has the next number, and returns the answer."""
        self.send(method(number, arguments))
        return self.expect((number[0], number[1] + 1))

    def expect(self, number: tuple[int, int]) -> bytes:
        """The arguments of the next method of that number; what comes before it is passed over."""
        while True:
            kind, payload = self._frame()
            if kind != 1:
                continue
            got = struct.unpack(">HH", payload[:4])
            if got == number:
                return payload[4:]
            if got in ((10, 50), (20, 40)):
                raise Refused(payload[4:200].decode(errors="replace"))

    def _frame(self) -> tuple[int, bytes]:
        while len(self._unread) < 7 or len(self._unread) < 8 + int.from_bytes(self._unread[3:7], "big"):
            octets = self.sock.recv(1 << 20)
            if not octets:
                raise Refused("the broker closed the connection")
            self._unread += octets
        end = 8 + int.from_bytes(self._unread[3:7], "big")
        found = self._unread[0], self._unread[7 : end - 1]
        self._unread = self._unread[end:]
        return found

    def passive(self, queue: str) -> int:
        """Asks for a queue; how many messages wait in it."""
        answer = self.call((50, 10), b"\0\0" + short(queue) + b"\x01" + table({}))
        return int.from_bytes(answer[-8:-4], "big")

    def fill(self, queue: str, count: int, body: bytes) -> None:
        """Publishes persistent messages, and returns when all are confirmed."""
        self.call((85, 10), b"\0")
        burst = publish("", queue, body) * 500
        # As fast as the broker takes them, so that its batches are as large as they get.
        sender = threading.Thread(target=lambda: [self.send(burst) for _ in range(count // 500)])
        sender.start()
        while int.from_bytes(self.expect((60, 80))[:8], "big") < count:
            pass
        sender.join()

    def consume(self, queue: str) -> None:
        self.send(method((60, 20), b"\0\0" + short(queue) + short("t") + b"\0" + table({})))

    def take(self, count: int) -> None:
        """Reads deliveries of small messages until there were so many."""
        carry = b""
        while count > 0:
            octets = self.sock.recv(1 << 20)
            if not octets:
                raise Refused("the broker closed the connection")
            octets = carry + octets
            count -= octets.count(DELIVERY_START)
            last = octets.rfind(DELIVERY_START)
            carry = octets[max(last + len(DELIVERY_START), len(octets) - len(DELIVERY_START) + 1) :]

    def close(self) -> None:
        self.sock.close()
