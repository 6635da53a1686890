from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.backing.backing_queue import BackingQueue
from penstock.native import mypyc_attr

if TYPE_CHECKING:
    from penstock.queues.queue import Queue


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueOwner(ABC):
    """The owner of queues: the vhost."""

    @abstractmethod
    def last_consumer_gone(self, queue: Queue) -> None:
        """The last consumer left: an auto-delete queue is to be deleted."""

    @abstractmethod
    def open_backing(self, queue: Queue) -> BackingQueue:
        """Return a new backing for a queue that was made without one."""
