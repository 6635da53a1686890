"""A channel: its consumers, its unacknowledged deliveries, its publishing modes, and how it ends.

Methods are handled by the functions of `exchange_methods`, `queue_methods`, `basic_methods` and `mode_methods`; this
file is the state they work on. A `ChannelException` raised by any of them closes this channel only (see `connection`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.vhost.direct_reply import ReplyReceiver
from penstock.errors import ChannelException, frame_error, precondition_failed, unexpected_frame
from penstock.message import FRAME_END, Entry, Envelope, Incoming
from penstock.server.channel.ack_timeouts import AckTimeouts
from penstock.server.channel.confirms import ConfirmLedger
from penstock.server.channel.delivery import DeliveryEncoder
from penstock.server.channel.publishing import Prepared, Publisher, PublishRoute
from penstock.server.channel.queue_consumer import QueueConsumer
from penstock.server.channel.subscription import Subscription
from penstock.server.channel.unacked import Span, Unacked
from penstock.server.settling.span_slices import SpanSlices
from penstock.server.settling.transaction import ACK, REJECT, REQUEUE, Transaction
from penstock.wire import frames, methods

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection

# What a channel waits for within a publish.
NO_CONTENT = 0
EXPECT_HEADER = 1
EXPECT_BODY = 2


class Channel(ReplyReceiver):
    """One open channel."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        # True from the moment that a close was sent or received.
        self.closing = False
        self._is_released = False
        # True while it stands in its connection's list of channels with work.
        self.listed = False
        # The queue that an empty name stands for: the last one declared here.
        self.current_queue = ""
        self.subscriptions: dict[str, Subscription] = {}
        # Consumers of all subscriptions, one for each queue of each.
        self._queue_consumer_count = 0
        # True while the client wants no deliveries (channel.flow).
        self.flow_stopped = False
        self.unacked = Unacked()
        # None: no delivery of this channel has ever had a timeout.
        self._ack_timeouts: AckTimeouts | None = None
        # Prefetch of the whole channel (global=true) and of consumers to come (global=false); 0 = no limit.
        self.prefetch_count = 0
        self.consumer_prefetch_count = 0
        # Unacknowledged deliveries to consumers; basic.get does not count.
        self.consumer_unacked_count = 0
        self.publisher = Publisher(self)
        # When the last of the confirms that a test has delayed is sent.
        self._confirms_late_until = 0.0
        # At most one of the two modes is on.
        self.confirms: ConfirmLedger | None = None
        self.transaction: Transaction | None = None
        # Direct reply-to: this channel's address, its consumer tag and its encoder.
        self.reply_address: str | None = None
        self.reply_tag: str | None = None
        self._reply_encoder: DeliveryEncoder | None = None
        self._next_tag = 1
        self._working: deque[Subscription] = deque()
        # The publish that is being received.
        self._content_state = NO_CONTENT
        self._content_route: PublishRoute | None = None
        self._content_prepared: Prepared | None = None
        self._content_error: ChannelException | None = None
        self._content_size = 0
        self._content_received = 0
        self._content: BytesIO | None = None
        # What the connection counts for them.
        self._content_cost = 0

    # --- sending ------------------------------------------------------------------------------------

    def send(self, method: methods.Method) -> None:
        self.connection.send(self.number, method)

    def answer(self, method: methods.Method, no_wait: bool = False, lasting: bool = True) -> None:
        """Answer a method that may have changed the topology: not before the change is on disk.

        `lasting` is False when it is known to be about nothing durable.
        """
        log = self.connection.broker.log
        if no_wait:
            return
        waiting = self.connection.definition_answers
        if log is None or (not waiting and (not lasting or log.is_durable())):
            self.send(method)
        else:
            waiting.wait(log, partial(self._send_if_open, method))

    def _send_if_open(self, method: methods.Method) -> None:
        if not self.closing:
            self.send(method)

    def send_return(self, envelope: Envelope, body: bytes) -> None:
        """An unroutable mandatory message goes back."""
        self.send(methods.BasicReturn(312, "NO_ROUTE", envelope.exchange, envelope.routing_key))
        self.connection.send_content(self.number, envelope.properties, body)

    def flush_confirms(self) -> None:
        """Send the acks and nacks that are due; later, if a test has asked for that."""
        if self.confirms is None:
            return
        due = self.confirms.flush()
        server = self.connection.server
        now = server.loop.time()
        # Never before those that are late already: confirms stay in order when the delay ends.
        at = max(now + server.faults.confirm_delay_s, self._confirms_late_until)
        if due and at > now:
            self._confirms_late_until = at + 1e-6
            server.loop.call_at(at, self._send_confirms, due)
        else:
            self._send_confirms(due)

    def _send_confirms(self, due: list[tuple[int, bool, bool]]) -> None:
        if self.closing:
            return
        for number, multiple, is_ack in due:
            if is_ack:
                self.send(methods.BasicAck(number, multiple))
            else:
                self.send(methods.BasicNack(number, multiple, False))

    # --- content ------------------------------------------------------------------------------------

    def begin_content(self, route: PublishRoute) -> None:
        """A basic.publish was read whose content did not come along whole."""
        # A connection that sends content is a publisher, however long it takes: the alarms block it like any other.
        self.connection.published()
        self._content_state = EXPECT_HEADER
        self._content_route = route

    def begin_refused_content(self, error: ChannelException) -> None:
        """A basic.publish was refused. As in RabbitMQ the channel closes when its content has come; it is not kept."""
        self._content_state = EXPECT_HEADER
        self._content_error = error

    def in_content(self) -> bool:
        return self._content_state != NO_CONTENT

    def content_complaint(self) -> str:
        """What is wrong with a frame that does not continue the content."""
        if self._content_state == NO_CONTENT:
            return "expected method frame, got non method frame instead"
        if self._content_state == EXPECT_HEADER:
            return "expected content header for class 60, got non content header frame instead"
        return "expected content body, got non content body frame instead"

    def on_header(self, payload: bytes) -> None:
        if self._content_state != EXPECT_HEADER:
            raise unexpected_frame(self.content_complaint())
        if len(payload) < frames.CONTENT_HEADER_BYTES + 2:
            raise frame_error("content header is cut short")
        if payload[0:2] != frames.CONTENT_HEADER_START[0:2]:
            got = int.from_bytes(payload[0:2], "big")
            raise unexpected_frame(f"expected content header for class 60, got one for class {got} instead")
        if payload[2:4] != b"\x00\x00":
            raise unexpected_frame(self.content_complaint())
        self._content_size = int.from_bytes(payload[4:12], "big")
        self._content_received = 0
        # From here on the channel is only closed between messages: reset before anything may raise.
        self._content_state = EXPECT_BODY
        self.check_size(self._content_size)
        if self._content_route is not None:
            self._content_prepared = self._content_route.prepare(payload[frames.CONTENT_HEADER_BYTES :])
        if self._content_size == 0:
            self._finish_content()

    def check_size(self, size: int) -> None:
        size_max = self.connection.broker.config.message_bytes_max
        if size > size_max:
            raise precondition_failed(f"message size {size} is larger than configured max size {size_max}")

    def on_body(self, payload: bytes) -> None:
        if self._content_state != EXPECT_BODY:
            raise unexpected_frame(self.content_complaint())
        self._content_received += len(payload)
        if self._content_received > self._content_size:
            raise frame_error("content body is larger than its header says")
        if self._content_error is None:
            # Counted before it is kept, with what the part costs besides its octets: there can be one for each octet.
            cost = len(payload) + limits.CONTENT_PART_OVERHEAD_BYTES
            self.connection.count_partial(cost)
            self._content_cost += cost
            # Copied as it comes, and not all at once when it is whole.
            if self._content is None:
                self._content = BytesIO()
            self._content.write(payload)
        if self._content_received == self._content_size:
            self._finish_content()

    def _finish_content(self) -> None:
        if self._content_error is not None:
            raise self._content_error
        route, prepared = self._content_route, self._content_prepared
        assert route is not None
        assert prepared is not None
        body = FRAME_END
        if self._content is not None:
            self._content.write(FRAME_END)
            body = self._content.getvalue()
        self._drop_content()
        if prepared.version != self.connection.vhost.topology_version:
            prepared = route.prepare(prepared.properties)
        self.publisher.publish(route, prepared, Incoming(prepared.envelope, [body]))

    def _drop_content(self) -> None:
        self._content_state = NO_CONTENT
        self._content_route = None
        self._content_prepared = None
        self._content_error = None
        self.connection.count_partial(-self._content_cost)
        self._content_cost = 0
        self._content = None

    # --- delivering ---------------------------------------------------------------------------------

    def take_tags(self, count: int) -> int:
        """Return the first of `count` new delivery tags."""
        first = self._next_tag
        self._next_tag = first + count
        return first

    def ack_due_ms(self, timeout_ms: int) -> int:
        """When a delivery that is made now goes back to its queue, if the client has not settled it by then."""
        if self._ack_timeouts is None:
            self._ack_timeouts = AckTimeouts(self)
        return self._ack_timeouts.due_ms(timeout_ms)

    def subscription_has_work(self, subscription: Subscription) -> None:
        self._working.append(subscription)
        if not self.listed:
            self.listed = True
            self.connection.channel_has_work(self)

    def has_work(self) -> bool:
        return bool(self._working)

    def deliver_some(self) -> int:
        """Let the next consumer with work pull one run; return how many messages that was worth."""
        working = self._working
        subscription = working.popleft()
        # Before the pull: it may be notified anew in the meantime.
        subscription.listed = False
        count = subscription.pull()
        if not subscription.listed and subscription.has_work():
            subscription.listed = True
            working.append(subscription)
        return count

    def offer(self) -> None:
        """Let the queues of its consumers serve notified consumers, before a method changes these."""
        for subscription in list(self.subscriptions.values()):
            subscription.offer()

    def receive_replies(self, envelope: Envelope, bodies: Sequence[bytes]) -> None:
        # Replies are not kept for anyone: not for a channel that is closing, nor for a client that does not read.
        if self.closing or self._reply_encoder is None or not self.connection.is_writable():
            return
        for body in bodies:
            # Replies are not acknowledged; all of them have the same tag.
            entries: list[Entry] = [(envelope, body, None)]
            self.connection.sent_bytes(self._reply_encoder.encode(self.connection.out, entries, 1, False))

    def open_replies(self, tag: str) -> None:
        """Consume from the pseudo-queue of direct reply-to."""
        if self.reply_address is not None:
            raise precondition_failed("reply consumer already set")
        self.reply_tag = tag
        self.reply_address = self.connection.broker.direct_replies.open(self)
        self._reply_encoder = DeliveryEncoder(self.number, tag, self.connection.frame_bytes_max)
        self.connection.forget_routes()

    def close_replies(self) -> None:
        if self.reply_address is not None:
            self.connection.broker.direct_replies.close(self.reply_address)
            self.connection.forget_routes()
        self.reply_address = self.reply_tag = self._reply_encoder = None

    # --- settling -----------------------------------------------------------------------------------

    def settle_by_client(self, spans: list[Span], how: int) -> None:
        if self.transaction is not None:
            self.transaction.settled(spans, None, how)
        else:
            self.settle_many(spans, how)

    def settle_through(self, tag: int, how: int) -> None:
        """The client settles every delivery up to a tag; 0 stands for all."""
        spans = self.unacked.take_through(tag, limits.SETTLE_AT_ONCE)
        detached = self.unacked.detach_through(tag)
        if self.transaction is not None:
            self.transaction.settled(spans, detached, how)
        else:
            self.settle_many(spans, how, detached)

    def recover(self) -> None:
        """Requeue all deliveries, whatever the transaction has settled."""
        self.settle_many(self.unacked.take_some(limits.SETTLE_AT_ONCE), REQUEUE, self.unacked.detach_through(0))

    def settle_many(self, spans: list[Span], how: int, detached: Unacked | None = None) -> None:
        """Acknowledge, reject or requeue deliveries that were taken from `unacked`; very many over several turns."""
        if detached is None and (len(spans) <= 1 or sum([count for _, _, count in spans]) <= limits.SETTLE_AT_ONCE):
            if how == REQUEUE:
                self.offer_before(SpanSlices(spans, how))
            self.settle_slice(spans, how)
        else:
            slices = SpanSlices(spans, how, [] if detached is None else [detached])
            self.offer_before(slices)
            self.connection.server.settlements.settle(self, slices)

    def offer_before(self, spans: SpanSlices) -> None:
        """What is ready is offered before messages that come back stand in front of it again."""
        if spans.how == REQUEUE:
            for queue in spans.queues():
                queue.offer()

    def settle_slice(self, spans: list[Span], how: int) -> None:
        """Settle some of the deliveries that were settled together."""
        # Only consumers without credit can have lost interest by that: with credit left none has to be asked.
        was_out_of_credit = 0 < self.prefetch_count <= self.consumer_unacked_count
        for run, first_seq_id, count in spans:
            seq_ids = range(first_seq_id, first_seq_id + count)
            if how == ACK:
                run.queue.ack(seq_ids)
            elif how == REJECT:
                run.queue.reject(seq_ids)
            else:
                run.queue.requeue(seq_ids)
            consumer = run.consumer
            if consumer is not None:
                assert isinstance(consumer, QueueConsumer)
                self.consumer_unacked_count -= count
                consumer.subscription.settled(count)
        if was_out_of_credit:
            self.update_interest()

    def ran_out_of_credit(self, subscription: Subscription) -> None:
        """A consumer took all that it, or the channel, may have."""
        if self.prefetch_count:
            # They share the channel's credit, and are asked in this order when there is some again.
            self.subscriptions[subscription.tag] = self.subscriptions.pop(subscription.tag)
        subscription.lose_interest()

    def update_interest(self) -> None:
        """Credit or back-pressure changed for all consumers of the channel."""
        for subscription in self.subscriptions.values():
            subscription.update_interest()

    # --- consumers ----------------------------------------------------------------------------------

    def add_subscription(self, subscription: Subscription) -> None:
        count = len(subscription.consumers)
        consumers_max = self.connection.broker.config.consumers_per_channel_max
        if self._queue_consumer_count + count > consumers_max:
            raise precondition_failed(f"this channel has its {consumers_max} consumers already")
        # Registered here first: the queue may notify it at once.
        self.subscriptions[subscription.tag] = subscription
        try:
            subscription.join()
        except Exception:
            del self.subscriptions[subscription.tag]
            raise
        self._queue_consumer_count += count

    def cancel_subscription(self, subscription: Subscription) -> None:
        """The client cancels. What it has not acknowledged stays with the channel."""
        del self.subscriptions[subscription.tag]
        self.queue_consumers_left(len(subscription.consumers))
        subscription.leave()

    def queue_consumers_left(self, count: int) -> None:
        """Consumers of its subscriptions are with their queues no longer."""
        self._queue_consumer_count -= count

    def subscription_cancelled(self, subscription: Subscription) -> None:
        """The last queue of a subscription was deleted."""
        self.subscriptions.pop(subscription.tag, None)
        if self.connection.has_capability("consumer_cancel_notify"):
            # After this turn's answers: a client that deletes a queue that it consumes from gets delete-ok first.
            self.connection.server.loop.call_soon(
                self._cancel_behind_answers, methods.BasicCancel(subscription.tag, True)
            )

    def _cancel_behind_answers(self, cancel: methods.BasicCancel) -> None:
        """Send a basic.cancel; behind the delete-ok of a durable queue, which waits for the disk."""
        log = self.connection.broker.log
        if log is None or log.is_durable():
            self._send_cancel(cancel)
        else:
            log.when_durable(lambda _: self._send_cancel(cancel))

    def _send_cancel(self, cancel: methods.BasicCancel) -> None:
        if not self.closing:
            self.send(cancel)

    def outstanding(self) -> int:
        """Return how many deliveries wait for an ack, and runs of publishes for a confirm."""
        return len(self.unacked) + (0 if self.confirms is None else self.confirms.open_count())

    # --- the end --------------------------------------------------------------------------------------

    def release(self) -> Unacked | None:
        """The channel is closed or its connection is gone: consumers leave. What is unacknowledged is to go back.

        Nothing that the channel has leads back to it afterwards: it is freed by reference counting.
        """
        if self._is_released:
            return None
        self._is_released = True
        self.closing = True
        self.close_replies()
        for subscription in list(self.subscriptions.values()):
            self.cancel_subscription(subscription)
        self._working.clear()
        self._drop_content()
        if self._ack_timeouts is not None:
            self._ack_timeouts.close()
            self._ack_timeouts = None
        if self.transaction is not None:
            # What was settled and not committed goes back with the rest, in the order of delivery.
            _, settled = self.transaction.take()
            self.unacked.undo(settled)
            self.transaction = None
        self.confirms = None
        self.publisher.close()
        self.consumer_unacked_count = 0
        return self.unacked
