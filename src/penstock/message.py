"""A message: an envelope that many messages may share, and a body of its own.

Publishers send runs: many messages in a row with the same exchange, routing key and properties. The
broker keeps what they share once, in an `Envelope`, and handles the bodies as a list. A *run* is the unit
of work on the whole walk (parse, route, enqueue, fetch, deliver, acknowledge, and later the journal's
rows), so that the cost of a step is paid per run and not per message. A single message is a run of one.

Life of the data: an envelope is made by the wire side when a content header has been read, is shared by
every queue the messages go to, and dies with the last message that points to it.

Invariants
1. An envelope never changes after it was made. What a queue adds (expiry, confirms) is in `MessageProps`.
2. A body is the exact payload of the message followed by one FRAME-END octet (0xCE): it is stored in the
   form in which it leaves, so that neither parsing nor delivery copies it once more. `body_bytes()` strips it.
   A body that came in several frames is joined, and is split again at delivery if it must be.
3. `Entry` is a plain tuple: making a million of them costs the garbage collector little.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final, final

from penstock.limits import SMALL_PROPERTIES_BYTES
from penstock.native import mypyc_attr

FRAME_END: Final = b"\xce"


# No message leads back to itself: the garbage collector has nothing to look for in these classes.
@mypyc_attr(acyclic=True)
@final
class Envelope:
    """All of a message but its body."""

    __slots__ = (
        "address",
        "exchange",
        "expiration_ms",
        "persistent",
        "priority",
        "properties",
        "routing_key",
    )

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        persistent: bool = False,
        priority: int = 0,
        expiration_ms: int = -1,
        address: bytes = b"",
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        # Exchange and routing key as basic.deliver carries them. Envelopes of one route share the object.
        self.address = address or wire_address(exchange, routing_key)
        # Property flags and property list, exactly as the publisher sent them.
        self.properties = properties
        # delivery-mode 2.
        self.persistent = persistent
        # The priority property; 0 when absent.
        self.priority = priority
        # The expiration property in milliseconds; -1 when absent.
        self.expiration_ms = expiration_ms

    def __eq__(self, other: object) -> bool:
        """Equal in all that a client can see: one that was read back from disk equals the one that was written."""
        return isinstance(other, Envelope) and (
            self is other
            or (
                self.address == other.address
                and self.properties == other.properties
                and self.persistent == other.persistent
                and self.priority == other.priority
            )
        )

    def __hash__(self) -> int:
        return hash((self.address, self.properties))


def wire_address(exchange: str, routing_key: str) -> bytes:
    """Two short strings, ready to be sent."""
    name = exchange.encode()
    key = routing_key.encode("utf-8", "surrogateescape")
    return b"%c%b%c%b" % (len(name), name, len(key), key)


@final
class MessageProps:
    """What one queue knows about a run of its messages (RabbitMQ's message_properties)."""

    __slots__ = ("confirm", "expiry_ms")

    def __init__(self, expiry_ms: int = -1, confirm: ConfirmToken | None = None) -> None:
        # Wall-clock milliseconds at which the messages expire; -1 = never.
        self.expiry_ms = expiry_ms
        # Told when the run is as safe as it will get; None without confirms.
        self.confirm = confirm


@mypyc_attr(allow_interpreted_subclasses=True)
class ConfirmToken:
    """Waits until a published run is safe in every queue it was routed to. Subclassed by the publisher's side."""

    __slots__ = ("waiting",)

    def __init__(self, waiting: int) -> None:
        # Queues that have not confirmed yet.
        self.waiting = waiting

    def settle(self) -> None:
        """One queue has the run safely. The last one completes the token."""
        assert self.waiting > 0
        self.waiting -= 1
        if self.waiting == 0:
            self.complete()

    def is_of_a_move(self) -> bool:
        """Return whether another queue of this broker waits, and keeps the run until then."""
        return False

    def complete(self) -> None:
        """Every queue has confirmed."""

    def refuse(self) -> None:
        """A queue could not keep the run: the publisher gets a nack."""


def settle_all(tokens: Sequence[ConfirmToken]) -> None:
    """Settle each token, whatever becomes of the others; then raise the first error, if there was one."""
    first: Exception | None = None
    for token in tokens:
        try:
            token.settle()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


def refuse_all(tokens: Sequence[ConfirmToken]) -> None:
    """Refuse each token, whatever becomes of the others; then raise the first error, if there was one."""
    first: Exception | None = None
    for token in tokens:
        try:
            token.refuse()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


# What a backing queue holds for each message: (envelope, body with FRAME-END, props or None).
Entry = tuple[Envelope, bytes, MessageProps | None]


@mypyc_attr(acyclic=True)
@final
class Run:
    """Consecutive messages of one queue, as a fetch hands them out."""

    __slots__ = ("entries", "first_seq_id", "redelivered")

    def __init__(self, first_seq_id: int, entries: list[Entry], redelivered: bool) -> None:
        # seq_ids are first_seq_id, first_seq_id + 1, … without holes.
        self.first_seq_id = first_seq_id
        self.entries = entries
        # True for every message of the run, or for none.
        self.redelivered = redelivered


@mypyc_attr(acyclic=True)
@final
class Incoming:
    """Messages that were published together, on their way into queues: with one envelope, or each with its own.

    It is never changed: queues and the journal share it. Sizes are counted once, however many queues get it.
    """

    __slots__ = (
        "_largest_bytes",
        "_persistent_count",
        "bodies",
        "count",
        "entries",
        "envelope",
        "heavy_bytes",
        "is_timed",
        "size_bytes",
        "size_each",
    )

    def __init__(
        self,
        envelope: Envelope,
        bodies: Sequence[bytes],
        size_each: int = -1,
        entries: Sequence[Entry] | None = None,
        is_timed: bool = False,
    ) -> None:
        """`size_each` is the payload of each if the caller knows that it is the same; the rest is for `unlike`."""
        # That of all messages, or of the first.
        self.envelope = envelope
        # Not empty.
        self.bodies = bodies
        # Set where each message has its own envelope.
        self.entries = entries
        # Whether these have props already.
        self.is_timed = is_timed
        count = len(bodies)
        self.count = count
        if count == 1:
            size_each = len(bodies[0]) - 1
        if size_each >= 0:
            self.size_bytes = size_each * count
        else:
            sizes = list(map(len, bodies))
            self.size_bytes = sum(sizes) - count
            if min(sizes) == max(sizes):
                size_each = sizes[0] - 1
        # The payload of each; -1 when they differ.
        self.size_each = size_each
        if entries is not None:
            self.heavy_bytes = large_properties_bytes(entries)
        elif len(envelope.properties) > SMALL_PROPERTIES_BYTES:
            self.heavy_bytes = len(envelope.properties) * count
        else:
            self.heavy_bytes = 0
        self._largest_bytes = -1
        self._persistent_count = -1

    def largest_bytes(self) -> int:
        """Return the size of the largest message, with all that describes it."""
        if self._largest_bytes < 0:
            if self.entries is None:
                largest = self.size_each if self.size_each >= 0 else max(list(map(len, self.bodies))) - 1
                self._largest_bytes = largest + len(self.envelope.properties) + len(self.envelope.address)
            else:
                self._largest_bytes = max(
                    [len(body) + len(own.properties) + len(own.address) - 1 for own, body, _ in self.entries]
                )
        return self._largest_bytes

    def persistent_count(self) -> int:
        """Return how many of them are persistent."""
        if self._persistent_count < 0:
            if self.entries is None:
                self._persistent_count = self.count if self.envelope.persistent else 0
            else:
                self._persistent_count = sum([1 for own, _, _ in self.entries if own.persistent])
        return self._persistent_count

    def expiration_ms(self) -> int:
        """Return the expiration of all of them; those with envelopes of their own have none."""
        return self.envelope.expiration_ms if self.entries is None else -1

    def entries_with(self, props: MessageProps | None) -> list[Entry]:
        """Return the messages as a queue keeps them, in a list of its own."""
        if self.entries is None:
            if self.count == 1:
                return [(self.envelope, self.bodies[0], props)]
            return list(zip(repeat(self.envelope), self.bodies, repeat(props), strict=False))
        if props is None or props.expiry_ms < 0:
            return list(self.entries)
        return [(own, body, props) for own, body, _ in self.entries]

    def singly(self) -> list[Incoming]:
        """Return the messages one by one."""
        if self.count == 1:
            return [self]
        if self.entries is None:
            return [Incoming(self.envelope, [body]) for body in self.bodies]
        return [Incoming(own, [body]) for own, body, _ in self.entries]


def unlike(entries: Sequence[Entry], is_timed: bool = False) -> Incoming:
    """Return messages that each have an envelope of their own; with `is_timed` an expiry of their own, too."""
    return Incoming(entries[0][0], [entry[1] for entry in entries], -1, entries, is_timed)


def body_bytes(body: bytes) -> bytes:
    """Return the payload of a stored body."""
    assert body[-1:] == FRAME_END
    return body[:-1]


def large_properties_bytes(entries: Sequence[Entry]) -> int:
    """Return the properties that are not small: what they have on top of a message's usual overhead."""
    return sum([len(entry[0].properties) for entry in entries if len(entry[0].properties) > SMALL_PROPERTIES_BYTES])
