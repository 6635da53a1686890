"""Encoding deliveries: ready-made pieces, joined once per connection and turn.

A delivery is four pieces in a row: the head of the basic.deliver frame with the consumer tag; the delivery tag; the
rest of that frame together with the content header and the head of the body frame; and the body, which ends with its
own FRAME-END. The first and the third are equal for messages with the same envelope and size, and are made once.
"""

from __future__ import annotations

from penstock import limits
from penstock.message import Entry, Envelope
from penstock.wire import frames

DELIVER = b"\x00\x3c\x00\x3c"
# Class and method, delivery tag, redelivered; the rest of basic.deliver's arguments vary.
FIXED_ARGUMENT_BYTES = 4 + 8 + 1


class DeliveryEncoder:
    """Encodes the deliveries of one consumer."""

    __slots__ = ("_body_head", "_channel", "_channel_bytes", "_frame_bytes_max", "_header_head", "_tag")

    def __init__(self, channel: int, consumer_tag: str, frame_bytes_max: int) -> None:
        tag = consumer_tag.encode()
        self._channel = channel
        self._channel_bytes = channel.to_bytes(2, "big")
        # Type and channel of header and body frames.
        self._header_head = b"\x02" + self._channel_bytes
        self._body_head = b"\x03" + self._channel_bytes
        # The consumer tag as a short string.
        self._tag = b"%c%b" % (len(tag), tag)
        self._frame_bytes_max = frame_bytes_max

    def encode(self, out: list[frames.Piece], entries: list[Entry], first_tag: int, redelivered: bool) -> int:
        """Append the frames of the entries to `out`; return about how many bytes they have."""
        last_envelope: Envelope | None = None
        last_address = b""
        last_size = -1
        head = middle = opening = b""
        tag = first_tag
        total = 0
        fixed = 0
        one_frame_max = self._frame_bytes_max - limits.FRAME_OVERHEAD_BYTES + 1
        for envelope, body, _ in entries:
            size = len(body)
            if envelope is not last_envelope or size != last_size:
                if envelope.address is not last_address:
                    last_address = envelope.address
                    head = self._head(last_address)
                    # The end of basic.deliver and the beginning of the header frame.
                    opening = b"%c%b\xce%b" % (redelivered, last_address, self._header_head)
                properties = envelope.properties
                octets = (size - 1).to_bytes(8, "big")
                # What stands between the delivery tag and the body.
                middle = b"%b%b\x00\x3c\x00\x00%b%b\xce" % (
                    opening,
                    (len(properties) + frames.CONTENT_HEADER_BYTES).to_bytes(4, "big"),
                    octets,
                    properties,
                )
                if 1 < size <= one_frame_max:
                    middle += self._body_head + octets[4:]
                last_envelope = envelope
                last_size = size
                fixed = len(head) + len(middle) + 8 + size
            total += fixed
            if size > one_frame_max:
                out += (head, tag.to_bytes(8, "big"), middle)
                out += frames.body_pieces(self._channel, body, self._frame_bytes_max)
            elif size == 1:
                out += (head, tag.to_bytes(8, "big"), middle)
            else:
                out += (head, tag.to_bytes(8, "big"), middle, body)
            tag += 1
        return total

    def _head(self, address: bytes) -> bytes:
        """Up to the delivery tag."""
        size = FIXED_ARGUMENT_BYTES + len(self._tag) + len(address)
        return b"\x01%b%b%b%b" % (self._channel_bytes, size.to_bytes(4, "big"), DELIVER, self._tag)
