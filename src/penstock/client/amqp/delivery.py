"""A message as the broker sent it, and the putting together of one from its frames.

The header says how large the body is, so a message that is too large is refused before any of its body is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import frame_error, unexpected_frame
from penstock.limits import MESSAGE_BYTES_MAX
from penstock.wire import frames, methods
from penstock.wire.properties import Properties, decode_properties

Carrier = methods.BasicDeliver | methods.BasicGetOk | methods.BasicReturn


@dataclass(slots=True)
class Delivery:
    """A whole message."""

    # basic.deliver, basic.get-ok or basic.return.
    method: Carrier
    properties: Properties
    body: bytes

    @property
    def tag(self) -> int:
        """The delivery tag; 0 for a message that was returned."""
        return 0 if isinstance(self.method, methods.BasicReturn) else self.method.delivery_tag

    @property
    def is_redelivered(self) -> bool:
        return not isinstance(self.method, methods.BasicReturn) and self.method.redelivered


class Assembly:
    """A message of which some frames are still to come."""

    def __init__(self, method: Carrier) -> None:
        self._method = method
        self._properties: Properties | None = None
        self._size = 0
        # One buffer: a list of parts would let a broker fill our memory with one octet in each.
        self._body = bytearray()

    def header(self, payload: bytes) -> Delivery | None:
        """Return the message if that was all of it."""
        if self._properties is not None:
            raise unexpected_frame("a second header for one message")
        if len(payload) < frames.CONTENT_HEADER_BYTES or payload[:4] != frames.CONTENT_HEADER_START:
            raise frame_error("a content header that is none of class basic")
        size = int.from_bytes(payload[4:12], "big")
        if size > MESSAGE_BYTES_MAX:
            raise frame_error(f"a message of {size} bytes; at most {MESSAGE_BYTES_MAX} are taken")
        self._properties = decode_properties(payload[frames.CONTENT_HEADER_BYTES :])
        self._size = size
        return self._whole()

    def body(self, payload: bytes) -> Delivery | None:
        """Return the message if that was the rest of it."""
        if self._properties is None:
            raise unexpected_frame("a body frame before the header of its message")
        if len(self._body) + len(payload) > self._size:
            raise frame_error("a message that is longer than its header says")
        self._body += payload
        return self._whole()

    def _whole(self) -> Delivery | None:
        if len(self._body) < self._size:
            return None
        assert self._properties is not None
        return Delivery(self._method, self._properties, bytes(self._body))
