"""What a subscription has at one of its queues: the consumer that the queue knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.consumers.consumer_label import consumer_label
from penstock.queues.queue import Queue

if TYPE_CHECKING:
    from penstock.server.channel.subscription import Subscription


class QueueConsumer(Consumer):
    """A subscription at one queue. It has no credit of its own: the subscription has, for all its queues."""

    def __init__(
        self, subscription: Subscription, queue: Queue, priority: int, acquires: bool, exclusive: bool
    ) -> None:
        super().__init__(subscription.tag, priority, acquires, subscription.no_ack, exclusive)
        self.subscription = subscription
        self.queue = queue
        # How long a delivery may stay unacknowledged; 0 = for ever.
        self.ack_timeout_ms = 0
        # True while it stands in its subscription's list of consumers that were notified.
        self.listed = False

    def label(self) -> bytes:
        channel = self.subscription.channel
        return consumer_label(self.tag, channel.connection.shown_name(), channel.number)

    def notify_work(self) -> None:
        if not self.listed:
            self.listed = True
            self.subscription.consumer_has_work(self)

    def cancelled_by_queue(self) -> None:
        self.subscription.queue_gone(self)

    def take_now(self) -> int:
        try:
            return self.subscription.pull_from(self)
        except Exception:
            # As in a turn: a bug costs the connection that was to get the message, not the one that asked for it.
            self.subscription.channel.connection.failed()
            return 0

    def look_later(self) -> None:
        """Messages could not be read because the machine is out of descriptors or memory: look again soon."""
        loop = self.subscription.channel.connection.server.loop
        loop.call_later(limits.STALLED_FETCH_S, self._look_again)

    def _look_again(self) -> None:
        if self.node is not None:
            self.queue.consumers.notify_available(1)
