"""A queue: messages in a backing queue, consumers in a consumer manager, and the rules between them.

What it owns: what `Holding` owns; this is how messages are handed out and settled. It is called on one thread, does no
I/O, and never pushes: a publish notifies consumers, and they pull when their connection's turn comes.

The walk of a message: `publish` -> backing, consumers notified -> `pull` by a consumer (or `get`) -> `ack`, `requeue`
or `reject`. A message whose expiry has come is dropped when it is at the head, never from the middle (RabbitMQ's rule).

Invariants
  1. While a message is available and an eligible consumer is interested, a consumer is notified (consumer manager).
  2. No message that has expired at the head is handed out, also not in a run behind a message that has not.
  3. An exclusive consumer is the only consumer.
  4. A paused queue hands out nothing, nor does one to which messages are coming back in slices.

A crash leaves what the backing leaves; consumers and counters are gone. It does not know exchanges, channels
or sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock import limits
from penstock.backing.outcomes import DROPPED, FETCHED, MOVED, NO_ACTOR, REASON_NONE
from penstock.errors import access_refused
from penstock.message import Run
from penstock.queues.at_hand import AtHand
from penstock.queues.browsing import browse_run, has_more
from penstock.queues.consumer import Consumer
from penstock.queues.dead_letters import REJECTED
from penstock.queues.fifo_order import fifo_selection
from penstock.queues.intake import Intake
from penstock.queues.node_list import NOTIFIED
from penstock.queues.publisher_marks import attached, detached
from penstock.queues.recovered import fetch_unexpired
from penstock.queues.returns import Returns

# Slices of expired messages that are carried away for one basic.get.
GET_SLICES_MAX: Final = 20


class Queue(AtHand):
    """One queue."""

    # Consumers that take messages and do not want all of them.
    _choosy_count: int = 0

    # --- consuming ----------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer, interested: bool) -> None:
        """Register a consumer; refused while the queue is in exclusive use, or an exclusive one would not be alone."""
        self.check_access(consumer)
        self._in_exclusive_use = consumer.exclusive
        if consumer.filter is not None and consumer.acquires:
            self._choosy_count += 1
            if self.selection is None:
                self.selection = fifo_selection(self.host, self.own_backing(), "x-max-priority" in self.arguments)
        if consumer.no_local is not None:
            if self.intake is None:
                self.intake = Intake(self.host, -1, None)
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
        return 0 if self.paused or self.returning else self.ready_count()

    def arrived(self) -> None:
        """The backing may have got messages by itself: offer them. Nobody here has noted whether they expire."""
        count = self.backing.drain_arrived()
        if count:
            self._expiry.recovered()
            self._arm()
            self.consumers.notify_available(count)

    def is_wanted(self) -> bool:
        """Whether a consumer would take a message now."""
        return not self.paused and self.consumers.highest_active_priority() is not None

    def pull(self, consumer: Consumer, count_max: int) -> Run | None:
        """A consumer that was notified takes a run; None when there is nothing for it now."""
        manager = self.consumers
        if not manager.begin_pull(consumer):
            return None
        if self.paused or self.returning or (self._expiry.may_expire and self._expire_head()):
            # What has expired goes in slices; whoever waits is notified behind the last one.
            manager.missed(consumer)
            return None
        if not consumer.acquires:
            return self._browse(consumer, count_max)
        active = manager.active_at(consumer.priority)
        if active > 1:
            # Several wait: deal singly in turn while few messages are there, in larger packs when there are many.
            share = len(self.backing) // (active * limits.DEAL_SINGLY_BELOW)
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
        elif self._expiry.has_recovered:
            run = fetch_unexpired(self.backing, count_max, bytes_max, ack_required, self._clock.wall_ms(), actor)
        else:
            # Where expiries have no order, each must be looked at when it has come to the head.
            run = self.backing.fetch(1 if self._expiry.disordered else count_max, bytes_max, ack_required, actor)
        if run is not None:
            self.delivered_count += len(run.entries)
            if self._expiry.may_expire:
                self._arm()
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
                self._settled(seq_ids)
        return run

    def _missed(self, consumer: Consumer) -> None:
        """It got nothing: because there is nothing for it, or because it has looked at enough for one turn."""
        if self.selection is not None and self.selection.has_for(consumer):
            self.consumers.pulled(consumer)
            consumer.notify_work()
        else:
            self.consumers.missed(consumer)

    def offer(self) -> None:
        """Serve those who were notified before a method looks at the queue, or changes it.

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
        while self._expiry.may_expire and self._expire_head():
            # Whoever gets is not called again: it may wait for some of the dead to be carried away.
            slices += 1
            if slices == GET_SLICES_MAX:
                return None
        return self._fetch(None, 1, 0, not no_ack)

    # --- settling -----------------------------------------------------------------------------------

    def ack(self, seq_ids: Sequence[int]) -> None:
        if not self.deleted and not self.crashed:
            self.acked_count += self.backing.ack(seq_ids)
            if self.selection is not None:
                self._settled(seq_ids)

    def reject(self, seq_ids: Sequence[int]) -> None:
        """Refused for good."""
        if not self.deleted and not self.crashed:
            self.bury(seq_ids, REJECTED)
            if self.selection is not None:
                self._settled(seq_ids)

    def requeue(self, seq_ids: Sequence[int], lost: bool = False) -> None:
        """Back to their original positions, and offered again. `lost`: nobody said so, the consumer is gone."""
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
            if self._expiry.may_expire:
                self._arm()
            self.consumers.notify_available(count)
            if self.intake is not None:
                self.intake.came_back()

    def drop_taken(self, seq_ids: Sequence[int], outcome: int = MOVED) -> None:
        """Messages that somebody took by number are gone: elsewhere, or as the outcome says."""
        if not self.deleted and not self.crashed:
            self.backing.ack(seq_ids, outcome)
            if self.selection is not None:
                self._settled(seq_ids)

    def _settled(self, seq_ids: Sequence[int]) -> None:
        assert self.selection is not None
        self.selection.settled(seq_ids)
        if not self.selection.is_needed() and not self._choosy_count:
            self.selection = None
