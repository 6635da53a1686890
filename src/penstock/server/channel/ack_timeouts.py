"""Consumer timeout: deliveries that a client does not settle in time go back to their queue.

It is opt-in: a queue or a consumer has the argument `x-consumer-timeout`. Each of their deliveries carries the time at
which it lapses (`UnackedRun.due_ms`), and the channel stands in the broker's schedule with the earliest of them. When
its time comes the channel looks through its unsettled deliveries and requeues what is due. Nothing is kept per delivery
besides, and nothing is done when one is settled: a channel is woken about once per timeout while its client is in time.

A delivery lapses a little late rather than early: at most by a 64th of the timeout, unless the channel has very many
unsettled deliveries. The time is the wall clock's, as for all that expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock import limits
from penstock.broker.definitions.arguments import timeout_fault
from penstock.errors import precondition_failed
from penstock.fields import Table
from penstock.queues.leaving.expiry import Expiring
from penstock.queues.queue import Queue
from penstock.server.settling.transaction import REQUEUE

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel

TIMEOUT_ARGUMENT: Final = "x-consumer-timeout"
# A channel is not woken more often than so many times in one timeout.
WAKES_PER_TIMEOUT: Final = 64
# Nor so often that looking, at about a microsecond for each stretch, takes more than some percent of the time.
STRETCHES_PER_MS: Final = 10


class AckTimeouts(Expiring):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._clock = channel.connection.broker.clock
        self._expiries = channel.connection.broker.expiries
        self._shortest_ms = limits.EXPIRATION_MS_MAX

    def due_ms(self, timeout_ms: int) -> int:
        """When a delivery that is made now lapses. The channel is woken then."""
        due_ms = self._clock.wall_ms() + timeout_ms
        self._shortest_ms = min(self._shortest_ms, timeout_ms)
        self._expiries.arm(self, due_ms)
        return due_ms

    def expire_due(self, now_ms: int) -> None:
        channel = self._channel
        unacked = channel.unacked
        channel.settle_many(unacked.lapse(now_ms, limits.LAPSE_AT_ONCE), REQUEUE)
        next_ms = unacked.next_due_ms()
        if 0 <= next_ms <= now_ms:
            # There are more than a turn has time for.
            self._expiries.arm(self, now_ms + 1)
        elif next_ms >= 0:
            pause_ms = max(self._shortest_ms // WAKES_PER_TIMEOUT, unacked.stretch_count() // STRETCHES_PER_MS)
            self._expiries.arm(self, max(next_ms, now_ms + pause_ms))
        elif channel.transaction is not None:
            # A rollback makes deliveries unsettled again without telling this object.
            self._expiries.arm(self, now_ms + self._shortest_ms)

    def close(self) -> None:
        self._expiries.disarm(self)


def queue_timeout_ms(queue: Queue) -> int:
    """Return the timeout of a queue's deliveries; 0 = none."""
    field = queue.effective_arguments.get(TIMEOUT_ARGUMENT)
    # It was checked when the queue was declared, unless an older version did that.
    if field is None or timeout_fault(field):
        return 0
    assert isinstance(field[1], int)
    return field[1]


def consumer_timeout_ms(arguments: Table, queue: Queue) -> int:
    """Return the timeout of a consumer's deliveries: its own, or else that of its queue; 0 = none."""
    field = arguments.get(TIMEOUT_ARGUMENT)
    if field is None:
        return queue_timeout_ms(queue)
    fault = timeout_fault(field)
    if fault:
        raise precondition_failed(f"invalid arg '{TIMEOUT_ARGUMENT}' for {queue.describe()}: {fault}")
    assert isinstance(field[1], int)
    return field[1]
