"""What is in a broker, as pictures, and which of them a crash may leave.

A picture has every copy of every message, with its place. After each step one is taken, and its durable part is kept
with the LSN that the journal had then. The journal is one log, and a step is in one batch with all the moves that it
has caused: so what is there after a crash must be one of those pictures, the whole of it, and none that is older than
anything that was promised. A message that was moved is thus at one place or at the other, never at both or at none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.broker.vhost.companions import DEDUP
from penstock.fields import Table
from penstock.message import Envelope, body_bytes
from penstock.wire.property_edits import headers_of
from tests.simulation.books import Broken
from tests.simulation.features.feature_profile import VALUE_HEADER, QueueSpec

# What makes a stored message that message: body, address, properties, expiry.
Identity = tuple[bytes, bytes, bytes, int]
# Queue id, whether it is paused, and what lasts in it; by the name of the queue.
Durable = dict[str, tuple[str, bool, dict[int, Identity]]]


@dataclass(slots=True)
class Copy:
    """A message at a place."""

    queue: str
    seq_id: int
    body: bytes
    envelope: Envelope
    # When it expires, or is due where it is held; -1: never.
    expiry_ms: int
    is_pending: bool

    @property
    def key(self) -> tuple[str, int]:
        return self.queue, self.seq_id

    @property
    def mid(self) -> int:
        """The number that the driver gave the message."""
        return int(self.body[: self.body.index(b".")])

    @property
    def headers(self) -> Table:
        return headers_of(self.envelope)

    def value(self, header: str) -> object:
        field = self.headers.get(header)
        return None if field is None else field[1]

    def identity(self) -> Identity:
        return self.body, self.envelope.address, self.envelope.properties, self.expiry_ms


@dataclass(slots=True)
class Shelf:
    """One queue, or a companion: then `kind` says which."""

    name: str
    queue_id: str
    durable: bool
    kind: str
    paused: bool
    copies: dict[int, Copy] = field(default_factory=dict)

    def known_key(self, key: bytes, now_ms: int) -> bool:
        """Whether a window, which this is, knows a key."""
        return any(body_bytes(copy.body) == key and not is_over(copy, now_ms) for copy in self.copies.values())


Picture = dict[str, Shelf]


def is_over(copy: Copy, now_ms: int) -> bool:
    return 0 <= copy.expiry_ms <= now_ms


def messages(picture: Picture) -> Iterable[Copy]:
    """All copies of messages; keys of windows are none."""
    for shelf in picture.values():
        if shelf.kind != DEDUP:
            yield from shelf.copies.values()


def durable_part(picture: Picture) -> Picture:
    return {
        name: Shelf(
            name,
            shelf.queue_id,
            True,
            shelf.kind,
            shelf.paused,
            {seq_id: copy for seq_id, copy in shelf.copies.items() if copy.envelope.persistent},
        )
        for name, shelf in picture.items()
        if shelf.durable
    }


class History:
    """The durable parts of all pictures of one life."""

    def __init__(self, specs: dict[str, QueueSpec], first: Picture) -> None:
        self._specs = specs
        # (LSN, picture) by number; those before what was promised are dropped.
        self._kept: dict[int, tuple[int, Picture]] = {}
        self.last = -1
        self.promised = 0
        self.add(0, first)

    def add(self, lsn: int, picture: Picture) -> int:
        self.last += 1
        self._kept[self.last] = (lsn, durable_part(picture))
        return self.last

    def promise(self, number: int) -> None:
        """What is there after a crash is not older than this."""
        for older in range(self.promised, min(number, self.last)):
            del self._kept[older]
        self.promised = max(self.promised, min(number, self.last))

    def durable_to(self, lsn: int) -> None:
        """The journal calls itself durable up to there."""
        self.promise(max((number for number, (at, _) in self._kept.items() if at <= lsn), default=0))

    def cut(self, found: Picture, now_ms: int, clean: bool) -> int:
        """The number of the picture that was found; the newest that fits."""
        seen = self._normal(durable_part(found), now_ms)
        first = self.last if clean else self.promised
        for number in range(self.last, first - 1, -1):
            if self._normal(self._kept[number][1], now_ms) == seen:
                return number
        nearest = min(
            (self._differences(self._normal(self._kept[number][1], now_ms), seen), number)
            for number in range(first, self.last + 1)
        )
        raise Broken(
            f"none of the pictures {first}…{self.last} was found; nearest is {nearest[1]}: " + "; ".join(nearest[0])
        )

    def _differences(self, wanted: Durable, seen: Durable) -> list[str]:
        lines: list[str] = []
        for name in sorted(wanted.keys() | seen.keys()):
            if name not in seen or name not in wanted:
                lines.append(f"queue {name} {'is missing' if name in wanted else 'should not be there'}")
                continue
            old, new = wanted[name], seen[name]
            if old[:2] != new[:2]:
                lines.append(f"queue {name} is {new[:2]}, was {old[:2]}")
            for seq_id in sorted(old[2].keys() | new[2].keys()):
                if old[2].get(seq_id) != new[2].get(seq_id):
                    lines.append(f"{name}/{seq_id} is {new[2].get(seq_id)}, was {old[2].get(seq_id)}")
        return lines

    def _normal(self, picture: Picture, now_ms: int) -> Durable:
        """Without what a start may drop by itself: keys at the head of a window that are over, and old values."""
        normal: Durable = {}
        for name, shelf in picture.items():
            copies = list(shelf.copies.values())
            if shelf.kind == DEDUP:
                while copies and is_over(copies[0], now_ms):
                    copies.pop(0)
            elif not shelf.kind and self._specs[name].order == "value":
                newest = {copy.value(VALUE_HEADER): copy for copy in copies}
                copies = [copy for copy in copies if copy.value(VALUE_HEADER) is None or copy in newest.values()]
            normal[name] = (shelf.queue_id, shelf.paused, {copy.seq_id: copy.identity() for copy in copies})
        return normal
