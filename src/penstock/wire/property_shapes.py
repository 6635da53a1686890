"""Properties that differ in their values alone are recognised by their shape.

A publisher's messages mostly have the same properties and headers, of the same lengths: other ids, other numbers, the
same names and types. The *shape* of valid properties is everything that is not a value: flags, names, type codes,
lengths. As one large number under a mask it is compared in one step, whatever number of fields there are.

Invariants
  1. Octets that agree with a shape in all that is not a value are valid and plain: reading them takes the same way
     through them that it took through those the shape was made of.
  2. At most SHAPES_MAX shapes are remembered, of properties of at most SHAPED_BYTES_MAX octets.
"""

from __future__ import annotations

from typing import Final, final

from penstock.wire.tables import Span, skip_table

SHAPES_MAX: Final = 256
SHAPED_BYTES_MAX: Final = 2048
# A shape that others of the same length have disagreed with so often is forgotten.
MISSES_MAX: Final = 16

# Properties that mean something to the broker (expiration, user-id) or are not defined.
NOT_PLAIN: Final = 0x0100 | 0x0010 | 0x0003
# The reply-to with which a client asks for direct replies.
DIRECT_REPLY: Final = b"amq.rabbitmq.reply-to"
PERSISTENT: Final = 2


@final
class Shape:
    """Of properties of one length."""

    __slots__ = ("expected", "mask", "misses", "mode_pos", "priority_pos")

    def __init__(self, raw: bytes, spans: list[Span], mode_pos: int, priority_pos: int) -> None:
        mask = bytearray(b"\xff" * len(raw))
        for start, stop in spans:
            mask[start:stop] = bytes(stop - start)
        self.mask = int.from_bytes(mask, "big")
        self.expected = int.from_bytes(raw, "big") & self.mask
        # Where delivery mode and priority are; 0 = there is none.
        self.mode_pos = mode_pos
        self.priority_pos = priority_pos
        self.misses = 0


@final
class PropertyShapes:
    """Tells whether properties are plain: valid, and of no concern to the broker but for delivery mode and priority."""

    __slots__ = ("_shapes",)

    def __init__(self) -> None:
        # By length; None for a length that was seen once.
        self._shapes: dict[int, Shape | None] = {}

    def look(self, raw: bytes) -> int:
        """Twice the priority, and 1 more if the message is persistent; -1 when the properties are not plain."""
        shape = self._shapes.get(len(raw))
        if shape is None or int.from_bytes(raw, "big") & shape.mask != shape.expected:
            return self._look_closely(raw, shape)
        marks = raw[shape.priority_pos] * 2 if shape.priority_pos else 0
        return marks + 1 if shape.mode_pos and raw[shape.mode_pos] == PERSISTENT else marks

    def _look_closely(self, raw: bytes, shape: Shape | None) -> int:
        size = len(raw)
        shapes = self._shapes
        if shape is not None:
            shape.misses += 1
            if shape.misses > MISSES_MAX:
                del shapes[size]
        elif size in shapes:
            spans: list[Span] = []
            marks, mode_pos, priority_pos = walk(raw, spans)
            if marks >= 0:
                shapes[size] = Shape(raw, spans, mode_pos, priority_pos)
            return marks
        elif size <= SHAPED_BYTES_MAX:
            if len(shapes) >= SHAPES_MAX:
                shapes.clear()
            shapes[size] = None
        return walk(raw, None)[0]


NOT_AT_ALL: Final = (-1, 0, 0)


def walk(raw: bytes, spans: list[Span] | None) -> tuple[int, int, int]:
    """Marks as `look` has them, and where delivery mode and priority are. Adds where values are to the spans."""
    try:
        return _walk(raw, spans)
    except IndexError:
        return NOT_AT_ALL


def _walk(raw: bytes, spans: list[Span] | None) -> tuple[int, int, int]:
    flags = raw[0] << 8 | raw[1]
    if flags & NOT_PLAIN:
        return NOT_AT_ALL
    pos = 2
    marks = mode_pos = priority_pos = 0
    if flags & 0x8000:
        pos = _skip_text(raw, pos, spans)
    if flags & 0x4000:
        pos = _skip_text(raw, pos, spans)
    if flags & 0x2000:
        pos = skip_table(raw, pos, len(raw), spans)
        if pos < 0:
            return NOT_AT_ALL
    if flags & 0x1000:
        if raw[pos] == PERSISTENT:
            marks = 1
        mode_pos = pos
        pos += 1
    if flags & 0x0800:
        marks += raw[pos] * 2
        priority_pos = pos
        pos += 1
    if spans is not None and mode_pos:
        spans.append((mode_pos, mode_pos + 1))
    if spans is not None and priority_pos:
        spans.append((priority_pos, priority_pos + 1))
    if flags & 0x0400:
        pos = _skip_text(raw, pos, spans)
    if flags & 0x0200:
        if raw[pos] == len(DIRECT_REPLY):
            if raw.startswith(DIRECT_REPLY, pos + 1):
                return NOT_AT_ALL
            # Of this length it is no value: what is compared as a whole cannot become the other one.
            pos += 1 + raw[pos]
        else:
            pos = _skip_text(raw, pos, spans)
    if flags & 0x0080:
        pos = _skip_text(raw, pos, spans)
    if flags & 0x0040:
        if spans is not None:
            spans.append((pos, pos + 8))
        pos += 8
    if flags & 0x0020:
        pos = _skip_text(raw, pos, spans)
    if flags & 0x0008:
        pos = _skip_text(raw, pos, spans)
    if flags & 0x0004:
        pos = _skip_text(raw, pos, spans)
    return (marks, mode_pos, priority_pos) if pos == len(raw) else NOT_AT_ALL


def _skip_text(raw: bytes, pos: int, spans: list[Span] | None) -> int:
    """Behind the short string at pos; it may reach beyond the end."""
    stop = pos + 1 + raw[pos]
    if spans is not None:
        spans.append((pos + 1, stop))
    return stop
