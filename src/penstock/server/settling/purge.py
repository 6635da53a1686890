"""A queue.purge under way, in slices: it is answered behind the last one, with the count of all.

The queue hands out nothing meanwhile, and methods that ask about it wait. A queue that is deleted meanwhile (its owner
is gone, its last consumer has left) takes the rest along. A broker that stops finishes the purge. After a crash the
messages of batches that were not synced are there again, as after any purge.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock import limits
from penstock.call_all import call_all
from penstock.errors import not_found
from penstock.queues.purging import Purging
from penstock.queues.queue import Queue
from penstock.server.settling.sliced import Sliced
from penstock.wire import methods

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel


class Purge(Sliced):
    def __init__(self, channel: Channel, queue: Queue, purging: Purging, answer: Callable[[int], None]) -> None:
        super().__init__()
        self._channel = channel
        self._connection = channel.connection
        self._queue = queue
        self._purging = purging
        self._answer = answer
        self._purged = 0
        self._is_over = False
        self._is_failed = False
        self._is_begun = False
        self._is_ended = False

    def is_over(self) -> bool:
        return self._is_over

    def begin(self) -> None:
        self._is_begun = True
        self._queue.settling_begun(self, True)
        self._connection.settling_begun()

    def leave(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._purged += self._queue.ready_count()
        self.end()

    def end(self) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        calls: list[Callable[[], None]] = []
        if not self._is_failed and not self._connection.closing and not self._channel.closing:
            calls.append(self._crashed if self._queue.crashed else partial(self._answer, self._purged))
        if self._is_begun:
            self._is_begun = False
            calls.append(partial(self._queue.settling_over, self, True))
            calls.append(self._connection.settling_over)
        call_all([*calls, *self.take_calls()])

    def do_next(self) -> int:
        try:
            purged = self._purging.purge_some(limits.PURGE_AT_ONCE)
            self._purged += purged
            self._is_over = purged == 0
        except Exception as error:
            # As where a purge at once meets it. What is gone is gone.
            self._is_over = self._is_failed = True
            self._connection.failed_with(error)
        return 0

    def _crashed(self) -> None:
        error = not_found(f"{self._queue.describe()} has crashed and failed to restart")
        self._connection.close_channel(self._channel, error, methods.QueuePurge.INDEX)
