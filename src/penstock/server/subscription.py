"""A consumer of a channel: its credit, its encoder, and its place in the wake-up chain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.files import is_temporary
from penstock.queues.consumer import Consumer
from penstock.queues.consumer_label import consumer_label
from penstock.queues.queue import Queue
from penstock.queues.unacked import UnackedRun
from penstock.server.delivery import DeliveryEncoder

if TYPE_CHECKING:
    from penstock.server.channel import Channel


class Subscription(Consumer):
    """What basic.consume makes."""

    def __init__(
        self,
        channel: Channel,
        queue: Queue,
        tag: str,
        priority: int,
        acquires: bool,
        no_ack: bool,
        exclusive: bool,
        prefetch_count: int,
    ) -> None:
        # A browser takes nothing, so there is nothing to acknowledge.
        super().__init__(tag, priority, acquires, no_ack or not acquires, exclusive)
        self.channel = channel
        self.queue = queue
        # Unacknowledged deliveries it may have; 0 = any number.
        self.prefetch_count = 0
        self.limit_to(prefetch_count)
        self.unacked_count = 0
        # How long a delivery may stay unacknowledged; 0 = for ever.
        self.ack_timeout_ms = 0
        # True while it stands in its channel's list of consumers that were notified.
        self.listed = False
        self._encoder = DeliveryEncoder(channel.number, tag, channel.connection.frame_bytes_max)

    def label(self) -> bytes:
        return consumer_label(self.tag, self.channel.connection.shown_name(), self.channel.number)

    def notify_work(self) -> None:
        if not self.listed:
            self.listed = True
            self.channel.consumer_has_work(self)

    def cancelled_by_queue(self) -> None:
        self.channel.consumer_cancelled(self)

    def take_now(self) -> int:
        try:
            return self.pull()
        except Exception:
            # As in a turn: a bug costs the connection that was to get the message, not the one that asked for it.
            self.channel.connection.failed()
            return 0

    def limit_to(self, prefetch_count: int) -> None:
        """Set how many unacknowledged deliveries it may have. Where nothing is acknowledged, there is no limit."""
        self.prefetch_count = 0 if self.no_ack else prefetch_count

    def credit(self) -> int:
        """How many messages it may be sent now."""
        credit = limits.PULL_MESSAGES_MAX
        channel = self.channel
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
        """Tell the queue whether it is worth waking this consumer."""
        if not self.queue.deleted:
            self.queue.set_interest(self, self.wants_work())

    def pull(self) -> int:
        """Take one run from the queue and put it on the connection's output; return how many messages."""
        credit = self.credit()
        if credit <= 0 or not self.channel.connection.is_writable():
            self.update_interest()
            return 0
        try:
            run = self.queue.pull(self, credit)
        except OSError as error:
            if not is_temporary(error):
                raise
            # The machine is out of descriptors or memory. Nothing was taken; it looks again soon.
            self.channel.connection.server.loop.call_later(limits.STALLED_FETCH_S, self._look_again)
            return 0
        if run is None:
            return 0
        entries = run.entries
        count = len(entries)
        channel = self.channel
        first_tag = channel.take_tags(count)
        if not self.no_ack:
            unacked_run = UnackedRun(self.queue, self, run.first_seq_id - first_tag)
            if self.ack_timeout_ms:
                unacked_run.due_ms = channel.ack_due_ms(self.ack_timeout_ms)
            channel.unacked.add(first_tag, count, unacked_run)
            self.unacked_count += count
            channel.consumer_unacked_count += count
            if credit == count:
                channel.ran_out_of_credit(self)
        channel.connection.sent_bytes(self._encoder.encode(channel.connection.out, entries, first_tag, run.redelivered))
        return count

    def _look_again(self) -> None:
        """What could not be read may be readable now."""
        if not self.queue.deleted and self.tag in self.channel.subscriptions:
            self.queue.consumers.notify_available(1)

    def settled(self, count: int) -> None:
        """Deliveries of this consumer were acknowledged or requeued."""
        self.unacked_count -= count
        if self.prefetch_count and not self.queue.deleted and self.tag in self.channel.subscriptions:
            self.update_interest()
