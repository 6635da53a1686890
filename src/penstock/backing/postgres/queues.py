"""The backing queues of one vhost that have their messages in PostgreSQL.

Other backings are known by an id that no client chose. These are known by their name in the database, which every node
and every SQL client must be able to say. One queue is open per name and node. `terminate` leaves everything in the
database, and `start` removes nothing: queues that are not named may be another node's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from penstock.backing.backing_queue import AsyncCallback, BackingQueue, BackingQueues, Recovery
from penstock.backing.postgres.envelopes import PgEnvelopes, PropertyFacts
from penstock.backing.postgres.link import PgLink
from penstock.backing.postgres.postgres import KIND, PgBackingQueue
from penstock.backing.postgres.reserved import PgReserved
from penstock.clock import Clock


@final
class InContext:
    """Runs functions where the queue's other work is done; drops them when the queue is gone."""

    def __init__(self, callback: AsyncCallback) -> None:
        self._callback = callback

    def __call__(self, function: Callable[[], None]) -> None:
        def work(backing: BackingQueue) -> None:
            function()

        self._callback(KIND, work)


class PgBackingQueues(BackingQueues):
    """Opens queues by their names in the database."""

    def __init__(self, link: PgLink, facts: PropertyFacts, clock: Clock) -> None:
        self.link = link
        self._facts = facts
        self._clock = clock

    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        return [Recovery(True) for _ in queue_ids]

    def stop(self) -> None:
        return None

    def open(self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback) -> BackingQueue:
        return self.open_named(queue_id, queue_id, recovery is None, callback)

    def open_named(self, pg_name: str, queue_name: str, is_new: bool, callback: AsyncCallback) -> BackingQueue:
        """`queue_name` is what AMQP clients call it: the routing key of rows that have none."""
        envelopes = PgEnvelopes(queue_name, self._facts)
        reserved = PgReserved(envelopes, self._clock)
        queue_link = self.link.open(pg_name, is_new, reserved, InContext(callback))
        return PgBackingQueue(envelopes, reserved, queue_link, is_new)

    def delete_crashed(self, queue_id: str) -> None:
        self.link.drop(queue_id)
