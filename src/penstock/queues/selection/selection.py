"""Which message a consumer gets, when that is not simply the next one: the seam between a queue and its orders.

A plain queue has no selection: its consumers fetch from the head. A queue whose consumers choose (selectors, groups),
or that has an order of its own (sorted, last value), or from whose middle a message was taken, has one.

A selection takes messages out of the backing by fetching them, so that they are pending there, and keeps them as
*shelved*: ready as far as clients can see. `fetch` hands shelved messages out; from then on they are delivered, and
come back through `returned` or leave through `settled`.

Invariants
  1. A message is ready in the backing, or shelved, or delivered; never two of them. Shelved and delivered messages are
     pending in the backing.
  2. `ready_count` and `ready_bytes` are of the shelved ones only; the queue adds what is ready in the backing.
  3. A message keeps its redelivered flag over being shelved: only `returned` sets it.
  4. A selection never hands out a message that has expired: it dead-letters it (`SelectionHost.dead_letter`).

A crash leaves shelved messages ready, as pending ones are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from penstock import limits
from penstock.message import Run
from penstock.native import mypyc_attr, trait
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.leaving.dead_letters import Dead


@trait
@mypyc_attr(allow_interpreted_subclasses=True)
class SelectionHost(ABC):
    """The queue, as its selection sees it."""

    @abstractmethod
    def dead_letter(self, seq_ids: Sequence[int], reason: str) -> None:
        """Pending messages leave the queue unread: as dead letters if it has a place for them, else for good."""

    def dead_letter_read(self, dead: Sequence[Dead], reason: str) -> None:
        """The same for pending messages that were read already."""
        self.dead_letter([seq_id for seq_id, _ in dead], reason)

    @abstractmethod
    def became_available(self, count: int) -> None:
        """Messages can be had that could not before (a group was freed): the queue notifies consumers."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Return the time, by which messages expire."""

    @abstractmethod
    def wake_at(self, due_ms: int) -> None:
        """Have `expire` called then, or earlier."""


class Selection(ABC):
    @abstractmethod
    def fetch(self, consumer: Consumer | None, count_max: int, bytes_max: int, ack_required: bool) -> Run | None:
        """A run for this consumer (None: basic.get, which takes what comes first); None when there is nothing for it.

        The run may be shorter than it could be. It may look at a bounded number of messages and give up: then
        `has_for` stays True, and the consumer is asked again.
        """

    @abstractmethod
    def has_for(self, consumer: Consumer) -> bool:
        """Return whether there may be something for this consumer: False only when it is sure. Changes nothing."""

    @abstractmethod
    def settled(self, seq_ids: Sequence[int]) -> None:
        """Delivered messages were acknowledged, rejected or given up. Ids that were never handed out are ignored."""

    @abstractmethod
    def returned(self, seq_ids: Sequence[int]) -> list[int]:
        """Delivered messages come back: those that go onto the shelf again do so, marked redelivered.

        Returns the ids that the selection does not want back (a last value that is no longer the last): the queue
        acknowledges those. Ids that it did not hand out go onto the shelf too.
        """

    @abstractmethod
    def consumer_gone(self, consumer: Consumer) -> None:
        """The consumer left. What it has not settled is settled or returned later."""

    @abstractmethod
    def take(self, seq_ids: Sequence[int]) -> list[int]:
        """Reach for ready messages by number and take them off: they are pending, and the caller's. The ids found."""

    @abstractmethod
    def expire(self, now_ms: int) -> None:
        """Dead-letter shelved messages that have expired, as far as the queue's rule says (head only, or anywhere)."""

    @abstractmethod
    def next_expiry_ms(self) -> int:
        """When `expire` has something to do; -1 when never."""

    @abstractmethod
    def purge(self) -> int:
        """Drop what is shelved (acknowledge it in the backing); return how many. The queue purges the backing."""

    @abstractmethod
    def published(self, first_seq_id: int, count: int) -> None:
        """Messages were appended to the backing. An order that must know all of them fetches them now."""

    @abstractmethod
    def ready_count(self) -> int:
        """Return how many are shelved."""

    @abstractmethod
    def ready_bytes(self) -> int:
        """Return payload bytes of what is shelved."""

    def ram_bytes(self) -> int:
        """What it remembers of the messages that it has to hand out."""
        return self.ready_count() * limits.SHELVED_OVERHEAD_BYTES

    @abstractmethod
    def shelved_ids(self) -> list[int]:
        """Numbers of what is shelved, in the order in which it would be handed out to a consumer without a filter."""

    def first_shelved(self, count: int) -> list[int]:
        """Return the first of `shelved_ids`; where many are shelved, without a look at the others."""
        return self.shelved_ids()[:count]

    @abstractmethod
    def shelved_from(self, seq_id: int, count: int) -> list[int]:
        """Shelved numbers from this one on, the lowest first, so many at most; without a look at the others."""

    def has(self, seq_id: int) -> bool:
        """Return whether the message is shelved."""
        return seq_id in self.shelved_from(seq_id, 1)

    def is_redelivered(self, seq_id: int) -> bool:
        """Return whether the message is shelved, and its next delivery will say that it is redelivered."""
        return False

    def is_needed(self) -> bool:
        """False when the queue can do without it again: nothing shelved, and no order of its own."""
        return True

    def leaves_ready(self) -> bool:
        """True when all messages stay ready in the backing, are taken from there by number, and expire only here."""
        return False

    @abstractmethod
    def check_invariants(self) -> None:
        """Assert what it can know of the invariants above. For tests."""
