"""Where a consumer can stand in its queue: the states, the lists, and the node that moves between them.

A node has two entries for life: one in the All list of its level, one that goes from list to list as the state changes,
so a move allocates nothing. The lists are circular, doubly linked and intrusive: append, removal of a known entry and
size are O(1). Qpid's broker marks entries as deleted and scavenges later, because many threads use its lists; here one
thread does, and removal is immediate.

Invariants
  1. An entry is in at most one list. Outside of any list it is linked to UNLINKED.
  2. `size` is the number of entries, the head not counted.
  3. `node` is None in the head of a list and only there, as long as the node is with its queue: it ends every walk.
  4. A node that has left, and a list that was closed, refer to nothing that leads back to them: they are freed by
     reference counting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from penstock.queues.consumers.consumer import Consumer

# The states. One bit each, so that a set of states is their sum and membership is one operation.
# Not with this queue, or no longer.
REMOVED: Final = 1
# Acquires, wants work, and waits to be notified.
INTERESTED: Final = 2
# Wants no work now: no credit, stopped by flow, or its connection cannot write.
NOT_INTERESTED: Final = 4
# Was told that there is work, and has yet to pull or to lose interest.
NOTIFIED: Final = 8
# Wants work and does not acquire: a browser.
NON_ACQUIRING: Final = 16

STATE_NAMES: Final = {
    REMOVED: "removed",
    INTERESTED: "interested",
    NOT_INTERESTED: "not_interested",
    NOTIFIED: "notified",
    NON_ACQUIRING: "non_acquiring",
}


@final
class Entry:
    """A place in a list."""

    __slots__ = ("next", "node", "prev")

    def __init__(self, node: ConsumerNode | None) -> None:
        self.node = node
        self.prev: Entry = UNLINKED if node is not None else self
        self.next: Entry = UNLINKED if node is not None else self


# The neighbour of every entry that is in no list.
UNLINKED: Final = Entry(None)


@final
class NodeList:
    """Nodes in the order in which they came."""

    __slots__ = ("head", "size")

    def __init__(self) -> None:
        # Stands before the first entry and after the last one.
        self.head = Entry(None)
        self.size = 0

    def append(self, entry: Entry) -> None:
        """Put an entry that is in no list at the tail."""
        head = self.head
        last = head.prev
        entry.prev = last
        entry.next = head
        last.next = entry
        head.prev = entry
        self.size += 1

    def remove(self, entry: Entry) -> None:
        """Take out an entry, which must be in this list."""
        before = entry.prev
        after = entry.next
        before.next = after
        after.prev = before
        entry.prev = UNLINKED
        entry.next = UNLINKED
        self.size -= 1

    def close(self) -> None:
        """The list is empty, and is not used any more."""
        assert self.size == 0
        self.head.prev = UNLINKED
        self.head.next = UNLINKED

    def transfer(self, entry: Entry, target: NodeList) -> None:
        """Take out an entry of this list and put it at the tail of another: `remove` and `append` in one call.

        Both happen for every pull, where a call costs more than the work in it.
        """
        before = entry.prev
        after = entry.next
        before.next = after
        after.prev = before
        self.size -= 1
        head = target.head
        last = head.prev
        entry.prev = last
        entry.next = head
        last.next = entry
        head.prev = entry
        target.size += 1

    def nodes(self) -> list[ConsumerNode]:
        """Return a copy, which stays as it is while nodes move."""
        found: list[ConsumerNode] = []
        entry = self.head.next
        node = entry.node
        while node is not None:
            found.append(node)
            entry = entry.next
            node = entry.node
        return found

    def check_invariants(self, states: int) -> None:
        count = 0
        entry = self.head
        while True:
            assert entry.next.prev is entry
            entry = entry.next
            node = entry.node
            if node is None:
                break
            count += 1
            assert count <= self.size
            assert node.state & states
            assert entry is node.all_entry or entry is node.entry
        assert entry is self.head
        assert count == self.size


@final
class PriorityLevel:
    """The consumers of one priority."""

    __slots__ = ("all", "interested", "lists", "notified", "priority")

    def __init__(self, priority: int, not_interested: NodeList, non_acquiring: NodeList) -> None:
        self.priority = priority
        # Every consumer of this priority, in whatever state, in the order of arrival.
        self.all = NodeList()
        self.interested = NodeList()
        self.notified = NodeList()
        # The list of each state. Those of NOT_INTERESTED and NON_ACQUIRING are the manager's, shared by all levels.
        self.lists: dict[int, NodeList | None] = {
            REMOVED: None,
            INTERESTED: self.interested,
            NOT_INTERESTED: not_interested,
            NOTIFIED: self.notified,
            NON_ACQUIRING: non_acquiring,
        }

    def __lt__(self, other: PriorityLevel) -> bool:
        return self.priority > other.priority

    def close(self) -> None:
        """The last consumer of this priority has left."""
        self.all.close()
        self.interested.close()
        self.notified.close()

    def active_count(self) -> int:
        """Consumers that acquire and want work, notified or not."""
        return self.interested.size + self.notified.size

    def check_invariants(self) -> None:
        assert self.all.size > 0
        self.all.check_invariants(INTERESTED | NOT_INTERESTED | NOTIFIED | NON_ACQUIRING)
        self.interested.check_invariants(INTERESTED)
        self.notified.check_invariants(NOTIFIED)
        active = 0
        for node in self.all.nodes():
            assert node.level is self
            assert node.consumer.node is node
            assert node.consumer.priority == self.priority
            assert node.consumer.acquires or not node.state & (INTERESTED | NOTIFIED)
            assert not node.consumer.acquires or node.state != NON_ACQUIRING
            if node.state & (INTERESTED | NOTIFIED):
                active += 1
        assert active == self.active_count()


@final
class ConsumerNode:
    """A consumer's standing with its queue, from `add` to `remove`."""

    __slots__ = ("all_entry", "consumer", "entry", "level", "state")

    def __init__(self, consumer: Consumer, level: PriorityLevel) -> None:
        self.consumer = consumer
        self.level = level
        self.state: int = REMOVED
        self.entry = Entry(self)
        self.all_entry = Entry(self)

    def close(self) -> None:
        """The consumer has left its queue."""
        self.entry.node = None
        self.all_entry.node = None
