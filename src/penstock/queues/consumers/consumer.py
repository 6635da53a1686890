"""A consumer as its queue sees it, and the places where it can stand.

Channels and connections, which deliver, subclass `Consumer`. The two sides talk in batches:

  queue -> consumer   `notify_work`: there may be something to pull. The consumer must then pull (`Queue.pull`) until it
                      gets nothing, or must say that it is no longer interested (`Queue.set_interest`).
  consumer -> queue   `set_interest(False)` when it is out of credit, stopped by flow or by a full write buffer.

Invariants
  1. `node` is changed by the consumer manager only. It holds the state, and is None while the consumer has no queue.
  2. A consumer that does not acquire (a browser) is never NOTIFIED and never INTERESTED: it is NON_ACQUIRING or
     NOT_INTERESTED.
  3. `actor` is set by the queue, while the consumer is with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.backing.backing_queue import BackingQueue
from penstock.backing.outcomes import NO_ACTOR
from penstock.message import Envelope
from penstock.native import mypyc_attr
from penstock.queues.consumers.consumer_label import consumer_label
from penstock.queues.consumers.node_list import ConsumerNode

if TYPE_CHECKING:
    from penstock.queues.consumers.publisher_marks import NoLocal


@mypyc_attr(allow_interpreted_subclasses=True)
class ConsumerFilter(ABC):
    """What a consumer does not want: a selector, or its own connection's messages."""

    @abstractmethod
    def accepts(self, seq_id: int, envelope: Envelope) -> bool:
        """Return whether the consumer wants the message. Asked once per message and consumer, or a few times."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer(ABC):
    """One subscription to one queue."""

    def __init__(self, tag: str, priority: int, acquires: bool, no_ack: bool, exclusive: bool) -> None:
        # Chosen by the client or by the server; unique in its channel only.
        self.tag = tag
        # Higher first. x-priority, default 0.
        self.priority = priority
        # False for a browser, which reads without taking.
        self.acquires = acquires
        self.no_ack = no_ack
        # The only consumer of its queue.
        self.exclusive = exclusive
        # Where a browser reads next, and the numbers of shelved messages that come then, the nearest last (`browsing`).
        self.browse_seq_id = 0
        self.browse_page: list[int] = []
        # Set by each pull that got something: whether there may be more, so that it must pull again.
        self.pull_again = False
        # What it does not want; None: it takes everything.
        self.filter: ConsumerFilter | None = None
        # It does not want what its own connection publishes; None: it does not mind. Part of `filter`, too.
        self.no_local: NoLocal | None = None
        # Its number in the rows of history; 0 where nothing is written about it.
        self.actor = NO_ACTOR
        # Its standing with the queue, for the consumer manager.
        self.node: ConsumerNode | None = None

    def label(self) -> bytes:
        return consumer_label(self.tag, "", 0)

    def joined(self, backing: BackingQueue) -> None:
        """Note that the consumer is with a queue. One that takes messages gets a number."""
        if self.acquires:
            self.actor = backing.name_actor(self.label())

    def left(self, backing: BackingQueue) -> None:
        """It is not any more."""
        if self.actor:
            backing.forget_actor(self.actor)
            self.actor = NO_ACTOR

    @abstractmethod
    def notify_work(self) -> None:
        """There may be something to pull. Called from within a publish: must not call the queue, only note the work."""

    def take_now(self) -> int:
        """Pull once at once, out of turn; return how many messages it got."""
        return 0

    @abstractmethod
    def cancelled_by_queue(self) -> None:
        """The queue is going away; the client is to be told (basic.cancel)."""
