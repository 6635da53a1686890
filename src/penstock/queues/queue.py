"""A queue: messages in a backing queue, consumers in a consumer manager, and the rules between them.

What it owns: one `BackingQueue`, one `ConsumerManager`, the queue's attributes and counters. It is called on one
thread, does no I/O, and never pushes: a publish notifies consumers, and they pull when their connection's turn comes.

The walk of a message: `publish` -> backing, consumers notified -> `pull` by a consumer (or `get`) -> `ack`, `requeue`
or `reject`. A message whose expiry has come is dropped when it is at the head, never from the middle (RabbitMQ's rule).

Invariants
  1. While a message is available and an eligible consumer is interested, a consumer is notified (consumer manager).
  2. No message that has expired at the head is handed out, also not in a run behind a message that has not.
  3. A deleted queue accepts nothing and holds nothing.
  4. An exclusive consumer is the only consumer.
  5. A queue whose backing has failed (`crash`) refuses what is published and does not touch its backing again.

A crash leaves what the backing leaves; consumers and counters are gone. It does not know exchanges, channels
or sockets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from penstock import limits
from penstock.backing.backing_queue import TIMEOUT_TIMED, BackingQueue
from penstock.clock import Clock
from penstock.errors import access_refused
from penstock.fields import Table
from penstock.message import ConfirmToken, Entry, Envelope, MessageProps, Run
from penstock.queues.consumer import Consumer
from penstock.queues.consumer_manager import Availability, ConsumerManager
from penstock.queues.expiry import Expiring, ExpirySchedule
from penstock.queues.recovered import fetch_unexpired

# A message with expiration 0 must reach a waiting consumer in this turn or not at all; a turn is shorter than this.
EXPIRES_AT_ONCE_MS: Final = 50
# Later than every expiry: that of a message which has none.
NEVER_MS: Final = 1 << 62


class QueueOwner(ABC):
    """Whoever keeps the queue; the vhost."""

    @abstractmethod
    def last_consumer_gone(self, queue: Queue) -> None:
        """The last consumer left: an auto-delete queue is to be deleted."""


class HeadExpiry(Expiring):
    """Wakes a queue when its head message expires."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def expire_due(self, now_ms: int) -> None:
        self._queue.expire_due(now_ms)


