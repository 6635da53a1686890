"""A queue: messages in a backing queue, consumers in a consumer manager, and the rules between them.

A queue is called on one thread, does no I/O, and never pushes: a publish notifies consumers, and they pull when their
connection's turn comes.

A message is taken in by `publish` (through the `intake`, where there is one) and appended to the backing; a consumer
gets it by `pull`, or a client by `get`; `ack`, `requeue` or `reject` settles it. A message whose expiry has come leaves
when it is at the head, never from the middle (RabbitMQ's rule; a selection may know better). Messages that leave unread
go through `leaving`: as dead letters where there is a place for them, else they are dropped. `taking` reaches for
messages by number, past all consumers.

Whatever a plain queue does not do is done by an object at one of the seams (`intake`, `dead_letters`, `returns`,
`selection`, `activity`, `lifetime`), each None where it is not needed. See docs/decisions/0008.

Invariants
  1. While a message is available and an eligible consumer is interested, a consumer is notified (consumer manager).
  2. No message that has expired at the head is handed out, also not in a run behind a message that has not.
  3. An exclusive consumer is the only consumer.
  4. A paused queue hands out nothing, nor does one to which messages are coming back in slices.
  5. A deleted queue accepts nothing and holds nothing.
  6. A queue whose backing has failed (`crash`) refuses what is published and does not touch its backing again.
  7. A confirm token is settled or refused once.
  8. `ready_count` counts what is ready in the backing and what is shelved.

A crash leaves what the backing leaves; consumers and counters are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock import limits
from penstock.backing.backing_queue import NOT_DELIVERED, BackingQueue
from penstock.backing.nothing_yet import NOTHING_YET
from penstock.backing.outcomes import DROPPED, FETCHED, NO_ACTOR, REASON_NONE
from penstock.call_all import call_all
from penstock.clock import Clock
from penstock.errors import access_refused
from penstock.fields import Table
from penstock.message import ConfirmToken, Incoming, MessageProps, Run, refuse_all, settle_all
from penstock.queues.arrivals import Arrivals, arrivals_since
from penstock.queues.consumers.browsing import browse_run, has_more
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.consumers.consumer_manager import NO_CONSUMERS, Availability, ConsumerManager
from penstock.queues.consumers.node_list import NOTIFIED
from penstock.queues.consumers.publisher_marks import PublisherMarks, attached, detached
from penstock.queues.consumers.single_active import SingleActive
from penstock.queues.intake.intake import Intake
from penstock.queues.leaving.dead_letters import REJECTED, DeadLetters
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.leaving.head_expiry import HeadExpiry
from penstock.queues.leaving.leaving import Leaving
from penstock.queues.leaving.lifetime import Lifetime
from penstock.queues.leaving.returns import Returns
from penstock.queues.queue_owner import QueueOwner
from penstock.queues.recovered import fetch_unexpired
from penstock.queues.selection.fifo_order import fifo_selection
from penstock.queues.selection.selection import Selection
from penstock.queues.settling import Settling

if TYPE_CHECKING:
    from penstock.queues.intake.overflow import ProducerFlowControl

# Slices of expired messages that are carried away for one basic.get.
GET_SLICES_MAX: Final = 20


class Queue(Availability):
    # There may be a hundred thousand of them.
    __slots__ = (
        "_choosy_count",
        "_clock",
        "_expiries",
        "_in_exclusive_use",
        "_leaving",
        "_owner",
        "activity",
        "arguments",
        "arrivals",
        "auto_delete",
        "backing",
        "congestion",
        "consumers",
        "crashed",
        "dead_letters",
        "deleted",
        "delivered_count",
        "durable",
        "effective_arguments",
        "exclusive_owner",
        "expiry",
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
        "slow_at",
        "vhost_name",
        "way_back",
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
        # Its id is what its backing knows it by; nothing that a client chose.
        self.queue_id, self.vhost_name = queue_id, vhost_name
        self.durable, self.auto_delete = durable, auto_delete
        # The connection that alone may use the queue and takes it along when it closes.
        self.exclusive_owner = exclusive_owner
        # Those it was declared with; and those it goes by, which policies add to or make smaller.
        self.arguments = self.effective_arguments = arguments
        self.backing = backing
        self.consumers = NO_CONSUMERS
        # Crashed: a bug in the backing, which holds what it holds until the next start. Paused: nothing is handed out.
        # In exclusive use: an exclusive consumer is there, alone.
        self.deleted = self.crashed = self.paused = self._in_exclusive_use = False
        # Settlements and purges of many messages that are under way; and how many of them put messages back, or take
        # ready ones away: until those are over nothing is handed out.
        self.settling: tuple[Settling, ...] = ()
        self.returning = 0
        # Set while the overflow rule has publishers wait.
        self.congestion: ProducerFlowControl | None = None
        # Made for the first message that leaves unread, or for the first feature.
        self._leaving: Leaving | None = None
        # The seams.
        self.intake: Intake | None = None
        self.dead_letters: DeadLetters | None = None
        self.returns: Returns | None = None
        self.selection: Selection | None = None
        self.activity: SingleActive | None = None
        self.lifetime: Lifetime | None = None
        # Publishers of messages; kept while a consumer has no-local.
        self.marks: PublisherMarks | None = None
        self._clock = clock
        self.expiry = HeadExpiry(self, backing, expiries, self.has_priorities)
        self._expiries = expiries
        self._owner = owner
        # Consumers that take messages and do not want all of them.
        self._choosy_count = 0
        # When messages came; None while that is not known.
        self.arrivals: Arrivals | None = None
        # Counters since the queue was opened; the flow of publishers and the views look at them.
        self.published_count = self.delivered_count = 0
        # What had been delivered when consumers were last too slow for the publishers; -1: they keep the pace.
        self.slow_at = -1
        # Cuts what leads from the backing back to this queue; compiled classes have no weak references.
        self.way_back: Callable[[], None] | None = None

    def describe(self) -> str:
        """How error texts name it."""
        return f"queue '{self.name}' in vhost '{self.vhost_name}'"

    @property
    def has_priorities(self) -> bool:
        """Return whether later messages may stand in front: then numbers do not give the order of arrival."""
        return "x-max-priority" in self.arguments

    @property
    def in_exclusive_use(self) -> bool:
        """Return whether an exclusive consumer is there, alone."""
        return self._in_exclusive_use

    @property
    def is_choosy(self) -> bool:
        """Return whether a consumer does not want all messages."""
        return self._choosy_count > 0

    @property
    def leaving(self) -> Leaving:
        """How messages leave unread."""
        if self._leaving is None:
            self._leaving = Leaving(self, self._expiries, self._clock)
        return self._leaving

    def own_backing(self) -> BackingQueue:
        """Return the backing of this queue; opened for the first message, or for the first feature that needs it."""
        if self.backing is NOTHING_YET:
            self.backing = self.expiry.backing = self._owner.open_backing(self)
            for consumer in self.consumers.consumers():
                consumer.joined(self.backing)
        return self.backing

    def own_consumers(self) -> ConsumerManager:
        """Return the manager of this queue's consumers; made for the first of them."""
        if self.consumers is NO_CONSUMERS:
            self.consumers = ConsumerManager(self)
        return self.consumers

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    # --- publishing ---------------------------------------------------------------------------------

    @property
    def takes_singly(self) -> bool:
        """Whether it may take one message of a run and refuse another: then it gets runs of one."""
        return self.intake is not None and self.intake.takes_singly

    def has_room(self, body: bytes, may_vanish: bool) -> bool:
        """Whether a message that came now would be kept, here or as a dead letter elsewhere (`Gate.has_room`)."""
        return self.intake is None or self.intake.has_room(body, may_vanish)

    def passes_on(self, body: bytes) -> bool:
        """Return whether a message that came now would go on as a dead letter, past this queue."""
        return self.intake is not None and self.intake.passes_on(body)

    def publish(
        self,
        incoming: Incoming,
        confirm: ConfirmToken | None,
        publisher: object = None,
        delivered: int = NOT_DELIVERED,
    ) -> None:
        """Take a run. The confirm token is settled when the run is safe here; `delivered`: what the backing is told."""
        assert not self.deleted
        if self.crashed:
            _refuse(confirm)
        elif self.intake is not None:
            self.intake.publish(incoming, confirm, publisher, delivered)
        else:
            self.enqueue(incoming, confirm, incoming.expiration_ms(), delivered)

    def enqueue(
        self,
        incoming: Incoming,
        confirm: ConfirmToken | None,
        expiration_ms: int,
        delivered: int = NOT_DELIVERED,
    ) -> int:
        """Append a run, whatever the limits say; the first seq_id, -1 when the run was not kept."""
        count = incoming.count
        if self.backing is NOTHING_YET:
            self.own_backing()
        self.published_count += count
        props: MessageProps | None = None
        if expiration_ms >= 0:
            if expiration_ms == 0 and self.dead_letters is None and self._nobody_takes_it_now():
                self._discard(incoming, confirm)
                return -1
            if expiration_ms == 0 and self.expiry.may_expire:
                # What has expired in front of it is not to be handed out with it.
                self.expiry.drop_head()
            expiry_ms = self._clock.wall_ms() + expiration_ms
            self.expiry.note(expiry_ms)
            props = MessageProps(expiry_ms, confirm)
        else:
            if self.expiry.may_expire:
                self.expiry.note_lasting()
            if confirm is not None:
                props = MessageProps(-1, confirm)
        first_seq_id = self.backing.publish(incoming, props, delivered)
        self._enqueued(first_seq_id, count, confirm)
        if expiration_ms == 0:
            # It reaches a consumer that waits for it now, or none.
            self.expiry.is_suspended = True
            try:
                self.serve_waiting(self.ready_count())
            finally:
                self.expiry.is_suspended = False
        return first_seq_id

    def enter(self, incoming: Incoming, confirm: ConfirmToken | None, delivered: int = NOT_DELIVERED) -> int:
        """Append a run past all gates; the first seq_id, -1 when it was not kept or is not known yet."""
        if self.intake is not None:
            return self.intake.enter(incoming, confirm, delivered)
        return self.enqueue(incoming, confirm, incoming.expiration_ms(), delivered)

    def hold(
        self, incoming: Incoming, confirm: ConfirmToken | None, due_ms: int, delivered: int = NOT_DELIVERED
    ) -> int:
        """Append a run to a companion queue, with the time that it is kept for, if they share it; the first seq_id."""
        assert not self.deleted
        if self.crashed:
            _refuse(confirm)
            return -1
        self.published_count += incoming.count
        first_seq_id = self.own_backing().publish(incoming, MessageProps(due_ms, confirm), delivered)
        self._enqueued(first_seq_id, incoming.count, confirm)
        return first_seq_id

    def _enqueued(self, first_seq_id: int, count: int, confirm: ConfirmToken | None) -> None:
        if self.selection is not None:
            self.selection.published(first_seq_id, count)
        if self.expiry.may_expire or self.selection is not None:
            self.expiry.arm()
        self.consumers.notify_available(count)
        if confirm is not None:
            self.settle_confirms()

    def _nobody_takes_it_now(self) -> bool:
        """A message would be at the head, and no consumer waits for it."""
        return self.backing.is_empty() and self.consumers.highest_active_priority() is None

    def _discard(self, incoming: Incoming, confirm: ConfirmToken | None) -> None:
        self.backing.discard(incoming)
        self.expiry.expired_count += incoming.count
        if confirm is not None:
            confirm.settle()

    def settle_confirms(self) -> None:
        """Tell publishers what the backing has made safe and has not told them itself."""
        tokens = self.backing.drain_confirmed()
        if tokens:
            settle_all(tokens)

    # --- consuming ----------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer, interested: bool) -> None:
        """Register a consumer; refused while the queue is in exclusive use, or an exclusive one would not be alone."""
        self.check_access(consumer)
        self._in_exclusive_use = consumer.exclusive
        if consumer.filter is not None and consumer.acquires:
            self._choosy_count += 1
            if self.selection is None:
                self.selection = fifo_selection(self.leaving, self.own_backing(), self.has_priorities)
        if consumer.no_local is not None:
            if self.intake is None:
                self.intake = Intake(self, -1, None)
            self.marks = self.intake.publishers = attached(self.marks, consumer.no_local, self.own_backing())
        consumer.joined(self.backing)
        if self.activity is not None:
            self.activity.add(consumer, interested)
        else:
            self.own_consumers().add(consumer, interested)

    def check_access(self, consumer: Consumer) -> None:
        """Raise the refusal that `add_consumer` would raise, if any."""
        if (len(self.consumers) and (consumer.exclusive or self._in_exclusive_use)) or (
            consumer.exclusive and self.activity is not None
        ):
            raise access_refused(f"{self.describe()} in exclusive use")

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer.filter is not None and consumer.acquires:
            self._choosy_count -= 1
        if self.activity is not None:
            self.activity.remove(consumer)
        else:
            self.consumers.remove(consumer)
        consumer.left(self.backing)
        if self.selection is not None:
            self.selection.consumer_gone(consumer)
        if consumer.no_local is not None and self.marks is not None and self.intake is not None:
            self.marks = self.intake.publishers = detached(self.marks, consumer.no_local)
        if not len(self.consumers):
            self._in_exclusive_use = False
            if self.lifetime is not None:
                self.lifetime.used()
            self._owner.last_consumer_gone(self)

    def set_interest(self, consumer: Consumer, desired: bool) -> None:
        """The consumer wants work, or does not (credit, flow, back-pressure)."""
        if self.activity is not None:
            self.activity.set_interest(consumer, desired)
        else:
            self.consumers.set_interest(consumer, desired)

    def has_available(self, consumer: Consumer) -> bool:
        if self.paused or self.returning:
            return False
        if not consumer.acquires:
            return has_more(self.backing, self.selection, consumer)
        if self.selection is not None:
            return self.selection.has_for(consumer)
        return not self.backing.is_empty()

    def available_count(self) -> int:
        return 0 if self.paused or self.returning or self.backing.waits_for_disk() else self.ready_count()

    def arrived(self) -> None:
        """Offer messages that the backing got by itself. Whether they expire was not noted."""
        count = self.backing.drain_arrived()
        if count:
            self.expiry.recovered()
            self.expiry.arm()
            self.consumers.notify_available(count)

    def is_wanted(self) -> bool:
        """Return whether a consumer would take a message now."""
        return not self.paused and self.consumers.highest_active_priority() is not None

    def pull(self, consumer: Consumer, count_max: int) -> Run | None:
        """A consumer that was notified takes a run; None when there is nothing for it now."""
        manager = self.consumers
        if not manager.begin_pull(consumer):
            return None
        if self.paused or self.returning or (self.expiry.may_expire and self.expiry.drop_head()):
            # Expired messages go in slices; consumers are notified behind the last one.
            manager.missed(consumer)
            return None
        if not consumer.acquires:
            return self._browse(consumer, count_max)
        if self.backing.waits_for_disk():
            # `arrived` notifies it when that is over.
            manager.missed(consumer)
            return None
        active = manager.active_at(consumer.priority)
        if active > 1:
            # Several wait: deal singly in turn while few messages are there, in larger packs when there are many.
            share = self.ready_count() // (active * limits.DEAL_SINGLY_BELOW)
            if share < count_max:
                count_max = share if share > 1 else 1
        try:
            run = self._fetch(consumer, count_max, limits.PULL_BYTES_MAX, not consumer.no_ack)
        except OSError as error:
            # It waits like any other: it is told when the disk may be tried again.
            manager.missed(consumer)
            self.backing.stalled(error)
            return None
        if run is None:
            self._missed(consumer)
            return None
        # A consumer that has emptied the queue waits like any other: what comes next notifies it again.
        consumer.pull_again = not self.backing.is_empty() if self.selection is None else self.has_available(consumer)
        if consumer.pull_again:
            manager.pulled(consumer)
        return run

    def _fetch(self, consumer: Consumer | None, count_max: int, bytes_max: int, ack_required: bool) -> Run | None:
        if self.returns is not None:
            return self._fetch_counted(self.returns, consumer, count_max, bytes_max, ack_required)
        return self._take_run(consumer, count_max, bytes_max, ack_required)

    def _take_run(self, consumer: Consumer | None, count_max: int, bytes_max: int, ack_required: bool) -> Run | None:
        actor = NO_ACTOR if consumer is None else consumer.actor
        if self.selection is not None:
            run = self.selection.fetch(consumer, count_max, bytes_max, ack_required)
        elif self.expiry.has_recovered:
            run = fetch_unexpired(self.backing, count_max, bytes_max, ack_required, self._clock.wall_ms(), actor)
        else:
            # Where expiries have no order, each must be looked at when it has come to the head.
            run = self.backing.fetch(1 if self.expiry.disordered else count_max, bytes_max, ack_required, actor)
        if run is not None:
            self.delivered_count += len(run.entries)
            if self.expiry.may_expire:
                self.expiry.arm()
        return run

    def _fetch_counted(
        self, returns: Returns, consumer: Consumer | None, count_max: int, bytes_max: int, ack_required: bool
    ) -> Run | None:
        """Fetch from a queue that counts deliveries. The count of a message is read before the message is gone."""
        run = self._take_run(consumer, count_max, bytes_max, True)
        if run is not None and run.redelivered:
            run = returns.stamped(run)
        if run is not None and not ack_required:
            seq_ids = range(run.first_seq_id, run.first_seq_id + len(run.entries))
            self.backing.ack(seq_ids, FETCHED, REASON_NONE, NO_ACTOR if consumer is None else consumer.actor)
            if self.selection is not None:
                self.settled(seq_ids)
        return run

    def _missed(self, consumer: Consumer) -> None:
        """It got nothing: because there is nothing for it, or because it has looked at enough for one turn."""
        if self.selection is not None and self.selection.has_for(consumer):
            self.consumers.pulled(consumer)
            consumer.notify_work()
        else:
            self.consumers.missed(consumer)

    def offer(self) -> None:
        """Serve notified consumers before a method looks at the queue, or changes it.

        In RabbitMQ a consumer that waits has a message as soon as it is published. Here it has only been notified, and
        what comes behind the publish in the same read would otherwise get at the message first.
        """
        if self.deleted or self.crashed:
            return
        manager = self.consumers
        count_max = limits.TURN_MESSAGES_MAX
        # Browsers first, as they are notified first: what another consumer takes they cannot see any more.
        for browser in manager.browsers():
            while count_max > 0 and self.has_available(browser):
                taken = browser.take_now()
                if taken == 0:
                    break
                count_max -= taken
        if manager.next_notified() is not None:
            self.serve_waiting(count_max)

    def serve_waiting(self, count_max: int) -> None:
        manager = self.consumers
        while count_max > 0:
            consumer = manager.next_notified()
            if consumer is None:
                return
            taken = consumer.take_now()
            if taken == 0 and manager.state_of(consumer) == NOTIFIED:
                # It has looked at many messages that are not for it, and stands behind the others now.
                taken = limits.LOOKS_PER_FETCH
            count_max -= taken

    def _browse(self, consumer: Consumer, count_max: int) -> Run | None:
        run = browse_run(self.backing, self.selection, consumer, count_max)
        if run is None:
            self.consumers.missed(consumer)
            return None
        self.consumers.pulled(consumer)
        consumer.pull_again = True
        return run

    def get(self, no_ack: bool) -> Run | None:
        """One message for basic.get, past all consumers."""
        if self.lifetime is not None:
            self.lifetime.used()
        if self.paused:
            return None
        slices = 0
        while self.expiry.may_expire and self.expiry.drop_head():
            # A basic.get is not repeated: it may wait for some dead letters to leave.
            slices += 1
            if slices == GET_SLICES_MAX:
                return None
        return self._fetch(None, 1, 0, not no_ack)

    # --- settling -----------------------------------------------------------------------------------

    def ack(self, seq_ids: Sequence[int]) -> None:
        if not self.deleted and not self.crashed:
            self.backing.ack(seq_ids)
            if self.selection is not None:
                self.settled(seq_ids)

    def reject(self, seq_ids: Sequence[int]) -> None:
        """Dead-letter or drop messages that were rejected."""
        if not self.deleted and not self.crashed:
            self.leaving.dead_letter(seq_ids, REJECTED)
            if self.selection is not None:
                self.settled(seq_ids)

    def requeue(self, seq_ids: Sequence[int], lost: bool = False) -> None:
        """Put messages back at their original positions. `lost`: their consumer is gone."""
        if self.deleted or self.crashed:
            return
        if self.returns is not None:
            back = self.returns.returned(seq_ids, lost)
            if self.selection is not None and len(back) < len(seq_ids):
                # The others are not with their consumer any more either: their groups are free.
                self.selection.settled(sorted(set(seq_ids).difference(back)))
            seq_ids = back
        if self.selection is not None:
            unwanted = self.selection.returned(seq_ids)
            self.backing.ack(unwanted, DROPPED)
            count = len(seq_ids) - len(unwanted)
        else:
            count = self.backing.requeue(seq_ids)
        if count:
            if self.expiry.may_expire:
                self.expiry.arm()
            self.consumers.notify_available(count)
            if self.intake is not None:
                self.intake.came_back()

    def settled(self, seq_ids: Sequence[int]) -> None:
        """Messages that a selection has handed out are gone."""
        assert self.selection is not None
        self.selection.settled(seq_ids)
        if not self.selection.is_needed() and not self._choosy_count:
            self.selection = None

    # --- settling in slices ---------------------------------------------------------------------------

    def settling_begun(self, settling: Settling, returns: bool) -> None:
        """Deliveries are settled in several turns from now on; with `returns` nothing is handed out meanwhile."""
        self.settling = (*self.settling, settling)
        self.returning += returns

    def settling_over(self, settling: Settling, returns: bool) -> None:
        self.settling = tuple([other for other in self.settling if other is not settling])
        self.returning -= returns
        if returns and not self.returning and not self.deleted and not self.crashed:
            self.consumers.notify_available(self.available_count())

    # --- a start ----------------------------------------------------------------------------------------

    def recovered(self) -> None:
        """The backing may hold messages of the broker's last run."""
        count = self.backing.depth()
        if count:
            if self.returns is not None:
                self.leaving.keep_away(self.returns.recovered())
            if self.selection is None or not self.selection.leaves_ready():
                self.expiry.recovered()
            if self.selection is not None:
                self.selection.published(-1, count)
            self.expiry.arm()
            # It may have died over its limit: it makes room when all queues are there.
            self.expiry.arm_at(self._clock.wall_ms())
        self.arrivals = arrivals_since(self)

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
        if self._leaving is not None:
            size += self._leaving.ram_bytes()
        return size

    def look_weight(self) -> int:
        """What it costs to ask for `ram_bytes`."""
        return 1

    # --- the whole queue ------------------------------------------------------------------------------

    def ready_count(self) -> int:
        """Return messages that are ready, also those that have expired."""
        return len(self.backing) + (0 if self.selection is None else self.selection.ready_count())

    def ready_bytes(self) -> int:
        shelved = 0 if self.selection is None else self.selection.ready_bytes()
        return self.backing.ready_bytes() + shelved

    def __len__(self) -> int:
        """Messages that are ready, those that have expired at the head not counted."""
        if self.expiry.may_expire:
            self.expiry.drop_head()
        return self.ready_count()

    def consumer_count(self) -> int:
        return len(self.consumers)

    def pause(self) -> None:
        """Hand out nothing from now on."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.consumers.notify_available(self.ready_count())

    def purge(self) -> int:
        purged = 0 if self.selection is None else self.selection.purge()
        purged += self.backing.purge()
        self.expiry.forget_if_empty()
        return purged

    def delete(self) -> int:
        """Cancel the consumers, drop everything; return how many messages were ready."""
        while self.settling:
            # What was rejected before goes to its dead-letter exchange.
            self.settling[0].leave()
        if self._leaving is not None:
            self._leaving.carry_rest()
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
        self._cut_way_back()
        if self.intake is not None:
            self.intake.stop()
        if self.returns is not None:
            self.returns.stop()
        if self.consumers is not NO_CONSUMERS:
            self.consumers.close()
            self.consumers = NO_CONSUMERS
        self._leaving = None
        self.intake = self.dead_letters = self.returns = self.selection = None
        self.activity = self.lifetime = self.marks = self.congestion = None
        self.exclusive_owner = None

    def _leave_use(self) -> None:
        self.deleted = True
        consumers = list(self.consumers.consumers())
        for consumer in consumers:
            self.consumers.remove(consumer)
            consumer.left(self.backing)
        self.expiry.disarm()
        if self._leaving is not None:
            self._leaving.stop()
        if self.lifetime is not None:
            self.lifetime.stop()
        call_all([consumer.cancelled_by_queue for consumer in consumers])

    def terminate(self) -> None:
        """The broker stops: leave what lasts where the next start finds it."""
        self._leave_use()
        if not self.crashed:
            if self.returns is not None:
                self.returns.count_put_off()
            self.backing.terminate()
        self._cut_way_back()

    def _cut_way_back(self) -> None:
        if self.way_back is not None:
            self.way_back()
            self.way_back = None

    def crash(self) -> None:
        """Give the queue up after an unforeseen failure of its backing: its clients are told, and no others."""
        self._leave_use()
        self.deleted = False
        self.crashed = True
        refuse_all(self.backing.take_owed())


def _refuse(confirm: ConfirmToken | None) -> None:
    if confirm is not None:
        confirm.refuse()
