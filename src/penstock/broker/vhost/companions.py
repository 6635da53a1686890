"""Companion queues: what a feature must remember, kept as messages beside the queue or exchange that needs it.

A companion is a queue like any other, durable as its owner is, but clients never see it: it is in a list of its own, so
nothing is routed to it by name and no client can declare, consume from or delete it. It goes with its owner.

    held-queue      messages that an ordinary queue holds back: until they are valid, or until their next try
    held-exchange   messages that an x-delayed-message exchange holds back
    dedup           keys that a queue with deduplication has seen
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.fields import Table
from penstock.queues.queue import Queue

HELD_FOR_QUEUE: Final = "held-queue"
HELD_FOR_EXCHANGE: Final = "held-exchange"
DEDUP: Final = "dedup"
KINDS: Final = (HELD_FOR_QUEUE, HELD_FOR_EXCHANGE, DEDUP)
KIND_ARGUMENT: Final = "x-penstock-companion"
OWNER_ARGUMENT: Final = "x-penstock-companion-of"


def companion_name(kind: str, owner: str) -> str:
    return f"amq.{kind}.{owner}"


def companion_arguments(kind: str, owner: str) -> Table:
    return {
        KIND_ARGUMENT: ("S", kind.encode()),
        OWNER_ARGUMENT: ("S", owner.encode("utf-8", "surrogateescape")),
    }


def companion_kind(arguments: Table) -> str:
    """What kind of companion has these arguments; "" for an ordinary queue."""
    value = arguments.get(KIND_ARGUMENT, ("V", None))[1]
    return value.decode() if isinstance(value, bytes) else ""


def companion_owner(arguments: Table) -> str:
    value = arguments.get(OWNER_ARGUMENT, ("V", None))[1]
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else ""


class Companions:
    def __init__(self, make: Callable[[str, bool, Table], Queue], remove: Callable[[Queue], object]) -> None:
        """`make` opens and records a queue of that name, durability and arguments; `remove` deletes one."""
        self._make = make
        self._remove = remove
        self.queues: dict[str, Queue] = {}

    def find(self, kind: str, owner: str) -> Queue | None:
        return self.queues.get(companion_name(kind, owner))

    def get(self, kind: str, owner: str, durable: bool) -> Queue:
        """Return the companion; made when it is needed first."""
        name = companion_name(kind, owner)
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = self._make(name, durable, companion_arguments(kind, owner))
        return found

    def restored(self, queue: Queue) -> None:
        """The last run of the broker has left this one."""
        self.queues[queue.name] = queue

    def drop(self, kind: str, owner: str) -> None:
        """The owner is gone."""
        queue = self.queues.pop(companion_name(kind, owner), None)
        if queue is not None:
            self._remove(queue)
