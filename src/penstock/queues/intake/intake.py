"""A run on its way into a queue with features: gates before it, time to live with it, overflow behind it.

`publish` is called instead of the queue's own enqueuing. Each gate may let a message pass, or deal with it and with its
confirm token: refuse it, hold it back, drop it as a duplicate. Messages that pass are enqueued with the shorter of the
two times to live, and then the overflow rule makes room.

Invariants
  1. A confirm token is settled or refused once: by the gate that stopped the message, or by the queue.
  2. A queue with a gate gets one message at a time (`takes_singly`): it may take one of a run and refuse the next.
  3. A gate that has let a message pass has changed nothing that would be wrong if a later gate stops it; the gate that
     remembers what it has seen is asked last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, final

from penstock.backing.backing_queue import NOT_DELIVERED
from penstock.message import ConfirmToken, Envelope, Incoming

if TYPE_CHECKING:
    from penstock.queues.consumers.publisher_marks import PublisherMarks
    from penstock.queues.queue import Queue


class Gate(ABC):
    """Decides about single messages before they are enqueued."""

    @abstractmethod
    def admit(self, envelope: Envelope, body: bytes, confirm: ConfirmToken | None, delivered: int) -> bool:
        """True: the message may pass. False: it is dealt with, and so is its token."""

    def has_room(self, body: bytes, may_vanish: bool) -> bool:
        """Whether the message, if it came now, would be kept here or, as a dead letter, elsewhere. Changes nothing.

        `may_vanish`: it is enough that the dead letter is sent.
        """
        return True

    def ram_bytes(self) -> int:
        """What it remembers of messages."""
        return 0

    def stop(self) -> None:
        """The queue is deleted: leave the schedule."""
        return

    def passes_on(self, body: bytes) -> bool:
        """Return whether the message, if it came now, would go on as a dead letter."""
        return False


class Hold(ABC):
    """Holds runs back until they are due."""

    @abstractmethod
    def holds(self, incoming: Incoming, confirm: ConfirmToken | None, delivered: int) -> bool:
        """True when the run is held elsewhere now, with its token; False when it is due already."""


class Overflow(ABC):
    """Makes room after a publish."""

    @abstractmethod
    def make_room(self) -> None:
        """The queue has grown, or may have to be looked at again."""

    def stop(self) -> None:
        """The queue is deleted: leave the schedule."""
        return


@final
class Intake:
    def __init__(self, queue: Queue, ttl_ms: int, overflow: Overflow | None) -> None:
        self._queue = queue
        # x-message-ttl; -1 = none.
        self._ttl_ms = ttl_ms
        self._overflow = overflow
        self.gates: list[Gate] = []
        # Set where messages may have to wait before they get in.
        self.hold: Hold | None = None
        # Set while a consumer does not want its own connection's messages.
        self.publishers: PublisherMarks | None = None

    @property
    def overflow(self) -> Overflow | None:
        return self._overflow

    @property
    def takes_singly(self) -> bool:
        return bool(self.gates)

    @property
    def takes_alike(self) -> bool:
        """Whether it judges messages by their envelope: then those of one run share it."""
        return bool(self.gates) or self.hold is not None

    def publish(
        self, incoming: Incoming, confirm: ConfirmToken | None, publisher: object, delivered: int = NOT_DELIVERED
    ) -> None:
        for gate in self.gates:
            assert incoming.count == 1, "a queue with gates takes one message at a time"
            if not gate.admit(incoming.envelope, incoming.bodies[0], confirm, delivered):
                return
        if self.hold is not None and self.hold.holds(incoming, confirm, delivered):
            return
        first_seq_id = self.enter(incoming, confirm, delivered)
        if self.publishers is not None and publisher is not None and first_seq_id >= 0:
            self.publishers.published(publisher, first_seq_id, incoming.count)

    def has_room(self, body: bytes, may_vanish: bool) -> bool:
        """Return whether no gate would refuse the message now; for moves to several queues or to none."""
        for gate in self.gates:
            if not gate.has_room(body, may_vanish):
                return False
        return True

    def passes_on(self, body: bytes) -> bool:
        """Return whether a gate would have the message go on as a dead letter."""
        for gate in self.gates:
            if gate.passes_on(body):
                return True
        return False

    def enter(self, incoming: Incoming, confirm: ConfirmToken | None, delivered: int) -> int:
        """Enqueue a run that no gate is asked about any more; the first seq_id, -1 when it was not kept."""
        expiration_ms = incoming.expiration_ms()
        if self._ttl_ms >= 0 and not 0 <= expiration_ms < self._ttl_ms:
            expiration_ms = self._ttl_ms
        first_seq_id = self._queue.enqueue(incoming, confirm, expiration_ms, delivered)
        if self._overflow is not None:
            self._overflow.make_room()
        return first_seq_id

    def ram_bytes(self) -> int:
        """What the gates remember."""
        size = 0
        for gate in self.gates:
            size += gate.ram_bytes()
        return size

    def stop(self) -> None:
        """The queue is deleted."""
        for gate in self.gates:
            gate.stop()
        if self._overflow is not None:
            self._overflow.stop()

    def came_back(self) -> None:
        """Delivered messages are ready again: they count once more."""
        if self._overflow is not None:
            self._overflow.make_room()
