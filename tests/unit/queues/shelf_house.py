"""A selection over a backing, with a host that notes what it is told, and short ways to publish and to fetch.

The routing key of a message stands for its headers: "KEY:COLOUR", where the order reads the key ("": none; digits: a
number) and filters look at the colour.
"""

from __future__ import annotations

from collections.abc import Sequence

from queue_house import Inbox

from penstock.backing.backing_queue import BackingQueue
from penstock.backing.volatile import VolatileBackingQueue
from penstock.message import Envelope, Incoming, MessageProps, Run, body_bytes
from penstock.queues.consumers.consumer import ConsumerFilter
from penstock.queues.selection.order import Order
from penstock.queues.selection.selection import SelectionHost
from penstock.queues.selection.shelf_selection import ShelfSelection

MANY = 1_000_000
NO_EXPIRY = -1


def read_key(envelope: Envelope) -> str | int | float | None:
    key = envelope.routing_key.partition(":")[0]
    if key == "nan":
        return float("nan")
    return int(key) if key.isdigit() else key or None


class Colour(ConsumerFilter):
    """Wants messages of some colours, and notes which it was asked about."""

    def __init__(self, colours: str) -> None:
        self.colours = colours
        self.asked: list[int] = []

    def accepts(self, seq_id: int, envelope: Envelope) -> bool:
        self.asked.append(seq_id)
        colour = envelope.routing_key.partition(":")[2]
        return colour != "" and colour in self.colours


def picky(colours: str) -> Inbox:
    """A consumer of messages of some colours."""
    consumer = Inbox(colours)
    consumer.filter = Colour(colours)
    return consumer


def asked(consumer: Inbox) -> list[int]:
    """What the consumer's filter was asked about since the last call."""
    assert isinstance(consumer.filter, Colour)
    seen = consumer.filter.asked
    consumer.filter.asked = []
    return seen


class Host(SelectionHost):
    """The queue's part: messages that were dead-lettered are gone at once."""

    def __init__(self, backing: BackingQueue) -> None:
        self.backing = backing
        self.now_ms = 1_000
        self.handed_over: list[int] = []
        self.available = 0
        self.wakes_ms: list[int] = []

    def dead_letter(self, seq_ids: Sequence[int], reason: str) -> None:
        assert reason == "expired"
        assert self.backing.ack(seq_ids) == len(seq_ids), "what is handed_over was pending"
        self.handed_over.extend(seq_ids)

    def became_available(self, count: int) -> None:
        self.available += count

    def wall_ms(self) -> int:
        return self.now_ms

    def wake_at(self, due_ms: int) -> None:
        self.wakes_ms.append(due_ms)


class ShelfHouse:
    """One selection and what it lives in."""

    def __init__(
        self,
        order: Order,
        backing: BackingQueue | None = None,
        expire_anywhere: bool = False,
        has_priorities: bool = False,
        messages_max: int = MANY,
        looks_max: int = MANY,
        messages_ahead: int = MANY,
    ) -> None:
        self.backing = VolatileBackingQueue() if backing is None else backing
        self.host = Host(self.backing)
        self.selection = ShelfSelection(
            self.host, self.backing, order, expire_anywhere, has_priorities, messages_max, looks_max, messages_ahead
        )

    def publish(self, *keys: str, expiry_ms: int = NO_EXPIRY, size: int = 1) -> list[int]:
        """A message for each "KEY:COLOUR"; their seq_ids. The body begins with the key."""
        return [self.publish_one(key, key.encode().ljust(size, b"."), expiry_ms) for key in keys]

    def publish_one(self, key: str, body: bytes, expiry_ms: int, priority: int = 0) -> int:
        envelope = Envelope("", key, b"\x00\x00", priority=priority)
        props = None if expiry_ms == NO_EXPIRY else MessageProps(expiry_ms)
        seq_id = self.backing.publish(Incoming(envelope, [body + b"\xce"]), props)
        self.selection.published(seq_id, 1)
        return seq_id

    def backing_envelope(self) -> Envelope:
        """For those who publish past the selection."""
        return Envelope("", "k:x", b"\x00\x00")

    def publish_run(self, key: str, count: int) -> list[int]:
        """One run of equal messages."""
        first = self.backing.publish(Incoming(Envelope("", key, b"\x00\x00"), [b"run\xce"] * count), None)
        self.selection.published(first, count)
        return list(range(first, first + count))

    def fetch(self, consumer: Inbox | None, count: int = 1, ack_required: bool = True) -> list[int]:
        """The seq_ids of one run."""
        run = self.selection.fetch(consumer, count, MANY, ack_required)
        self.selection.check_invariants()
        return ids_of(run)

    def drain(self, consumer: Inbox | None, ack_required: bool = True) -> list[int]:
        """All that the consumer gets, one message at a time."""
        drained: list[int] = []
        while True:
            fetched = self.fetch(consumer, 1, ack_required)
            if not fetched:
                return drained
            drained.extend(fetched)

    def ack(self, *seq_ids: int) -> None:
        self.backing.ack(seq_ids)
        self.selection.settled(seq_ids)
        self.selection.check_invariants()

    def requeue(self, *seq_ids: int) -> list[int]:
        """What was not wanted back."""
        unwanted = self.selection.returned(seq_ids)
        self.backing.ack(unwanted)
        self.selection.check_invariants()
        return unwanted

    def ready_count(self) -> int:
        return self.selection.ready_count() + len(self.backing)


def ids_of(run: Run | None) -> list[int]:
    return [] if run is None else list(range(run.first_seq_id, run.first_seq_id + len(run.entries)))


def bodies_of(run: Run | None) -> list[bytes]:
    return [] if run is None else [body_bytes(entry[1]) for entry in run.entries]
