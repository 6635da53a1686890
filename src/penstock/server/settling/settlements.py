"""Settling in slices: one act of a client may settle any number of deliveries, one turn of the loop only some.

An ack, nack or recover of many, a closed channel, a lost connection: the first slice is settled at once, the rest in
turns of its own, a few milliseconds each, several settlements one after the other; so are commits, rollbacks and purges
(`commit`, `rollback`, `purge`). Clients see no difference but the time that it takes:

  1. The connection that asked for it is not parsed until it is over, so that what it sent behind it happens after it.
  2. A queue to which messages come back hands out nothing meanwhile: they come before those that stood behind them.
  3. Methods that ask about a queue, or end it, wait (`when_settled`); anything else that ends it finishes the
     settlement first.
  4. A broker that stops finishes all of them. After a crash the rest is ready again, as everything that was delivered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.call_all import call_all
from penstock.clock import Clock
from penstock.errors import AmqpError, ChannelException
from penstock.queues.queue import Queue
from penstock.server.channel.unacked import Unacked
from penstock.server.settling.sliced import Sliced
from penstock.server.settling.span_slices import SpanSlices
from penstock.server.settling.transaction import REQUEUE

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel
    from penstock.server.connection.connection import Connection

# Of a method that names a queue.
Handler = Callable[["Channel", Any], None]

# Why the connection is not parsed meanwhile.
SETTLING = "settling"
# Why another one is not, which asks about a queue.
WAITING = "waiting"


class Settlement(Sliced):
    """Deliveries that one client has settled together, or has left behind."""

    def __init__(self, connection: Connection, channel: Channel | None, spans: SpanSlices) -> None:
        """Without a channel they were left behind: they go back, and no credit is counted."""
        super().__init__()
        self._connection = connection
        self._channel = channel
        self._spans = spans
        self._how = spans.how
        self._queues: list[Queue] = []

    def is_over(self) -> bool:
        return self._spans.is_over()

    def begin(self) -> None:
        self._queues = list(self._spans.queues())
        for queue in self._queues:
            queue.settling_begun(self, self._how == REQUEUE)
        self._connection.settling_begun()

    def end(self) -> None:
        queues, self._queues = self._queues, []
        if not queues:
            return
        returns = self._how == REQUEUE
        over = [partial(queue.settling_over, self, returns) for queue in queues]
        call_all([*over, self._connection.settling_over, *self.take_calls()])

    def do_next(self) -> int:
        if self._spans.restore_undone():
            return limits.SETTLE_AT_ONCE
        run, first_seq_id, count = span = self._spans.take()
        try:
            if self._channel is None:
                run.queue.requeue(range(first_seq_id, first_seq_id + count), lost=True)
            else:
                self._channel.settle_slice([span], self._how)
        except Exception:
            # The rest of its deliveries go back like all others that it had.
            self._give_up()
        return count

    def _give_up(self) -> None:
        if self._how != REQUEUE:
            # Those queues have not held anything back so far.
            self._how = self._spans.how = REQUEUE
            for queue in self._queues:
                queue.settling_over(self, False)
                queue.settling_begun(self, True)
        self._channel = None
        self._connection.failed()


class Settlements:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._waiting: deque[Sliced] = deque()

    def settle(self, channel: Channel, spans: SpanSlices) -> None:
        self.begin(Settlement(channel.connection, channel, spans))

    def give_back(self, connection: Connection, left: Sequence[Unacked | None]) -> None:
        """Requeue what a client has left behind, channel by channel."""
        spans = SpanSlices([], REQUEUE, [unacked for unacked in left if unacked is not None and not unacked.is_empty()])
        if not spans.is_over():
            self.begin(Settlement(connection, None, spans))

    def begin(self, settlement: Sliced) -> None:
        """Do the first slice now, and the others in turns to come."""
        settlement.do_some(self._clock)
        if settlement.is_over():
            settlement.end()
            return
        settlement.begin()
        if not self._waiting:
            self._loop.call_soon(self._turn)
        self._waiting.append(settlement)

    def _turn(self) -> None:
        if not self._waiting:
            return
        settlement = self._waiting.popleft()
        settlement.do_some(self._clock)
        if not settlement.is_over():
            self._waiting.append(settlement)
        if self._waiting:
            self._loop.call_soon(self._turn)
        if settlement.is_over():
            settlement.end()

    def finish(self) -> None:
        """The broker stops: everything is settled now."""
        waiting = list(self._waiting)
        self._waiting.clear()
        call_all([settlement.finish for settlement in waiting])

    def abandon(self) -> None:
        """Leave them as a crash would."""
        self._waiting.clear()


def when_settled(handler: Handler) -> Handler:
    """Handles a method on a queue when nothing that was settled there before is still to be done; mostly at once."""

    def handle(channel: Channel, method: Any) -> None:
        queue = channel.connection.vhost.queues.get(method.queue or channel.current_queue)
        if queue is None or not queue.settling:
            handler(channel, method)
            return
        channel.connection.stop_parsing(WAITING)
        queue.settling[0].when_over(lambda: _go_on(handle, channel, method))

    return handle


def _go_on(handle: Handler, channel: Channel, method: Any) -> None:
    """What the method waited for is over; there may be more of it."""
    connection = channel.connection
    if connection.closing:
        return
    connection.resume_parsing(WAITING)
    try:
        if not channel.closing:
            handle(channel, method)
    except ChannelException as error:
        connection.close_channel(channel, error, method.INDEX)
    except AmqpError as error:
        connection.close_with(error, method.INDEX)
    except Exception:
        connection.failed()
