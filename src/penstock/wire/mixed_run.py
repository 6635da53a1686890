"""Runs of publishes that go the same way but differ in size and properties.

Publishers of small messages send many before they wait, each with a message-id, a timestamp or headers of its own;
taking them in one loop costs a fraction of taking them one by one. *Plain* properties have nothing in them that
concerns the broker but delivery mode and priority (`property_shapes`). `content.scan_run` is faster, for messages that
differ in their bodies only; `content.read_content` is the careful one for everything else.

Invariants
  1. Every entry's frames were checked as carefully as one by one: types, channel, class, weight, sizes, FRAME-END.
  2. An envelope made here has valid properties: their lengths add up to the whole.
  3. The scan stops before the first message that is cut off, unusual or not plain; it never raises.
"""

from __future__ import annotations

from typing import final

from penstock.message import Entry, Envelope
from penstock.wire import frames
from penstock.wire.property_shapes import PropertyShapes


@final
class MixedRoute:
    """What stays the same in a run: where the messages go, and the frames around them."""

    __slots__ = (
        "address",
        "body_head",
        "body_size_max",
        "exchange",
        "header_head",
        "payload_max",
        "publish_frame",
        "routing_key",
        "shapes",
    )

    def __init__(
        self,
        publish_frame: bytes,
        exchange: str,
        routing_key: str,
        address: bytes,
        payload_max: int,
        body_size_max: int,
        shapes: PropertyShapes,
    ) -> None:
        self.publish_frame = publish_frame
        self.exchange = exchange
        self.routing_key = routing_key
        # The address of all envelopes of the run: one object, which delivery recognises.
        self.address = address
        # The type and channel of the header frame and of the body frame.
        self.header_head = b"\x02" + publish_frame[1:3]
        self.body_head = b"\x03" + publish_frame[1:3]
        # What fits into one frame; and for the body, is not too large for the broker either.
        self.payload_max = payload_max
        self.body_size_max = body_size_max
        self.shapes = shapes


def scan_mixed(route: MixedRoute, data: bytes, pos: int, entries: list[Entry]) -> int:
    """Append the messages that stand at `pos` to `entries`; return where the first that was not taken begins."""
    publish_frame = route.publish_frame
    body_head = route.body_head
    body_size_max = route.body_size_max
    method_size = len(publish_frame)
    end = len(data)
    startswith = data.startswith
    append = entries.append
    last_head = b""
    last_properties = b""
    envelope: Envelope | None = None
    body_frame_offset = 0
    while startswith(publish_frame, pos):
        header = pos + method_size
        head = data[header : header + 11]
        if head != last_head:
            # Type, channel, size, class and weight of the header frame: checked once, compared afterwards.
            size = int.from_bytes(head[3:7], "big")
            if head[0:3] != route.header_head or head[7:11] != frames.CONTENT_HEADER_START:
                break
            if not 14 <= size <= route.payload_max:
                break
            last_head = head
            body_frame_offset = size + 8
        body_frame = header + body_frame_offset
        size_octets = data[header + 15 : header + 19]
        body_size = int.from_bytes(size_octets, "big")
        stop = body_frame + body_size + 8
        if (
            stop > end
            or not 0 < body_size <= body_size_max
            or not startswith(b"\x00\x00\x00\x00", header + 11)
            or data[body_frame - 1] != frames.END
            or not startswith(body_head + size_octets, body_frame)
            or data[stop - 1] != frames.END
        ):
            break
        properties = data[header + 19 : body_frame - 1]
        if properties != last_properties:
            envelope = plain_envelope(route, properties)
            last_properties = properties
        if envelope is None:
            break
        append((envelope, data[body_frame + 7 : stop], None))
        pos = stop
    return pos


def plain_envelope(route: MixedRoute, raw: bytes) -> Envelope | None:
    """Return the envelope of a message with plain properties; None when they are not plain, or not valid."""
    marks = route.shapes.look(raw)
    if marks < 0:
        return None
    return Envelope(route.exchange, route.routing_key, raw, marks & 1 == 1, marks >> 1, -1, route.address)
