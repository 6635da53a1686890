"""A consumer of a channel: its credit, its encoder, and its place in the wake-up chain.

It is what Qpid calls a consumer target: one consumer tag and one credit, over one queue or several (`x-multiqueue`). At
each of its queues it has a `QueueConsumer`; that one is notified by its queue, and tells the subscription.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock import limits
from penstock.disk.files import is_temporary
from penstock.server.channel.delivery import DeliveryEncoder
from penstock.server.channel.queue_consumer import QueueConsumer
from penstock.server.channel.unacked import UnackedRun

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel


class Subscription:
    def __init__(self, channel: Channel, tag: str, no_ack: bool, prefetch_count: int) -> None:
        self.channel = channel
        # Chosen by the client or by the server; unique in its channel only.
        self.tag = tag
        self.no_ack = no_ack
        # Unacknowledged deliveries it may have; 0 = any number.
        self.prefetch_count = 0
        self.limit_to(prefetch_count)
        self.unacked_count = 0
        # One at each queue, in the order in which they are asked when there is credit again. Empty when it is over.
        self.consumers: list[QueueConsumer] = []
        # Those that were notified, in the order of their turn.
        self._working: deque[QueueConsumer] = deque()
        # True while it stands in its channel's list of subscriptions with work.
        self.listed = False
        self._encoder = DeliveryEncoder(channel.number, tag, channel.connection.frame_bytes_max)

    def join(self) -> None:
        """Enter the queues of its consumers: all of them, or none when one refuses it."""
        for consumer in self.consumers:
            consumer.queue.check_access(consumer)
        wants_work = self.wants_work()
        for consumer in self.consumers:
            consumer.queue.add_consumer(consumer, wants_work)

    def leave(self) -> None:
        """Leave all queues. What is unacknowledged stays with the channel."""
        consumers, self.consumers = self.consumers, []
        self._working.clear()
        for consumer in consumers:
            if consumer.node is not None:
                consumer.queue.remove_consumer(consumer)

    def queue_gone(self, consumer: QueueConsumer) -> None:
        """A queue was deleted. The subscription goes on with the others, and is over with the last one."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        if consumer.listed:
            self._working.remove(consumer)
        self.channel.queue_consumers_left(1)
        if not self.consumers:
            self.channel.subscription_cancelled(self)

    def limit_to(self, prefetch_count: int) -> None:
        """Set how many unacknowledged deliveries it may have. Where nothing is acknowledged, there is no limit."""
        self.prefetch_count = 0 if self.no_ack else prefetch_count

    def credit(self) -> int:
        """Return how many messages it may be sent now."""
        credit = limits.PULL_MESSAGES_MAX
        channel = self.channel
        if channel.flow_stopped:
            return 0
        if channel.prefetch_count:
            room = channel.prefetch_count - channel.consumer_unacked_count
            # A full channel holds back consumers without acknowledgements, too, though they do not fill it.
            if room <= 0 or not self.no_ack:
                credit = min(credit, room)
        if self.prefetch_count:
            credit = min(credit, self.prefetch_count - self.unacked_count)
        return credit

    def wants_work(self) -> bool:
        return self.credit() > 0 and self.channel.connection.is_writable()

    def update_interest(self) -> None:
        """Tell the queues whether it is worth waking this consumer."""
        wants_work = self.wants_work()
        for consumer in self.consumers:
            consumer.queue.set_interest(consumer, wants_work)

    def lose_interest(self) -> None:
        """It can take nothing now. Tell the queues so, and leave the work that it was notified of to others."""
        self.update_interest()
        for consumer in self._working:
            consumer.listed = False
        self._working.clear()

    def settled(self, count: int) -> None:
        """Deliveries of this subscription were acknowledged or requeued."""
        # With credit left it was interested already.
        was_out_of_credit = 0 < self.prefetch_count <= self.unacked_count
        self.unacked_count -= count
        if was_out_of_credit:
            self.update_interest()

    def offer(self) -> None:
        """Let its queues serve notified consumers."""
        for consumer in list(self.consumers):
            consumer.queue.offer()

    def consumer_has_work(self, consumer: QueueConsumer) -> None:
        self._working.append(consumer)
        if not self.listed:
            self.listed = True
            self.channel.subscription_has_work(self)

    def has_work(self) -> bool:
        return bool(self._working)

    def pull(self) -> int:
        """Let the next of its consumers that was notified pull one run; return how many messages that was worth."""
        working = self._working
        if not working:
            return 0
        consumer = working.popleft()
        # Before the pull: it may be notified anew in the meantime.
        consumer.listed = False
        count = self.pull_from(consumer)
        if count and consumer.pull_again and not consumer.listed:
            consumer.listed = True
            working.append(consumer)
        if count == 0 and consumer.listed:
            # It has looked at many messages that are not for it, and goes on: that was work, too.
            return limits.LOOKS_PER_FETCH
        return count

    def pull_from(self, consumer: QueueConsumer) -> int:
        """Take one run from the consumer's queue and put it on the connection's output; return how many messages."""
        credit = self.credit()
        channel = self.channel
        connection = channel.connection
        if credit <= 0 or not connection.is_writable():
            self.lose_interest()
            return 0
        queue = consumer.queue
        try:
            run = queue.pull(consumer, credit)
        except OSError as error:
            if not is_temporary(error):
                raise
            consumer.look_later()
            return 0
        if run is None:
            return 0
        entries = run.entries
        count = len(entries)
        first_tag = channel.take_tags(count)
        if not self.no_ack:
            unacked_run = UnackedRun(queue, consumer, run.first_seq_id - first_tag)
            if consumer.ack_timeout_ms:
                unacked_run.due_ms = channel.ack_due_ms(consumer.ack_timeout_ms)
            channel.unacked.add(first_tag, count, unacked_run)
            self.unacked_count += count
            channel.consumer_unacked_count += count
            if credit == count:
                self._ran_out_of_credit(consumer)
        connection.sent_bytes(self._encoder.encode(connection.out, entries, first_tag, run.redelivered))
        return count

    def _ran_out_of_credit(self, consumer: QueueConsumer) -> None:
        """A consumer took all that the subscription, or the channel, may have. The others are asked before it next."""
        if len(self.consumers) > 1:
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
        self.channel.ran_out_of_credit(self)
