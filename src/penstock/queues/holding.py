"""What a queue holds: how messages get in, how they leave unread, and how the queue itself ends.

What it owns: one `BackingQueue`, one `ConsumerManager`, the queue's attributes, seams and counters. `Queue` adds how
messages are handed out and settled. It is called on one thread and does no I/O.

Life of the data: `publish` -> `intake`, where there is one -> `enqueue` -> backing, consumers notified. A message whose
expiry has come leaves when it is at the head, never from the middle (RabbitMQ's rule; a selection may know better).
Messages that leave unread are buried: as dead letters where there is a place for them, else dropped.

Whatever a plain queue does not do is done by an object at one of the seams (`intake`, `dead_letters`, `returns`,
`selection`, `activity`, `lifetime`), each None where it is not needed. See docs/decisions/0008.

Invariants
  1. A deleted queue accepts nothing and holds nothing.
  2. A queue whose backing has failed (`crash`) refuses what is published and does not touch its backing again.
  3. A confirm token is settled or refused once.
  4. `ready_count` counts what is ready in the backing and what is shelved.

A crash leaves what the backing leaves; consumers and counters are gone. It does not know exchanges, channels
or sockets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock import limits
from penstock.backing.backing_queue import NOT_DELIVERED, TIMEOUT_TIMED, BackingQueue
from penstock.backing.nothing_yet import NOTHING_YET
from penstock.backing.outcomes import DROPPED, MOVED, REASON_NONE, THE_QUEUE
from penstock.call_all import call_all
from penstock.clock import Clock
from penstock.fields import Table
from penstock.message import ConfirmToken, Entry, Envelope, MessageProps, refuse_all, settle_all
from penstock.queues.bury_again import BuryAgain
from penstock.queues.consumer_manager import NO_CONSUMERS, Availability, ConsumerManager
from penstock.queues.dead_letters import DELIVERY_LIMIT, Dead, DeadLetters, outcome_of_dropped, reason_number
from penstock.queues.expiry import ExpirySchedule
from penstock.queues.head_expiry import DEAD_AT_ONCE, HeadExpiry
from penstock.queues.intake import Congestion, Intake
from penstock.queues.lifetime import Lifetime
from penstock.queues.publisher_marks import PublisherMarks
from penstock.queues.queue_host import QueueHost
from penstock.queues.returns import Returns
from penstock.queues.selection import Selection
from penstock.queues.settling import Settling
from penstock.queues.single_active import SingleActive

if TYPE_CHECKING:
    from penstock.queues.queue import Queue


class QueueOwner(ABC):
    """Whoever keeps the queue; the vhost."""

    @abstractmethod
    def last_consumer_gone(self, queue: Queue) -> None:
        """The last consumer left: an auto-delete queue is to be deleted."""

    @abstractmethod
    def open_backing(self, queue: Holding) -> BackingQueue:
        """A new backing for a queue that was made without one."""


class Holding(Availability):
    """Everything about a queue but its consumers' side."""

    # There may be a hundred thousand of them.
    __slots__ = (
        "__weakref__",
        "_bury_again",
        "_clock",
        "_expiries",
        "_expiry",
        "_host",
        "_in_exclusive_use",
        "_owner",
        "_unconfirmed",
        "acked_count",
        "activity",
        "arguments",
        "auto_delete",
        "backing",
        "congestion",
        "consumers",
        "crashed",
        "dead_letters",
        "deleted",
        "delivered_count",
        "durable",
        "exclusive_owner",
        "intake",
        "lifetime",
        "marks",
        "name",
        "paused",
        "published_count",
        "queue_id",
        "returning",
        "returns",
        "selection",
        "settling",
        "vhost_name",
    )

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
        self.consumers = NO_CONSUMERS
        self.deleted = False
        # A bug in the backing: it holds what it holds until the next start.
        self.crashed = False
        # Set by whoever wants it to hand out nothing for now.
        self.paused = False
        # Settlements of many of its deliveries that are under way, and how many of them put messages back: until those
        # are over nothing is handed out.
        self.settling: tuple[Settling, ...] = ()
        self.returning = 0
        # Set while the overflow rule has publishers wait.
        self.congestion: Congestion | None = None
        # The seams. What features need to reach the queue is made for the first of them.
        self._host: QueueHost | None = None
        self.intake: Intake | None = None
        self.dead_letters: DeadLetters | None = None
        self.returns: Returns | None = None
        self.selection: Selection | None = None
        self.activity: SingleActive | None = None
        self.lifetime: Lifetime | None = None
        # Who published what; kept while a consumer does not want its own connection's messages.
        self.marks: PublisherMarks | None = None
        # Publishes to a durable queue that wait for the disk, for the case that it crashes.
        self._unconfirmed: dict[ConfirmToken, None] = {}
        self._clock = clock
        self._expiry = HeadExpiry(self.expire_due, backing, expiries, "x-max-priority" in arguments)
        self._expiries = expiries
        self._bury_again: BuryAgain | None = None
        self._owner = owner
        # An exclusive consumer is there, alone.
        self._in_exclusive_use = False
        # Counters since the queue was opened; the flow of publishers and the views look at them.
        self.published_count = 0
        self.delivered_count = 0
        self.acked_count = 0

    def describe(self) -> str:
        """How error texts name it."""
        return f"queue '{self.name}' in vhost '{self.vhost_name}'"

    @property
    def host(self) -> QueueHost:
        """The queue as its features see it."""
        if self._host is None:
            self._host = QueueHost(self)
        return self._host

    @property
    def bury_again(self) -> BuryAgain:
        """Dead that nobody takes now: they stay pending, and are offered again."""
        if self._bury_again is None:
            self._bury_again = BuryAgain(self._carry_away, self._expiries, self._clock)
        return self._bury_again

    def own_backing(self) -> BackingQueue:
        """The backing of this queue; opened for the first message, or for the first feature that needs it."""
        if self.backing is NOTHING_YET:
            self.backing = self._expiry.backing = self._owner.open_backing(self)
            for consumer in self.consumers.consumers():
                consumer.joined(self.backing)
        return self.backing

    def own_consumers(self) -> ConsumerManager:
        """The manager of this queue's consumers; made for the first of them."""
        if self.consumers is NO_CONSUMERS:
            self.consumers = ConsumerManager(self)
        return self.consumers

    @property
    def expired_count(self) -> int:
        return self._expiry.expired_count

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    # --- publishing ---------------------------------------------------------------------------------

    @property
    def takes_singly(self) -> bool:
        """Whether it may take one message of a run and refuse another: then it gets runs of one."""
        return self.intake is not None and self.intake.takes_singly

    def has_room(self, body: bytes) -> bool:
        """Whether a message that came now would not be refused."""
        return self.intake is None or self.intake.has_room(body)

    def passes_on(self, body: bytes) -> bool:
        """Whether a message that came now would go on as a dead letter, past this queue."""
        return self.intake is not None and self.intake.passes_on(body)

    def publish(
        self,
        envelope: Envelope,
        bodies: Sequence[bytes],
        confirm: ConfirmToken | None,
        publisher: object = None,
        delivered: int = NOT_DELIVERED,
    ) -> None:
        """Take a run. The confirm token is settled when the run is safe here; `delivered`: what the backing is told."""
        assert not self.deleted
        if self.crashed:
            _refuse(confirm)
        elif self.intake is not None:
            self.intake.publish(envelope, bodies, confirm, publisher, delivered)
        else:
            self.enqueue(envelope, bodies, confirm, envelope.expiration_ms, delivered)

    def enqueue(
        self,
        envelope: Envelope,
        bodies: Sequence[bytes],
        confirm: ConfirmToken | None,
        expiration_ms: int,
        delivered: int = NOT_DELIVERED,
    ) -> int:
        """Append a run, whatever the limits say; the first seq_id, -1 when the run was not kept."""
        count = len(bodies)
        if self.backing is NOTHING_YET:
            self.own_backing()
        self.published_count += count
        props: MessageProps | None = None
        if expiration_ms >= 0:
            if expiration_ms == 0 and self.dead_letters is None and self._nobody_takes_it_now():
                self._discard(envelope, bodies, confirm)
                return -1
            if expiration_ms == 0 and self._expiry.may_expire:
                # What has expired in front of it is not to be handed out with it.
                self._expire_head()
            expiry_ms = self._clock.wall_ms() + expiration_ms
            self._expiry.note(expiry_ms)
            props = MessageProps(expiry_ms, confirm)
        else:
            if self._expiry.may_expire:
                self._expiry.note_lasting()
            if confirm is not None:
                props = MessageProps(-1, confirm)
        first_seq_id = self.backing.publish(envelope, bodies, props, delivered)
        self._enqueued(first_seq_id, count, confirm)
        if expiration_ms == 0:
            # It reaches a consumer that waits for it now, or nobody.
            self._expiry.is_suspended = True
            try:
                self.serve_waiting(self.ready_count())
            finally:
                self._expiry.is_suspended = False
        return first_seq_id

    def serve_waiting(self, count_max: int) -> None:
        """Let notified consumers take what they have credit for, now and not in their turn; about `count_max`."""

    def publish_entries(self, entries: Sequence[Entry], confirm: ConfirmToken | None) -> None:
        """Append messages that differ in their envelopes. None of them expires, and the queue has no intake."""
        assert not self.deleted and self.intake is None
        if self.crashed:
            _refuse(confirm)
            return
        if self.backing is NOTHING_YET:
            self.own_backing()
        self.published_count += len(entries)
        if self._expiry.may_expire:
            self._expiry.note_lasting()
        self._enqueued(self.backing.publish_entries(entries, confirm), len(entries), confirm)

    def enter(
        self,
        envelope: Envelope,
        bodies: Sequence[bytes],
        confirm: ConfirmToken | None,
        delivered: int = NOT_DELIVERED,
    ) -> None:
        """Take back a run that was held elsewhere; no gate is asked a second time."""
        if self.intake is not None:
            self.intake.enter(envelope, bodies, confirm, delivered)
        else:
            self.enqueue(envelope, bodies, confirm, envelope.expiration_ms, delivered)

    def hold(
        self,
        envelope: Envelope,
        bodies: Sequence[bytes],
        confirm: ConfirmToken | None,
        due_ms: int,
        delivered: int = NOT_DELIVERED,
    ) -> int:
        """Append a run to a companion queue, with the time that it is kept for; the first seq_id."""
        assert not self.deleted
        if self.crashed:
            _refuse(confirm)
            return -1
        self.published_count += len(bodies)
        first_seq_id = self.own_backing().publish(envelope, bodies, MessageProps(due_ms, confirm), delivered)
        self._enqueued(first_seq_id, len(bodies), confirm)
        return first_seq_id

    def _enqueued(self, first_seq_id: int, count: int, confirm: ConfirmToken | None) -> None:
        if self.selection is not None:
            self.selection.published(first_seq_id, count)
        if self._expiry.may_expire or self.selection is not None:
            self._arm()
        self.consumers.notify_available(count)
        if confirm is not None:
            if self.durable:
                self._unconfirmed[confirm] = None
            self.settle_confirms()

    def _nobody_takes_it_now(self) -> bool:
        """A message would be at the head, and no consumer waits for it."""
        return self.backing.is_empty() and self.consumers.highest_active_priority() is None

    def _discard(self, envelope: Envelope, bodies: Sequence[bytes], confirm: ConfirmToken | None) -> None:
        self.backing.discard(envelope, bodies, None)
        self._expiry.expired_count += len(bodies)
        if confirm is not None:
            confirm.settle()

    def settle_confirms(self) -> None:
        """Tell publishers what the backing has made safe."""
        unconfirmed = self._unconfirmed
        tokens = self.backing.drain_confirmed()
        if unconfirmed:
            for token in tokens:
                unconfirmed.pop(token, None)
        settle_all(tokens)
        if unconfirmed and self.backing.needs_timeout() != TIMEOUT_TIMED:
            # It owes nobody anything: the rest was refused, and told so.
            unconfirmed.clear()

    # --- leaving unread -------------------------------------------------------------------------------

    def bury(self, seq_ids: Sequence[int], reason: str) -> None:
        """Pending messages leave unread: as dead letters if there is a place for them, else for good."""
        if self.deleted or self.crashed:
            return
        if self.dead_letters is None:
            self.backing.ack(seq_ids, outcome_of_dropped(reason), reason_number(reason))
            return
        self._carry_away(seq_ids, reason, self.dead_letters)

    def _carry_away(self, seq_ids: Sequence[int], reason: str, carrier: DeadLetters) -> None:
        dead: list[Dead] = []
        self.backing.ackfold(lambda seq_id, entry: dead.append((seq_id, entry)), seq_ids)
        if dead:
            carrier.bury(self.host, dead, reason)

    def keep_dead(self, seq_ids: Sequence[int], reason: str, carrier: DeadLetters, rests_ms: int) -> None:
        """Pending messages that could not be carried away are offered again later."""
        if not self.deleted and not self.crashed:
            if reason == DELIVERY_LIMIT and self.returns is not None:
                self.returns.kept(seq_ids)
            self.bury_again.keep(seq_ids, reason, carrier, rests_ms)

    def give_back(self, seq_ids: Sequence[int]) -> None:
        """Pending messages stay after all, at their positions."""
        if not seq_ids or self.deleted or self.crashed:
            return
        if self.selection is not None:
            self.backing.ack(self.selection.returned(seq_ids), DROPPED)
        else:
            self.backing.requeue(seq_ids, failed=False)
        self._arm()
        self.consumers.notify_available(len(seq_ids))

    def drop_head(self, count: int, reason: str) -> int:
        """The first ready messages leave unread; how many there were, at most `count`."""
        if self.selection is not None:
            seq_ids = self.selection.take(self.selection.first_shelved(count))
            if seq_ids:
                self.bury(seq_ids, reason)
                return len(seq_ids)
        if self.dead_letters is None:
            # One by one: `dropwhile` asks once for all messages of a run.
            dropped = 0
            outcome = outcome_of_dropped(reason)
            while dropped < count and self.backing.drop(False, outcome, reason_number(reason)) is not None:
                dropped += 1
        else:
            run = self.backing.fetch(min(count, DEAD_AT_ONCE), limits.PULL_BYTES_MAX, True, THE_QUEUE)
            dropped = 0 if run is None else len(run.entries)
            if run is not None:
                dead = [(run.first_seq_id + index, entry) for index, entry in enumerate(run.entries)]
                self.dead_letters.bury(self.host, dead, reason)
        if self._expiry.may_expire:
            # Another message is at the head, and may expire.
            self._arm()
        return dropped

    def forget(self, seq_ids: Sequence[int], outcome: int = MOVED, reason: int = REASON_NONE) -> None:
        """Pending messages are elsewhere now, or given up."""
        if not self.deleted and not self.crashed:
            self.backing.ack(seq_ids, outcome, reason)

    # --- expiry -----------------------------------------------------------------------------------------

    def expire_due(self, now_ms: int) -> None:
        """A message may have expired."""
        if self.deleted or self.crashed:
            return
        if self.selection is not None:
            self.selection.expire(now_ms)
        if self.intake is not None:
            self.intake.came_back()
        if self._expiry.may_expire and self._expiry.drop(now_ms, self.host, self.dead_letters):
            self._expiry.arm_at(now_ms)
        else:
            self._arm()
            # Consumers that came while the expired ones stood in front were sent away.
            self.consumers.notify_available(self.ready_count())

    def _expire_head(self) -> bool:
        """Take expired messages from the head; True when there are more than one turn can take."""
        now_ms = self._clock.wall_ms()
        if self._expiry.drop(now_ms, self.host, self.dead_letters):
            self._expiry.arm_at(now_ms)
            return True
        return False

    def _arm(self) -> None:
        if self.selection is not None:
            due_ms = self.selection.next_expiry_ms()
            if due_ms >= 0:
                self._expiry.arm_at(due_ms)
        if self._expiry.may_expire:
            self._expiry.arm()

    def recovered(self) -> None:
        """The backing may hold messages of the broker's last run. Some of them may expire, in any order."""
        count = self.backing.depth()
        if count:
            if self.returns is not None:
                self._keep_away(self.returns.recovered())
            if self.selection is None or not self.selection.leaves_ready():
                self._expiry.recovered()
            if self.selection is not None:
                self.selection.published(-1, count)
            self._arm()
            # It may have died over its limit: it makes room when all queues are there.
            self._expiry.arm_at(self._clock.wall_ms())

    def _keep_away(self, over: Sequence[int]) -> None:
        """Messages that came back once too often before the start are on their way out again."""
        if over and self.dead_letters is not None:
            self.keep_dead(over, DELIVERY_LIMIT, self.dead_letters, 0)
        elif over:
            self.bury(over, DELIVERY_LIMIT)

    # --- settling in slices ---------------------------------------------------------------------------

    def settling_begun(self, settling: Settling, returns: bool) -> None:
        """Deliveries are settled in several turns from now on; with `returns` they come back."""
        self.settling = (*self.settling, settling)
        self.returning += returns

    def settling_over(self, settling: Settling, returns: bool) -> None:
        self.settling = tuple([other for other in self.settling if other is not settling])
        self.returning -= returns
        if returns and not self.returning and not self.deleted and not self.crashed:
            self.consumers.notify_available(self.available_count())

    # --- memory -----------------------------------------------------------------------------------------

    def ram_bytes(self) -> int:
        """What the queue holds in memory, with what its features remember of messages."""
        if self.crashed:
            return 0
        size = self.backing.ram_bytes()
        if self.selection is not None:
            size += self.selection.ram_bytes()
        if self.intake is not None:
            size += self.intake.ram_bytes()
        if self._bury_again is not None:
            size += len(self._bury_again) * limits.NUMBER_OVERHEAD_BYTES
        return size

    def look_weight(self) -> int:
        """What it costs to ask for `ram_bytes`."""
        return 1

    # --- the whole queue ------------------------------------------------------------------------------

    def ready_count(self) -> int:
        """Messages that are ready, also those that have expired."""
        return len(self.backing) + (0 if self.selection is None else self.selection.ready_count())

    def ready_bytes(self) -> int:
        shelved = 0 if self.selection is None else self.selection.ready_bytes()
        return self.backing.ready_bytes() + shelved

    def __len__(self) -> int:
        """Messages that are ready, those that have expired at the head not counted."""
        if self._expiry.may_expire:
            self._expire_head()
        return self.ready_count()

    def consumer_count(self) -> int:
        return len(self.consumers)

    def purge(self) -> int:
        purged = 0 if self.selection is None else self.selection.purge()
        purged += self.backing.purge()
        self._expiry.forget_if_empty()
        return purged

    def delete(self) -> int:
        """Cancel the consumers, drop everything; return how many messages were ready."""
        while self.settling:
            # What was rejected before goes to its dead-letter exchange.
            self.settling[0].finish()
        ready = len(self)
        self._leave_use()
        self.backing.delete_and_terminate()
        # Nothing can be lost any more: publishers that wait for the disk are told so.
        self.settle_confirms()
        self.let_go()
        return ready

    def let_go(self) -> None:
        """Break every way from a deleted queue back to itself: the last one who knows it frees it.

        The garbage collector looks at old objects hardly ever (docs/decisions/0003).
        """
        assert self.deleted
        if self.intake is not None:
            self.intake.stop()
        if self.returns is not None:
            self.returns.stop()
        if self.consumers is not NO_CONSUMERS:
            self.consumers.close()
            self.consumers = NO_CONSUMERS
        self._host = self._bury_again = None
        self.intake = self.dead_letters = self.returns = self.selection = None
        self.activity = self.lifetime = self.marks = self.congestion = None
        self.exclusive_owner = None

    def _leave_use(self) -> None:
        self.deleted = True
        consumers = list(self.consumers.consumers())
        for consumer in consumers:
            self.consumers.remove(consumer)
            consumer.left(self.backing)
        self._expiry.disarm()
        if self._bury_again is not None:
            self._bury_again.stop()
        if self.lifetime is not None:
            self.lifetime.stop()
        call_all([consumer.cancelled_by_queue for consumer in consumers])

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
        refuse_all(list(unconfirmed))


def _refuse(confirm: ConfirmToken | None) -> None:
    if confirm is not None:
        confirm.refuse()
