"""What a client sends, as frames that can still be changed before they become bytes."""

from __future__ import annotations

from typing import NamedTuple

from penstock.fields import Table
from penstock.wire import frames, methods
from penstock.wire.properties import Properties, encode_properties

HEADER = frames.PROTOCOL_HEADER
NO_PROPERTIES = b"\x00\x00"
CAPABILITIES: Table = {
    "capabilities": ("F", dict.fromkeys(("consumer_cancel_notify", "authentication_failure_close"), ("t", True)))
}


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes

    def encode(self) -> bytes:
        return frames.frame(self.kind, self.channel, self.payload)


def encode_all(sent: list[Frame]) -> bytes:
    return b"".join([frame.encode() for frame in sent])


def method(channel: int, sent: methods.Method) -> Frame:
    return Frame(frames.METHOD, channel, sent.encode())


def content_header(channel: int, size: int, properties: bytes = NO_PROPERTIES) -> Frame:
    return Frame(frames.HEADER, channel, frames.CONTENT_HEADER_START + size.to_bytes(8, "big") + properties)


def body(channel: int, payload: bytes) -> Frame:
    return Frame(frames.BODY, channel, payload)


def publish(
    channel: int,
    exchange: str,
    routing_key: str,
    payload: bytes,
    properties: Properties | None = None,
    mandatory: bool = False,
    part_bytes: int = 0,
) -> list[Frame]:
    """The frames of one message; `part_bytes` cuts its body into frames of that size."""
    raw = encode_properties(properties) if properties else NO_PROPERTIES
    sent = [
        method(channel, methods.BasicPublish(exchange, routing_key, mandatory, False)),
        content_header(channel, len(payload), raw),
    ]
    step = part_bytes or max(len(payload), 1)
    sent += [body(channel, payload[at : at + step]) for at in range(0, len(payload), step)]
    return sent


def start_ok(response: bytes = b"\x00guest\x00guest", mechanism: str = "PLAIN", about: Table = CAPABILITIES) -> Frame:
    return method(0, methods.ConnectionStartOk(about, mechanism, response))


def handshake(frame_bytes_max: int = 0) -> list[Frame]:
    """All that follows the protocol header, without waiting for the answers: a client may do that."""
    return [
        start_ok(),
        method(0, methods.ConnectionTuneOk(0, frame_bytes_max, 0)),
        method(0, methods.ConnectionOpen("/")),
    ]


def goodbye() -> Frame:
    return method(0, methods.ConnectionClose(200, "bye", 0, 0))
