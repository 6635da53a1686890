"""Stands in for the backing of every queue that has never held a message: empty, and shared by all of them.

A backing costs some kilobytes, and most of a hundred thousand queues may never get a message. So a queue opens its own
for its first one (`Queue.own_backing`). Asking the stand-in changes nothing; publishing to it is a bug.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from penstock.backing.backing_queue import NOT_DELIVERED
from penstock.backing.volatile import VolatileBackingQueue
from penstock.message import Incoming, MessageProps


@final
class NothingYet(VolatileBackingQueue):
    KIND: ClassVar[str] = "none"

    def publish(self, incoming: Incoming, props: MessageProps | None, delivered: int = NOT_DELIVERED) -> int:
        raise AssertionError("a queue opens a backing of its own before its first message")


NOTHING_YET: Final = NothingYet()
