"""The consumers of one queue: who waits, who was told, who is next.

Consumers stand in lists (see `node_list`): per priority All, Interested and Notified; and one NotInterested and one
NonAcquiring for all. The manager decides whom to notify; it moves no messages.

Life of a consumer
  add -> INTERESTED <--> NOTIFIED     the queue notifies it; a pull gives the notification back
            ^   |           |
            |   v           |
         NOT_INTERESTED <---+         credit, flow, back-pressure: `set_interest`
            |   ^
            v   |
         NON_ACQUIRING                a browser: never INTERESTED, never NOTIFIED, told of all that is new
  remove: from any state. All changes of state are made by `_move`.

How a wake-up is never lost: a pull first gives the notification back (`begin_pull`), then looks for messages, and
takes the notification again only if it found some (`pulled`). Whatever becomes available in between finds the consumer
INTERESTED and notifies it. A consumer that will not do the work it was notified for (lost interest, gone, nothing
there for it, a higher priority comes first) makes the manager notify another.

Invariants, true whenever no pull is in progress and the queue has reported what became available
  1. A node is in the list of its state and of its level, in its level's All list, and in no other list.
  2. A message is available to an INTERESTED consumer => at least one consumer is NOTIFIED.
  3. A level exists while it has a consumer; `_active` holds exactly the levels with INTERESTED or NOTIFIED consumers.
     Both lists of levels are sorted, highest priority first.
  4. `notify_work` is called once each time a consumer becomes NOTIFIED, except in `pulled`: it is pulling already.
  5. No consumer begins a pull while one of higher priority wants work and could get some.

Costs: where every acquiring consumer can take what is available, no operation looks at more consumers than it notifies
plus one, however many there are. A queue that reserves messages for some consumers pays for a look at those who wait in
vain; a consumer that may take nothing at all (a standby beside a single active consumer) is to be kept not interested.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from typing import Final, final

from penstock.native import mypyc_attr
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.consumers.node_list import (
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    NOTIFIED,
    REMOVED,
    STATE_NAMES,
    ConsumerNode,
    NodeList,
    PriorityLevel,
)

# Acquires and wants work.
ACTIVE: Final = INTERESTED | NOTIFIED
INACTIVE: Final = REMOVED | NOT_INTERESTED | NON_ACQUIRING

TO_ADD: Final = REMOVED
TO_REMOVE: Final = INTERESTED | NOT_INTERESTED | NOTIFIED | NON_ACQUIRING
TO_GAIN_INTEREST: Final = NOT_INTERESTED
TO_LOSE_INTEREST: Final = INTERESTED | NOTIFIED | NON_ACQUIRING
TO_NOTIFY: Final = INTERESTED
TO_BEGIN_PULL: Final = NOTIFIED


@mypyc_attr(allow_interpreted_subclasses=True)
class Availability(ABC):
    """What the manager must know about its queue's messages. Asking changes nothing."""

    __slots__ = ()

    @abstractmethod
    def has_available(self, consumer: Consumer) -> bool:
        """Is there a message that this consumer could get now? For a browser: at or after its cursor."""

    @abstractmethod
    def available_count(self) -> int:
        """How many messages can be acquired now, by whichever consumer; may be too high, 0 only if there are none."""


