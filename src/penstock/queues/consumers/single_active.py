"""A single active consumer: of all that acquire from the queue one gets the messages, the others stand by.

A standby is kept not interested in the consumer manager, so that it is never notified and costs a publish nothing.

  add -> active, if none is         else -> standby -> active, when the one before it leaves -> remove

The next active consumer is of the highest priority, and within a priority the one that came first. A consumer that
comes later never takes over, whatever its priority (RabbitMQ 3.10). What a standby says about its interest is
remembered, and is told to the manager when it becomes active.

Invariants
  1. While there is a consumer that acquires, exactly one is active; the others are standbys.
  2. A standby is NOT_INTERESTED in the manager.
  3. The active consumer changes only when it leaves: one that is out of credit, or whose client does not read, stays
     active and blocks the queue.
  4. A browser is no part of this: it is neither active nor a standby.
  5. A priority is in `_standbys` while it has a standby.
"""

from __future__ import annotations

from typing import final

from penstock.queues.consumers.consumer import Consumer
from penstock.queues.consumers.consumer_manager import ConsumerManager
from penstock.queues.consumers.node_list import NOT_INTERESTED


@final
class SingleActive:
    __slots__ = ("_manager", "_standbys", "active")

    def __init__(self, manager: ConsumerManager) -> None:
        self._manager = manager
        # The one that is served; None while no consumer is there that acquires.
        self.active: Consumer | None = None
        # By priority, in the order of arrival: whether the consumer would be interested if it were active.
        self._standbys: dict[int, dict[Consumer, bool]] = {}

    def add(self, consumer: Consumer, interested: bool) -> None:
        """The first one becomes active, the others wait for it to leave."""
        if not consumer.acquires:
            self._manager.add(consumer, interested)
        elif self.active is None:
            self.active = consumer
            self._manager.add(consumer, interested)
        else:
            self._standbys.setdefault(consumer.priority, {})[consumer] = interested
            self._manager.add(consumer, False)

    def adopt(self) -> None:
        """Take the consumers that are there: the first of the highest priority is active, the others stand by."""
        for consumer in list(self._manager.consumers()):
            if not consumer.acquires:
                continue
            if self.active is None:
                self.active = consumer
                continue
            interested = self._manager.state_of(consumer) != NOT_INTERESTED
            self._standbys.setdefault(consumer.priority, {})[consumer] = interested
            self._manager.set_interest(consumer, False)

    def release(self) -> None:
        """Let all consumers have messages again. It is not used afterwards."""
        standbys, self._standbys = self._standbys, {}
        for level in standbys.values():
            for consumer, interested in level.items():
                self._manager.set_interest(consumer, interested)

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves; if it was the active one, the next one is told to go on."""
        self._manager.remove(consumer)
        if consumer is self.active:
            self.active = None
            self._activate_next()
            return
        level = self._standbys.get(consumer.priority)
        if level is not None:
            level.pop(consumer, None)
            if not level:
                del self._standbys[consumer.priority]

    def set_interest(self, consumer: Consumer, desired: bool) -> None:
        """The active consumer's word counts now, a standby's later."""
        level = self._standbys.get(consumer.priority)
        if level is not None and consumer in level:
            level[consumer] = desired
        else:
            self._manager.set_interest(consumer, desired)

    def _activate_next(self) -> None:
        if not self._standbys:
            return
        priority = max(self._standbys)
        level = self._standbys[priority]
        consumer = next(iter(level))
        interested = level.pop(consumer)
        if not level:
            del self._standbys[priority]
        self.active = consumer
        self._manager.set_interest(consumer, interested)

    def check_invariants(self) -> None:
        acquiring = [consumer for consumer in self._manager.consumers() if consumer.acquires]
        standbys: list[Consumer] = []
        for priority in sorted(self._standbys, reverse=True):
            assert self._standbys[priority], "5: a priority without standbys"
            standbys += self._standbys[priority]
        assert (self.active is None) == (not acquiring), "1: somebody is active while anybody is there"
        assert standbys == [consumer for consumer in acquiring if consumer is not self.active], "1: who is who"
        for consumer in standbys:
            assert self._manager.state_of(consumer) == NOT_INTERESTED, "2: a standby wants work"