class Queue(Availability):
    """One queue."""

    def __init__(
        self,
        name: str,
        vhost_name: str,
        durable: bool,
        auto_delete: bool,
        exclusive_owner: object | None,
        arguments: Table,
        backing: BackingQueue,
        clock: Clock,
        expiries: ExpirySchedule,
        owner: QueueOwner,
        queue_id: str = "",
    ) -> None:
        self.name = name
        # What its backing knows it by; nothing that a client chose.
        self.queue_id = queue_id
        self.vhost_name = vhost_name
        self.durable = durable
        self.auto_delete = auto_delete
        # The connection that alone may use the queue and takes it along when it closes.
        self.exclusive_owner = exclusive_owner
        self.arguments = arguments
        self.backing = backing
        self.consumers = ConsumerManager(self)
        self.deleted = False
        # A bug in the backing: it holds what it holds until the next start.
        self.crashed = False
        # Publishes to a durable queue that wait for the disk, for the case that it crashes.
        self._unconfirmed: dict[ConfirmToken, None] = {}
        self._clock = clock
        self._expiries = expiries
        self._head_expiry = HeadExpiry(self)
        self._owner = owner
        # True while a message with an expiry may be ready or pending; spares plain queues the look at the clock.
        self._may_expire = False
        # The latest expiry among the messages since then, and whether one may expire before another in front of it.
        self._latest_expiry_ms = 0
        self._expiries_disordered = False
        # Messages of the broker's last run may be there, of which nobody knows here whether and when they expire.
        self._has_recovered = False
        # With priorities what is published later may stand in front.
        self._has_priorities = "x-max-priority" in arguments
        # An exclusive consumer is there, alone.
        self._in_exclusive_use = False
        # Counters since the queue was opened; the flow of publishers and the views look at them.
        self.published_count = 0
        self.delivered_count = 0
        self.acked_count = 0
        self.expired_count = 0

    def describe(self) -> str:
        """How error texts name it."""
        return f"queue '{self.name}' in vhost '{self.vhost_name}'"

    # --- publishing ---------------------------------------------------------------------------------

    def publish(self, envelope: Envelope, bodies: Sequence[bytes], confirm: ConfirmToken | None) -> None:
        """Append a run. The confirm token is settled when the run is safe here."""
        assert not self.deleted
        if self.crashed:
            _refuse(confirm)
            return
        count = len(bodies)
        self.published_count += count
        props: MessageProps | None = None
        if envelope.expiration_ms >= 0:
            if envelope.expiration_ms == 0 and self._nobody_takes_it_now():
                self._discard(envelope, bodies, confirm)
                return
            expiry_ms = self._clock.wall_ms() + envelope.expiration_ms
            if envelope.expiration_ms == 0 and self.backing.is_empty():
                expiry_ms += EXPIRES_AT_ONCE_MS
            self._note_expiry(expiry_ms)
            props = MessageProps(expiry_ms, confirm)
        else:
            if self._may_expire:
                self._latest_expiry_ms = NEVER_MS
            if confirm is not None:
                props = MessageProps(-1, confirm)
        self.backing.publish(envelope, bodies, props)
        if envelope.expiration_ms >= 0:
            self._arm()
        self.consumers.notify_available(count)
        if confirm is not None:
            self._await_confirm(confirm)

    def publish_entries(self, entries: Sequence[Entry], confirm: ConfirmToken | None) -> None:
        """Append messages that differ in their envelopes. None of them expires."""
        assert not self.deleted
        if self.crashed:
            _refuse(confirm)
            return
        self.published_count += len(entries)
        if self._may_expire:
            self._latest_expiry_ms = NEVER_MS
        self.backing.publish_entries(entries, confirm)
        self.consumers.notify_available(len(entries))
        if confirm is not None:
            self._await_confirm(confirm)

    def _nobody_takes_it_now(self) -> bool:
        """A message would be at the head, and no consumer waits for it."""
        return self.backing.is_empty() and self.consumers.highest_active_priority() is None

    def _discard(self, envelope: Envelope, bodies: Sequence[bytes], confirm: ConfirmToken | None) -> None:
        self.backing.discard(envelope, bodies, None)
        self.expired_count += len(bodies)
        if confirm is not None:
            confirm.settle()

    def _await_confirm(self, confirm: ConfirmToken) -> None:
        if self.durable:
            self._unconfirmed[confirm] = None
        self.settle_confirms()

    def settle_confirms(self) -> None:
        """Tell publishers what the backing has made safe."""
        unconfirmed = self._unconfirmed
        for token in self.backing.drain_confirmed():
            if unconfirmed:
                unconfirmed.pop(token, None)
            token.settle()
        if unconfirmed and self.backing.needs_timeout() != TIMEOUT_TIMED:
            # It owes nobody anything: the rest was refused, and told so.
            unconfirmed.clear()

    # --- consuming ----------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer, interested: bool) -> None:
        """Register a consumer; refused while the queue is in exclusive use, or an exclusive one would not be alone."""
        if len(self.consumers) and (consumer.exclusive or self._in_exclusive_use):
            raise access_refused(f"{self.describe()} in exclusive use")
        self._in_exclusive_use = consumer.exclusive
        self.consumers.add(consumer, interested)

    def remove_consumer(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        if not len(self.consumers):
            self._in_exclusive_use = False
            self._owner.last_consumer_gone(self)

    def set_interest(self, consumer: Consumer, desired: bool) -> None:
        """The consumer wants work, or does not (credit, flow, back-pressure)."""
        self.consumers.set_interest(consumer, desired)

    def has_available(self, consumer: Consumer) -> bool:
        if consumer.acquires:
            return not self.backing.is_empty()
        return self.backing.browse(consumer.browse_seq_id, 1, 0) is not None

    def available_count(self) -> int:
        return len(self.backing)

    def pull(self, consumer: Consumer, count_max: int) -> Run | None:
        """A consumer that was notified takes a run; None when there is nothing for it now."""
        manager = self.consumers
        if not manager.begin_pull(consumer):
            return None
        if self._may_expire:
            self._expire_head(self._clock.wall_ms())
        if not consumer.acquires:
            return self._browse(consumer, count_max)
        active = manager.active_at(consumer.priority)
        if active > 1:
            # Several wait: deal singly in turn while few messages are there, in larger packs when there are many.
            share = len(self.backing) // (active * limits.DEAL_SINGLY_BELOW)
            if share < count_max:
                count_max = share if share > 1 else 1
        if self._expiries_disordered:
            # Each message must be looked at when it has come to the head: it may have expired behind the one before.
            count_max = 1
        if self._has_recovered:
            now_ms = self._clock.wall_ms()
            run = fetch_unexpired(self.backing, count_max, limits.PULL_BYTES_MAX, not consumer.no_ack, now_ms)
        else:
            run = self.backing.fetch(count_max, limits.PULL_BYTES_MAX, not consumer.no_ack)
        if run is None:
            manager.missed(consumer)
            return None
        # A consumer that has emptied the queue waits like any other: what comes next notifies it again.
        consumer.pull_again = not self.backing.is_empty()
        if consumer.pull_again:
            manager.pulled(consumer)
        self.delivered_count += len(run.entries)
        if self._may_expire:
            self._arm()
        return run

    def _browse(self, consumer: Consumer, count_max: int) -> Run | None:
        run = self.backing.browse(consumer.browse_seq_id, count_max, limits.PULL_BYTES_MAX)
        if run is None:
            self.consumers.missed(consumer)
            return None
        consumer.browse_seq_id = run.first_seq_id + len(run.entries)
        self.consumers.pulled(consumer)
        consumer.pull_again = True
        return run

    def get(self, no_ack: bool) -> Run | None:
        """One message for basic.get, past all consumers."""
        if self._may_expire:
            self._expire_head(self._clock.wall_ms())
        run = self.backing.fetch(1, 0, not no_ack)
        if run is not None:
            self.delivered_count += 1
            if self._may_expire:
                self._arm()
        return run

    # --- settling -----------------------------------------------------------------------------------

    def ack(self, seq_ids: Sequence[int]) -> None:
        if not self.deleted and not self.crashed:
            self.acked_count += self.backing.ack(seq_ids)

    def reject(self, seq_ids: Sequence[int]) -> None:
        """Refused for good."""
        if not self.deleted and not self.crashed:
            self.backing.ack(seq_ids)

    def requeue(self, seq_ids: Sequence[int]) -> None:
        """Back to their original positions, and offered again."""
        if self.deleted or self.crashed:
            return
        count = self.backing.requeue(seq_ids)
        if count:
            if self._may_expire:
                self._arm()
            self.consumers.notify_available(count)

    # --- the whole queue ------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Messages that are ready, those that have expired at the head not counted."""
        if self._may_expire:
            self._expire_head(self._clock.wall_ms())
        return len(self.backing)

    def consumer_count(self) -> int:
        return len(self.consumers)

    def purge(self) -> int:
        purged = self.backing.purge()
        self._forget_expiries_if_empty()
        return purged

    def delete(self) -> int:
        """Cancel the consumers, drop everything; return how many messages were ready."""
        ready = len(self)
        self._leave_use()
        self.backing.delete_and_terminate()
        # Nothing can be lost any more: publishers that wait for the disk are told so.
        self.settle_confirms()
        return ready

    def _leave_use(self) -> None:
        self.deleted = True
        for consumer in list(self.consumers.consumers()):
            self.consumers.remove(consumer)
            consumer.cancelled_by_queue()
        self._may_expire = False
        self._expiries.disarm(self._head_expiry)

    def terminate(self) -> None:
        """The broker stops: leave what lasts where the next start finds it."""
        self._leave_use()
        if not self.crashed:
            self.backing.terminate()

    def crash(self) -> None:
        """The backing failed in a way that nobody foresaw: whoever relies on this queue is told, and nobody else."""
        self._leave_use()
        self.deleted = False
        self.crashed = True
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        for token in unconfirmed:
            token.refuse()

    # --- expiry ---------------------------------------------------------------------------------------

    def expire_due(self, now_ms: int) -> None:
        """The head's expiry may have come."""
        if not self.deleted and not self.crashed:
            self._expire_head(now_ms)
            self._arm()

    def _expire_head(self, now_ms: int) -> None:
        def expired(props: MessageProps | None) -> bool:
            return props is not None and 0 <= props.expiry_ms <= now_ms

        self.expired_count += self.backing.dropwhile(expired)
        self._forget_expiries_if_empty()

    def _note_expiry(self, expiry_ms: int) -> None:
        """A message that expires is about to be published."""
        if not self._may_expire or self.backing.depth() == 0:
            self._may_expire = True
            # What is there already does not expire, and stands in front.
            self._expiries_disordered = self.backing.depth() > 0 or self._has_priorities
        elif expiry_ms < self._latest_expiry_ms:
            self._expiries_disordered = True
            return
        self._latest_expiry_ms = expiry_ms

    def _forget_expiries_if_empty(self) -> None:
        # What is unacknowledged may come back, and may expire then.
        if self.backing.depth() == 0:
            self._may_expire = False
            self._expiries_disordered = False
            self._has_recovered = False

    def recovered(self) -> None:
        """The backing may hold messages of the broker's last run. Some of them may expire, in any order."""
        if self.backing.depth():
            self._may_expire = self._has_recovered = True
            self._latest_expiry_ms = NEVER_MS
            self._arm()

    def _arm(self) -> None:
        head = self.backing.head_props()
        if head is not None and head.expiry_ms >= 0:
            self._expiries.arm(self._head_expiry, head.expiry_ms)


def _refuse(confirm: ConfirmToken | None) -> None:
    if confirm is not None:
        confirm.refuse()
