"""One change of a queue in place, from its plan to its end.

Where the backing stays, one record of the journal has the new definition, and the features of the queue change with it.
Where it does not, the messages are moved first, some in each turn (`queue_move`), and the record comes behind them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.backing.backing_queue import BackingQueue
from penstock.backing.renumbered import GENERATIONS_MAX, RenumberedBackingQueue
from penstock.broker.migration.queue_move import AT_ONCE, QueueMove
from penstock.broker.migration.redefinition import Redefinition
from penstock.broker.operations.call_errors import BadRequest, CallError
from penstock.broker.vhost.vhost import Migrating
from penstock.message import settle_all
from penstock.queues.delayed.next_turn import NextTurn

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost
    from penstock.queues.leaving.expiry import ExpirySchedule
    from penstock.queues.queue import Queue

# Called at the end, with why it came to nothing, or None.
Ended = Callable[[CallError | None], None]


def redefine(vhost: VHost, queue: Queue, wanted: Redefinition) -> None:
    """Change a queue that keeps its backing."""
    before = queue.arguments
    queue.arguments, queue.auto_delete = wanted.arguments, wanted.auto_delete
    vhost.redefined(queue, before, False)


class Migration(Migrating):
    """Changes a queue that needs another backing."""

    def __init__(
        self,
        vhost: VHost,
        queue: Queue,
        wanted: Redefinition,
        expiries: ExpirySchedule,
        ended: Ended,
        at_once: int = AT_ONCE,
    ) -> None:
        if queue in vhost.migrations:
            raise BadRequest(f"{queue.describe()} is being migrated already: wait for its end")
        present = queue.backing
        if isinstance(present, RenumberedBackingQueue) and present.generation == GENERATIONS_MAX:
            raise BadRequest(f"{queue.describe()} was migrated {GENERATIONS_MAX} times: restart the broker first")
        self._vhost = vhost
        self._queue = queue
        self._wanted = wanted
        self._ended = ended
        self._at_once = at_once
        self._is_flipped = False
        self._queue_id = secrets.token_hex(16)
        while queue.settling:
            queue.settling[0].finish()
        target, self._callback = vhost.open_move(queue, self._queue_id, wanted.arguments)
        self.move = QueueMove(queue, target, self._flip)
        self._remaining = self.move.remaining()
        self._later = NextTurn(self._go_on, expiries)
        vhost.migrations[queue] = self
        self.move.when_over(self._over)
        self._go_on(vhost.clock.wall_ms())

    def _go_on(self, now_ms: int) -> None:
        try:
            self.move.move_some(self._at_once)
        except OSError as error:
            self._end(CallError(f"{self._queue.describe()} stays as it was: its messages cannot be read now: {error}"))
            return
        if not self.move.is_over:
            if self.move.remaining() >= self._remaining:
                # Publishers are faster: it has to end all the same.
                self._at_once *= 2
            self._remaining = self.move.remaining()
            self._later.soon(now_ms)

    def give_up(self) -> None:
        self.move.give_up()

    def _flip(self, backing: BackingQueue) -> None:
        """Everything was moved: the queue has the new backing, and the new definition is recorded."""
        queue, wanted = self._queue, self._wanted
        former, before = queue.backing, queue.arguments
        if queue.way_back is not None:
            queue.way_back()
        self._callback.lead_to(queue)
        queue.queue_id = self._queue_id
        queue.arguments, queue.auto_delete = wanted.arguments, wanted.auto_delete
        _give_backing(queue, backing)
        backing.set_takers(queue.is_wanted)
        self._vhost.redefined(queue, before, True)
        self._is_flipped = True

        def drop_former(is_durable: bool) -> None:
            # If the disk has failed the broker ends, and the next start finds what is there.
            if is_durable:
                former.delete_and_terminate()
                # What it still owed to publishers is safe in the new one.
                settle_all(former.drain_confirmed())

        if queue.durable and self._vhost.log is not None:
            self._vhost.log.when_durable(drop_former)
        else:
            drop_former(True)

    def _over(self) -> None:
        if self._is_flipped:
            self._end(None)
        else:
            self._end(CallError(f"{self._queue.describe()} was not migrated: it was deleted, or the broker stops"))

    def _end(self, error: CallError | None) -> None:
        if self._vhost.migrations.pop(self._queue, None) is None:
            return
        self._later.stop()
        self._ended(error)


def _give_backing(queue: Queue, backing: BackingQueue) -> None:
    """Have a queue go on with a backing that holds what the former one held. The features are set anew afterwards."""
    former = queue.backing
    queue.backing = backing
    queue.expiry.moved(backing, queue.has_priorities)
    queue.selection = None
    queue.leaving.moved()
    if queue.returns is not None:
        queue.returns.moved(backing)
    if queue.marks is not None:
        queue.marks.moved(backing)
    for consumer in queue.consumers.consumers():
        consumer.left(former)
        consumer.joined(backing)
        # Positions are others: a browser begins anew.
        consumer.browse_seq_id = 0
        consumer.browse_page.clear()
