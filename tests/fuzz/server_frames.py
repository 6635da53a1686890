"""What the server answered, taken apart and judged: whole frames, and only declared reply codes."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import ConnectionException
from penstock.reply_codes import REPLY_NAMES, SOFT_CODES
from penstock.wire import frames, methods

from .client_frames import Frame

# Stand-ins for methods whose routing key cannot be decoded.
WITH_ANY_KEY: dict[int, methods.Method] = {
    methods.BasicReturn.INDEX: methods.BasicReturn(312, "", "", "not UTF-8"),
    methods.BasicDeliver.INDEX: methods.BasicDeliver("", 0, False, "", "not UTF-8"),
    methods.BasicGetOk.INDEX: methods.BasicGetOk(0, False, "", "not UTF-8", 0),
}
CLIENT_ONLY = (methods.BasicPublish, methods.ChannelOpen, methods.ConnectionStartOk)


class Close(NamedTuple):
    """A close that the server sent; channel 0 is the whole connection."""

    channel: int
    reply_code: int
    reply_text: str

    def __str__(self) -> str:
        return f"channel {self.channel} {self.reply_code}" if self.channel else f"connection {self.reply_code}"


class Said:
    """Everything that the server sent on one connection."""

    def __init__(self, data: bytes, cut_short: bool = False) -> None:
        """`cut_short`: the connection was broken, so the last frame may be incomplete."""
        # The protocol header is the answer to a bad one.
        self.protocol_header = data.startswith(b"AMQP")
        if self.protocol_header:
            assert data.startswith(frames.PROTOCOL_HEADER)
            data = data[len(frames.PROTOCOL_HEADER) :]
        self.frames, rest = split(data)
        assert cut_short or not rest, f"the server sent part of a frame: {rest[:40]!r}"
        self.methods = [
            (frame.channel, read_method(frame.payload)) for frame in self.frames if frame.kind == frames.METHOD
        ]

    def closes(self) -> list[Close]:
        return [
            Close(channel, found.reply_code, found.reply_text)
            for channel, found in self.methods
            if isinstance(found, methods.ConnectionClose | methods.ChannelClose)
        ]

    def check(self) -> None:
        """The server kept to the protocol, whatever the client did."""
        for channel, found in self.methods:
            assert not isinstance(found, CLIENT_ONLY)
            assert (channel == 0) == (found.INDEX >> 16 == 10), f"{found.NAME} on channel {channel}"
        closes = self.closes()
        for close in closes:
            assert close.reply_code in REPLY_NAMES, close
            assert close.reply_code != 541, close
            assert (close.reply_code in SOFT_CODES) or close.channel == 0, close
            assert close.reply_text.startswith(REPLY_NAMES[close.reply_code]), close
        assert len([close for close in closes if close.channel == 0]) <= 1, closes
        if any(close.channel == 0 for close in closes):
            last = self.methods[-1][1]
            assert isinstance(last, methods.ConnectionClose | methods.ConnectionCloseOk), f"{last.NAME} after the close"


def read_method(payload: bytes) -> methods.Method:
    """A method of the server. A message with a routing key that is not UTF-8 goes out as it came in."""
    try:
        return methods.decode_method(payload, 0, len(payload))
    except ConnectionException:
        stand_in = WITH_ANY_KEY.get(int.from_bytes(payload[:4], "big"))
        if stand_in is None:
            raise
        return stand_in


def split(data: bytes) -> tuple[list[Frame], bytes]:
    """Whole frames and the rest. Independent of the broker's own reader."""
    found = []
    pos = 0
    while len(data) - pos >= 8:
        size = int.from_bytes(data[pos + 3 : pos + 7], "big")
        end = pos + size + 7
        if end >= len(data):
            break
        assert data[pos] in (1, 2, 3, 8), f"frame type {data[pos]}"
        assert data[end] == 0xCE, "frame without its end octet"
        found.append(Frame(data[pos], int.from_bytes(data[pos + 1 : pos + 3], "big"), data[pos + 7 : end]))
        pos = end + 1
    return found, data[pos:]