@final
class ConsumerManager:
    __slots__ = (
        "_active",
        "_availability",
        "_count",
        "_level_by_priority",
        "_levels",
        "_non_acquiring",
        "_not_interested",
    )

    def __init__(self, availability: Availability) -> None:
        self._availability = availability
        self._not_interested = NodeList()
        self._non_acquiring = NodeList()
        self._level_by_priority: dict[int, PriorityLevel] = {}
        # Highest priority first, both.
        self._levels: list[PriorityLevel] = []
        self._active: list[PriorityLevel] = []
        self._count = 0

    # --- coming and going -----------------------------------------------------------------------------

    def add(self, consumer: Consumer, interested: bool) -> None:
        """Register a consumer, and notify it if it is interested and there is work for it."""
        assert consumer.node is None, "a consumer is added once"
        level = self._level_by_priority.get(consumer.priority)
        if level is None:
            level = PriorityLevel(consumer.priority, self._not_interested, self._non_acquiring)
            self._level_by_priority[consumer.priority] = level
            insort(self._levels, level)
        node = ConsumerNode(consumer, level)
        consumer.node = node
        level.all.append(node.all_entry)
        self._count += 1
        self._move(node, TO_ADD, NOT_INTERESTED)
        if interested:
            self.set_interest(consumer, True)

    def remove(self, consumer: Consumer) -> None:
        """Forget a consumer, whatever its state. If work was left to it, another one is notified."""
        node = consumer.node
        assert node is not None, "a consumer is removed once"
        state = node.state
        self._move(node, TO_REMOVE, REMOVED)
        level = node.level
        level.all.remove(node.all_entry)
        if level.all.size == 0:
            del self._level_by_priority[level.priority]
            del self._levels[bisect_left(self._levels, level)]
            level.close()
        consumer.node = None
        node.close()
        self._count -= 1
        if state & ACTIVE:
            self._hand_on()

    def set_interest(self, consumer: Consumer, desired: bool) -> None:
        """The consumer wants work from now on, or none. Saying it twice changes nothing, nor does it after `remove`."""
        node = consumer.node
        if node is None:
            return
        if not desired:
            state = node.state
            if self._move(node, TO_LOSE_INTEREST, NOT_INTERESTED) and state != NON_ACQUIRING:
                self._hand_on()
        elif not consumer.acquires:
            if self._move(node, TO_GAIN_INTEREST, NON_ACQUIRING) and self._availability.has_available(consumer):
                consumer.notify_work()
        elif self._move(node, TO_GAIN_INTEREST, INTERESTED) and self._comes_first(node):
            self._notify(node)

    def _comes_first(self, node: ConsumerNode) -> bool:
        """Is there something for the consumer that is not left to a higher priority?"""
        if not self._availability.has_available(node.consumer):
            return False
        return self._active[0] is node.level or not self._left_to_higher(node.level)

    def close(self) -> None:
        """All consumers have left, and no other one will come."""
        assert self._count == 0
        self._not_interested.close()
        self._non_acquiring.close()

    # --- notifying ------------------------------------------------------------------------------------

    def notify_available(self, count: int) -> None:
        """Tell all browsers, and up to `count` of the first consumers, that `count` messages became available.

        Only the highest priority that can take the messages is told; a lower one when no higher one wants them.
        """
        if self._non_acquiring.size:
            for node in self._non_acquiring.nodes():
                node.consumer.notify_work()
        # Where all of the highest priority are notified, it is enough: one that gets nothing hands on.
        active = self._active
        if not active or active[0].interested.size == 0:
            return
        for level in active:
            if self._notify_some(level, count, None) or self._one_can_take(level.notified):
                return

    def _notify(self, node: ConsumerNode) -> None:
        """INTERESTED -> NOTIFIED, and tell it."""
        if self._move(node, TO_NOTIFY, NOTIFIED):
            node.consumer.notify_work()

    def _notify_some(self, level: PriorityLevel, count: int, skipped: ConsumerNode | None) -> bool:
        """Notify up to `count` INTERESTED consumers of a level, in list order, each only if it could get something.

        True if any was notified.
        """
        notified = 0
        entry = level.interested.head.next
        node = entry.node
        while node is not None and notified < count:
            # The node is about to leave the list that is walked.
            entry = entry.next
            if node is not skipped and self._availability.has_available(node.consumer):
                self._notify(node)
                notified += 1
            node = entry.node
        return notified > 0

    def _one_can_take(self, nodes: NodeList) -> bool:
        """Could a consumer of this list get something?"""
        entry = nodes.head.next
        node = entry.node
        while node is not None:
            if self._availability.has_available(node.consumer):
                return True
            entry = entry.next
            node = entry.node
        return False

    def _left_to_higher(self, level: PriorityLevel) -> bool:
        """True when a consumer above this level will take what is available; it is notified if none up there is."""
        for higher in self._active:
            if higher is level:
                break
            if self._one_can_take(higher.notified) or self._notify_some(higher, 1, None):
                return True
        return False

    def _hand_on(self) -> None:
        """An active consumer withdrew: see that the highest priority that can take the messages has enough notified.

        Enough is one per message, as far as there are consumers. So when the last consumer of a high priority
        withdraws, those of the next one are woken together and share what is there.
        """
        active = self._active
        if not active or active[0].interested.size == 0:
            return
        available = self._availability.available_count()
        if available == 0:
            return
        for level in active:
            missing = available - level.notified.size
            if missing > 0:
                served = self._notify_some(level, missing, None) or self._one_can_take(level.notified)
            else:
                served = self._one_can_take(level.notified) or self._notify_some(level, 1, None)
            if served:
                return

    # --- pulling --------------------------------------------------------------------------------------

    def browsers(self) -> list[Consumer]:
        """Return the consumers that are NON_ACQUIRING. A copy."""
        return [node.consumer for node in self._non_acquiring.nodes()] if self._non_acquiring.size else []

    def next_notified(self) -> Consumer | None:
        """Return the consumer that was notified first, of the highest priority; None when no consumer is NOTIFIED."""
        for level in self._active:
            node = level.notified.head.next.node
            if node is not None:
                return node.consumer
        return None

    def begin_pull(self, consumer: Consumer) -> bool:
        """The consumer is about to look for messages; True if it may. Then `pulled` or `missed` must follow.

        Its notification is used up, whatever the answer: after False it waits to be notified again.
        """
        node = consumer.node
        if node is None:
            return False
        state = node.state
        if state == NOTIFIED:
            self._move(node, TO_BEGIN_PULL, INTERESTED)
        elif state != INTERESTED:
            return state == NON_ACQUIRING
        if self._active[0] is node.level:
            return True
        return self._availability.available_count() == 0 or not self._left_to_higher(node.level)

    def pulled(self, consumer: Consumer) -> None:
        """It got something and will pull again without being told: it counts as NOTIFIED, unless it lost interest."""
        node = consumer.node
        if node is not None:
            self._move(node, TO_NOTIFY, NOTIFIED)

    def missed(self, consumer: Consumer) -> None:
        """There was nothing for it. If there is something for another interested consumer, that one is notified."""
        node = consumer.node
        # A browser's miss says nothing about others. One that lost interest or was removed has handed on already. One
        # that was notified again since it began will pull again.
        if node is None or node.state != INTERESTED:
            return
        active = self._active
        if len(active) == 1 and node.level.interested.size == 1:
            return
        if self._availability.available_count() == 0:
            return
        for level in active:
            if self._notify_some(level, 1, node) or self._one_can_take(level.notified):
                return

    # --- looking in -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def consumers(self) -> list[Consumer]:
        """Return all of them, the highest priority first, in the order of arrival within a priority. A copy."""
        found: list[Consumer] = []
        for level in self._levels:
            for node in level.all.nodes():
                found.append(node.consumer)
        return found

    def state_of(self, consumer: Consumer) -> int:
        """REMOVED for a consumer that is not here."""
        node = consumer.node
        return REMOVED if node is None else node.state

    def active_at(self, priority: int) -> int:
        """Return how many acquiring consumers of this priority want work."""
        level = self._level_by_priority.get(priority)
        return 0 if level is None else level.interested.size + level.notified.size

    def highest_active_priority(self) -> int | None:
        """Return the highest priority at which an acquiring consumer wants work."""
        return self._active[0].priority if self._active else None

    def counts(self) -> dict[str, int]:
        """Consumers by the name of their state."""
        interested = 0
        notified = 0
        for level in self._active:
            interested += level.interested.size
            notified += level.notified.size
        return {
            STATE_NAMES[INTERESTED]: interested,
            STATE_NAMES[NOT_INTERESTED]: self._not_interested.size,
            STATE_NAMES[NOTIFIED]: notified,
            STATE_NAMES[NON_ACQUIRING]: self._non_acquiring.size,
        }

    def check_invariants(self) -> None:
        listed = 0
        for level in self._levels:
            level.check_invariants()
            assert self._level_by_priority[level.priority] is level
            listed += level.all.size
        assert listed == self._count
        assert len(self._level_by_priority) == len(self._levels)
        for index in range(1, len(self._levels)):
            assert self._levels[index - 1].priority > self._levels[index].priority
        active = [level for level in self._levels if level.active_count()]
        assert self._active == active
        self._not_interested.check_invariants(NOT_INTERESTED)
        self._non_acquiring.check_invariants(NON_ACQUIRING)
        assert sum(self.counts().values()) == self._count
        if self.counts()[STATE_NAMES[NOTIFIED]] == 0:
            for level in active:
                assert not self._one_can_take(level.interested), "work, and nobody was notified"

    # --- the one transition ---------------------------------------------------------------------------

    def _move(self, node: ConsumerNode, from_states: int, to_state: int) -> bool:
        """Change a node's state and list. False, and nothing changes, if its state is not one of `from_states`."""
        state = node.state
        if not state & from_states:
            return False
        level = node.level
        node.state = to_state
        source = level.lists[state]
        target = level.lists[to_state]
        if source is None:
            assert target is not None
            target.append(node.entry)
        elif target is None:
            source.remove(node.entry)
        else:
            source.transfer(node.entry, target)
        if (state | to_state) & INACTIVE:
            self._follow_activity(level)
        return True

    def _follow_activity(self, level: PriorityLevel) -> None:
        """A consumer of the level came to the active ones, or left them: `_active` may gain or lose the level."""
        index = bisect_left(self._active, level)
        listed = index < len(self._active) and self._active[index] is level
        if level.active_count():
            if not listed:
                self._active.insert(index, level)
        elif listed:
            del self._active[index]


class _NothingAvailable(Availability):
    def has_available(self, consumer: Consumer) -> bool:
        return False

    def available_count(self) -> int:
        return 0


# Shared by all queues that never had a consumer, and by deleted ones. Nothing is ever added to it.
NO_CONSUMERS: Final = ConsumerManager(_NothingAvailable())
