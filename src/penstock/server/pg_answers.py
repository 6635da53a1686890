"""Methods on queues in PostgreSQL whose answer has to wait for the database.

Meanwhile nothing more of the connection is parsed, as with an answer that waits for the disk. Each wait has its end:
the door answers also when the link is lost, and a timer ends what takes too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import limits
from penstock.backing.postgres import PgBackingQueue
from penstock.errors import AmqpError, ChannelException
from penstock.queues.queue import Queue
from penstock.server.awaited_answer import DISK

if TYPE_CHECKING:
    from penstock.server.channel import Channel


class PgWait:
    """Goes on with a method when the database has answered."""

    def __init__(self, channel: Channel, index: int, go_on: Callable[[], None]) -> None:
        """`index` is the method's, for the error that it may end with."""
        self._channel = channel
        self._index = index
        self._go_on = go_on
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, bound_s: float, wait: Callable[[Callable[[], None]], None]) -> None:
        """`wait` is given what to call; that may be at once."""
        wait(self._over)
        if not self._is_over:
            connection = self._channel.connection
            connection.stop_parsing(DISK)
            self._timer = connection.server.loop.call_later(bound_s, self._over)

    def _over(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer is None:
            # At once, within the method itself: errors are handled where those of methods are.
            self._go_on()
            return
        self._timer.cancel()
        connection = self._channel.connection
        if connection.closing:
            return
        # First: going on may mean to wait for something else.
        connection.resume_parsing(DISK)
        try:
            if not self._channel.closing:
                self._go_on()
        except ChannelException as error:
            connection.close_channel(self._channel, error, self._index)
        except AmqpError as error:
            connection.close_with(error, self._index)
        except Exception:
            connection.failed()


def when_quiet(channel: Channel, index: int, queue: Queue | None, go_on: Callable[[], None]) -> None:
    """Go on when the database has answered to all that the queue has asked of it; at once for any other queue."""
    backing = None if queue is None else queue.backing
    if isinstance(backing, PgBackingQueue):
        PgWait(channel, index, go_on).begin(limits.PG_DIRECT_S, backing.when_quiet)
    else:
        go_on()


def when_purged(channel: Channel, index: int, queue: Queue | None, go_on: Callable[[], None]) -> None:
    """Like `when_quiet`, and a long queue is empty by then."""
    backing = None if queue is None else queue.backing
    if isinstance(backing, PgBackingQueue):
        purge = backing.purge_first
        when_quiet(channel, index, queue, lambda: PgWait(channel, index, go_on).begin(limits.PG_PURGE_S, purge))
    else:
        go_on()


def when_looked(channel: Channel, index: int, queue: Queue, go_on: Callable[[], None]) -> bool:
    """Have one message fetched, then go on. False when this is not a queue in PostgreSQL, or it gives nothing now."""
    backing = queue.backing
    if not isinstance(backing, PgBackingQueue) or queue.paused:
        return False
    PgWait(channel, index, go_on).begin(limits.PG_GET_S, backing.ask_once)
    return True
