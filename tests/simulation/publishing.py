"""Messages for the simulation, each different from all others, and the tokens that wait for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.message import ConfirmToken, Entry, Envelope, MessageProps
from tests.simulation.profile import Profile

if TYPE_CHECKING:
    from tests.simulation.machine import OpenQueue

# Exchange and routing key.
ROUTES = (("", "a"), ("amq.direct", "k"), ("x", "a.longer.key"))


def properties(persistent: bool, priority: int, expiration: bytes) -> bytes:
    """Property flags and list as a client sends them: delivery-mode, priority, expiration."""
    flags = (0x1000 if persistent else 0) | (0x0800 if priority else 0) | (0x0100 if expiration else 0)
    pieces = [flags.to_bytes(2, "big")]
    if persistent:
        pieces.append(b"\x02")
    if priority:
        pieces.append(bytes([priority]))
    if expiration:
        pieces.append(bytes([len(expiration)]) + expiration)
    return b"".join(pieces)


class Token(ConfirmToken):
    """Knows what its queues have said."""

    __slots__ = ("is_refused", "units")

    def __init__(self, queues: int) -> None:
        super().__init__(queues)
        self.is_refused = False
        # By queue id: the unit of the publish, -1 when nothing of it lasts.
        self.units: dict[str, int] = {}

    def refuse(self) -> None:
        self.is_refused = True


class QueueToken(ConfirmToken):
    """A token's share in one queue, which notes when it has confirmed, and whether the disk could be trusted then."""

    __slots__ = ("_queue", "_token")

    def __init__(self, token: Token, queue: OpenQueue) -> None:
        super().__init__(1)
        self._token = token
        self._queue = queue

    def complete(self) -> None:
        self._queue.told.append((self._token, self._queue.node.store.failed))

    def refuse(self) -> None:
        self._token.refuse()


class Publishers:
    """Makes messages."""

    def __init__(self, rng: random.Random, profile: Profile) -> None:
        self._rng = rng
        self._profile = profile
        self._count = 0
        self._envelopes = [self._new_envelope() for _ in range(6)]

    def envelope(self) -> Envelope:
        """One that was used before, or an equal one, or a new one."""
        rng = self._rng
        index = rng.randrange(len(self._envelopes))
        if rng.random() < 0.2:
            self._envelopes[index] = self._new_envelope()
        return self._envelopes[index]

    def _new_envelope(self) -> Envelope:
        rng = self._rng
        exchange, key = rng.choice(ROUTES)
        persistent = rng.random() < self._profile.persistent_share
        priority = rng.choice((0, 0, 1, 2, 9))
        expiration_ms = rng.choice((-1, -1, 5, 1000))
        expiration = b"" if expiration_ms < 0 else b"%d" % expiration_ms
        return Envelope(
            exchange, key, properties(persistent, priority, expiration), persistent, priority, expiration_ms
        )

    def bodies(self) -> list[bytes]:
        return [self.body() for _ in range(self._rng.randint(1, self._profile.run_max))]

    def body(self) -> bytes:
        rng = self._rng
        self._count += 1
        start = b"%d." % self._count
        if rng.random() < self._profile.large_share:
            size = rng.choice((30, 40, 50, 60, 130))
        else:
            size = rng.choice((0, 0, 6, 12))
        return start.ljust(size, b"o") + b"\xce"

    def expiry_ms(self, now_ms: int) -> int:
        return now_ms + self._rng.choice((1, 20, 3000)) if self._rng.random() < 0.3 else -1

    def entries(self, now_ms: int) -> tuple[list[Entry], int]:
        """Messages that differ in their envelopes, and when all of them expire; -1 = never."""
        rng = self._rng
        has_props = rng.random() < 0.4
        found: list[Entry] = []
        together_ms = -1
        for _ in range(rng.randint(1, self._profile.run_max + 1)):
            expiry_ms = self.expiry_ms(now_ms) if has_props else -1
            found.append((self.envelope(), self.body(), None))
            together_ms = max(together_ms, expiry_ms)
        return found, together_ms


def shared_entries(envelope: Envelope, bodies: Sequence[bytes], props: MessageProps | None) -> list[Entry]:
    """What `publish` makes of a run."""
    return [(envelope, body, props) for body in bodies]
