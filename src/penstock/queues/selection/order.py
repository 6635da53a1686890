"""The order in which a shelf's messages are handed out: what `ShelfSelection` asks, and what it tells.

An order keeps its own index of the shelf (none for FIFO, groups, last values, sort keys) and the cursors of consumers
with filters.

Life of the data, for each message:
  added -> (choose) -> handed_out -> settled
    ^  \\-> removed         |
    +------ returned <-----+
A new one may be handed out past the shelf (`hand_past`), without being added before.

Invariants
  1. `choose` names a message that is on the shelf and that the consumer may have now, or None. It changes nothing that
     anybody else could notice, so that what was chosen need not be handed out.
  2. After `choose` said None with looks left, it says None again until one of the other calls is made.
  3. What an order knows of the shelf is told to it: `added` after a message was put there; `handed_out`, `removed` or
     `cleared` after it left.
  4. Messages that a consumer could not have before and can have now are counted in `freed`, except those added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

from penstock.queues.consumers.consumer import Consumer
from penstock.queues.selection.shelf import KeyReader, Shelf, Shelved


@final
class Looks:
    """How many messages may still be looked at, and how many shelved."""

    __slots__ = ("left", "to_shelve")

    def __init__(self, looks_max: int) -> None:
        self.left = looks_max
        self.to_shelve = looks_max


class Order(ABC):
    # True when all messages must be known before one is chosen: they are shelved as they are published.
    KNOWS_ALL = False
    # True when what a consumer cannot have now may be free for it soon: then it need not look far ahead at once.
    MAY_BE_FREED = False
    # True when a new message may go to a consumer without having been on the shelf.
    HANDS_PAST = False
    # False when the queue can do without the order while nothing is shelved.
    IS_OF_THE_QUEUE = True

    shelf: Shelf

    def __init__(self, key_reader: KeyReader | None) -> None:
        self.key_reader = key_reader
        # How many messages became available by what was told; set to 0 when the consumers were told.
        self.freed = 0

    def attach(self, shelf: Shelf) -> None:
        """The shelf that it orders; called once, before anything else."""
        self.shelf = shelf

    @abstractmethod
    def choose(self, consumer: Consumer | None, looks: Looks) -> Shelved | None:
        """Return the next message for this consumer (None: basic.get); None when there is none, or no look is left."""

    @abstractmethod
    def has_for(self, consumer: Consumer) -> bool:
        """Return whether `choose` might find something on the shelf."""

    def ids_in_order(self) -> list[int]:
        """Return all that is shelved, as a consumer without a filter would get it."""
        return self.shelf.ids.listed()

    def first_ids(self, count: int) -> list[int]:
        """Return the first of them."""
        return self.shelf.ids.lowest(count)

    @abstractmethod
    def added(self, item: Shelved, is_new: bool) -> Shelved | None:
        """A message was put onto the shelf, a new one or one that came back.

        Returns a shelved message that is no longer wanted: an older one, or this one. The caller removes it.
        """

    def removed(self, item: Shelved) -> None:
        """A message left the shelf, but not for a consumer."""
        return

    def hand_past(self, item: Shelved, consumer: Consumer | None, ack_required: bool) -> bool:
        """Hand out a new message that was never shelved, if this consumer may have it now; asked when the shelf has
        nothing for the consumer. After True it is as with `handed_out`; after False the message is `added`.
        """
        return False

    def handed_out(self, item: Shelved, consumer: Consumer | None, ack_required: bool) -> None:
        """A message left the shelf for a consumer; `settled` or `returned` follows, at once if no ack is required."""
        return

    def settled(self, item: Shelved) -> None:
        """A message that was handed out is gone."""
        return

    def returned(self, item: Shelved) -> bool:
        """A message that was handed out comes back: whether it is still wanted. Then `added` follows."""
        return True

    @abstractmethod
    def cleared(self) -> None:
        """Everything left the shelf, but not for a consumer."""

    @abstractmethod
    def consumer_gone(self, consumer: Consumer) -> None:
        """The consumer left, perhaps not for the first time."""

    def check_invariants(self) -> None:
        """Assert what can be known. For tests."""
        return
